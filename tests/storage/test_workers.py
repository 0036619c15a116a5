"""Data sets that several workers of a machine write."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes_ready import READY

import yogadl
from yogadl.errors import InvalidArgumentError, SpecMismatchError, UnsupportedTypeError, YogadlError
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
            if position == 333 and (self.made / "deadly").exists():
                os.kill(os.getpid(), signal.SIGKILL)
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
@pytest.mark.parametrize(("count", "workers"), [(1, 3), (16, 3), (17, 3), (1000, 8), (5000, 3)])
def test_what_processes_write_is_the_same(storage: LFSStorage, count: int, workers: int) -> None:
    storage.submit(Items(count), "a", "1", spec=SPEC, workers=workers, metadata={"k": 1})
    storage.submit(Items(count), "a", "2", spec=SPEC, metadata={"k": 1})
    one, other = storage.fetch("a", "1"), storage.fetch("a", "2")
    assert same_records(one, other)
    shuffled = [ref.stream(shuffle=True, shuffle_seed=3) for ref in (one, other)]
    for record, same in zip(*shuffled, strict=True):
        assert all(np.array_equal(record[name], same[name]) for name in SPEC)
    assert one.metadata == other.metadata
    made = [dataclasses.replace(ref.info.provenance, duration=None) for ref in (one, other)]
    assert made[0] == made[1]


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
    (made / "deadly").touch()

    @storage.cacheable("a", "1", spec=SPEC, workers=2)
    def make() -> Items:
        return Items(1000, made)

    with pytest.raises(YogadlError, match="was killed"):
        make()
    (made / "deadly").unlink()
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
    asking = [READY.Process(target=_build_at_once, args=(storage, made)) for _ in range(3)]
    for process in asking:
        process.start()
    for process in asking:
        process.join(60)
    assert [process.exitcode for process in asking] == [0, 0, 0]
    assert len(list(made.iterdir())) == 500


def one_piece(number: int) -> list[dict[str, Any]]:
    if number == 99:
        raise ZeroDivisionError("there is nothing in 99")
    items = Items(10 * number)
    return [items[position] for position in range(len(items))]


@forking
@pytest.mark.parametrize("workers", [1, 3])
def test_pieces_are_in_their_order(storage: LFSStorage, workers: int) -> None:
    numbers = [3, 0, 7, 1, 1]
    storage.submit(yogadl.Pieces(one_piece, numbers), "a", "1", spec=SPEC, workers=workers)
    functions = [functools.partial(one_piece, number) for number in numbers]
    storage.submit(yogadl.Pieces(functions), "a", "2", spec=SPEC, workers=workers)
    storage.submit(itertools.chain(*map(one_piece, numbers)), "a", "3", spec=SPEC)
    assert same_records(storage.fetch("a", "1"), storage.fetch("a", "3"))
    assert same_records(storage.fetch("a", "2"), storage.fetch("a", "3"))


@forking
def test_an_error_says_which_piece_and_worker(
    storage: LFSStorage, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    pieces = yogadl.Pieces(one_piece, [1, 99, 2])
    with pytest.raises(ZeroDivisionError, match="nothing in 99") as caught:
        storage.submit(pieces, "a", "1", spec=SPEC, workers=2)
    (note,) = caught.value.__notes__  # type: ignore[attr-defined]
    assert "piece 1, of 99" in note
    assert "process" in note
    assert "piece 1, of 99 failed" in caplog.text
    # Nobody could go on with it.
    assert not list(tmp_path.rglob("*.piece"))


@pytest.mark.parametrize(
    ("make", "inputs"), [(one_piece, None), ([one_piece], [1]), ("abc", None), ([1], None),
                         (one_piece, "abc"), (one_piece, 3)]
)  # fmt: skip
def test_what_are_no_pieces(make: Any, inputs: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="piece"):
        yogadl.Pieces(make, inputs)


def test_pieces_of_other_specs(storage: LFSStorage) -> None:
    pieces = yogadl.Pieces([functools.partial(list, [1, 2]), functools.partial(list, ["text"])])
    with pytest.raises(SpecMismatchError):
        storage.submit(pieces, "a", "1")
    with pytest.raises(InvalidArgumentError, match="give spec="):
        storage.submit(yogadl.Pieces([]), "a", "1")
    storage.submit(yogadl.Pieces([]), "a", "1", spec=SPEC)
    assert len(storage.fetch("a", "1")) == 0


@forking
@pytest.mark.parametrize("wrap", [None, functools.partial])
def test_the_code_of_the_pieces_is_part_of_the_recipe(
    storage: LFSStorage, tmp_path: pathlib.Path, wrap: Any
) -> None:
    fails = tmp_path / "fails"

    def old(number: int) -> Any:
        if number == 2 and fails.exists():
            raise ZeroDivisionError
        return [{"x": np.zeros(2, "u1"), "number": np.int64(1)}]

    def new(number: int) -> Any:
        return [{"x": np.zeros(3, "u1"), "number": np.int64(2)}]

    made = [old if wrap is None else wrap(old)]

    @storage.cacheable("a", "1", spec=SPEC, workers=2)
    def make() -> Any:
        return yogadl.Pieces(made[0], [0, 1, 2])

    fails.touch()
    with pytest.raises(ZeroDivisionError):
        make()
    made[0] = new if wrap is None else wrap(new)
    with make() as ref:
        assert [int(record["number"]) for record in ref.stream()] == [2, 2, 2]


def _submit_what_cannot_be_sent(storage: LFSStorage) -> None:
    class Local(Items):
        pass

    with pytest.raises(UnsupportedTypeError, match="at the top of a module"):
        storage.submit(Local(100), "a", "1", spec=SPEC, workers=2)


def test_what_cannot_be_sent_to_workers(storage: LFSStorage) -> None:
    process = READY.Process(target=_submit_what_cannot_be_sent, args=(storage,))
    process.start()
    process.join(60)
    assert process.exitcode == 0


@forking
def test_all_of_an_input_is_part_of_the_recipe(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    fails = tmp_path / "fails"
    inputs = [np.arange(2000), np.arange(3)]

    def numbers(given: Any) -> Any:
        if fails.exists() and len(given) == 3:
            raise ZeroDivisionError
        return {"number": given}

    @storage.cacheable("a", "1", spec={"number": SPEC["number"]}, workers=2)
    def make() -> Any:
        return yogadl.Pieces(numbers, inputs)

    fails.touch()
    with pytest.raises(ZeroDivisionError):
        make()
    fails.unlink()
    # Python writes an array as long as this without its middle.
    inputs[0][1000] = -1
    with make() as ref:
        assert int(ref[1000]["number"]) == -1


class UnsendableError(Exception):
    def __init__(self, told: str) -> None:
        super().__init__(told)
        self.lock = threading.Lock()


class NotAsMadeError(Exception):
    def __init__(self, position: int, told: str) -> None:
        super().__init__(f"{told} in {position}")


class FailingOddly(Items):
    def __init__(self, error: Exception) -> None:
        super().__init__(100)
        self.error = error

    def __getitem__(self, position: int) -> dict[str, Any]:
        raise self.error


@forking
@pytest.mark.parametrize("error", [UnsendableError("odd in 7"), NotAsMadeError(7, "odd")])
def test_errors_that_cannot_be_pickled_are_told(storage: LFSStorage, error: Exception) -> None:
    with pytest.raises(YogadlError, match=rf"{type(error).__name__}: odd in 7"):
        storage.submit(FailingOddly(error), "a", "1", spec=SPEC, workers=2)


class Endless(Items):
    """Records that are never made.

    Attributes:
        pipe: that whoever makes one writes to, and keeps open.
    """

    def __init__(self, pipe: pathlib.Path) -> None:
        super().__init__(100)
        self.pipe = pipe

    def __getitem__(self, position: int) -> dict[str, Any]:
        os.write(os.open(self.pipe, os.O_WRONLY), b".")
        time.sleep(1000)
        raise AssertionError("nobody ended it")


def _build_for_ever(storage: LFSStorage, pipe: pathlib.Path, method: str) -> None:
    multiprocessing.set_start_method(method, force=True)
    # In the background of a shell it is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        storage.submit(Endless(pipe), "a", "1", spec=SPEC, workers=2)
    except KeyboardInterrupt:
        sys.exit(77)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 77)])
def test_workers_end_with_who_started_them(
    storage: LFSStorage, tmp_path: pathlib.Path, method: str, number: signal.Signals, code: int
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    process = READY.Process(target=_build_for_ever, args=(storage, pipe, method))
    process.start()
    with pipe.open("rb", buffering=0) as writers:
        started = b""
        while len(started) < 2:
            started += writers.read(2)
        assert process.pid is not None
        os.kill(process.pid, number)
        # The end comes when no worker is left that could write.
        assert writers.read() == b""
    process.join(200)
    assert process.exitcode == code
    storage.submit(Items(10), "a", "1", spec=SPEC, workers=1)
    if number == signal.SIGINT:
        left = {path.name for path in (tmp_path / "stored" / "a" / "1").iterdir()}
        assert left <= {"cache.mdb", "yogadl.lock"}


def _submit_twice(storage: LFSStorage) -> None:
    storage.submit(Items(100), "a", "1", spec=SPEC, workers=2)
    storage.submit(yogadl.Pieces(one_piece, [1, 2]), "a", "2", spec=SPEC, workers=2)


def test_a_daemonic_process_writes_by_itself(storage: LFSStorage) -> None:
    process = READY.Process(target=_submit_twice, args=(storage,), daemon=True)
    process.start()
    process.join(200)
    assert process.exitcode == 0
    storage.submit(Items(100), "a", "3", spec=SPEC)
    assert same_records(storage.fetch("a", "1"), storage.fetch("a", "3"))
    assert len(storage.fetch("a", "2")) == 30


UNGUARDED = """
import multiprocessing, sys
import yogadl.storage
if multiprocessing.get_start_method(allow_none=True) is None:
    multiprocessing.set_start_method("spawn")
class Items:
    def __len__(self):
        return 100
    def __getitem__(self, position):
        return position
@yogadl.storage.LFSStorage(sys.argv[1]).cacheable("a", "1", workers=2)
def make():
    return Items()
make()
"""


def test_a_script_that_its_workers_run_is_told(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    command = [sys.executable, str(script), str(tmp_path / "stored")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1
    assert "a worker process imports the script" in done.stderr
    assert 'behind if __name__ == "__main__":, and classes' in done.stderr
