"""What is read in order from afar comes by few requests."""

from __future__ import annotations

import numpy as np
import pytest
from remote_rig import Always, Never, Site
from test_remote_plan import SHAPES, is_nothing_fetched, store
from waiting import wait_until

from yogadl.dataref import RemoteDataRef
from yogadl.remote._fetching import lateness, passing, work_queue
from yogadl.remote._fetching.planner import FIRST_RECORDS
from yogadl.remote._fetching.work import Range, Work, cells
from yogadl.remote._local import sparse_file
from yogadl.remote._local.in_memory import CELL, InMemory, Passed
from yogadl.spec import TensorSpec

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a busy machine answers late is asked for again otherwise."""
    monkeypatch.setattr(lateness, "_LATE_SECONDS", 600.0)


def read(site: Site, ref: RemoteDataRef, expected: range) -> int:
    """Reads the records from some one on, which are as expected; how often something was asked."""
    before = len(site.web.asked)
    numbers = [batch["number"] for batch in ref.stream(expected.start).batches(16)]
    assert np.concatenate(numbers).tolist() == list(expected)
    wait_until(is_nothing_fetched)
    return len(site.web.asked) - before


@pytest.mark.parametrize("part_bytes", [None, 400_000], ids=["file", "parts"])
@pytest.mark.parametrize("shape", SHAPES)
def test_all_of_it(site: Site, shape: tuple[int, int], part_bytes: int | None) -> None:
    count = store(site, shape, part_bytes)
    parts = 1 + shape[0] * shape[1] // (part_bytes or 1 << 60)
    with site.ref() as ref:
        # What the first batch waits for does not wait for the rest.
        assert read(site, ref, range(count)) <= FIRST_RECORDS + 4 * parts
        assert read(site, ref, range(count)) == 0


@pytest.mark.parametrize("space", [Always, Never])
@pytest.mark.parametrize("shape", SHAPES)
def test_from_some_record_on(site: Site, shape: tuple[int, int], space: type) -> None:
    count = store(site, shape, None)
    with site.ref(space()) as ref:
        expected = range(count // 3, count)
        most = 2 * FIRST_RECORDS + len(expected) // 50
        assert read(site, ref, expected) <= most


def test_between_records_that_are_being_fetched_nothing_is_asked_for(site: Site) -> None:
    """Who waits for some of them may have asked before what reads ahead, which bridges gaps."""
    store(site, (60, 100_000), None)
    with site.ref() as ref:
        ranges = ref.reader.record_ranges(np.arange(20, 30))
        (file, start, _), (_, _, stop) = ranges[0], ranges[-1]
        queue = work_queue.WorkQueue()
        queue.urgent.extend(Work(*each) for each in (cells_of(each) for each in ranges[:9]))
        taken = [queue.take(1 << 30) for _ in range(9)]
        queue.soon.append(Work(*cells_of((file, start, stop)), bridge=16 << 10))
        taken += [queue.take(1 << 30), queue.take(1 << 30)]
        sizes = [0 if work is None else work.stop - work.start for work in taken]
        assert min(sizes[:9]) > 99_000
        # The last one, and what lies before it.
        assert 99_000 < sizes[9] < 105_000
        assert sizes[10] == 0
        for work in taken[:10]:
            assert work is not None
            file.pieces.release(work.start, work.stop)


def cells_of(wanted: Range) -> Range:
    return wanted[0], *cells(*wanted[1:])


def bytes_since(site: Site, before: int) -> int:
    wait_until(is_nothing_fetched)
    return sum(each.stop - each.start for each in site.web.asked[before:])


def store_sizes(site: Site, sizes: list[int]) -> int:
    """Stores a version of records of these sizes; bytes of its file."""
    spec = {"x": TensorSpec("uint8", (None,)), "number": TensorSpec("int64")}
    records = ({"x": np.zeros(size, "u1"), "number": np.int64(at)} for at, size in enumerate(sizes))
    return site.store(records, spec=spec).info.file_size


@pytest.mark.parametrize("sizes", [[100_000] * 40, [100, 50_000] * 40])
def test_of_epochs_without_room_no_byte_comes_twice(
    site: Site, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passing, "_PASSING_BYTES", 3 * sum(sizes) // 2)
    nbytes = store_sizes(site, sizes)
    with site.ref(Never()) as ref:
        before = len(site.web.asked)
        for _ in range(6):
            read(site, ref, range(len(sizes)))
        # What is read before its turn has come may be fetched for the next epoch.
        assert bytes_since(site, before) <= 1.1 * 6 * nbytes


@pytest.mark.usefixtures("little_memory")
def test_streams_in_turn(site: Site) -> None:
    """What is fetched ahead for some is not let go of for others before it is read."""
    sizes = [100_000] * 120
    nbytes = store_sizes(site, sizes)
    with site.ref(Never()) as ref:
        before = len(site.web.asked)
        streams = [iter(ref.stream(start).batches(4)) for start in (0, 40)]
        while streams:
            streams = [stream for stream in streams if next(stream, None) is not None]
        assert bytes_since(site, before) <= 1.1 * nbytes * (1 + 2 / 3)


@pytest.mark.usefixtures("little_memory")
def test_records_much_larger_than_most(site: Site) -> None:
    sizes = [10] * 4_000 + [500_000] * 20
    nbytes = store_sizes(site, sizes)
    with site.ref(Never()) as ref:
        before = len(site.web.asked)
        for at, record in enumerate(ref.stream()):
            assert (int(record["number"]), len(record["x"])) == (at, sizes[at])
        assert bytes_since(site, before) <= 1.1 * nbytes
        memory = [found[2] for file in sparse_file._open.values() for found in _cells(file)]
        assert sum(passed.nbytes for passed in set(memory)) <= 4_000_000


def _cells(file: sparse_file.SparseFile) -> list[tuple[int, memoryview, Passed]]:
    return list(file.memory._cells.values())


@pytest.mark.parametrize("chosen", [slice(None, None, 2), slice(None, None, -1), slice(500, 1500)])
def test_of_slices(site: Site, chosen: slice) -> None:
    count = len(range(3_000)[chosen])
    store_sizes(site, [1_000] * 3_000)
    with site.ref(Never()) as ref:
        numbers = [int(record["number"]) for record in ref[chosen].stream()]
        assert numbers == list(range(3_000)[chosen])
        assert len(site.web.asked) <= count / 5


def test_small_records_stay_for_others_on_their_page(site: Site) -> None:
    store_sizes(site, [100, 50_000] * 20)
    with site.ref(Never()) as ref:
        ref.read([0, 1])
        wait_until(is_nothing_fetched)
        before = len(site.web.asked)
        ref.read([2])
        assert len(site.web.asked) == before


def test_what_came_again_is_not_let_go_of_with_what_it_replaced() -> None:
    memory = InMemory()
    first, _ = memory.add(0, memoryview(bytes(4 * CELL)))
    memory.drop(0, 2 * CELL)
    second, gone = memory.add(0, memoryview(bytes(2 * CELL)))
    assert (first.left, gone) == (2, [])
    assert memory.drop(first.start, first.stop, first) == [first]
    assert second.left == 2
    memory.hold(0, CELL, reader := object())
    assert not memory.drop(0, 2 * CELL)
    memory.let_go(reader)
    assert memory.drop(0, 2 * CELL) == [second]
    assert not memory
