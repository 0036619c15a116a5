"""Row splits and sparse indices in a file that no value has: an error by every way to read them."""

from __future__ import annotations

import itertools
import pathlib
import tempfile
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import data_sets, ragged_specs, same, sparse_specs

from yogadl import spec as specs
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import IndexedDataRef, LMDBDataRef
from yogadl.errors import ChecksumError
from yogadl.format.contents import whole
from yogadl.spec import OptionalSpec, Ragged, RaggedSpec, Sparse, SparseSpec, TensorSpec

RAGGED = RaggedSpec("int8", (None, None), 1)
TWICE = RaggedSpec("int8", (None, None, None), 2, "int32")
SPARSE = SparseSpec("int8", (None, None))


def forged(path: pathlib.Path, spec: Any, records: list[list[Any]]) -> LMDBDataRef:
    """A file with components that the writer would not take as values; its checksums are right."""
    with CacheWriter(path, spec) as writer:
        for components in records:
            writer._append_contents(whole([writer._codec.encode_components(components)]))
        writer.commit()
    return LMDBDataRef(path)


def ways(dataref: IndexedDataRef) -> list[Any]:
    """How to read all records, of which one is damaged, or the damaged one alone."""
    everything = list(range(len(dataref)))
    return [
        lambda: [dataref[at] for at in everything],
        lambda: dataref.read(everything),
        lambda: dataref.select(everything).read(everything),
        lambda: list(dataref.stream()),
        lambda: list(dataref.stream().batches(2)),
        lambda: list(dataref.stream().batches(100, read_ahead=0)),
    ]


def check_refused(dataref: IndexedDataRef) -> None:
    for way in ways(dataref):
        # What is no copy can only be built again.
        with pytest.raises(ChecksumError, match="; rebuild it; if it comes from a bucket, first "):
            way()


def is_ragged(flat: int, splits: list[list[int]]) -> bool:
    """Whether row splits, outermost first, are right, item by item."""
    ends = [*[len(level) - 1 for level in splits[1:]], flat]
    return all(
        level[:1] == [0]
        and level[-1] == end
        and all(one <= two for one, two in itertools.pairwise(level))
        for level, end in zip(splits, ends, strict=True)
    )


any_splits = st.lists(st.integers(-2, 4) | st.integers(-(2**31), 2**31 - 1), max_size=5)


@given(flat=st.integers(0, 4), levels=st.tuples(any_splits, any_splits), others=st.integers(0, 3))
@example(2, ([0, 1], [0, 2]), 1)
@example(5, ([0, 3], [0, 2**31 - 1, -2, 5]), 1)  # Differences of 32 bits would wrap around.
@example(3, ([0, 2], [0, 3, 2]), 0)
@example(2, ([1, 1], [0, 2]), 0)
@example(0, ([], []), 0)
def test_row_splits(flat: int, levels: tuple[list[int], list[int]], others: int) -> None:
    values = np.arange(flat, dtype="i1")
    good = [np.arange(2, dtype="i1"), np.array([0, 1], "i4"), np.array([0, 2], "i4")]
    wrong = [values, *[np.array(splits, "i4") for splits in levels]]
    with tempfile.TemporaryDirectory() as name:
        records = [*[good] * others, wrong, *[good] * others]
        with forged(pathlib.Path(name, "cache.mdb"), TWICE, records) as dataref:
            if not is_ragged(flat, list(levels)):
                check_refused(dataref)
                assert same(dataref.read([])[:], [])
                for at in range(others):
                    assert dataref[at].flat_values.tolist() == [0, 1]
                return
            for way in ways(dataref):
                way()
            expected = Ragged(values, (wrong[1], wrong[2]))
            assert same(tuple(dataref[others]), tuple(expected))


@given(
    cells=st.lists(st.tuples(*[st.integers(-1, 3) | st.sampled_from([2**63 - 1, -(2**63)])] * 2)),
    dense=st.tuples(*[st.integers(-1, 4) | st.just(2**63 - 1)] * 2),
    count=st.integers(0, 3) | st.none(),
    others=st.integers(0, 3),
)
@example([(0, 0)], (1, 1), None, 2)
@example([(0, 1)], (1, 1), None, 2)
@example([(0, 0)], (-1, 1), None, 0)
@example([], (-1, 1), None, 0)
def test_sparse_indices(
    cells: list[tuple[int, int]], dense: tuple[int, int], count: int | None, others: int
) -> None:
    values = np.arange(len(cells) if count is None else count, dtype="i1")
    good = [np.array([[1, 2]]), np.array([7], "i1"), np.array([2, 3])]
    made = [np.array(cells, "i8").reshape(-1, 2), values, np.array(dense)]
    inside = all(0 <= at < most for cell in cells for at, most in zip(cell, dense, strict=True))
    with tempfile.TemporaryDirectory() as name:
        records = [*[good] * others, made, *[good] * others]
        with forged(pathlib.Path(name, "cache.mdb"), SPARSE, records) as dataref:
            if not inside or min(dense) < 0 or len(values) != len(cells):
                check_refused(dataref)
                return
            for way in ways(dataref):
                way()
            assert same(tuple(dataref[others]), tuple(made))


@pytest.mark.parametrize(
    ("spec", "components"),
    [
        (RaggedSpec("int8", (2, None), 1), [np.zeros(1, "i1"), np.array([0, 1])]),
        (RaggedSpec("int8", (None, 2), 1), [np.zeros(3, "i1"), np.array([0, 2, 3])]),
        (RaggedSpec("int8", None, 1), [np.zeros((), "i1"), np.array([0, 1])]),
        (RaggedSpec("string", None, 1), [b"text", np.array([0, 4])]),
        (
            SparseSpec("int8", (3, None)),
            [np.zeros((0, 2), "i8"), np.zeros(0, "i1"), np.ones(2, "i8")],
        ),
        (SparseSpec("int8", None), [np.zeros((1, 2), "i8"), np.zeros(1, "i1"), np.ones(3, "i8")]),
        (SparseSpec("int8", None), [np.zeros((1, 0), "i8"), np.zeros(1, "i1"), np.ones(1, "i8")]),
        (OptionalSpec(RAGGED), [np.array(True), np.zeros(2, "i1"), np.array([0, 3])]),
        (
            {"b": TensorSpec("int8"), "a": (OptionalSpec({"x": SPARSE}),)},
            [
                np.array(True),
                np.array([[5, 0]]),
                np.zeros(1, "i1"),
                np.array([5, 1]),
                np.array(0, "i1"),
            ],
        ),
    ],
)
@pytest.mark.parametrize("count", [1, 3])
def test_what_does_not_fit_its_leaf(
    tmp_path: pathlib.Path, spec: Any, components: list[Any], count: int
) -> None:
    with forged(tmp_path / "cache.mdb", spec, [components] * count) as dataref:
        check_refused(dataref)


@given(data_set=data_sets(ragged_specs() | sparse_specs, max_size=5))
def test_values_that_are_right_are_read(data_set: tuple[Any, list[Any]]) -> None:
    """The check of many values together lets all of them pass."""
    spec, records = data_set
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name, "cache.mdb")
        with CacheWriter(path, spec) as writer:
            for record in records:
                writer.append(record)
            writer.commit()
        with LMDBDataRef(path) as dataref:
            assert all(map(same, dataref.read(range(len(records))), records))
            assert isinstance(next(iter(records), None), Ragged | Sparse | None)
            assert list(specs.leaves(dataref.spec)) == [spec]
