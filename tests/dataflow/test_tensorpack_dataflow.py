"""Streams as TensorPack data flows."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import pickle
import subprocess
import sys
from typing import Any

import augmented
import numpy as np
import pytest

import yogadl
from yogadl import errors
from yogadl import spec as specs
from yogadl.dataref import IndexedDataRef
from yogadl.storage import LFSConfigurations, LFSStorage

flows = pytest.importorskip("tensorpack.dataflow")

from yogadl.tensorpack import StreamDataFlow  # noqa: E402


def store(directory: pathlib.Path, records: Any, spec: Any = None) -> IndexedDataRef:
    storage = LFSStorage(LFSConfigurations(str(directory)))
    storage.submit(records, "data", "1.0", spec=spec)
    return storage.fetch("data", "1.0")


@pytest.fixture
def dataref(storage_dir: pathlib.Path) -> IndexedDataRef:
    return store(storage_dir, [(np.full(2, i), np.int64(i)) for i in range(10)])


def labels(points: Any) -> list[Any]:
    return [np.asarray(point[1]).tolist() for point in points]


def test_every_iteration_is_the_next_epoch(dataref: IndexedDataRef) -> None:
    arguments = {"shuffle": True, "shuffle_seed": 3, "start_offset": 4}
    plain, flow = dataref.stream(**arguments), StreamDataFlow(dataref.stream(**arguments))
    assert isinstance(flow, flows.DataFlow)
    flow.reset_state()
    assert flow.size() == len(flow) == 10
    for _ in range(3):
        points = list(flow)
        assert all(type(point) is list and len(point) == 2 for point in points)
        assert labels(points) == labels(plain)
    assert labels(flow.get_data()) == labels(plain)


def test_resetting_moves_nothing(dataref: IndexedDataRef) -> None:
    plain = dataref.stream(shuffle=True, shuffle_seed=3)
    flow = StreamDataFlow(dataref.stream(shuffle=True, shuffle_seed=3))
    for _ in range(2):
        flow.reset_state()
        assert labels(flow) == labels(plain)
    dataref.close()
    with pytest.raises(errors.ClosedError):
        flow.reset_state()


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"x": 1, "y": 2}, {"x": 1, "y": 2}),
        (5, [5]),
        ((1, (2, 3), {"a": 4}), [1, 2, 3, {"a": 4}]),
        ((b"text", None), [b"text", None]),
    ],
)
def test_datapoints(storage_dir: pathlib.Path, record: Any, expected: Any) -> None:
    assert list(StreamDataFlow(store(storage_dir, [record]).stream())) == [expected]


def test_a_ragged_array_is_one_component(storage_dir: pathlib.Path) -> None:
    ragged = specs.Ragged(np.arange(3), (np.array([0, 1, 3]),))
    ((found, label),) = StreamDataFlow(store(storage_dir, [(ragged, 1)]).stream())
    assert isinstance(found, specs.Ragged)
    assert found.flat_values.tolist() == [0, 1, 2]
    assert label == 1


def test_any_stream() -> None:
    flow = StreamDataFlow(yogadl.Stream(lambda: iter([(1, 2), (3, 4)]), 2))
    flow.reset_state()
    assert (list(flow), len(flow)) == ([[1, 2], [3, 4]], 2)
    with pytest.raises(errors.InvalidArgumentError, match="not a list"):
        StreamDataFlow([1])  # type: ignore[arg-type]


def test_in_batches(dataref: IndexedDataRef, tmp_path: pathlib.Path) -> None:
    flow = flows.BatchData(StreamDataFlow(dataref.stream()), 4, remainder=True)
    flow.reset_state()
    assert len(flow) == 3
    for _ in range(2):
        batches = list(flow)
        assert [batch[0].shape for batch in batches] == [(4, 2), (4, 2), (2, 2)]
        assert list(itertools.chain(*labels(batches))) == list(range(10))
    dicts = store(tmp_path, [{"x": np.full(2, i, "f4")} for i in range(4)])
    flow = flows.BatchData(StreamDataFlow(dicts.stream()), 2)
    flow.reset_state()
    assert [batch["x"].shape for batch in flow] == [(2, 2)] * 2


def test_pickled(dataref: IndexedDataRef) -> None:
    plain = dataref.stream(shuffle=True, shuffle_seed=3)
    flow = StreamDataFlow(dataref.stream(shuffle=True, shuffle_seed=3))
    assert labels(flow) == labels(plain)
    copy = pickle.loads(pickle.dumps(flow))
    copy.reset_state()
    assert labels(copy) == labels(flow) == labels(plain)


# TensorPack forks, which a process of pytest with other frameworks' threads is no place for. The
# program must also end by itself. With TensorPack alone it does not after `PrefetchDataZMQ`, with
# any flow: multiprocessing, which it only imports in part, asks for its turn at exit when it starts
# the process, after TensorPack has. So it comes first, and waits for a process that TensorPack
# would end next. `yogadl.tensorpack` has multiprocessing ask earlier.
RUNNERS = """
import json
import sys
import tensorpack.dataflow as flows
import yogadl.storage
from yogadl.tensorpack import StreamDataFlow

storage = yogadl.storage.LFSStorage(yogadl.storage.LFSConfigurations(sys.argv[1]))
dataref = storage.fetch("data", "1.0")
flow = StreamDataFlow(dataref.stream(shuffle=True, shuffle_seed=3))
runner = getattr(flows, sys.argv[2])(flow, **json.loads(sys.argv[3]))
runner.reset_state()
assert len(runner) == 10
plain = dataref.stream(shuffle=True, shuffle_seed=3)
for _ in range(2):
    assert [int(label) for _, label in runner] == [int(label) for _, label in plain]
print("done", flush=True)
"""


@pytest.mark.parametrize(
    ("name", "module", "arguments"),
    [
        ("MultiProcessRunner", "multiprocessing", {"num_prefetch": 4, "num_proc": 1}),
        ("PrefetchDataZMQ", "zmq", {"num_proc": 1}),
    ],
)
def test_in_another_process(
    dataref: IndexedDataRef,
    storage_dir: pathlib.Path,
    name: str,
    module: str,
    arguments: dict[str, int],
) -> None:
    pytest.importorskip(module)
    root = str(pathlib.Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", RUNNERS, str(storage_dir), name, json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "done" in done.stdout.splitlines()


def test_a_seeded_transform(storage_dir: pathlib.Path) -> None:
    dataref = augmented.write(storage_dir / "cache.mdb")
    order = {"shuffle": True, "shuffle_seed": 3}
    whole, epoch = dataref.stream(**order), []
    for offset in (0, 9):
        stream = dataref.stream(**order, start_offset=offset)
        flow = StreamDataFlow(stream.map(augmented.of_records()))
        flow.reset_state()
        epoch = epoch or [int(record["n"]) for record in whole]
        assert augmented.check(0, flow) == epoch[offset:]
