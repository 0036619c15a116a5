"""What the system is told before records are read, and what that costs in disk reads and memory."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yogadl import chunk_sizes
from yogadl.cache import record_reader
from yogadl.cache.file_reader import FileReader
from yogadl.cache.mapping import Access, MappedFile
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef, _read_ahead
from yogadl.errors import InvalidArgumentError
from yogadl.format.pages import PAGE_SIZE
from yogadl.spec import TensorSpec

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4" / "range.mdb"
COUNT = 300
SIZE = 5000
# Read at once by the streams of these tests.
STEP = 5

Array = np.ndarray[Any, Any]


def write(path: pathlib.Path, count: int, size: int) -> pathlib.Path:
    """A cache of ``count`` arrays of ``size`` bytes, each full of its number."""
    with CacheWriter(path, TensorSpec("uint8", (size,))) as writer:
        for start in range(0, count, 100):
            numbers = np.arange(start, min(start + 100, count))
            column = np.repeat(numbers.astype("u1")[:, None], size, axis=1)
            writer.append_columns([column], len(numbers))
        writer.commit()
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A cache of 300 records of two pages each."""
    return write(tmp_path_factory.mktemp("read-ahead") / "cache.mdb", COUNT, SIZE)


class Recording(FileReader):
    """A reader that notes down what is told to the system, and what is read."""

    def __init__(self, reader: FileReader, cached: bool) -> None:
        self._reader = reader
        self._cached = cached
        self.path, self.spec, self.info = reader.path, reader.spec, reader.info
        self.size = reader.record_bytes
        self.events: list[tuple[str, list[int]]] = []

    def of(self, name: str) -> list[list[int]]:
        return [positions for event, positions in self.events if event == name]

    def _columns(self, positions: Array, out: Sequence[Array] | None, spans: bool) -> list[Any]:
        self.events.append(("read", positions.tolist()))
        return self._reader.read_columns(positions, out, spans)

    def _record(self, position: int) -> Any:
        return self._reader.read_record(position)

    def are_cached(self, positions: Array) -> bool:
        self.events.append(("ask", positions.tolist()))
        return self._cached

    def announce(self, positions: Array | range) -> None:
        if isinstance(positions, range):
            assert positions == range(len(self))
            self.events.append(("announce all", []))
        else:
            self.events.append(("announce", positions.tolist()))

    def forget(self, start: int, stop: int) -> None:
        self.events.append(("forget", list(range(start, stop))))
        self._reader.forget(start, stop)

    @property
    def record_bytes(self) -> int:
        return self.size

    def pieces(self) -> Iterator[Array]:
        return self._reader.pieces()

    def verify(self) -> None:
        self._reader.verify()

    def close(self) -> None:
        self._reader.close()


@pytest.fixture(autouse=True)
def small_steps() -> Iterator[None]:
    """Some records at a time, as with records of a megabyte; two pages are no small record."""
    with (
        mock.patch.object(record_reader, "_DENSE_BYTES", PAGE_SIZE),
        mock.patch.object(chunk_sizes, "RECORDS", chunk_sizes.ChunkSize(1 << 20, STEP)),
        mock.patch.object(chunk_sizes, "BATCHES", chunk_sizes.ChunkSize(1, 1)),
    ):
        yield


def recording(path: pathlib.Path, cached: bool = False) -> tuple[LMDBDataRef, Recording]:
    dataref = LMDBDataRef(path)
    reader = Recording(dataref.reader, cached)
    dataref._reader = reader
    return dataref, reader


def run(stream: Any, batched: bool) -> list[int]:
    """Reads an epoch; returns the records' numbers, of which only the last byte is known."""
    if not batched:
        return [int(record[0]) for record in stream]
    return [int(n) for batch in stream.batches(STEP, read_ahead=0) for n in batch[:, 0]]


def order_of(path: pathlib.Path, options: dict[str, Any]) -> list[int]:
    """The positions of a stream's first epoch."""
    with LMDBDataRef(path) as dataref:
        epochs = dataref.stream(**options).epochs
        epoch, start = epochs.counter.claim()
        positions: list[int] = epochs.positions(epoch, start, len(epochs.order)).tolist()
        return positions


@st.composite
def stream_options(draw: st.DrawFn) -> dict[str, Any]:
    shards = draw(st.integers(1, 4))
    return {
        "start_offset": draw(st.integers(0, 2 * COUNT)),
        "shuffle": draw(st.booleans()),
        "shuffle_seed": draw(st.integers(0, 9)),
        "shard_rank": draw(st.integers(0, shards - 1)),
        "num_shards": shards,
    }


@given(options=stream_options(), window=st.integers(2 * STEP, 2 * COUNT), batched=st.booleans())
def test_each_record_is_announced_once_in_order_before_it_is_read(
    path: pathlib.Path, options: dict[str, Any], window: int, batched: bool
) -> None:
    order = order_of(path, options)
    dataref, reader = recording(path)
    with dataref:
        stream = dataref.stream(**options, read_ahead=window * reader.record_bytes)
        assert run(stream, batched) == [at % 256 for at in order]
    announced = [at for positions in reader.of("announce") for at in positions]
    assert announced == order
    assert [at for positions in reader.of("read") for at in positions] == order
    told = read = 0
    for event, positions in reader.events:
        if event == "read":
            assert told >= min(read + len(positions), len(order)), "read before it was announced"
            read += len(positions)
        elif event == "announce":
            told += len(positions)
            # Announced while the next ``STEP`` records are about to be read.
            assert told - read <= window + STEP, "beyond the window"
    assert reader.of("announce all") == []


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_every_epoch_is_announced(path: pathlib.Path, shuffle: bool, batched: bool) -> None:
    dataref, reader = recording(path)
    with dataref:
        stream = dataref.stream(shuffle=shuffle, shuffle_seed=1)
        for _epoch in range(3):
            reader.events.clear()
            run(stream, batched)
            announced = [at for positions in reader.of("announce") for at in positions]
            assert announced == [at for positions in reader.of("read") for at in positions]


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_nothing_is_announced_that_is_in_memory(
    path: pathlib.Path, shuffle: bool, batched: bool
) -> None:
    dataref, reader = recording(path, cached=True)
    with dataref:
        stream = dataref.stream(
            shuffle=shuffle, shuffle_seed=1, read_ahead=40 * reader.record_bytes
        )
        run(stream, batched)
    assert reader.of("announce") == reader.of("announce all") == []
    asked = reader.of("ask")
    # A sample of them is looked at.
    assert asked
    assert max(map(len, asked)) <= 8


@pytest.mark.parametrize("batched", [False, True])
def test_nothing_is_announced_any_more_when_all_has_come(path: pathlib.Path, batched: bool) -> None:
    """As of a version in a bucket, of which more is read at once then."""
    dataref, reader = recording(path)
    with dataref:
        window = 100 * reader.size
        reader.size *= 10
        stream = dataref.stream(shuffle=True, shuffle_seed=1, read_ahead=window)
        items = iter(stream.batches(STEP, read_ahead=0) if batched else stream)
        next(items)
        assert reader.of("announce")
        reader.size, reader._cached = reader._reader.record_bytes, True
        for _ in items:
            pass
        announced = sum(map(len, reader.of("announce")))
        # What was asked for before, and the piece at which that is seen.
        assert announced <= 20 + STEP
        assert len([event for event, _ in reader.events if event == "ask"]) > 1


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("cached", [False, True])
def test_nothing_is_asked_or_announced_without_read_ahead(
    path: pathlib.Path, cached: bool, shuffle: bool, batched: bool
) -> None:
    dataref, reader = recording(path, cached)
    with dataref:
        stream = dataref.stream(shuffle=shuffle, shuffle_seed=1, read_ahead=0)
        run(stream, batched)
    assert {event for event, _ in reader.events} <= {"read", "forget"}


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("shards", [1, 3])
def test_streams_in_order_forget_what_they_have_read(
    path: pathlib.Path, shards: int, cached: bool, batched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that is more than may stay in memory."""
    window = 20
    dataref, reader = recording(path, cached)
    with dataref:
        read_ahead = window * reader.record_bytes
        options: dict[str, Any] = {"num_shards": shards, "shard_rank": shards - 1}
        whole = reader.record_bytes * COUNT // shards
        monkeypatch.setattr(_read_ahead, "kept_bytes", lambda: whole)
        run(dataref.stream(**options, read_ahead=read_ahead), batched)
        assert reader.of("forget") == []
        reader.events.clear()
        monkeypatch.setattr(_read_ahead, "kept_bytes", lambda: whole - 1)
        run(dataref.stream(**options, read_ahead=read_ahead), batched)
        read: set[int] = set()
        forgotten: list[int] = []
        kept = 0
        for event, positions in reader.events:
            if event == "read":
                read.update(positions)
            elif event == "forget":
                # Those of other shards that lie between come with them.
                own = positions[::shards]
                assert positions[0] % shards == shards - 1
                assert set(own) <= read
                # The last one's pages stay, for they may be those of the next.
                forgotten += positions[:-1]
            kept = max(kept, len(read - set(forgotten)))
        assert forgotten == sorted(set(forgotten))
        assert len(read) == COUNT // shards
        # Memory stays flat: of a window or two, however long the stream is.
        assert kept <= 2 * window
        # Read again, it is all there.
        assert run(dataref.stream(), False) == [at % 256 for at in range(COUNT)]
        reader.events.clear()
        shuffled = dataref.stream(shuffle=True, shuffle_seed=3, read_ahead=read_ahead, **options)
        run(shuffled, batched)
        assert reader.of("forget") == []


def test_small_records_all_of_them_shuffled_are_read_from_end_to_end(tmp_path: Any) -> None:
    path = write(tmp_path / "small.mdb", 3000, 16)
    for shards, shuffle, wanted in [(1, True, 1), (1, False, 0), (1000, True, 0)]:
        dataref, reader = recording(path)
        with dataref:
            run(dataref.stream(shuffle=shuffle, shuffle_seed=1, num_shards=shards), False)
        assert len(reader.of("announce all")) == wanted
        if wanted:
            events = [event for event, _ in reader.events]
            assert events.index("announce all") < events.index("read")


def test_a_window_smaller_than_a_record(path: pathlib.Path) -> None:
    dataref, reader = recording(path)
    with dataref:
        assert run(dataref.stream(read_ahead=1), True) == [at % 256 for at in range(COUNT)]
    announced = [at for part in reader.of("announce") for at in part]
    assert announced == list(range(len(announced)))


def test_many_positions_are_announced_unless_they_are_in_memory(path: pathlib.Path) -> None:
    for cached, wanted in [(False, [[7, 290, 7]]), (True, [])]:
        dataref, reader = recording(path, cached)
        with dataref:
            assert dataref.read([7, -10, 7])[:, 0].tolist() == [7, 290 % 256, 7]
        assert reader.of("announce") == wanted


@pytest.mark.parametrize("wrong", [-1, 1.5, "64M", None])
def test_windows_out_of_range(path: pathlib.Path, wrong: Any) -> None:
    with LMDBDataRef(path) as dataref, pytest.raises(InvalidArgumentError, match="read_ahead"):
        dataref.stream(read_ahead=wrong)


def test_the_window_is_pickled_with_the_stream(path: pathlib.Path) -> None:
    with LMDBDataRef(path) as dataref:
        stream = dataref.stream(read_ahead=12345)
        again = pickle.loads(pickle.dumps(stream))
        assert again.epochs.window == 12345
        again.epochs.dataref.close()


# access=


def told(*arguments: Any, **options: Any) -> tuple[LMDBDataRef, list[Access]]:
    """A reference, and what the system was told when it was made."""
    expected: list[Access] = []
    plain = MappedFile.expect

    def expect(self: MappedFile, access: Access) -> None:
        expected.append(access)
        plain(self, access)

    with mock.patch.object(MappedFile, "expect", expect):
        made = options.pop("make", LMDBDataRef)(*arguments, **options)
        return made, expected


@pytest.mark.parametrize("access", ["random", "sequential", "normal"])
def test_access_is_told_to_the_system_and_pickled(path: pathlib.Path, access: str) -> None:
    dataref, expected = told(path, access=access)
    assert expected[-1].value == access
    again, expected = told(pickle.dumps(dataref), make=pickle.loads)
    assert expected[-1].value == access
    with dataref, again:
        numbers = [at % 256 for at in range(COUNT)]
        assert run(dataref.stream(), False) == run(again.stream(), True) == numbers


def test_access_is_random_unless_told_otherwise(path: pathlib.Path) -> None:
    dataref, expected = told(path)
    assert expected[-1] is Access.RANDOM
    dataref.close()


@pytest.mark.parametrize("access", ["random", "sequential"])
def test_caches_of_yogadl_014_are_read_as_the_system_does(access: str) -> None:
    dataref, expected = told(GOLDEN, access=access)
    assert expected[-1] is Access.NORMAL
    with dataref:
        assert list(map(int, dataref.stream(read_ahead=1 << 20))) == list(range(1000))


@pytest.mark.parametrize("wrong", ["", "RANDOM", "fast", None, 1, Access])
def test_no_such_access(path: pathlib.Path, wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="'random', 'sequential', 'normal'"):
        LMDBDataRef(path, access=wrong)


# Real files

DISK = """
import json, pathlib, sys
import numpy as np
from yogadl.dataref import LMDBDataRef

def disk_reads():
    lines = pathlib.Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))

path, how, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
# What Python itself has to read the first time.
with LMDBDataRef(sys.argv[4]) as dataref:
    list(dataref.stream())
    list(dataref.stream().batches(4))
before = disk_reads()
if how == "everything":
    with open(path, "rb") as file:
        while file.read(1 << 20):
            pass
else:
    with LMDBDataRef(path) as dataref:
        stream = dataref.stream(**options)
        count = len(stream)
        if how == "batches":
            found = [int(n) for batch in stream.batches(4) for n in batch[:, -1]]
        else:
            found = [int(record[-1]) for record in stream]
        assert len(found) == count, found
print(disk_reads() - before)
"""
RECORDS, RECORD_BYTES, SHARDS = 640, 100_000, 64


def python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def drop_from_memory(path: pathlib.Path) -> None:
    """Has the system forget a file that nobody has mapped."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def test_a_shard_reads_no_more_than_its_share_of_the_disk(
    path: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    if not pathlib.Path("/proc/self/io").exists():
        pytest.skip("only Linux tells how much a process reads from the disk")
    large = write(tmp_path / "large.mdb", RECORDS, RECORD_BYTES)

    def reads(how: str, **options: Any) -> int:
        drop_from_memory(large)
        return int(python(DISK, str(large), how, json.dumps(options), str(path)))

    if reads("everything") < RECORDS * RECORD_BYTES // 2:
        pytest.skip("the file system keeps files in memory, so there are no reads to count")
    most = RECORDS * RECORD_BYTES / SHARDS * 1.05 + (128 << 10)
    shard = {"num_shards": SHARDS, "shard_rank": 5}
    for how, options in [
        ("records", {}),
        ("records", {"shuffle": True, "shuffle_seed": 1}),
        ("records", {"read_ahead": 0}),
        ("batches", {}),
        ("batches", {"shuffle": True, "shuffle_seed": 1}),
    ]:
        found = reads(how, **shard, **options)
        # The records are among what was read, or nothing was measured.
        assert RECORDS * RECORD_BYTES / SHARDS <= found <= most, (how, options, found, most)


MEMORY = """
import pathlib, sys
from yogadl.dataref import LMDBDataRef, _read_ahead

_read_ahead.kept_bytes = lambda: 64 << 20

def mapped():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile")) * 1024

most = 0
with LMDBDataRef(sys.argv[1]) as dataref:
    if sys.argv[2] == "batches":
        for batch in dataref.stream().batches(32):
            most = max(most, mapped())
    else:
        for at, record in enumerate(dataref.stream()):
            if at % 20 == 0:
                most = max(most, mapped())
    assert at == 1999 if sys.argv[2] == "records" else len(batch) == 16
print(most)
"""


def test_the_memory_of_a_stream_in_order_stays_flat(tmp_path: pathlib.Path) -> None:
    """Where it reads more than may stay in memory."""
    status = pathlib.Path("/proc/self/status")
    if not status.exists() or "RssFile" not in status.read_text():
        pytest.skip("only Linux tells how much of a file a process has in memory")
    large = write(tmp_path / "large.mdb", 2000, RECORD_BYTES)
    assert large.stat().st_size > 200e6
    for how in ("records", "batches"):
        assert int(python(MEMORY, str(large), how)) < 120e6, how
