"""Which of how many processes this is; real ones are in the tests of the examples."""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import pytest

import yogadl.distributed
from yogadl.distributed import Place, find, shard
from yogadl.errors import RankError


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TF_CONFIG", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name in list(sys.modules):
        if name.startswith("horovod") or name in ("torch.distributed", "jax"):
            monkeypatch.delitem(sys.modules, name)


def tf_config(kind: str, index: int, **cluster: int) -> str:
    hosts = {name: [f"host{at}:1" for at in range(size)] for name, size in cluster.items()}
    return json.dumps({"cluster": hosts, "task": {"type": kind, "index": index}})


def test_alone() -> None:
    assert find() == Place(0, 1)
    assert shard() == {"shard_rank": 0, "num_shards": 1}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (tf_config("worker", 1, worker=3), (1, 3)),
        (tf_config("chief", 0, chief=1, worker=2), (0, 3)),
        (tf_config("worker", 1, chief=1, worker=2), (2, 3)),
        (tf_config("worker", 0, worker=2, ps=4, evaluator=1), (0, 2)),
    ],
)
def test_tf_config(monkeypatch: pytest.MonkeyPatch, config: str, expected: tuple[int, int]) -> None:
    monkeypatch.setenv("TF_CONFIG", config)
    assert find() == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "names no cluster"),
        ("[]", "names no cluster"),
        ("{}", "names no cluster"),
        (tf_config("evaluator", 0, worker=2), "a 'evaluator', which trains on no shard"),
        (tf_config("worker", 2, worker=2), "rank 2 of 2"),
    ],
)
def test_impossible_tf_config(monkeypatch: pytest.MonkeyPatch, config: str, message: str) -> None:
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(RankError, match=message):
        find()


def test_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    assert find() == Place(0, 1), "both are needed"
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert find() == Place(2, 3)
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(RankError, match="rank 3 of 3"):
        find()
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(RankError, match="are no numbers"):
        find()


def running(rank: int, size: int, is_initialized: bool = True) -> Any:
    """What Horovod's modules and torch.distributed have in common."""
    module = types.SimpleNamespace()
    module.is_available = lambda: True
    module.is_initialized = lambda: is_initialized
    module.rank = module.get_rank = lambda: rank
    module.size = module.get_world_size = lambda: size
    return module


def test_what_runs_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setitem(sys.modules, "horovod.torch", running(1, 4, is_initialized=False))
    assert find() == Place(0, 2)
    monkeypatch.setitem(sys.modules, "horovod.torch", running(1, 4))
    assert find() == Place(1, 4)
    monkeypatch.setitem(sys.modules, "torch.distributed", running(1, 4))
    assert find() == Place(1, 4)


def test_contradictions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", running(1, 4))
    monkeypatch.setitem(sys.modules, "torch.distributed", running(1, 3))
    with pytest.raises(RankError, match=r"Horovod says rank 1 of 4, torch\.distributed says rank"):
        find()
    monkeypatch.delitem(sys.modules, "torch.distributed")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert yogadl.distributed.find() == Place(1, 4)


def test_the_environment_may_contradict_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("TF_CONFIG", tf_config("worker", 1, worker=2))
    with pytest.raises(RankError, match="give shard_rank="):
        find()
