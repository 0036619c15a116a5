"""Versions whose records are runs of those of parts are read as one file of the same records is."""

from __future__ import annotations

import copy
import itertools
import pathlib
import tempfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import check_alike
from strategies import data_sets, same
from versioned import Run, chosen, write_parts, write_plain, write_runs

from yogadl.cache import mapped_reader
from yogadl.cache.opening import open_cache
from yogadl.cache.parts import PARTS_FOLDER
from yogadl.cache.parts_reader import PartsReader
from yogadl.dataref import LMDBDataRef
from yogadl.errors import CacheFormatError, ClosedError
from yogadl.format import index as indexes
from yogadl.format import table as tables
from yogadl.spec import TensorSpec

pytestmark = pytest.mark.once


@st.composite
def runs_of(draw: st.DrawFn, counts: list[int]) -> list[Run]:
    """Some runs of parts of so many records; two may follow on one another, and be one."""
    runs = []
    for _ in range(draw(st.integers(1, 8))):
        part = draw(st.integers(0, len(counts) - 1))
        first = draw(st.integers(0, counts[part] - 1))
        runs.append((part, first, draw(st.integers(1, counts[part] - first))))
    return runs


@st.composite
def cut(draw: st.DrawFn, records: list[Any]) -> list[list[Any]]:
    """Records cut into parts, which are not empty."""
    ends = draw(st.sets(st.integers(1, len(records) - 1))) if len(records) > 1 else set()
    bounds = [0, *sorted(ends), len(records)]
    return [records[start:stop] for start, stop in itertools.pairwise(bounds)]


@settings(max_examples=100, deadline=None)
@given(data=st.data(), data_set=data_sets(max_size=12))
def test_runs_are_read_as_one_file_is(data: st.DataObject, data_set: tuple[Any, list[Any]]) -> None:
    spec, records = data_set
    if not records:
        return
    parts = data.draw(cut(records))
    runs = data.draw(runs_of(list(map(len, parts))))
    wanted = chosen(parts, runs)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = folder / "a" / "runs" / "cache.mdb"
        one = write_plain(folder / "a" / "one" / "cache.mdb", spec, wanted)
        many = write_runs(path, spec, write_parts(path, spec, parts), runs, {"made": 1})
        assert isinstance(many.reader, PartsReader)
        assert (same(many.spec, spec), many.metadata) == (True, {"made": 1})
        picked = data.draw(st.lists(st.integers(0, len(wanted) - 1)))
        check_alike(path, many, one, wanted, picked)


@settings(max_examples=200, deadline=None)
@given(
    counts=st.lists(st.sampled_from([1, 1, 1, 2, 5, 300, 100_000]), min_size=1, max_size=60),
    seed=st.integers(0, 1 << 32),
)
def test_every_position_is_found_in_its_run(counts: list[int], seed: int) -> None:
    finder = indexes.RunFinder(np.array(counts))
    total = sum(counts)
    edges = np.cumsum(counts)
    some = np.random.default_rng(seed).integers(0, total, 50)
    positions = np.concatenate([edges - 1, edges[:-1], some])
    found = finder.find(positions)
    assert (finder.starts[found] <= positions).all()
    assert (positions < finder.ends[found]).all()


def numbers(folder: pathlib.Path, runs: list[Run], parts: int = 3) -> LMDBDataRef:
    """A version of runs of parts of ten numbers each: 0 to 9, 10 to 19, and so on."""
    path = folder / "a" / "1" / "cache.mdb"
    records = [list(range(10 * part, 10 * part + 10)) for part in range(parts)]
    spec = TensorSpec("int64")
    return write_runs(path, spec, write_parts(path, spec, records), runs)


def read(ref: LMDBDataRef) -> list[int]:
    return [int(record) for record in ref.stream()]


@pytest.mark.parametrize("check_records", [False, True])
@pytest.mark.parametrize("shape", [(), (3,), (15,), (16,), (17,), (0,)])
def test_small_values_are_put_side_by_side(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    shape: tuple[int, ...],
    check_records: bool,
) -> None:
    """Once all of the index is checked; then they are read from there, and are the same."""
    monkeypatch.setattr(mapped_reader, "_LARGEST_VALUE", 64)
    rng = np.random.default_rng(0)
    spec = {"x": TensorSpec("float32", shape), "n": TensorSpec("int16")}
    parts = [
        [{"x": rng.random(shape, "f4"), "n": np.int16(n)} for n in range(5000)] for _ in range(3)
    ]
    runs = [(n % 3, int(rng.integers(4990)), int(rng.integers(1, 10))) for n in range(500)]
    wanted = chosen(parts, runs)
    path = tmp_path / "a" / "1" / "cache.mdb"
    write_runs(path, spec, write_parts(path, spec, parts), runs).close()
    with LMDBDataRef(path, check_records=check_records) as ref:
        reader = ref.reader
        assert isinstance(reader, PartsReader)
        for _ in range(3):
            order = rng.permutation(len(wanted))
            for some in np.array_split(order, 20):
                found = reader.read_columns(some)
                for name, column in zip(("n", "x"), found, strict=True):
                    expected = np.array([wanted[position][name] for position in some])
                    assert column.dtype == expected.dtype
                    assert np.array_equal(column, expected)
                    # Nobody writes to what others read.
                    column[...] = 0
            is_held = reader._values is not None
            assert is_held == (shape not in ((16,), (17,)) and not check_records)
        some = np.arange(len(wanted))
        memory = [np.empty(len(some), "i2"), np.empty((len(some), *shape), "f4")]
        reader.read_columns(some, memory)
        assert np.array_equal(memory[0], [record["n"] for record in wanted])
        assert np.array_equal(memory[1], [record["x"] for record in wanted])
        again = copy.copy(reader)
    with pytest.raises(ClosedError):
        reader.read_columns(some)
    assert np.array_equal(again.read_columns(some)[0], memory[0])
    again.close()


def test_what_is_not_needed_is_not_in_the_table(tmp_path: pathlib.Path) -> None:
    with numbers(tmp_path, [(2, 0, 4), (0, 3, 2), (2, 4, 6), (0, 5, 1), (0, 6, 1)]) as ref:
        assert read(ref) == [20, 21, 22, 23, 3, 4, *range(24, 30), 5, 6]
        assert isinstance(ref.reader, PartsReader)
        table = ref.reader._parts.table
        assert len(table.parts) == len(ref.reader.parts_by_digest()) == 2
        assert table.groups[0].runs is not None
        # The last two are one.
        assert table.groups[0].runs.tolist() == [
            (0, 0, 4),
            (1, 3, 2),
            (0, 4, 6),
            (1, 5, 2),
        ]
    # Whole parts in order need no runs.
    with numbers(tmp_path, [(2, 0, 7), (2, 7, 3), (0, 0, 10)]) as ref:
        assert read(ref) == [*range(20, 30), *range(10)]
        assert isinstance(ref.reader, PartsReader)
        assert ref.reader.header.index.length == 2 * tables.PART.itemsize
        assert ref.reader.header.index.checksum == 0


def test_a_part_of_which_nothing_is_used_need_not_be_there(tmp_path: pathlib.Path) -> None:
    with numbers(tmp_path, [(0, 5, 5), (1, 0, 1)]) as ref:
        used = {path.name for path in ref.reader.parts_by_digest().values()}
    for part in (tmp_path / "a" / PARTS_FOLDER).iterdir():
        if part.name not in used:
            part.unlink()
    with LMDBDataRef(tmp_path / "a" / "1" / "cache.mdb") as ref:
        assert read(ref) == [5, 6, 7, 8, 9, 10]
        ref.verify()


def test_only_blocks_that_are_used_are_read(tmp_path: pathlib.Path) -> None:
    """Damage in the index beside them does no harm, and is found by ``verify``."""
    path = tmp_path / "a" / "1" / "cache.mdb"
    spec, count = TensorSpec("int64"), 3 * indexes.BLOCK
    parts = write_parts(path, spec, [list(range(count))])
    other = tmp_path / "a" / "2" / "cache.mdb"
    other.parent.mkdir()
    write_runs(path, spec, parts, [(0, 10, 5), (0, count - 5, 5), (0, 0, 1)]).close()
    write_runs(other, spec, parts, [(0, 5000, 5), (0, 0, 1)]).close()
    (part,) = (tmp_path / "a" / PARTS_FOLDER).iterdir()
    data = bytearray(part.read_bytes())
    with open_cache(part) as reader:
        index = reader.header.index.offset  # type: ignore[attr-defined]
    data[index + 16 * (indexes.BLOCK + 7)] ^= 1
    part.write_bytes(data)
    with LMDBDataRef(path) as ref:
        assert read(ref) == [*range(10, 15), *range(count - 5, count), 0]
        with pytest.raises(CacheFormatError, match="damaged index at records 4096 to 8191"):
            ref.verify()
    with LMDBDataRef(other) as ref:
        with pytest.raises(CacheFormatError, match=f"{part.name} has a damaged index"):
            ref.read([0, 1])
        assert int(ref[5]) == 0


def test_a_version_of_no_records_is_a_plain_file(tmp_path: pathlib.Path) -> None:
    with numbers(tmp_path, []) as ref:
        assert (len(ref), ref.spec, ref.reader.parts_by_digest()) == (0, TensorSpec("int64"), {})
        assert read(ref) == []


def test_many_runs(tmp_path: pathlib.Path) -> None:
    """One of many records among many of one, and far more of them than are in a bucket."""
    path = tmp_path / "a" / "1" / "cache.mdb"
    spec, count = TensorSpec("int64"), 60_000
    parts = write_parts(path, spec, [list(range(count)), [-1, -2]])
    singles = [(1, n % 2, 1) for n in range(3000)]
    with write_runs(path, spec, parts, [(0, 0, 50_000), *singles, (0, 50_000, 10_000)]) as ref:
        wanted = [*range(50_000), *[-1, -2] * 1500, *range(50_000, 60_000)]
        order = np.random.default_rng(0).permutation(len(wanted))
        (column,) = ref.reader.read_columns(order)
        assert column.tolist() == np.array(wanted)[order].tolist()
        assert read(ref) == wanted
        plain = write_plain(tmp_path / "b" / "1" / "cache.mdb", spec, wanted)
        assert ref.reader.content_id == plain.reader.content_id
