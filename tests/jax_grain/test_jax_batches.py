"""Streams as batches of ``jax.Array``, and their position."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from yogadl import dtypes, errors
from yogadl import spec as specs
from yogadl.dataref import IndexedDataRef
from yogadl.storage import LFSConfigurations, LFSStorage

jax = pytest.importorskip("jax")

from yogadl.jax import Batches  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]


def store(directory: pathlib.Path, records: Any, spec: Any = None) -> IndexedDataRef:
    storage = LFSStorage(LFSConfigurations(str(directory)))
    storage.submit(records, "data", "1.0", spec=spec)
    return storage.fetch("data", "1.0")


def numbers(directory: pathlib.Path, count: int = 23) -> IndexedDataRef:
    records = [{"x": np.full(3, i, "f4"), "y": (np.int32(i), np.uint8(i))} for i in range(count)]
    return store(directory, records)


def labels(batch: Any) -> list[int]:
    assert np.asarray(batch["x"])[:, 0].tolist() == np.asarray(batch["y"][0]).tolist()
    return np.asarray(batch["y"][0]).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("prefetch", [0, 1, 3, 50])
@pytest.mark.parametrize("drop", [False, True])
def test_the_batches_of_the_stream(storage_dir: pathlib.Path, prefetch: int, drop: bool) -> None:
    dataref = numbers(storage_dir)
    order = {"shuffle": True, "shuffle_seed": 3, "start_offset": 30}
    plain = dataref.stream(**order).batches(4, drop_remainder=drop)
    batches = Batches(dataref.stream(**order), 4, drop_remainder=drop, prefetch=prefetch)
    assert len(batches) == len(plain) == (5 if drop else 6)
    for _ in range(3):
        expected, found = list(plain), list(batches)
        assert len(expected) == len(found)
        for one, two in zip(expected, found, strict=True):
            assert isinstance(two["x"], jax.Array)
            assert isinstance(two["y"], tuple)
            assert jax.tree.map(lambda leaf: leaf.dtype, one) == jax.tree.map(
                lambda leaf: leaf.dtype, two
            )
            assert labels(one) == labels(two)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_resumes_after_every_batch(
    storage_dir: pathlib.Path, prefetch: int, drop: bool, together: bool
) -> None:
    dataref = numbers(storage_dir, 11)

    def begin() -> Batches:
        stream = dataref.stream(
            shuffle=True,
            shuffle_seed=5,
            shard_rank=1,
            num_shards=2,
            drop_shard_remainder=True,
            shuffle_then_shard=together,
        )
        return Batches(stream, 2, drop_remainder=drop, prefetch=prefetch)

    def take(batches: Batches, count: int) -> list[list[int]]:
        found: list[list[int]] = []
        while len(found) < count:
            for batch in batches:
                found.append(labels(batch))
                if len(found) == count:
                    break
        return found

    whole = take(begin(), 8)
    for stop in range(8):
        batches = begin()
        assert take(batches, stop) == whole[:stop]
        state = json.loads(json.dumps(batches.state_dict()))
        resumed = begin()
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert take(resumed, 8 - stop) == whole[stop:]
        # The state is one of streams, too.
        (first, *_) = Batches(
            dataref.stream(
                state=state,
                shard_rank=1,
                num_shards=2,
                shuffle=True,
                shuffle_seed=5,
                drop_shard_remainder=True,
                shuffle_then_shard=together,
            ),
            2,
            drop_remainder=drop,
        )
        assert labels(first) == take(begin(), stop + 1)[-1]


def test_an_abandoned_epoch_and_one_read_to_its_end(storage_dir: pathlib.Path) -> None:
    batches = Batches(numbers(storage_dir).stream(), 4)
    assert batches.state_dict()["epoch"] == 0
    epoch = iter(batches)
    assert (batches.state_dict()["epoch"], batches.state_dict()["offset"]) == (0, 0)
    next(epoch)
    assert (batches.state_dict()["epoch"], batches.state_dict()["offset"]) == (0, 4)
    assert len(list(epoch)) == 4
    # Three records are left, which are no batch.
    assert (batches.state_dict()["epoch"], batches.state_dict()["offset"]) == (1, 0)
    other = iter(batches)
    next(other)
    list(epoch)
    assert (batches.state_dict()["epoch"], batches.state_dict()["offset"]) == (1, 4)


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_epochs_without_batches_count(
    storage_dir: pathlib.Path, count: int, together: bool, drop: bool
) -> None:
    """A process that has no records is done when the others are."""
    dataref = numbers(storage_dir, count)

    def begin() -> Batches:
        stream = dataref.stream(shard_rank=2, num_shards=3, shuffle_then_shard=together)
        return Batches(stream, 2, drop_remainder=drop)

    batches = begin()
    for epoch in range(4):
        state = batches.state_dict()
        assert (state["epoch"], state["offset"]) == (epoch, 0)
        if epoch == 2:
            batches = begin()
            batches.load_state_dict(state)
            assert batches.state_dict() == state
        assert list(batches) == []


def test_states_of_others_are_refused(storage_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    dataref = numbers(storage_dir)
    batches = Batches(dataref.stream(), 4)
    shuffled = Batches(dataref.stream(shuffle=True, shuffle_seed=1), 4)
    with pytest.raises(errors.StateMismatchError, match="shuffle=True is now False"):
        batches.load_state_dict(shuffled.state_dict())
    (tmp_path / "other").mkdir()
    other = Batches(numbers(tmp_path / "other", 22).stream(), 4)
    with pytest.raises(errors.StateMismatchError, match="another data set"):
        batches.load_state_dict(other.state_dict())
    with pytest.raises(errors.InvalidArgumentError, match="state_dict"):
        batches.load_state_dict({})
    dataref.close()
    with pytest.raises(errors.ClosedError):
        batches.state_dict()


def test_batches_are_never_overwritten(storage_dir: pathlib.Path) -> None:
    # Rows of 64 KiB, which the CPU back end may take over without a copy.
    dataref = store(storage_dir, [np.full(16384, i, "f4") for i in range(40)])
    batches = Batches(dataref.stream(), 4)
    kept = [batch for _ in range(3) for batch in batches]
    for number, batch in enumerate(kept):
        rows = np.asarray(batch)
        assert (rows == (np.arange(4) + 4 * (number % 10))[:, None]).all()


def test_an_orbax_checkpoint(storage_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    orbax = pytest.importorskip("orbax.checkpoint")
    dataref = numbers(storage_dir)

    def begin() -> Batches:
        return Batches(dataref.stream(shuffle=True, shuffle_seed=9), 4)

    batches = begin()
    epoch = iter(batches)
    next(epoch)
    next(epoch)
    with orbax.CheckpointManager(tmp_path / "orbax") as manager:
        manager.save(
            2,
            args=orbax.args.Composite(
                data=orbax.args.JsonSave(batches.state_dict()),
                weights=orbax.args.StandardSave({"w": jax.numpy.arange(3)}),
            ),
        )
        manager.wait_until_finished()
    rest = list(map(labels, epoch))
    resumed = begin()
    with orbax.CheckpointManager(tmp_path / "orbax") as manager:
        found = manager.restore(2, args=orbax.args.Composite(data=orbax.args.JsonRestore()))
    resumed.load_state_dict(found["data"])
    assert list(map(labels, resumed)) == rest
    assert list(map(labels, resumed)) == list(map(labels, batches))


# Dtypes


def _is_held(name: str) -> bool:
    return name != dtypes.STRING and not name.startswith("float6_")


@pytest.mark.parametrize("name", sorted(filter(_is_held, dtypes.NAMES)))
def test_every_dtype_that_jax_has(storage_dir: pathlib.Path, name: str) -> None:
    dtype = dtypes.to_numpy(name)
    values = np.array([[0, 1], [1, 0], [1, 1]], "u1").astype(dtype)
    spec = specs.TensorSpec(name, (2,))
    (batch,) = Batches(store(storage_dir, list(values), spec).stream(), 3)
    expected = {"int64": "int32", "uint64": "uint32", "float64": "float32"}
    expected["complex128"] = "complex64"
    assert batch.dtype == np.dtype(expected.get(name, dtype))
    assert np.asarray(batch).tobytes() == values.astype(batch.dtype).tobytes()


def test_64_bits(storage_dir: pathlib.Path) -> None:
    dataref = store(storage_dir, [{"id": np.int64(2**40)}, {"id": np.int64(-1)}])
    batches = Batches(dataref.stream(), 2)
    with pytest.raises(errors.InvalidArgumentError, match=r"record\['id'\] has 1099511627776"):
        list(batches)
    with jax.enable_x64(True):
        (batch,) = batches
    assert batch["id"].dtype == np.int64
    assert np.asarray(batch["id"]).tolist() == [2**40, -1]


@pytest.mark.parametrize(
    ("leaf", "value", "message"),
    [
        (specs.TensorSpec("string"), b"a", "is a string"),
        (specs.TensorSpec("int32", (None,)), np.arange(2, dtype="i4"), "give pad="),
        (specs.TensorSpec("int32", None), np.arange(2, dtype="i4"), "give pad="),
        (specs.NoneSpec(), None, "is a NoneSpec"),
        (specs.OptionalSpec(specs.TensorSpec("int32")), None, "is a OptionalSpec"),
        (
            specs.RaggedSpec("int32", (1, None), 1),
            specs.Ragged(np.arange(2, dtype="i4"), (np.array([0, 2]),)),
            "is a RaggedSpec",
        ),
        (
            specs.SparseSpec("int32", (2,)),
            specs.Sparse(np.array([[0]]), np.array([1], "i4"), np.array([2])),
            "is a SparseSpec",
        ),
    ],
)
def test_what_jax_cannot_hold(
    storage_dir: pathlib.Path, leaf: Any, value: Any, message: str
) -> None:
    spec = {"good": specs.TensorSpec("int32"), "bad": (leaf,)}
    dataref = store(storage_dir, [{"good": np.int32(1), "bad": (value,)}], spec)
    with pytest.raises(errors.UnsupportedTypeError, match=r"record\['bad'\]\[0\].*") as caught:
        Batches(dataref.stream(), 1)
    assert message in str(caught.value)


def test_what_some_jax_can_hold(storage_dir: pathlib.Path) -> None:
    values = np.array([1.0, -0.5]).astype(dtypes.to_numpy("float6_e2m3fn"))
    spec = {"value": specs.TensorSpec("float6_e2m3fn")}
    stream = store(storage_dir, [{"value": value} for value in values], spec).stream()
    try:
        jax.device_put(values)
    except (TypeError, ValueError, jax.errors.JaxRuntimeError):  # as on CPUs, of 0.10
        with pytest.raises(errors.UnsupportedTypeError, match=r"float6_e2m3fn, which the inst"):
            Batches(stream, 2)
    else:  # as on GPUs, of 0.11
        (batch,) = Batches(stream, 2)
        assert np.asarray(batch["value"]).tobytes() == values.tobytes()


def test_padded(storage_dir: pathlib.Path) -> None:
    spec = {"tokens": specs.TensorSpec("int32", (None,)), "n": specs.TensorSpec("int32")}
    records = [{"tokens": np.arange(n, dtype="i4"), "n": n} for n in (2, 3, 1)]
    dataref = store(storage_dir, records, spec)
    (batch,) = Batches(dataref.stream(), 3, pad=-1)
    assert np.asarray(batch["tokens"]).tolist() == [[0, 1, -1], [0, 1, 2], [0, -1, -1]]
    with pytest.raises(errors.UnsupportedTypeError, match="give pad="):
        Batches(dataref.stream(), 3, pad={"tokens": None, "n": None})


def test_fewer_records_than_a_batch(
    storage_dir: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataref = numbers(storage_dir)
    for options, said in (((24, True), 1), ((24, False), 0), ((23, True), 0)):
        caplog.clear()
        batches = Batches(dataref.stream(), options[0], drop_remainder=options[1])
        assert caplog.text.count("no batches: an epoch has 23 records, fewer than") == said
        assert len(list(batches)) == 1 - said


def test_transforms_that_make_none(storage_dir: pathlib.Path) -> None:
    dataref = numbers(storage_dir)
    with pytest.raises(errors.InvalidArgumentError, match=r"takes a function.* not 3"):
        Batches(dataref.stream(), 4, transform=3)  # type: ignore[arg-type]
    batches = Batches(dataref.stream(), 4, transform=lambda batch: None)
    with pytest.raises(errors.InvalidArgumentError, match="None of a batch; does it lack its"):
        next(iter(batches))
    assert repr(batches) == f"Batches({batches._stream!r}, batch_size=4)"


def test_bad_arguments(storage_dir: pathlib.Path) -> None:
    stream = numbers(storage_dir).stream()
    for arguments in ({"batch_size": 0}, {"batch_size": 2, "prefetch": -1}):
        with pytest.raises(errors.InvalidArgumentError):
            Batches(stream, **arguments)
    with pytest.raises(errors.InvalidArgumentError, match=r"one jax\.sharding\.Sharding"):
        Batches(stream, 2, sharding="cpu")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgumentError, match="not a list"):
        Batches([1, 2], 2)  # type: ignore[arg-type]


# Several devices and processes


def environment(**more: str) -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu", **more}


DEVICES = """
import sys, warnings
warnings.simplefilter("error")
import jax, numpy as np, pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding
import yogadl.storage
from yogadl.errors import InvalidArgumentError
from yogadl.jax import Batches

storage = yogadl.storage.LFSStorage(yogadl.storage.LFSConfigurations(sys.argv[1]))
dataref = storage.fetch("data", "1.0")
assert jax.device_count() == 4
mesh = Mesh(np.array(jax.devices()).reshape(4), ("data",))
split = NamedSharding(mesh, P("data"))
batches = list(Batches(dataref.stream(), 8, sharding=split))
assert len(batches) == 2
for number, batch in enumerate(batches):
    x = batch["x"]
    assert x.sharding == batch["y"][0].sharding == split
    assert [s.data.shape for s in x.addressable_shards] == [(2, 3)] * 4
    assert np.asarray(x)[:, 0].tolist() == list(range(8 * number, 8 * number + 8))
    assert float(jax.jit(lambda v: v.sum())(x)) == 3 * sum(range(8 * number, 8 * number + 8))
(first, *_) = Batches(dataref.stream(), 3, sharding=NamedSharding(mesh, P()))
assert first["x"].is_fully_replicated
(first, *_) = Batches(dataref.stream(), 3, sharding=SingleDeviceSharding(jax.devices()[2]))
assert first["x"].devices() == {jax.devices()[2]}
with pytest.raises(InvalidArgumentError, match=r"cannot divide record\\['x'\\], float32\\[6, 3\\]"):
    Batches(dataref.stream(), 6, sharding=split)
with pytest.raises(InvalidArgumentError, match=r"float32\\[7, 3\\]"):
    Batches(dataref.stream(), 8, sharding=split, drop_remainder=False)
with pytest.raises(InvalidArgumentError, match=r"cannot divide record\\['y'\\]\\[0\\]"):
    Batches(dataref.stream(), 8, sharding=NamedSharding(mesh, P("data", None)))
"""


def test_a_mesh_of_four_devices(storage_dir: pathlib.Path) -> None:
    numbers(storage_dir)
    done = subprocess.run(
        [sys.executable, "-c", DEVICES, str(storage_dir)],
        env=environment(XLA_FLAGS="--xla_force_host_platform_device_count=4"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


PROCESS = """
import json, sys
import jax, numpy as np, pytest
jax.config.update("jax_cpu_collectives_implementation", "gloo")
directory, address, rank = sys.argv[1:]
jax.distributed.initialize(address, 2, int(rank), initialization_timeout=60)
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import yogadl.distributed, yogadl.storage
from yogadl.errors import InvalidArgumentError
from yogadl.jax import Batches

storage = yogadl.storage.LFSStorage(yogadl.storage.LFSConfigurations(directory))
dataref = storage.fetch("data", "1.0")
shard = yogadl.distributed.shard()
assert shard == {"shard_rank": int(rank), "num_shards": 2}, shard
mesh = Mesh(np.array(jax.devices()), ("data",))
split = NamedSharding(mesh, P("data"))
order = dict(shuffle=True, shuffle_seed=4, drop_shard_remainder=True, **shard)


def rows(batches, count):
    found = []
    while len(found) < count:
        for batch in batches:
            assert batch["x"].shape == (8, 3)
            assert batch["x"].sharding == split
            assert [s.data.shape for s in batch["x"].addressable_shards] == [(2, 3)] * 2
            total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, P()))(batch["x"])
            whole = multihost_utils.process_allgather(batch["y"][0], tiled=True).tolist()
            assert float(total) == 3 * sum(whole)
            found.append(whole)
            if len(found) == count:
                break
    return found


whole = rows(Batches(dataref.stream(**order), 4, sharding=split), 5)
batches = Batches(dataref.stream(**order), 4, sharding=split)
assert rows(batches, 3) == whole[:3]
resumed = Batches(dataref.stream(**order), 4, sharding=split)
resumed.load_state_dict(json.loads(json.dumps(batches.state_dict())))
assert rows(resumed, 2) == whole[3:]
plain = [
    dataref.stream(**{**order, "shard_rank": r}).batches(4, drop_remainder=True) for r in range(2)
]
expected = [a["y"][0].tolist() + b["y"][0].tolist() for _ in range(3) for a, b in zip(*plain)]
assert whole == expected[:5]
with pytest.raises(InvalidArgumentError, match="drop_shard_remainder=True"):
    Batches(dataref.stream(**shard), 4, sharding=split)
with pytest.raises(InvalidArgumentError, match="yogadl.distributed.shard"):
    next(iter(Batches(dataref.stream(), 4, sharding=split)))
print("done")
jax.distributed.shutdown()
"""


def test_two_processes(storage_dir: pathlib.Path) -> None:
    if "jax_cpu_collectives_implementation" not in jax.config.values:
        pytest.skip("this JAX has no collectives between processes on CPUs")
    numbers(storage_dir)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(storage_dir), address, str(rank)],
            env=environment(XLA_FLAGS="--xla_force_host_platform_device_count=2"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in processes:
            out, err = process.communicate(timeout=180)
            assert process.returncode == 0, err
            assert out.splitlines()[-1] == "done"
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
