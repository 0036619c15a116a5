"""DataRefs and streams closed, pickled, forked, shared by threads, or with another file behind."""

from __future__ import annotations

import concurrent.futures
import copy
import gc
import itertools
import multiprocessing
import os
import pathlib
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

from yogadl.cache.writer import CacheWriter
from yogadl.dataref import IndexedStream, LMDBDataRef
from yogadl.errors import (
    CacheNotFoundError,
    CacheReplacedError,
    ClosedError,
    InvalidArgumentError,
)
from yogadl.spec import TensorSpec
from yogadl.storage import LFSStorage

TEN = list(range(10))
COUNT = 5000
GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4" / "range.mdb"
SHUFFLED: dict[str, Any] = {"start_offset": 4321, "shuffle": True, "shuffle_seed": 11}

needs_proc = pytest.mark.skipif(
    not pathlib.Path("/proc/self/maps").exists(), reason="only Linux tells what a process has open"
)


def write(path: pathlib.Path, records: Any) -> pathlib.Path:
    array = np.asarray(records, "i8")
    with CacheWriter(path, TensorSpec("int64")) as writer:
        writer.append_columns([array], len(array))
        writer.commit()
    return path


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """A cache of the numbers 0 … 9."""
    return write(tmp_path / "cache.mdb", TEN)


@pytest.fixture(params=["format 1", "0.1.4"])
def large(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> pathlib.Path:
    """A cache of the numbers 0 … n-1, of more than a chunk."""
    return GOLDEN if request.param == "0.1.4" else write(tmp_path / "large.mdb", range(COUNT))


# Pickling


def test_pickled_datarefs_read_the_same(large: pathlib.Path) -> None:
    with LMDBDataRef(large) as dataref, pickle.loads(pickle.dumps(dataref)) as again:
        assert type(again) is LMDBDataRef
        assert again.info == dataref.info
        assert again.spec == dataref.spec
        assert list(again.stream()) == list(dataref.stream())
        assert copy.copy(dataref)[3] == copy.deepcopy(dataref)[3] == 3


def test_pickles_are_small(large: pathlib.Path) -> None:
    with LMDBDataRef(large) as dataref:
        stream = dataref.stream(**SHUFFLED)
        next(iter(stream))
        assert len(pickle.dumps(dataref)) < 1000
        assert len(pickle.dumps(stream)) < 2000


def test_relative_paths_mean_the_same_wherever_they_are_unpickled(
    path: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with LMDBDataRef(path.name) as dataref:
        pickled = pickle.dumps(dataref)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pickle.loads(pickled) as again:
        assert list(again.stream()) == TEN


def test_relative_paths_stay_when_the_current_directory_changes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = LFSStorage("data")
    storage.submit(np.arange(10), "a", "1", part_bytes=1)
    storage.tag("a", "main", "1")
    with storage.change("a", "main") as change:
        change.append(np.arange(10, 12))
    built = []

    @storage.cacheable("b", "1")
    def make() -> list[int]:
        built.append(1)
        return [1, 2]

    with storage.fetch("a", "main") as dataref, make():
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert list(dataref.stream()) == list(range(12))
        for again in (storage, pickle.loads(pickle.dumps(storage))):
            with again.fetch("a", "main") as other:
                assert list(other.stream()) == list(range(12))
        with pickle.loads(pickle.dumps(dataref)) as other:
            assert list(other.stream()) == list(range(12))
        with make():
            assert len(built) == 1
        with pytest.raises(CacheNotFoundError, match=str(tmp_path)):
            storage.fetch("a", "2")
    assert not list(pathlib.Path().iterdir())


def test_no_relative_path_without_a_current_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(InvalidArgumentError, match="the current directory, which is gone"):
        LFSStorage("data")
    with pytest.raises(InvalidArgumentError, match="zero character"):
        LFSStorage("/tmp/\0")


def test_pickled_streams_go_on_where_they_stood(large: pathlib.Path) -> None:
    with LMDBDataRef(large) as dataref:
        reference = dataref.stream(**SHUFFLED)
        epochs = [list(reference) for _ in range(4)]
        stream = dataref.stream(**SHUFFLED)
        for number in range(3):
            unread = iter(stream)
            copied = pickle.loads(pickle.dumps(stream))
            assert len(copied) == len(stream)
            assert [list(copied), list(copied)] == epochs[number : number + 2]
            # An epoch counts from its first record on.
            begun = iter(stream)
            first = next(begun)
            assert list(pickle.loads(pickle.dumps(stream))) == epochs[number + 1]
            assert [first, *begun] == epochs[number]
            del unread


def test_another_file_under_the_path_is_told(path: pathlib.Path) -> None:
    with LMDBDataRef(path) as dataref:
        pickled = [pickle.dumps(dataref), pickle.dumps(dataref.stream())]
        write(path, TEN)
        # Of the same records, it means the same.
        for data in pickled:
            assert [int(number) for number in pickle.loads(data)] == TEN
        write(path, TEN[::-1])
        for data in pickled:
            with pytest.raises(CacheReplacedError, match=r"cache\.mdb was replaced"):
                pickle.loads(data)
        path.unlink()
        for data in pickled:
            with pytest.raises(CacheNotFoundError):
                pickle.loads(data)


# Processes


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_read_the_same(large: pathlib.Path, method: str) -> None:
    with LMDBDataRef(large) as dataref:
        stream = dataref.stream(**SHUFFLED)
        next(iter(stream))
        expected = list(pickle.loads(pickle.dumps(stream)))
        context = multiprocessing.get_context(method)
        with concurrent.futures.ProcessPoolExecutor(2, context) as pool:
            lists = [pool.submit(list, stream) for _ in range(2)]
            records = pool.submit(dataref.__getitem__, 77)
            assert [part.result() for part in lists] == [expected] * 2
            assert records.result() == 77
        assert list(stream) == expected


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_children_of_a_fork_share_what_is_open(large: pathlib.Path) -> None:
    with LMDBDataRef(large) as dataref:
        stream = dataref.stream(**SHUFFLED)
        iterator = iter(stream)
        begun = next(iterator)
        expected = [int(begun), *(int(record) for record in pickle.loads(pickle.dumps(stream)))]
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.write(writing, b"%d" % (sum(map(int, stream)) + int(begun)))
                dataref.close()
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        assert os.waitpid(child, 0)[1] == 0
        assert int(os.read(reading, 100)) == sum(expected)
        os.close(reading)
        # The parent's own place in the stream is as it was.
        assert [begun, *stream] == expected


# Threads


def test_threads_share_a_dataref(large: pathlib.Path) -> None:
    with LMDBDataRef(large) as dataref:
        count = len(dataref)

        def read(seed: int) -> bool:
            shuffled = list(dataref.stream(shuffle=True, shuffle_seed=seed))
            order = np.random.RandomState(seed).permutation(count)
            batch = dataref.read(order)
            return sorted(shuffled) == list(range(count)) and batch.tolist() == order.tolist()

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert all(pool.map(read, range(32)))


def test_threads_share_a_stream(large: pathlib.Path) -> None:
    with LMDBDataRef(large) as dataref:
        reference = dataref.stream(shuffle=True, shuffle_seed=3)
        expected = sorted([int(record) for record in reference] for _ in range(16))
        stream = dataref.stream(shuffle=True, shuffle_seed=3)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = pool.map(lambda _: [int(record) for record in stream], range(16))
            assert sorted(found) == expected


# Closing


def test_after_close(large: pathlib.Path) -> None:
    dataref = LMDBDataRef(large)
    stream = dataref.stream()
    begun = iter(stream)
    next(begun)
    dataref.close()
    dataref.close()
    assert "closed" in repr(dataref)
    uses: list[Any] = [
        lambda: len(dataref),
        lambda: dataref[0],
        lambda: dataref.read([0]),
        lambda: dataref.read([]),
        lambda: dataref.spec,
        lambda: dataref.info,
        lambda: dataref.metadata,
        lambda: dataref.reader,
        dataref.stream,
        dataref.verify,
        lambda: pickle.dumps(dataref),
        lambda: list(stream),
        lambda: stream.spec,
        # What was read before may still come, but not all.
        lambda: [list(begun), list(stream)],
    ]
    for use in uses:
        with pytest.raises(ClosedError, match="closed"):
            use()


def test_a_closed_stream_leaves_its_dataref_open(path: pathlib.Path) -> None:
    with LMDBDataRef(path) as dataref:
        with dataref.stream() as stream:
            assert isinstance(stream, IndexedStream)
            assert list(stream) == TEN
        stream.close()
        with pytest.raises(ClosedError):
            list(stream)
        with pytest.raises(ClosedError):
            _ = stream.spec
        assert list(dataref.stream()) == TEN


def test_a_stream_closed_in_the_middle_of_an_epoch_ends(large: pathlib.Path) -> None:
    with LMDBDataRef(large) as dataref:
        stream = dataref.stream()
        # More than are read at once, if need be in another epoch.
        begun = itertools.chain(stream) if len(stream) == COUNT else itertools.chain(stream, stream)
        next(begun)
        stream.close()
        with pytest.raises(ClosedError):
            list(begun)
        assert len(list(dataref.stream())) == len(dataref)


def open_files(path: pathlib.Path) -> list[str]:
    """What this process has of a file: maps and descriptors."""
    gc.collect()
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    found = [line for line in maps if str(path) in line]
    for entry in pathlib.Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except FileNotFoundError:
            continue
        if str(path) in target:
            found.append(f"descriptor of {target}")
    return found


@needs_proc
@pytest.mark.parametrize("legacy", [False, True])
def test_nothing_is_left_open_after_close(tmp_path: pathlib.Path, legacy: bool) -> None:
    path = tmp_path / "mapped.mdb"
    path.write_bytes(GOLDEN.read_bytes()) if legacy else write(path, range(COUNT))
    dataref = LMDBDataRef(path)
    stream = dataref.stream(**SHUFFLED)
    first, second = list(stream), iter(stream)
    kept = [next(second), dataref[3], dataref.read([1, 2])]
    assert open_files(path)
    dataref.close()
    del second
    assert open_files(path) == []
    assert (len(first), len(kept)) == (len(first), 3)


@needs_proc
def test_nothing_is_left_open_of_what_is_forgotten(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "mapped.mdb", range(COUNT))
    dataref = LMDBDataRef(path)
    seen = weakref.ref(dataref)
    stream = dataref.stream()
    list(stream)
    del dataref
    # The stream keeps it open …
    assert len(list(stream)) == COUNT
    assert open_files(path)
    del stream
    # … and nothing else does.
    assert open_files(path) == []
    assert seen() is None


@needs_proc
def test_nothing_is_left_open_of_what_cannot_be_read(tmp_path: pathlib.Path) -> None:
    path = write(tmp_path / "mapped.mdb", range(COUNT))
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-4096])
    for _ in range(3):
        with pytest.raises(ValueError, match="should have"):
            LMDBDataRef(path)
    assert open_files(path) == []


# Several at once


def test_two_datarefs_of_one_file(large: pathlib.Path) -> None:
    with LMDBDataRef(large) as one, LMDBDataRef(str(large)) as two:
        pairs = zip(one.stream(), two.stream(), strict=True)
        assert all(mine == theirs for mine, theirs in pairs)
        one.close()
        assert two[5] == 5
        assert len(list(two.stream())) == len(two)


def test_replaced_while_open(path: pathlib.Path) -> None:
    with LMDBDataRef(path) as old:
        stream = old.stream()
        begun = iter(stream)
        next(begun)
        write(path, range(100, 2100))
        assert list(begun) == TEN[1:]
        assert list(stream) == TEN
        assert old.read([9, 0]).tolist() == [9, 0]
        old.verify()
        with LMDBDataRef(path) as new:
            assert len(new) == 2000
            assert new[0] == 100
            assert old[0] == 0
            assert new.info.digest != old.info.digest
        path.unlink()
        assert list(stream) == TEN


def test_streams_of_one_dataref_are_independent(path: pathlib.Path) -> None:
    with LMDBDataRef(path) as dataref:
        streams = [dataref.stream(start_offset=at) for at in range(3)]
        iterators = [iter(stream) for stream in streams]
        assert [int(next(iterator)) for iterator in iterators] == [0, 1, 2]
        assert [int(next(iterator)) for iterator in iterators] == [1, 2, 3]
        assert list(itertools.chain(*iterators)) == [*TEN[2:], *TEN[3:], *TEN[4:]]


def test_repr_and_info(path: pathlib.Path) -> None:
    with LMDBDataRef(path) as dataref:
        assert repr(dataref) == f"LMDBDataRef({str(path)!r}, 10 records of int64)"
        assert (dataref.info.record_count, dataref.metadata) == (10, {})
