"""Versions in buckets that are read without downloading them: the records, and the requests."""

from __future__ import annotations

import math
import multiprocessing
import os
import pathlib
import pickle
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from exchange import Request

import yogadl
from yogadl import backoff
from yogadl.dataref import LMDBDataRef, RemoteDataRef
from yogadl.errors import (
    CacheNotFoundError,
    CacheReplacedError,
    ChecksumError,
    ForeignFileError,
    InvalidArgumentError,
)
from yogadl.remote._fetching import bulk_queue, lateness, urgency
from yogadl.remote._fetching.fetcher import fetcher
from yogadl.storage._buckets import far as far_settings

COUNT = 500
SIZES = (8, 700, 6000)
"""Bytes of records: several to a page, several pages to a record."""


def arrays(count: int = COUNT, size: int = 6000) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(size)
    for number in range(count):
        yield {"x": rng.integers(0, 256, size, dtype="u1"), "number": np.int64(number)}


def ragged(count: int = COUNT) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(1)
    for number in range(count):
        size = int(rng.integers(0, 9000 if number % 7 == 0 else 40))
        yield {"x": rng.random(size), "name": b"n" * (number % 50), "number": np.int64(number)}


def everything(records: Any) -> list[tuple[int, bytes]]:
    return [(int(record["number"]), record["x"].tobytes()) for record in records]


def far(rig: Any, local: pathlib.Path, name: str = "a") -> RemoteDataRef:
    found = rig.make_storage(local).fetch(name, "1", download=False)
    assert isinstance(found, RemoteDataRef)
    return found


def data_requests(requests: list[Request]) -> list[Request]:
    return [request for request in requests if "range" in request.headers]


@pytest.mark.parametrize("part_bytes", [1 << 30, 100_000], ids=["file", "parts"])
@pytest.mark.parametrize("make", [ragged, *[lambda s=s: arrays(size=s) for s in SIZES]])
def test_records_are_those_that_were_stored(
    rig: Any,
    local: pathlib.Path,
    elsewhere: pathlib.Path,
    make: Callable[[], Any],
    part_bytes: int,
) -> None:
    storage = rig.make_storage(local)
    spec = None if make is not ragged else RAGGED
    storage.submit(make(), "a", "1", spec=spec, part_bytes=part_bytes, metadata={"from": "tests"})
    wanted = everything(make())
    with storage.fetch("a", "1", download=True) as near, far(rig, elsewhere) as ref:
        assert isinstance(near, LMDBDataRef)
        assert (ref.spec, ref.metadata, len(ref)) == (near.spec, {"from": "tests"}, COUNT)
        assert ref.info.digest == near.info.digest
        assert ref.reader.content_id == near.reader.content_id
        assert everything([ref[7], ref[COUNT - 1]]) == [wanted[7], wanted[-1]]
        orders: list[dict[str, Any]] = [
            {"shuffle": True, "shuffle_seed": 3, "num_shards": 3, "shard_rank": 1},
            {"shuffle": True, "shuffle_seed": 4, "shuffle_then_shard": True, "start_offset": 40},
            {"shuffle": yogadl.KeyedShuffle(), "shuffle_seed": 4},
            {},
        ]
        for order in orders:
            stream, same = ref.stream(**order), near.stream(**order)
            assert everything(stream) == everything(same)
            assert stream.state_dict() == same.state_dict()
        chosen = yogadl.concat([ref[10:400:3], ref[5:50]])
        assert everything(chosen.stream()) == [*wanted[10:400:3], *wanted[5:50]]
        ref.verify()


RAGGED = {
    "x": yogadl.spec.TensorSpec("float64", (None,)),
    "name": yogadl.spec.TensorSpec("string", ()),
    "number": yogadl.spec.TensorSpec("int64", ()),
}


def wait_until_counted(ref: RemoteDataRef) -> None:
    """Waits until what is being fetched has come and is counted, which is done a little later."""
    files, end = ref.reader.files, time.monotonic() + 60
    while fetcher().has_bulk(files.traffic) or fetcher().office.desk(files.server).queue.flying:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_bytes_come_once(rig: Any, local: pathlib.Path, elsewhere: pathlib.Path) -> None:
    rig.make_storage(local).submit(arrays(), "a", "1", part_bytes=1_000_000)
    size = sum(len(rig.raw.get(key)) for key in rig.own_keys())
    with far(rig, elsewhere) as ref:
        stream = ref.stream(shuffle=True, shuffle_seed=1)
        first = everything(stream)
        traffic = ref.reader.files.traffic
        wait_until_counted(ref)
        assert ref.reader.files.are_complete()
        assert traffic.nbytes <= 1.02 * size
        before = traffic.requests
        with rig.counting() as requests:
            second = everything(stream)
        assert (traffic.requests, data_requests(requests)) == (before, [])
        assert sorted(first) == sorted(second) == everything(arrays())
        assert first != second
    # Another process, or a later one, has it.
    with rig.counting() as requests, far(rig, elsewhere) as ref:
        assert sorted(everything(ref.stream(shuffle=True, shuffle_seed=1))) == sorted(first)
    assert len(data_requests(requests)) == 1


def test_a_shard_fetches_its_own_records(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    rig.make_storage(local).submit(arrays(size=100_000, count=128), "a", "1")
    with far(rig, elsewhere) as ref:
        order = {"shuffle": True, "shuffle_seed": 1, "num_shards": 16, "shard_rank": 1}
        assert len(everything(ref.stream(**order))) == 8
        # The first request has 256 KiB, of whatever records.
        assert ref.reader.files.traffic.nbytes <= 1.05 * 8 * 100_000


def test_the_first_batch_takes_three_round_trips(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    rig.make_storage(local).submit(arrays(2000, 3000), "a", "1", metadata={"k": "v" * 500})
    storage = rig.make_storage(elsewhere)
    with rig.counting() as requests:
        ref = storage.fetch("a", "1", download=False)
        opening = len(requests)
        next(iter(ref.stream(shuffle=True, shuffle_seed=2).batches(8)))
    assert opening <= (1 if rig.dialect == "s3" else 2)
    ref.close()


def test_every_process_reads_and_each_byte_comes_once(
    s3: Any, local: pathlib.Path, elsewhere: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a busy machine answers late is asked for again otherwise.
    monkeypatch.setattr(lateness, "_LATE_SECONDS", 600.0)
    monkeypatch.setattr(urgency, "_OTHERS_SECONDS", 600.0)
    monkeypatch.setattr(bulk_queue, "FIRST_LATE_SECONDS", math.inf)
    monkeypatch.setattr(bulk_queue, "_LATE_SECONDS", math.inf)
    s3.make_storage(local).submit(arrays(size=50_000, count=200), "a", "1")
    size = len(s3.raw.get("data/a/1/cache.mdb"))
    context = multiprocessing.get_context("fork")
    # What comes to who ends is asked for again by those who go on.
    ended = context.Barrier(4)
    with s3.counting() as requests:
        shards = [
            context.Process(target=read_shard, args=(s3, elsewhere, rank, ended))
            for rank in range(4)
        ]
        for shard in shards:
            shard.start()
        for shard in shards:
            shard.join(120)
    assert [shard.exitcode for shard in shards] == [0] * 4
    got = sum(length(request) for request in data_requests(requests))
    assert got <= 1.02 * size + 4 * (256 << 10)


def length(request: Request) -> int:
    first, _, last = request.headers["range"].removeprefix("bytes=").partition("-")
    return int(last) - int(first) + 1


def read_shard(rig: Any, local: pathlib.Path, rank: int, ended: Any) -> None:
    with far(rig, local) as ref:
        order = {"shuffle": True, "shuffle_seed": 1, "shard_rank": rank, "num_shards": 4}
        found = everything(ref.stream(shuffle_then_shard=True, **order))
        known = dict(everything(arrays(size=50_000, count=200)))
        assert len(found) == 50
        assert all(known[number] == data for number, data in found)
        ended.wait(120)


def test_after_a_fork(rig: Any, local: pathlib.Path, elsewhere: pathlib.Path) -> None:
    rig.make_storage(local).submit(arrays(), "a", "1", part_bytes=1_000_000)
    ref = far(rig, elsewhere)
    stream = ref.stream(shuffle=True, shuffle_seed=1)
    records = iter(stream)
    first = everything([next(records) for _ in range(10)])
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found = everything(ref.stream(shuffle=True, shuffle_seed=1))
            os.write(writing, b"same" if found[:10] == first and len(found) == COUNT else b"no")
        finally:
            os._exit(0)
    os.close(writing)
    rest = everything(records)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reading, 10) == b"same"
    os.close(reading)
    assert sorted(first + rest) == everything(arrays())
    ref.close()


def test_pickled(rig: Any, local: pathlib.Path, elsewhere: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    storage.submit(arrays(), "a", "1")
    with far(rig, elsewhere) as ref:
        data = pickle.dumps(ref)
        with pickle.loads(data) as again:
            assert everything([again[3]]) == everything([ref[3]])
        stream = ref.stream(shuffle=True, shuffle_seed=1)
        next(iter(stream))
        assert everything(pickle.loads(pickle.dumps(stream))) == everything(stream)
    storage.submit(arrays(10), "a", "1")
    with pytest.raises(CacheReplacedError, match="replaced after this reference was pickled"):
        pickle.loads(data)


def test_replaced_or_deleted_while_it_is_read(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path, quick_retries: None
) -> None:
    storage = rig.make_storage(local)
    for replaces in (True, False):
        storage.submit(arrays(size=100_000, count=100), "a", "1")
        ref = far(rig, elsewhere)
        order = {"shuffle": True, "shuffle_seed": 1, "num_shards": 20}
        known = everything(ref.stream(**order))
        if replaces:
            storage.submit(arrays(7), "a", "1")
        else:
            storage.delete("a", "1")
        # What is here can still be read.
        assert everything(ref.stream(**order)) == known
        with pytest.raises(CacheReplacedError, match="replaced or deleted while it was read"):
            everything(ref.stream())
        ref.close()


def test_what_is_damaged_is_never_seen(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    rig.make_storage(local).submit(arrays(), "a", "1")
    key = "data/a/1/cache.mdb"
    whole = rig.raw.get(key)
    with far(rig, elsewhere) as ref:
        (entry,) = ref.reader.look_up(np.array([77]))[1].tolist()
    damaged = bytearray(whole)
    damaged[entry[0] + 3000] ^= 1
    rig.raw.put(key, bytes(damaged), rig.raw.metadata(key))
    with far(rig, elsewhere) as ref:
        with pytest.raises(ChecksumError, match="record 77 is not what was written"):
            everything(ref.stream())
        assert everything([ref[78]]) == [everything(arrays())[78]]


@pytest.mark.parametrize("seed", range(4))
def test_faults(
    rig: Any,
    local: pathlib.Path,
    elsewhere: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    rig.make_storage(local).submit(arrays(), "a", "1", part_bytes=1_000_000)
    quick = backoff.Limits(patience=60.0, answer=5.0, first_pause=0.01, longest_pause=0.1)
    monkeypatch.setattr(backoff, "LIMITS", quick)
    shards = 1 + seed % 2
    with rig.random_faults(seed, 0.3), far(rig, elsewhere) as ref:
        found = everything(ref.stream(shuffle=True, shuffle_seed=seed, num_shards=shards))
    known = dict(everything(arrays()))
    assert len(found) == COUNT // shards
    assert all(known[number] == data for number, data in found)


def test_left_to_itself_fetch_downloads_what_is_not_large(
    rig: Any,
    local: pathlib.Path,
    elsewhere: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = rig.make_storage(local)
    storage.submit(arrays(), "a", "1", part_bytes=1_000_000)
    there = rig.make_storage(elsewhere)
    monkeypatch.setattr(far_settings, "LARGE_BYTES", 1_000_000)
    with there.fetch("a", "1") as ref:
        assert isinstance(ref, RemoteDataRef)
        assert everything([ref[0]]) == everything(arrays())[:1]
    with there.cacheable("a", "1")(lambda: None)() as ref:
        assert isinstance(ref, RemoteDataRef)
    monkeypatch.undo()
    with there.fetch("a", "1") as ref:
        assert isinstance(ref, LMDBDataRef)
    with rig.counting() as requests:
        there.fetch("a", "1").close()
    assert len(requests) == 1


def test_what_is_not_there_or_of_0_1_4(rig: Any, local: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    with pytest.raises(CacheNotFoundError, match="submit it first"):
        storage.fetch("a", "1", download=False)
    rig.raw.put("data/old/1/cache.mdb", bytes(100_000))
    with pytest.raises(ForeignFileError, match="download=True"):
        storage.fetch("old", "1", download=False)
    if rig.dialect == "s3":
        # Google's emulator says of an empty object what the real store does not.
        rig.raw.put("data/empty/1/cache.mdb", b"")
        with pytest.raises(ForeignFileError, match="it is empty"):
            storage.fetch("empty", "1", download=False)


def test_closed(rig: Any, local: pathlib.Path, elsewhere: pathlib.Path) -> None:
    rig.make_storage(local).submit(arrays(), "a", "1")
    ref = far(rig, elsewhere)
    stream = ref.stream()
    ref.close()
    ref.close()
    for use in (lambda: ref[0], lambda: next(iter(stream)), lambda: ref.info):
        with pytest.raises(yogadl.errors.ClosedError):
            use()
    assert "closed" in repr(ref)


def test_whether_to_download_is_told_by_yes_or_no(s3: Any, local: pathlib.Path) -> None:
    storage = s3.make_storage(local)
    storage.submit([1, 2], "a", "1")
    assert isinstance(storage.fetch("a", "1", download=np.False_), RemoteDataRef)
    with pytest.raises(InvalidArgumentError, match="download must be True or False, not 'no'"):
        storage.fetch("a", "1", download="no")
