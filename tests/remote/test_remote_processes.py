"""Versions that many read at once from afar: processes that die, threads, forks, ends."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from remote_rig import Always, Answer, Asked, Never, Opener, Site, desk
from test_claims import claiming
from test_remote_faults import SPEC, everything, records
from waiting import wait_until

from yogadl import backoff
from yogadl.errors import ClosedError
from yogadl.remote._fetching import bulk_queue, passing, urgency
from yogadl.remote._fetching import desk as desk_module
from yogadl.remote._fetching.fetcher import fetcher
from yogadl.remote._local.sparse_file import CELL, SparseFile, open_sparse
from yogadl.remote._open import HEAD_BYTES

ORDER = {"shuffle": True, "shuffle_seed": 1}
FORK = multiprocessing.get_context("fork")


def slowly(_asked: Asked, made: Answer) -> Answer:
    made.stalls = 0.02
    return made


def test_processes_that_are_killed(site: Site) -> None:
    near = site.store(records(400), spec=SPEC, part_bytes=500_000)
    wanted = everything(near.stream(**ORDER))

    def read() -> None:
        with site.ref() as ref:
            same = everything(ref.stream(**ORDER)) == wanted
        os._exit(0 if same else 1)

    roll = random.Random(1)
    with site.twisting(slowly):
        for _ in range(6):
            readers = [FORK.Process(target=read) for _ in range(3)]
            for reader in readers:
                reader.start()
            time.sleep(roll.uniform(0.02, 0.3))  # wherever they are then
            for reader in readers[1:]:
                assert reader.pid is not None
                os.kill(reader.pid, signal.SIGKILL)
            for reader in readers:
                reader.join(60)
            assert readers[0].exitcode == 0
            if roll.random() < 0.5:
                for path in (*site.here(), *site.here(".cells"), *site.here(".whole")):
                    path.unlink()


def _claim_some(pieces: SparseFile, size: int) -> None:
    assert pieces.claim(size // 2 // 4096 * 4096, size) == size


def _claim_in_bulk(pieces: SparseFile, size: int) -> None:
    assert pieces.claim_bulk(size // 2 // 4096 * 4096, size) == size


@pytest.mark.parametrize("claim_all", [_claim_some, _claim_in_bulk])
def test_a_process_that_is_stopped(
    site: Site, monkeypatch: pytest.MonkeyPatch, claim_all: Callable[[SparseFile, int], None]
) -> None:
    near = site.store(records(), spec=SPEC)
    monkeypatch.setattr(urgency, "_OTHERS_SECONDS", 0.2)
    ref = site.ref()
    path, size = site.here()[0], int(ref.reader.files.sizes[0])

    def claim(ready: Any) -> None:
        pieces = open_sparse(path, size)
        claim_all(pieces, size)
        ready.set()
        time.sleep(100)  # or until it is killed

    ready = FORK.Event()
    claiming = FORK.Process(target=claim, args=(ready,))
    claiming.start()
    try:
        assert ready.wait(30)
        with ref:
            assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))
    finally:
        claiming.kill()
        claiming.join()


def test_a_process_that_is_stopped_is_waited_for_once(site: Site) -> None:
    """Not for each of the records that it has claimed."""
    near = site.store(records(), spec=SPEC)
    with site.ref() as ref:
        path, size = site.here()[0], int(ref.reader.files.sizes[0])
        with claiming(path, size, lambda pieces: _claim_in_bulk(pieces, size)):
            for number in range(200, 240):
                assert everything([ref[number]]) == everything([near[number]])
        # Each time, it would be 200 seconds.
        assert ref.reader.files.traffic.waited < 60


def test_nor_is_it_for_each_part(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urgency, "_OTHERS_SECONDS", 3.0)
    near = site.store(records(), spec=SPEC, part_bytes=20_000)
    with site.ref() as ref:
        files = ref.reader.files
        where = [(files.file(n).pieces.path, int(size)) for n, size in enumerate(files.sizes)]
        held = []

        def claim(_: SparseFile) -> None:
            for path, size in where:
                held.append(open_sparse(path, size))
                held[-1].claim_bulk(0, size)

        assert len(where) > 20
        with claiming(*where[0], claim):
            for number in range(0, len(ref), len(ref) // 40):
                assert everything([ref[number]]) == everything([near[number]])
        # For each, it would be 60 seconds.
        assert files.traffic.waited < 30


@pytest.mark.parametrize("claimed", [(0, HEAD_BYTES), (64 * CELL, 80 * CELL), (0, CELL)])
def test_of_the_beginning_nothing_is_written_that_another_process_has_claimed(
    site: Site, claimed: tuple[int, int]
) -> None:
    """It may be about to compare it; who opens has what he has read."""
    start, stop = claimed
    near = site.store(records(), spec=SPEC)
    with site.ref() as ref:
        path, size = site.here()[0], int(ref.reader.files.sizes[0])
    path.unlink()
    path.with_name(f"{path.name}.cells").unlink()
    with claiming(path, size, lambda pieces: pieces.claim(start, stop)), site.ref() as ref:
        pieces = ref.reader.files.file(0).pieces
        # As far as that, it is kept.
        assert pieces.is_kept(0, start)
        assert pieces.missing(start, stop) == [claimed]
        assert path.read_bytes()[start:stop] == bytes(stop - start)
        assert everything([ref[0]]) == everything([near[0]])
    with site.ref() as ref:
        assert ref.reader.files.file(0).pieces.is_kept(0, HEAD_BYTES)
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))


def test_shards_of_one_machine_are_fetched_together(site: Site) -> None:
    """What all of them need is all of it, which comes in large pieces, each byte once."""
    count, large = 200, 80_000
    data = np.random.default_rng(1).integers(0, 256, (count, large), dtype="u1")
    near = site.store(({"x": row, "number": n} for n, row in enumerate(data)), spec=SPEC)
    wanted = sorted(everything(near))
    barrier, results = FORK.Barrier(2), FORK.SimpleQueue()

    def read(rank: int) -> None:
        with site.ref() as ref:
            stream = ref.stream(**ORDER, shard_rank=rank, num_shards=2)
            barrier.wait(30)
            found = []
            for batch in stream.batches(4):
                found += zip(map(int, batch["number"]), map(bytes, batch["x"]), strict=True)
            results.put(found)
        os._exit(0)

    with site.twisting(slowly):
        readers = [FORK.Process(target=read, args=(rank,)) for rank in range(2)]
        for reader in readers:
            reader.start()
        assert sorted(results.get() + results.get()) == wanted
        for reader in readers:
            reader.join(60)
            assert reader.exitcode == 0
    nbytes = sum(asked.stop - asked.start for asked in site.web.asked)
    assert nbytes < 1.1 * count * large
    assert len(site.web.asked) < count / 2


def test_closing_while_somebody_waits(site: Site) -> None:
    site.store(records(), spec=SPEC)

    def stall(asked: Asked, made: Answer) -> Answer:
        made.stalls = 60.0 if asked.start else 0.0
        return made

    ref = site.ref()
    ref[0]
    raised: list[BaseException] = []

    def read() -> None:
        try:
            ref[200]
        except BaseException as error:
            raised.append(error)

    with site.twisting(stall):
        reading = threading.Thread(target=read)
        reading.start()
        wait_until(lambda: site.web.asked[-1].start > 0)
        time.sleep(0.1)  # it waits by then; were it late, it would find the same
        ref.close()
        gc.collect()
        reading.join(20)
        assert not reading.is_alive()
    assert isinstance(raised[0], ClosedError)


@pytest.mark.parametrize("space", [Always, Never])
@pytest.mark.parametrize("size", [8, 100_000])
def test_threads_of_consumers(
    site: Site, space: type, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passing, "_PASSING_BYTES", 200_000)
    near = site.store(records(60, size), spec=SPEC)
    wanted = dict(everything(near.stream()))
    errors: list[BaseException] = []

    def read(ref: Any, seed: int) -> None:
        try:
            for _ in range(3):
                found = everything(ref.stream(shuffle=True, shuffle_seed=seed))
                assert dict(found) == wanted
        except BaseException as error:
            errors.append(error)

    with site.ref(space()) as first, site.ref(space()) as second:
        threads = [
            threading.Thread(target=read, args=((first, second)[seed % 2], seed))
            for seed in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []


def test_forks_while_threads_fetch(site: Site) -> None:
    near = site.store(records(300), spec=SPEC, part_bytes=500_000)
    wanted = everything(near.stream(**ORDER))
    with site.twisting(slowly):
        for space in (Always(), Never()):
            ref = site.ref(space)
            stream = iter(ref.stream(**ORDER))
            found, children = [], []
            for number, record in enumerate(stream):
                found.append(record)
                if number % 40 == 3:
                    child = os.fork()
                    if child == 0:
                        status = 1
                        try:
                            mine = everything(ref.stream(**ORDER))
                            rest = everything(stream)
                            status = 0 if (mine, rest) == (wanted, wanted[number + 1 :]) else 2
                        finally:
                            os._exit(status)
                    children.append(child)
            assert everything(found) == wanted
            assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
            ref.close()


def test_pickled_to_another_process(site: Site) -> None:
    near = site.store(records(), spec=SPEC)
    with site.ref() as ref:
        next(iter(ref.stream(**ORDER)))
        data = pickle.dumps(ref)
    program = (
        "import pickle, sys; ref = pickle.load(sys.stdin.buffer); print(len(list(ref.stream())))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        input=data,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert (done.stdout.strip(), done.stderr) == (str(len(near)).encode(), b"")


ENDS = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    ref = pickle.load(file).ref()
stream = iter(ref.stream(shuffle=True, shuffle_seed=1))
print(len([next(stream) for _ in range(3)]))
{end}
"""


@pytest.mark.parametrize("end", ["", "raise SystemExit(0)", "del stream, ref"])
def test_the_end_of_a_process_makes_no_noise(site: Site, end: str) -> None:
    site.store(records(500), spec=SPEC)
    opener = site.folder / "opener"
    opener.write_bytes(pickle.dumps(site.opener()))
    with site.twisting(slowly):
        done = subprocess.run(
            [sys.executable, "-c", ENDS.format(end=end), opener],
            capture_output=True,
            check=False,
            timeout=60,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    assert done.stderr.decode() == ""
    assert (done.stdout, done.returncode) == (b"3\n", 0)


def test_threads_end_when_nobody_reads(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "_IDLE_SECONDS", 0.05)
    monkeypatch.setattr(bulk_queue, "BULK_BYTES", 32 << 10)
    site.store(records(500, 100_000), spec=SPEC)

    def fetching() -> int:
        return sum(thread.name == "yogadl fetch" for thread in threading.enumerate())

    for closes in (True, False):
        with site.twisting(slowly):
            ref = site.ref()
            next(iter(ref.stream(**ORDER)))
            assert fetching()
            if closes:
                ref.close()
            del ref
            gc.collect()
            wait_until(lambda: not fetching(), 20)


@pytest.mark.parametrize("is_idle", [False, True])
def test_memory_is_let_go_of_when_nobody_reads(
    is_idle: bool, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "_IDLE_SECONDS", 0.05)
    site.store(records(), spec=SPEC)
    passing = fetcher().office.passing
    with site.ref(Never()) as ref:
        next(iter(ref.stream(**ORDER)))
        wait_until(lambda: bool(passing))
        crew = desk(ref).crew
        if is_idle:
            wait_until(lambda: crew.count == 1, 20)
    del ref
    gc.collect()
    wait_until(lambda: not passing, 20)


def test_ctrl_c_while_a_record_is_waited_for(site: Site) -> None:
    site.store(records(), spec=SPEC)

    def stall(asked: Asked, made: Answer) -> Answer:
        made.stalls = 60.0 if asked.start else 0.0
        return made

    # In the background of a shell it is ignored.
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with site.twisting(stall), site.ref() as ref:
            main = threading.get_ident()
            timer = threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                everything(ref.stream())
            timer.join()
    finally:
        signal.signal(signal.SIGINT, usual)
    assert backoff.LIMITS.answer < 60.0


def test_ctrl_c_again_and_again(site: Site) -> None:
    """As in a notebook, where the process goes on."""
    near = site.store(records(600, 3_000), spec=SPEC, part_bytes=100_000)
    wanted = everything(near.stream(**ORDER))

    def read() -> bool:
        kept = pathlib.Path(tempfile.mkdtemp(dir=site.folder))
        with Opener(site.web.port, kept).ref() as ref:
            return everything(ref.stream(**ORDER)) == wanted

    def interrupted() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        died: list[Any] = []
        threading.excepthook = died.append
        roll = random.Random(1)
        for _ in range(12):
            after = roll.uniform(0.02, 0.3)
            # In a finalizer it is lost.
            timers = [_interrupting(after), _interrupting(after + 1)]
            with contextlib.suppress(KeyboardInterrupt):
                while read():
                    pass
                os._exit(2)
            for timer in timers:
                timer.cancel()
        os._exit(0 if read() and not died else 3)

    with site.twisting(slowly):
        process = FORK.Process(target=interrupted)
        process.start()
        process.join(60)
        assert process.exitcode == 0


def _interrupting(seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


def test_a_thread_that_is_idle_does_not_keep_others_from_starting(site: Site) -> None:
    site.store(records(100, 60_000), spec=SPEC)

    def stall(_asked: Asked, made: Answer) -> Answer:
        made.stalls = 0.3
        return made

    with site.ref() as ref:
        ref[0]
        before = len(site.web.asked)
        with site.twisting(stall):
            reading = threading.Thread(target=lambda: ref.reader.read_columns(_places()))
            reading.start()
            wait_until(lambda: len(site.web.asked) - before >= 8)
            reading.join()


def _places() -> Any:
    import numpy as np

    return np.arange(3, 100, 10)


def test_openers_pickle(site: Site) -> None:
    assert isinstance(pickle.loads(pickle.dumps(site.opener())), Opener)
