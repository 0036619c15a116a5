"""Which of how many processes this is; real ones are in the tests of the examples."""

from __future__ import annotations

import json
import os
import sys
import types
from typing import Any

import pytest

import yogadl.distributed
from yogadl.distributed import Place, find, shard
from yogadl.errors import RankError

LAUNCHERS = ("SLURM_", "OMPI_", "PMI_", "MV2_")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name in ("TF_CONFIG", "RANK", "WORLD_SIZE") or name.startswith(LAUNCHERS):
            monkeypatch.delenv(name)
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
    with pytest.raises(RankError, match="RANK='2' is set, and WORLD_SIZE is not"):
        find()
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert find() == Place(2, 3)
    monkeypatch.setenv("RANK", "3")
    with pytest.raises(RankError, match="rank 3 of 3"):
        find()
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(RankError, match="are no numbers"):
        find()


@pytest.mark.parametrize(
    ("name", "value", "other"),
    [
        ("WORLD_SIZE", "2", "RANK"),
        ("OMPI_COMM_WORLD_SIZE", "3", "OMPI_COMM_WORLD_RANK"),
        ("PMI_RANK", "1", "PMI_SIZE"),
    ],
)
def test_half_of_two_variables(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, other: str
) -> None:
    monkeypatch.setenv(name, "0" if name.endswith("RANK") else "1")
    assert find() == Place(0, 1)
    monkeypatch.setenv(name, value)
    with pytest.raises(RankError, match=f"{name}='{value}' is set, and {other} is not"):
        find()
    # As scripts for srun have it.
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    assert find() == Place(1, 2)


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


@pytest.mark.parametrize(
    ("rank", "size"),
    [
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ],
)
def test_launchers(monkeypatch: pytest.MonkeyPatch, rank: str, size: str) -> None:
    monkeypatch.setenv(rank, "0")
    assert find() == (0, 1)
    monkeypatch.setenv(size, "4")
    assert find() == (0, 4)
    monkeypatch.setenv(rank, "3")
    assert find() == (3, 4)
    # What they start may start others, and knows better.
    monkeypatch.setenv("RANK", "25")
    monkeypatch.setenv("WORLD_SIZE", "32")
    assert find() == (25, 32)
    monkeypatch.delenv("RANK")
    monkeypatch.setenv(rank, "4")
    with pytest.raises(RankError, match="rank 4 of 4"):
        find()


def test_slurm_with_an_mpi_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SLURM_PROCID", 1), ("SLURM_STEP_NUM_TASKS", 2), ("PMI_RANK", 1)):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("PMI_SIZE", "2")
    assert find() == (1, 2)
    monkeypatch.setenv("PMI_RANK", "0")
    with pytest.raises(RankError, match="srun says rank 1 of 2, PMI_RANK says rank 0 of 2"):
        find()


def test_slurm_without_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert find() == (0, 1)
    monkeypatch.setenv("SLURM_NTASKS", "4")
    with pytest.raises(RankError, match=r"room for 4 tasks.*start it with srun"):
        find()
    monkeypatch.setenv("SLURM_PROCID", "2")
    assert find() == (2, 4)
