"""Versions of runs and of column groups, read from afar: the same as from the disk."""

from __future__ import annotations

import pathlib
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from remote_rig import Always, Never, Site, random_faults
from strategies import same
from test_remote_faults import everything, records
from versioned import write_groups, write_parts, write_runs
from waiting import wait_until

from yogadl.dataref import LMDBDataRef
from yogadl.errors import ChecksumError, ClosedError, StoreError
from yogadl.remote._fetching.planner import merged
from yogadl.spec import TensorSpec

pytestmark = pytest.mark.once

ORDER = {"shuffle": True, "shuffle_seed": 1}
# A share so small that it is asked for record by record.
SHARD = {**ORDER, "num_shards": 1 << 20, "shard_rank": 0}

IMAGES = {"id": TensorSpec("int64"), "x": TensorSpec("uint8", (None,))}
NUMBERS = {"number": TensorSpec("int64")}
SPEC = {"number": TensorSpec("int64"), "x": TensorSpec("uint8", (None,))}


def runs(path: pathlib.Path) -> LMDBDataRef:
    """Of three parts, in pieces, some of them twice, and most of one of them not at all."""
    rows = list(records(300))
    parts = write_parts(path, SPEC, [rows[:120], rows[120:130], rows[130:]])
    pieces = [(2, 5 * n, 3) for n in range(34)] + [(0, 100, 20), (1, 0, 10), (0, 110, 1)]
    return write_runs(path, SPEC, parts, [*pieces, (1, 4, 1), (2, 0, 170)], {"made": 1})


def groups(path: pathlib.Path) -> LMDBDataRef:
    """Numbers beside images that had others."""
    rows = [{"id": 7, "x": row["x"]} for row in records(200)]
    images = write_parts(path, IMAGES, [rows[:120], rows[120:]])
    numbers = write_parts(path, NUMBERS, [[{"number": n} for n in reversed(range(200))]])
    pieces = [(0, 199 - n, 1) for n in range(200)]
    both = [(IMAGES, images, [(0, 0, 120), (1, 0, 80)]), (NUMBERS, numbers, pieces)]
    return write_groups(path, SPEC, both, [(1, 0), (0, 1)], {"made": 1})


Make = Callable[[pathlib.Path], LMDBDataRef]


@pytest.mark.parametrize("make", [runs, groups])
@pytest.mark.parametrize("space", [Always, Never])
def test_the_same_records(site: Site, make: Make, space: type) -> None:
    with make(site.path()) as near, site.ref(space()) as ref:
        assert (len(ref), ref.spec, ref.metadata) == (len(near), near.spec, {"made": 1})
        assert ref.info == near.info
        assert ref.reader.content_id == near.reader.content_id
        some = np.random.default_rng(0).integers(0, len(near), 40)
        assert np.array_equal(ref.reader.tokens(some), near.reader.tokens(some))
        assert same(ref[int(some[0])], near[int(some[0])])
        assert same(ref.read(some), near.read(some))
        assert everything(ref.stream(**SHARD)) == everything(near.stream(**SHARD))
        for order in ({}, ORDER):
            assert everything(ref.stream(**order)) == everything(near.stream(**order))
        assert same(list(ref.stream().batches(7, pad=0)), list(near.stream().batches(7, pad=0)))
        state = near.stream(**ORDER, start_offset=50).state_dict()
        assert everything(ref.stream(state=state)) == everything(near.stream(state=state))
        with pickle.loads(pickle.dumps(ref)) as other:
            assert everything(other) == everything(near)
        ref.verify()
    with pytest.raises(ClosedError):
        ref.reader.read_record(0)


@pytest.mark.parametrize("make", [runs, groups])
def test_files_that_are_all_here_are_read_themselves(site: Site, make: Make) -> None:
    with make(site.path()) as near, site.ref() as ref:
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))
        wait_until(lambda: ref.reader._whole() is not None)
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))
        assert ref.reader.content_id == near.reader.content_id
        asked = len(site.web.asked)
        with site.ref() as again:
            assert everything(again) == everything(near)
        # All that is asked for is what the version is.
        assert len(site.web.asked) == asked + 1


@pytest.mark.parametrize("make", [runs, groups])
@pytest.mark.parametrize("space", [Always, Never])
@pytest.mark.long_for("groups")
def test_random_faults(site: Site, make: Make, space: type) -> None:
    with make(site.path()) as near:
        wanted = everything(near.stream(**ORDER))
    errors = 0
    for seed in range(6):
        site.folder = site.folder.with_name(f"kept {seed}")
        with site.twisting(random_faults(seed, 0.1)):
            try:
                with site.ref(space()) as ref:
                    found = everything(ref.stream(**ORDER))
                    tokens = ref.reader.tokens(np.arange(len(ref)))
            except (ChecksumError, StoreError):
                errors += 1
                continue
        assert found == wanted
        assert len(tokens) == len(wanted)
    assert errors <= 4


def test_only_the_parts_of_records_that_are_read_are_asked_for(site: Site) -> None:
    runs(site.path()).close()
    with site.ref(Never()) as ref:
        number = int(ref[len(ref) - 1]["number"])
        assert number == 299
    parts = {asked.path.partition("?")[0] for asked in site.web.asked if "parts" in asked.path}
    assert len(parts) == 1


def test_what_lies_together_is_asked_for_together(site: Site) -> None:
    # Five to a page, and every tenth replaced.
    rows = [{"number": n, "x": np.full(700, n % 256, "uint8")} for n in range(400)]
    parts = write_parts(site.path(), SPEC, [rows[:360], rows[360:]])
    pieces = [piece for n in range(40) for piece in ((0, 9 * n, 9), (1, n, 1))]
    write_runs(site.path(), SPEC, parts, pieces).close()
    with site.ref() as ref:
        reader: Any = ref.reader
        ranges = reader.record_ranges(np.arange(len(ref)))
        found = merged(ranges)
        assert len(found) == 2
        assert [it[0] for it in found] == [ranges[0][0], ranges[9][0]]
        for file, start, stop in ranges:
            assert any(it[0] is file and it[1] <= start < stop <= it[2] for it in found)
        chosen = np.array([301, 5, 300, 100])
        apart = merged(reader.record_ranges(chosen))
        assert [len(reader.record_ranges(chosen)), len(apart)] == [4, 3]
        assert apart[1:] == [ranges[5], ranges[100]]


def test_plans(site: Site) -> None:
    for make in (runs, groups):
        with make(site.path()), site.ref() as ref:
            plan = ref.plan()
            assert plan.records == len(ref)
            assert plan.record_bytes > 0.5 * ref.info.file_size / 2
            far: Any = ref.plan(num_shards=1 << 20, shards_here=1 << 10)
            assert far.record_requests >= far.records


LARGE = {
    "number": TensorSpec("int64"),
    "x": TensorSpec("uint8", (1500, 1001)),
    "y": TensorSpec("float16", (700, 1, 1000)),
    "nothing": TensorSpec("float32", (0, 3)),
    "z": TensorSpec("bool", (3,)),
}


@pytest.mark.parametrize("space", [Always, Never])
def test_batches_of_many_megabytes(site: Site, space: type) -> None:
    """Those that are mapped by themselves have what others have."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "number": np.int64(number),
            "x": rng.integers(0, 256, (1500, 1001), "u1"),
            "y": rng.integers(0, 9, (700, 1, 1000)).astype("f2"),
            "nothing": np.zeros((0, 3), "f4"),
            "z": rng.integers(0, 2, 3).astype(bool),
        }
        for number in range(10)
    ]
    with site.store(rows, spec=LARGE) as near, site.ref(space()) as ref:
        for size in (1, 4, 10):
            found = list(ref.stream(**ORDER).batches(size))
            wanted = list(near.stream(**ORDER).batches(size))
            assert same(found, wanted)
            assert all(batch["x"].flags.writeable for batch in found)
            del found, wanted
