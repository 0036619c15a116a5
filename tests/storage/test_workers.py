"""Data sets that several workers of a machine write."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import signal
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yogadl.errors import InvalidArgumentError, UnsupportedTypeError, YogadlError
from yogadl.spec import TensorSpec
from yogadl.storage import LFSStorage

SPEC = {"x": TensorSpec("uint8", (None,)), "number": TensorSpec("int64", ())}

forking = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


class Items:
    """Records by position.

    Attributes:
        made: a folder in which it is noted which process made a record.
    """

    def __init__(self, count: int, made: pathlib.Path | None = None) -> None:
        self.count = count
        self.made = made

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, position: int) -> dict[str, Any]:
        if self.made is not None:
            (self.made / f"{position}.{os.getpid()}").touch()
        return {"x": np.full(position % 20, position % 251, "u1"), "number": np.int64(position)}


class Failing(Items):
    def __getitem__(self, position: int) -> dict[str, Any]:
        if position == 333:
            raise ZeroDivisionError(f"record {position} is nothing")
        return super().__getitem__(position)


class Misfitting(Items):
    def __getitem__(self, position: int) -> dict[str, Any]:
        found = super().__getitem__(position)
        return {**found, "x": "text"} if position == 333 else found


class Deadly(Items):
    def __getitem__(self, position: int) -> dict[str, Any]:
        if position == 333:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(position)


@pytest.fixture
def storage(tmp_path: pathlib.Path) -> LFSStorage:
    return LFSStorage(tmp_path / "stored")


def same_records(one: Any, other: Any) -> bool:
    return (
        len(one) == len(other)
        and one.spec == other.spec
        and one.reader.content_id == other.reader.content_id
    )


@forking
@pytest.mark.parametrize("count", [1, 16, 17, 1000, 5000])
def test_what_processes_write_is_the_same(storage: LFSStorage, count: int) -> None:
    storage.submit(Items(count), "a", "1", spec=SPEC, workers=3, metadata={"k": 1})
    storage.submit(Items(count), "a", "2", spec=SPEC, metadata={"k": 1})
    one, other = storage.fetch("a", "1"), storage.fetch("a", "2")
    assert same_records(one, other)
    assert one.metadata == other.metadata
    assert one.info.provenance == other.info.provenance


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    count=st.integers(0, 3000), workers=st.integers(2, 5), part_bytes=st.sampled_from([None, 900])
)
def test_what_threads_write_is_the_same(
    storage: LFSStorage, count: int, workers: int, part_bytes: int | None
) -> None:
    data = {"number": np.arange(count), "x": np.arange(3 * count, dtype="f4").reshape(count, 3)}
    storage.submit(data, "a", "1", workers=workers, part_bytes=part_bytes)
    storage.submit(data, "a", "2")
    assert same_records(storage.fetch("a", "1"), storage.fetch("a", "2"))


@forking
def test_several_processes_do_it(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    storage.submit(Items(2000, made), "a", "1", spec=SPEC, workers=2)
    names = [path.name.split(".") for path in made.iterdir()]
    assert sorted(int(position) for position, _ in names) == [*range(2000)]
    assert str(os.getpid()) not in {process for _, process in names}


@forking
def test_cacheable_goes_on_where_it_was(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    deadly = [True]

    @storage.cacheable("a", "1", spec=SPEC, workers=2)
    def make() -> Items:
        return (Deadly if deadly else Items)(1000, made)

    with pytest.raises(YogadlError, match="was killed"):
        make()
    deadly.clear()
    before = {path.name.split(".")[0] for path in made.iterdir()}
    for path in made.iterdir():
        path.unlink()
    with make() as ref:
        assert [int(record["number"]) for record in ref.stream()] == [*range(1000)]
    again = {path.name.split(".")[0] for path in made.iterdir()}
    # Pieces that were under way are made again, and no others.
    assert len(before & again) <= 3 * 16
    assert make().info.digest
    assert not list((tmp_path / "stored").rglob("*.piece"))


@forking
@pytest.mark.parametrize(
    ("data", "error", "told"),
    [(Failing(1000), ZeroDivisionError, "record 333"), (Misfitting(1000), YogadlError, "333")],
)
def test_errors_name_the_record(
    storage: LFSStorage, data: Items, error: type[Exception], told: str
) -> None:
    storage.submit(Items(10), "a", "1", spec=SPEC)
    with pytest.raises(error, match=told):
        storage.submit(data, "a", "1", spec=SPEC, workers=2)
    assert len(storage.fetch("a", "1")) == 10


def test_what_cannot_be_divided(storage: LFSStorage) -> None:
    with pytest.raises(UnsupportedTypeError, match="by position"):
        storage.submit((number for number in range(10)), "a", "1", workers=2)
    for wrong in (0, -1, "two", 1.5):
        with pytest.raises((InvalidArgumentError, TypeError)):
            storage.submit([1], "a", "1", workers=wrong)  # type: ignore[arg-type]


def _build_at_once(storage: LFSStorage, made: pathlib.Path) -> None:
    @storage.cacheable("a", "1", spec=SPEC, workers=2)
    def make() -> Items:
        return Items(500, made)

    make().close()


@forking
def test_of_several_that_ask_one_builds(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    context = multiprocessing.get_context("spawn")
    asking = [context.Process(target=_build_at_once, args=(storage, made)) for _ in range(3)]
    for process in asking:
        process.start()
    for process in asking:
        process.join(60)
    assert [process.exitcode for process in asking] == [0, 0, 0]
    assert len(list(made.iterdir())) == 500
