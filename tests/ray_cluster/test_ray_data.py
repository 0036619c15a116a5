"""Data sets of Ray Data, written to a storage and read from one."""

from __future__ import annotations

import fractions
import pathlib
import time
import types
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas
import pytest
import ray.data
from building import left_over
from ray_rig import made_of
from ray_rows import RoughSink, row, rows

import yogadl
import yogadl.distributed
import yogadl.ray
from yogadl.errors import (
    CacheNotFoundError,
    InvalidArgumentError,
    SpecMismatchError,
    UnsupportedTypeError,
)
from yogadl.spec import OptionalSpec, TensorSpec
from yogadl.storage import LFSStorage

SECONDS = 120
COUNT = 500
SPEC = {
    "id": TensorSpec("int64", ()),
    "image": TensorSpec("uint8", (2, 3)),
    "is_even": TensorSpec("bool", (3,)),
    "varying": TensorSpec("float32", (None, None)),
    "text": TensorSpec("string", ()),
}


@pytest.fixture
def storage(tmp_path: pathlib.Path) -> LFSStorage:
    return LFSStorage(tmp_path / "stored")


@pytest.fixture
def stored(storage: LFSStorage) -> Any:
    """What one process stores."""
    storage.submit((row(number) for number in range(COUNT)), "all", "1", spec=SPEC)
    return storage.fetch("all", "1")


def dataset(blocks: int = 20) -> Any:
    return ray.data.range(COUNT, override_num_blocks=blocks).map_batches(rows, batch_size=None)


def ids(ref: Any) -> list[int]:
    return [int(record["id"]) for record in ref.stream()]


def same_rows(one: Any, other: Any) -> bool:
    def plain(record: dict[str, Any]) -> Any:
        return [(name, np.shape(record[name]), np.array(record[name]).tolist()) for name in SPEC]

    return [plain(record) for record in one] == [plain(record) for record in other]


@pytest.mark.parametrize("cluster", [1, 4], indirect=True)
@pytest.mark.parametrize("spec", [None, SPEC], ids=["inferred", "given"])
@pytest.mark.long_for(1)
def test_a_data_set_is_stored_as_by_one_process(
    cluster: Any, storage: LFSStorage, stored: Any, spec: Any, tmp_path: pathlib.Path
) -> None:
    ref = yogadl.ray.write(
        dataset(), storage, "a", "1", spec=spec, metadata={"by": "Ray"}, part_bytes=4000, num_cpus=1
    )
    assert ref.spec == stored.spec
    assert ref.reader.content_id == stored.reader.content_id
    order = {"shuffle": True, "shuffle_seed": 3, "shard_rank": 1, "num_shards": 3}
    assert same_rows(ref.stream(**order), stored.stream(**order))
    assert ref.metadata == {"by": "Ray"}
    assert left_over(storage, tmp_path / "stored") == []


def test_tasks_are_killed_and_run_twice(
    cluster: Any, storage: LFSStorage, stored: Any, made: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    lost = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    sink = RoughSink(made, storage, "a", "1", spec=SPEC)
    written = dataset(25)
    written.context.execution_options.preserve_order = True
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(written.write_datasink, sink)
        while len(made_of(made)) < 10 and not future.done():
            time.sleep(0.01)
        with pytest.raises(CacheNotFoundError):
            storage.fetch("a", "1")
        cluster.remove_node(lost)
        future.result(SECONDS)
    assert sink.stored is not None
    assert same_rows(sink.stored.stream(), stored.stream())
    assert sink.stored.reader.content_id == stored.reader.content_id
    counts = made_of(made)
    assert sorted(counts) == [*range(25)]
    assert all(counts[number] > 1 for number in (3, 13, 23))
    assert left_over(storage, tmp_path / "stored") == []


@pytest.mark.long
def test_s3(cluster: Any, s3: Any, local: pathlib.Path, made: pathlib.Path, stored: Any) -> None:
    storage = s3.make_storage(local, conditional_writes=True)
    sink = RoughSink(made, storage, "a", "1")
    written = dataset()
    written.context.execution_options.preserve_order = True
    written.write_datasink(sink)
    ref = sink.stored
    assert ref is not None
    assert ref.reader.content_id == stored.reader.content_id
    kept = [pathlib.PurePosixPath(key) for key in s3.raw.list("data/a/yogadl.parts/")]
    assert {path.stem for path in kept if path.suffix == ".mdb"} == {
        digest.hex() for digest in ref.reader.parts_by_digest()
    }
    assert not [path for path in kept if path.suffix == ".piece"]
    far = storage.fetch("a", "1", download=False)
    assert same_rows(yogadl.ray.read(far[100:150]).take_all(), stored[100:150].stream())


def test_what_is_stored_is_not_read(cluster: Any, storage: LFSStorage, stored: Any) -> None:
    def fails(batch: Any) -> Any:
        raise AssertionError("it is stored")

    never = ray.data.range(5).map_batches(fails)
    assert ids(yogadl.ray.write(never, storage, "all", "1")) == [*range(COUNT)]
    sink = yogadl.ray.Datasink(storage, "all", "1", spec=SPEC)
    ray.data.range(3).map_batches(rows).write_datasink(sink)
    assert sink.stored is not None
    assert ids(sink.stored) == [*range(COUNT)]
    with pytest.raises(SpecMismatchError, match="was stored"):
        yogadl.ray.write(never, storage, "all", "1", spec={"x": SPEC["id"]})


def test_a_failure_publishes_nothing_and_lets_others_build(
    cluster: Any, storage: LFSStorage
) -> None:
    def fails(batch: dict[str, Any]) -> dict[str, Any]:
        if 7 in batch["id"]:
            raise ZeroDivisionError("of record 7")
        return batch

    numbers = ray.data.range(10, override_num_blocks=10)
    with pytest.raises(Exception, match="of record 7"):
        yogadl.ray.write(numbers.map_batches(fails), storage, "a", "1")
    with pytest.raises(CacheNotFoundError):
        storage.fetch("a", "1")
    assert ids(yogadl.ray.write(numbers, storage, "a", "1")) == [*range(10)]


def test_nobody_goes_on_with_what_failed(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    sink = yogadl.ray.Datasink(storage, "a", "1", spec={"x": TensorSpec("int64", ())})
    sink.on_write_start()
    sink.write([pandas.DataFrame({"x": [1, 2]})], types.SimpleNamespace(task_idx=0))
    assert len([*tmp_path.rglob("*.piece")]) == 1
    sink.on_write_failed(ZeroDivisionError())
    assert not [*tmp_path.rglob("*.piece")]


def test_blocks_that_differ(cluster: Any, storage: LFSStorage) -> None:
    def shaped(batch: dict[str, Any]) -> dict[str, Any]:
        return {"x": np.zeros((len(batch["id"]), 2 + int(batch["id"][0]) % 2), "f4")}

    blocks = ray.data.range(4, override_num_blocks=4).map_batches(shaped, batch_size=None)
    with pytest.raises(Exception, match=r"give spec= for all of them"):
        yogadl.ray.write(blocks, storage, "a", "1")
    ref = yogadl.ray.write(blocks, storage, "a", "1", spec={"x": TensorSpec("float32", (None,))})
    assert [record["x"].shape for record in ref.stream()] == [(2,), (3,), (2,), (3,)]


def test_pandas_and_missing_values(cluster: Any, storage: LFSStorage) -> None:
    frame = pandas.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"]})
    with pytest.raises(Exception, match="record 1 is None"):
        yogadl.ray.write(ray.data.from_pandas(frame), storage, "a", "1")
    spec = {"a": TensorSpec("int64", ()), "b": OptionalSpec(TensorSpec("string", ()))}
    ref = yogadl.ray.write(ray.data.from_pandas(frame), storage, "a", "1", spec=spec)
    assert [(int(it["a"]), it["b"]) for it in ref.stream()] == [(1, b"x"), (2, None), (3, b"z")]
    back = yogadl.ray.read(ref)
    assert back.take_all() == [{"a": a, "b": b} for a, b in ((1, b"x"), (2, None), (3, b"z"))]
    assert yogadl.ray.write(back, storage, "a", "2", spec=spec).reader.content_id == (
        ref.reader.content_id
    )


def test_without_rows(cluster: Any, storage: LFSStorage) -> None:
    nothing = ray.data.range(10).map_batches(lambda batch: {"id": batch["id"][:0]})
    ref = yogadl.ray.write(nothing, storage, "a", "1", spec={"id": SPEC["id"]})
    assert len(ref) == 0
    assert yogadl.ray.read(ref).count() == 0
    assert yogadl.ray.read(ref).take_all() == []


def test_reading(cluster: Any, stored: Any) -> None:
    read = yogadl.ray.read(stored, override_num_blocks=7)
    assert read.count() == COUNT
    assert read.columns() == list(stored.spec)
    assert same_rows(read.iter_rows(), stored.stream())
    batch = next(iter(read.iter_batches(batch_size=50)))
    assert batch["image"].shape == (50, 2, 3)
    assert batch["image"].dtype == np.uint8
    assert [value.shape for value in batch["varying"][:3]] == [(1, 2), (2, 2), (3, 2)]
    assert read.map(lambda row: {"id": row["id"] + 1}).take(3) == [{"id": i} for i in (1, 2, 3)]


def test_reading_what_is_made_of_others(cluster: Any, stored: Any) -> None:
    made = yogadl.concat([stored[40:60], stored.select([9, 3, 3])])
    assert same_rows(yogadl.ray.read(made).take_all(), made.stream())
    shuffled = yogadl.ray.read(stored, shuffle_seed=11)
    order = [int(it["id"]) for it in stored.stream(shuffle=True, shuffle_seed=11)]
    assert [it["id"] for it in shuffled.take_all()] == order


def test_what_cannot_be_written_or_read(cluster: Any, storage: LFSStorage, stored: Any) -> None:
    numbers = ray.data.range(3)
    with pytest.raises(InvalidArgumentError, match=r"takes a ray\.data\.Dataset"):
        yogadl.ray.write([1, 2], storage, "a", "1")
    with pytest.raises(InvalidArgumentError, match="a storage of yogadl's"):
        yogadl.ray.write(numbers, "folder", "a", "1")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="are dicts"):
        yogadl.ray.write(numbers, storage, "a", "1", spec=SPEC["id"])
    with pytest.raises(InvalidArgumentError, match="takes a DataRef"):
        yogadl.ray.read(stored.stream())
    with pytest.raises(InvalidArgumentError, match="seed"):
        yogadl.ray.read(stored, shuffle_seed=-1)
    with pytest.raises(UnsupportedTypeError, match=r"yogadl\.ray\.write"):
        storage.submit(numbers, "a", "1")
    objects = ray.data.from_items([{"x": fractions.Fraction(1, 2)}])
    with pytest.raises(UnsupportedTypeError, match="pickled"):
        yogadl.ray.write(objects, storage, "a", "1")


def _train(config: dict[str, Any]) -> None:
    place = yogadl.distributed.find()
    ref = yogadl.storage.LFSStorage(config["storage"]).fetch("all", "1")
    read = [str(record["id"]) for record in ref.stream(**yogadl.distributed.shard())]
    text = f"{place.size}: {' '.join(read)}"
    (pathlib.Path(config["made"]) / str(place.rank)).write_text(text)


def test_workers_of_ray_train_have_shards(
    cluster: Any, stored: Any, made: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    from ray.train import RunConfig, ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    DataParallelTrainer(
        _train,
        train_loop_config={"storage": str(tmp_path / "stored"), "made": str(made)},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path / "runs")),
    ).fit()
    read = {path.name: path.read_text() for path in made.iterdir()}
    assert read == {
        str(rank): f"2: {' '.join(map(str, range(rank, COUNT, 2)))}" for rank in range(2)
    }
    # This process is no worker.
    assert yogadl.distributed.find() == (0, 1)
