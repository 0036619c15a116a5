"""Versions that are built out of pieces, on a disk."""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import functools
import logging
import os
import pathlib
import pickle
import random
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
from building import (
    PIECE,
    PIECES,
    RECIPE,
    SPEC,
    drive,
    everything,
    left_over,
    piece,
    same_data,
    write_noting,
    write_piece,
)
from processes_ready import READY
from waiting import wait_until

from yogadl.cache.partial import PartialFile
from yogadl.cache.parts import PARTS_FOLDER
from yogadl.errors import (
    CacheFormatError,
    CacheNotFoundError,
    ClosedError,
    InvalidArgumentError,
    SpecMismatchError,
    UnsupportedTypeError,
    YogadlError,
)
from yogadl.spec import TensorSpec
from yogadl.storage import LFSStorage, Receipt

AT_ONCE = datetime.timedelta()


@pytest.fixture
def storage(tmp_path: pathlib.Path) -> LFSStorage:
    return LFSStorage(tmp_path / "stored")


def begin(storage: LFSStorage, version: str = "1", **options: Any) -> Any:
    return storage.build("a", version, **{"spec": SPEC, "recipe": RECIPE, **options})


def submitted(storage: LFSStorage) -> Any:
    storage.submit(everything(), "all", "1", spec=SPEC)
    return storage.fetch("all", "1")


@pytest.mark.parametrize("part_bytes", [None, 500])
@pytest.mark.parametrize("seed", range(3))
def test_pieces_in_any_order_are_the_data_set(
    storage: LFSStorage, seed: int, part_bytes: int | None, tmp_path: pathlib.Path
) -> None:
    numbers = random.Random(seed).sample(range(PIECES), PIECES)
    with begin(storage, metadata={"made": "apart"}, part_bytes=part_bytes) as build:
        receipts = [write_piece(build, number) for number in numbers]
        with pytest.raises(CacheNotFoundError):
            storage.fetch("a", "1")
        ref = build.commit(receipts)
    assert same_data(ref, submitted(storage))
    assert ref.metadata == {"made": "apart"}
    assert sum(receipt.record_count for receipt in receipts) == len(ref) == PIECE * (PIECES - 1)
    assert left_over(storage, tmp_path / "stored") == []


def test_workers_in_processes(storage: LFSStorage) -> None:
    with begin(storage) as build, READY.Pool(2) as pool:
        # Twice each, at the same time now and then.
        numbers = random.Random(1).sample([*range(PIECES)] * 2, 2 * PIECES)
        receipts = pool.map(functools.partial(write_piece, build), numbers, chunksize=1)
        ref = build.commit(receipts)
    assert same_data(ref, submitted(storage))


def test_another_thread_ends_it(storage: LFSStorage) -> None:
    build = begin(storage)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(build.__enter__).result(30)
    build.__exit__(None, None, None)

    def again() -> None:
        with begin(storage) as build:
            build.commit([])

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(again).result(30)


def test_workers_in_threads(storage: LFSStorage) -> None:
    with begin(storage) as build, concurrent.futures.ThreadPoolExecutor(4) as pool:
        ref = build.commit(pool.map(functools.partial(write_piece, build), range(PIECES)))
    assert same_data(ref, submitted(storage))


def test_what_is_there_is_not_made_again(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    with begin(storage) as build:
        for number in (3, 0, 5):
            write_noting(build, made, number)
    with begin(storage, recipe="others") as build:
        write_noting(build, made, 3)
    with begin(storage) as build:
        ref = build.commit(write_noting(build, made, number) for number in range(PIECES))
    assert same_data(ref, submitted(storage))
    counts = [len(list(made.glob(f"{number}.*"))) for number in range(PIECES)]
    assert counts == [2 if number == 3 else 1 for number in range(PIECES)]
    # Of the recipe that was never committed, there is still some, until it is collected.
    assert left_over(storage, tmp_path / "stored") == []


def test_pieces_that_are_spoiled_or_gone_are_made_again(
    storage: LFSStorage, tmp_path: pathlib.Path
) -> None:
    made = tmp_path / "made"
    made.mkdir()
    with begin(storage) as build:
        receipts = [write_noting(build, made, number) for number in range(PIECES)]
    folder = tmp_path / "stored" / "a" / PARTS_FOLDER
    notes = sorted(folder.glob("*.piece"))
    assert len(notes) == PIECES
    notes[0].write_bytes(b"{")
    notes[1].write_bytes(b'{"format": 2}')
    notes[2].write_bytes(notes[3].read_bytes())
    notes[4].unlink()
    (digest,) = receipts[7].sizes()
    part = folder / f"{digest.hex()}.mdb"
    part.unlink()
    with begin(storage) as build, pytest.raises(CacheFormatError, match="not stored any more"):
        build.commit(receipts)
    with begin(storage) as build:
        ref = build.commit(write_noting(build, made, number) for number in range(PIECES))
    assert same_data(ref, submitted(storage))
    # One of them may have been any of the first three.
    assert len(list(made.iterdir())) - PIECES in (4, 5)


def test_of_two_builds_one_publishes(storage: LFSStorage) -> None:
    entered, found = threading.Event(), []

    def other() -> None:
        entered.set()
        with begin(storage) as build:
            assert build.is_stored
            receipts = [build.write(number, _never) for number in range(3)]
            assert [receipt.record_count for receipt in receipts] == [0] * 3
            found.append(build.commit(receipts))

    with begin(storage) as build:
        assert not build.is_stored
        thread = threading.Thread(target=other)
        thread.start()
        assert entered.wait(30)
        ref = build.commit([write_piece(build, number) for number in range(PIECES)])
    thread.join(30)
    assert same_data(found[0], ref)


def _never() -> Any:
    raise AssertionError("nothing has to be made")


@pytest.mark.once
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_drivers_that_are_killed(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    seed = 0
    while not storage.list("a"):
        drivers = [
            READY.Process(target=drive, args=(storage, made, seed + more)) for more in (0, 1)
        ]
        for driver in drivers:
            driver.start()
        for driver in drivers:
            driver.join(60)
        seed += 2
        assert seed < 100
    with storage.fetch("a", "1") as ref:
        assert same_data(ref, submitted(storage))
    # Whoever goes on makes only what is missing.
    assert len(list(made.iterdir())) <= PIECES + seed
    assert left_over(storage, tmp_path / "stored") == []


def _enter_and_fork(storage: LFSStorage, pipe: pathlib.Path) -> None:
    with begin(storage) as build:
        write_piece(build, 0)
        if os.fork() == 0:
            os.write(os.open(pipe, os.O_WRONLY), b"%8d" % os.getpid())
            time.sleep(1000)
        time.sleep(1000)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_children_that_outlive_a_driver_hold_nothing(
    storage: LFSStorage, tmp_path: pathlib.Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    driver = READY.Process(target=_enter_and_fork, args=(storage, pipe))
    driver.start()
    with pipe.open("rb") as file:
        child = int(file.read(8))
        driver.kill()
        # Its child keeps what join waits for.
        wait_until(lambda: not driver.is_alive())
        try:
            with begin(storage) as build:
                ref = build.commit(write_piece(build, number) for number in range(PIECES))
            assert not storage.collect_parts(older_than=AT_ONCE).skipped
        finally:
            os.kill(child, signal.SIGKILL)
        assert file.read() == b""
    assert same_data(ref, submitted(storage))


def _die_writing_a_receipt(build: Any) -> None:
    commit = PartialFile.commit

    def dying(self: PartialFile, *args: Any) -> None:
        if ".piece." in self.path.name:
            os.kill(os.getpid(), signal.SIGKILL)
        commit(self, *args)

    PartialFile.commit = dying  # type: ignore[method-assign]
    write_piece(build, PIECES)


@pytest.mark.parametrize("is_committed", [True, False])
def test_receipts_of_workers_that_are_killed(
    storage: LFSStorage, tmp_path: pathlib.Path, is_committed: bool
) -> None:
    with begin(storage) as build:
        receipts = [write_piece(build, number) for number in range(PIECES)]
        worker = READY.Process(target=_die_writing_a_receipt, args=(build,))
        worker.start()
        worker.join()
        assert worker.exitcode == -signal.SIGKILL
        assert len(list(tmp_path.rglob("*.piece.*.partial"))) == 1
        if is_committed:
            build.commit(receipts).close()
    if not is_committed:
        storage.collect_parts(older_than=AT_ONCE)
    assert not list(tmp_path.rglob("*.partial"))


def test_without_records(storage: LFSStorage) -> None:
    with begin(storage) as build:
        ref = build.commit([])
    assert len(ref) == 0
    with begin(storage, "2") as build:
        ref = build.commit([build.write(0, list)])
    assert len(ref) == 0
    assert ref.spec == SPEC


@pytest.mark.parametrize(
    ("made", "error", "told"),
    [
        (piece(1), InvalidArgumentError, "piece 7: .* can be read only once"),
        (iter([]), InvalidArgumentError, "only once"),
        (lambda: None, UnsupportedTypeError, "piece 7"),
        (lambda: [{"x": np.zeros(3, "u1"), "number": "one"}], YogadlError, "piece 7"),
        (lambda: [{"x": np.zeros(3, "u1")}], SpecMismatchError, "piece 7"),
        (5, UnsupportedTypeError, "piece 7"),
    ],
)
def test_what_cannot_be_a_piece(
    storage: LFSStorage, made: Any, error: type[Exception], told: str
) -> None:
    with begin(storage) as build:
        with pytest.raises(error, match=told):
            build.write(7, made)
        ref = build.commit([build.write(7, lambda: piece(1))])
    assert len(ref) == PIECE


def test_an_error_of_the_function_is_its_own(storage: LFSStorage) -> None:
    with begin(storage) as build, pytest.raises(ZeroDivisionError):
        build.write(0, lambda: [1 / 0])


def test_data_that_can_be_submitted_is_a_piece(storage: LFSStorage) -> None:
    spec = {"x": SPEC["number"]}
    with storage.build("a", "1", spec=spec) as build:
        first = build.write(0, {"x": np.arange(5)})
        ref = build.commit([build.write(2, lambda: {"x": np.arange(5, 9)}), first])
    assert [int(record["x"]) for record in ref.stream()] == [*range(9)]


def test_wrong_orders_of_calls(storage: LFSStorage) -> None:
    build = begin(storage)
    with pytest.raises(ClosedError, match="entered"):
        write_piece(build, 0)
    with pytest.raises(InvalidArgumentError, match="committed once"):
        build.commit([])
    with build:
        receipt = write_piece(build, 0)
        with pytest.raises(InvalidArgumentError, match="entered once"), build:
            pass
        copy = pickle.loads(pickle.dumps(build))
        assert write_piece(copy, 0) == receipt
        with pytest.raises(InvalidArgumentError, match="by the process that began it"):
            copy.commit([receipt])
        with pytest.raises(YogadlError, match="wait for itself"), begin(storage):
            pass
        for wrong in (None, "receipt", {"number": 0}):
            with pytest.raises(InvalidArgumentError, match="what write of this build"):
                build.commit([wrong])  # type: ignore[list-item]
        with pytest.raises(InvalidArgumentError):
            build.write(-1, list)
        with pytest.raises(InvalidArgumentError):
            build.write("one", list)
        build.commit([receipt, receipt])
        with pytest.raises(InvalidArgumentError, match="committed once"):
            build.commit([receipt])
    with pytest.raises(InvalidArgumentError, match="committed once"):
        build.commit([receipt])


def test_receipts_of_another_build_or_of_others_records(storage: LFSStorage) -> None:
    with begin(storage, recipe="other") as build:
        foreign = write_piece(build, 0)
    with begin(storage) as build:
        one = write_piece(build, 0)
        for path in pathlib.Path(storage._configurations.storage_dir_path).rglob("*.0.piece"):
            path.unlink()
        two = build.write(0, lambda: piece(1))
        with pytest.raises(InvalidArgumentError, match="this build"):
            build.commit([foreign])
        with pytest.raises(InvalidArgumentError, match="written twice"):
            build.commit([one, two])
        ref = build.commit([two])
    assert int(ref[0]["number"]) == PIECE


def test_receipts_can_be_sent(storage: LFSStorage) -> None:
    with begin(storage) as build:
        receipt = pickle.loads(pickle.dumps(write_piece(build, 3)))
        assert isinstance(receipt, Receipt)
        assert (receipt.number, receipt.record_count) == (3, PIECE)
        assert receipt.nbytes > 0
        assert len(build.commit([receipt])) == PIECE


def test_another_spec_or_metadata_is_told(storage: LFSStorage) -> None:
    with begin(storage) as build:
        build.commit([write_piece(build, 0)])
    other = {"x": SPEC["x"], "other": SPEC["number"]}
    with pytest.raises(SpecMismatchError, match="was stored"), begin(storage, spec=other):
        pass
    with pytest.raises(InvalidArgumentError):
        begin(storage, metadata={1: 2})


def test_a_build_that_was_not_committed_says_so(
    storage: LFSStorage, caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> list[str]:
        return [it.getMessage() for it in caplog.records if "was not committed" in it.getMessage()]

    with contextlib.suppress(ZeroDivisionError), begin(storage) as build:
        raise ZeroDivisionError
    assert said() == []
    with begin(storage) as build:
        receipts = [build.write(0, functools.partial(piece, 0))]
    assert len(said()) == 1
    with begin(storage) as build:
        receipts = [build.write(0, functools.partial(piece, 0))]
        build.commit(receipts).close()
    with begin(storage) as build:
        assert build.is_stored
    assert len(said()) == 1


def test_what_is_not_read_is_told(storage: LFSStorage, caplog: pytest.LogCaptureFixture) -> None:
    def told() -> list[tuple[int, str]]:
        found = [
            (it.levelno, it.getMessage())
            for it in caplog.records
            if " stays as it is" in it.getMessage() or " is taken as it is" in it.getMessage()
        ]
        caplog.clear()
        return found

    caplog.set_level("INFO")
    spec = TensorSpec("int64")
    with storage.build("a", "1", spec=spec) as build:
        build.write(0, [1, 2])
        build.write(1, [3])
        assert told() == []
        build.write(0, [4, 5])
        ((level, text),) = told()
        assert level == logging.WARNING
        assert "Piece 0" in text
        assert "number of their own" in text
    with storage.build("a", "1", spec=spec) as build:
        build.write(1, [6])
        ((level, text),) = told()
        assert level == logging.WARNING
        assert "recipe=" in text
    for _ in range(2):
        with storage.build("b", "1", spec=spec, recipe="r") as build:
            build.write(1, [6])
    ((level, text),) = told()
    assert level == logging.INFO
    assert "recipe" not in text
