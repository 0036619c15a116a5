"""``diff`` compares values of components whose dtypes differ as numbers."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import NUMBERS, alike, number_dtypes, records, static_leaves, tensor_specs

from yogadl import dtypes
from yogadl.cache.grouped import LeafMap
from yogadl.errors import InvalidArgumentError
from yogadl.spec import OptionalSpec, Ragged, RaggedSpec, Sparse, SparseSpec, TensorSpec
from yogadl.storage import LFSStorage
from yogadl.storage._commits import comparing, values
from yogadl.storage._commits.change import Change
from yogadl.storage._commits.diff import VersionDiff

Records = list[dict[str, Any]]

_SHAPES = st.sampled_from([(), (2,), (None,), (2, None), None])
_COMMON = ["bool", "int8", "int64", "uint64", "float16", "float32", "float64", "complex64"]


@contextlib.contextmanager
def losing() -> Iterator[None]:
    """Nothing is said of what casts lose."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def cast(change: Change, name: str, dtype: str) -> None:
    """Casts a component, whatever is lost."""
    with losing():
        change.cast(name, dtype)


def can_cast(one: str, two: str) -> bool:
    """Whether ml_dtypes casts the one dtype to the other: not all of its own."""
    try:
        with losing():
            for shape in ((), (2,)):
                np.ones(shape, bool).astype(dtypes.to_numpy(one)).astype(dtypes.to_numpy(two))
    except TypeError:
        return False
    return True


def check_ids(found: VersionDiff, before: Records, after: Records) -> None:
    """Sees that a diff tells records by their ids, and the values that are others."""
    places = [{int(it["id"]): at for at, it in enumerate(rows)} for rows in (before, after)]
    both = sorted(places[0].keys() & places[1].keys(), key=lambda number: places[0][number])
    assert found.deleted.tolist() == sorted(places[0][it] for it in places[0].keys() - both)
    assert found.added.tolist() == sorted(places[1][it] for it in places[1].keys() - both)
    changed, components = [], dict[str, int]()
    for number in both:
        one, two = places[0][number], places[1][number]
        old, new = before[one], after[two]
        names = [name for name in old if name in new and not alike(old[name], new[name])]
        changed += [(one, two)] if names else []
        for name in names:
            components[name] = components.get(name, 0) + 1
    assert list(map(tuple, found.changed.T.tolist())) == changed
    assert found.components == components
    lines = [f"  {name} changed in {count:,}" for name, count in components.items()]
    assert f"{len(changed):,} changed" in str(found).splitlines()[0]
    assert sorted(lines) == sorted(it for it in str(found).splitlines() if " changed in " in it)


class Author:
    """Makes commits after which each record still has its ``id``.

    Args:
        storage: where.
        data: draws what they do.
    """

    def __init__(self, storage: LFSStorage, data: st.DataObject) -> None:
        self.storage, self._data, self._ids = storage, data, itertools.count()
        shapes = [data.draw(_SHAPES) for _ in range(2)]
        self.spec: dict[str, Any] = {
            "id": TensorSpec("int64", ()),
            **{name: TensorSpec(self._dtype(), it) for name, it in zip("xy", shapes, strict=True)},
        }
        self.rows = self._new(data.draw(st.integers(1, 6)))

    def _dtype(self) -> str:
        return self._data.draw(st.sampled_from(_COMMON) | number_dtypes)

    def _valued(self, number: int, old: dict[str, Any]) -> dict[str, Any]:
        """A record of an id; some of it is that of another one."""
        new = self._data.draw(records(self.spec))
        for name in self._data.draw(st.sets(st.sampled_from([*old]))) if old else ():
            new[name] = old[name]
        return {**new, "id": np.int64(number)}

    def _new(self, count: int) -> Records:
        return [self._valued(next(self._ids), {}) for _ in range(count)]

    def commit(self, branch: str, version: str) -> None:
        """A new version of a branch, whose records are ``rows``."""
        draw = self._data.draw
        what = draw(st.sampled_from(["cast", "cast", "records", "records", "rename"]))
        with self.storage.change("d", branch, version=version) as change:
            if what == "cast":
                name = draw(st.sampled_from(sorted(self.spec.keys() - {"id"})))
                before, dtype = self.spec[name].dtype, self._dtype()
                dtype = dtype if can_cast(before, dtype) else before
                cast(change, name, dtype)
                self.spec = {**self.spec, name: TensorSpec(dtype, self.spec[name].shape)}
            elif what == "rename":
                name = draw(st.sampled_from(sorted(self.spec.keys() - {"id"})))
                free = draw(st.sampled_from(sorted({"x", "y", "z"} - self.spec.keys())))
                change.rename(name, free)
                self.spec = {free if it == name else it: own for it, own in self.spec.items()}
            else:
                self._change_records(change)
        with self.storage.fetch("d", version) as ref:
            self.rows = list(ref.stream())
            assert ref.spec == self.spec

    def _change_records(self, change: Change) -> None:
        draw = self._data.draw
        for at, old in enumerate(self.rows):
            fate = draw(st.sampled_from(["stays", "stays", "goes", "is another"]))
            if fate == "goes":
                change.delete([at])
            elif fate == "is another":
                change.replace([at], [self._valued(int(old["id"]), old)])
        place = draw(st.integers(0, len(self.rows)))
        change.insert(place, self._new(draw(st.integers(0, 2))))


@given(st.data())
def test_what_was_cast_counts_where_its_numbers_are_others(data: st.DataObject) -> None:
    """In versions of which one was made from the other, before or behind, and in siblings."""
    with tempfile.TemporaryDirectory() as folder:
        storage = LFSStorage(folder)
        author = Author(storage, data)
        storage.submit(author.rows, "d", "0", spec=author.spec)
        versions = {"0": (author.rows, author.spec)}
        for branch in ("one", "two"):
            storage.tag("d", branch, "0")
            author.rows, author.spec = versions["0"]
            for number in range(data.draw(st.integers(0, 3))):
                author.commit(branch, f"{branch} {number}")
                versions[f"{branch} {number}"] = author.rows, author.spec
        for one, two in itertools.product(versions, repeat=2):
            (before, spec), (after, other) = versions[one], versions[two]
            # Siblings of one spec are compared by tokens.
            if "0" in (one, two) or one.split()[0] == two.split()[0] or spec != other:
                check_ids(storage.diff("d", one, two), before, after)


@given(st.data())
def test_so_it_does_where_it_is_not_known_how_they_were_made(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        storage = LFSStorage(folder)
        author = Author(storage, data)
        rows, spec = author.rows, author.spec
        storage.submit(rows, "d", "0", spec=spec)
        storage.tag("d", "main", "0")
        author.commit("main", "1")
        # What stands in for others is told by values, so none is put in the place of another.
        gone = {int(it["id"]) for it in rows} - {int(it["id"]) for it in author.rows}
        added = {int(it["id"]) for it in author.rows} - {int(it["id"]) for it in rows}
        kept = [it for it in author.rows if not (gone and int(it["id"]) in added)]
        storage.submit(kept, "d", "2", spec=author.spec)
        for one, two in (("0", "2"), ("2", "0")):
            found = storage.diff("d", one, two)
            before, after = (rows, kept) if one == "0" else (kept, rows)
            counts = len(before) - len(after)
            assert len(found.deleted) - len(found.added) == counts
            names = [name for name in spec if name in author.spec]
            stay = [
                np.delete(np.arange(len(it)), np.concatenate(own).astype(int))
                for it, own in (
                    (before, (found.deleted, found.changed[0])),
                    (after, (found.added, found.changed[1])),
                )
            ]
            for old, new in zip(*stay, strict=True):
                assert all(alike(before[old][it], after[new][it]) for it in names)
            for old, new in found.changed.T:
                assert not all(alike(before[old][it], after[new][it]) for it in names)


@given(st.data())
def test_columns_and_single_values_are_compared_alike(data: st.DataObject) -> None:
    """Whether they are compared by their numbers, or by what is the same of both."""
    shape = data.draw(st.sampled_from([(), (2,), (0,)]))
    leaves = [TensorSpec(data.draw(number_dtypes), shape) for _ in range(2)]
    count = data.draw(st.integers(1, 5))
    columns = [
        np.array([data.draw(records(leaf)) for _ in range(count)], dtypes.to_numpy(leaf.dtype))
        for leaf in leaves
    ]
    if can_cast(*[leaf.dtype for leaf in leaves]):
        same = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
        with losing():
            columns[1][same] = columns[0][same].astype(columns[1].dtype)
    expected = [not alike(*pair) for pair in zip(*columns, strict=True)]
    pair = comparing.LeafPair(0, 0, *leaves)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "_MOST_NUMBERS", data.draw(st.sampled_from([1, 3, 1 << 18])))
        assert pair.differing(*columns).tolist() == expected
        one = values.packed_column(columns[0], *leaves)
        two = values.packed_column(columns[1], *leaves[::-1])
    assert [a != b for a, b in zip(one, two, strict=True)] == expected
    # As values that vary in shape are.
    assert one == values.packed_column(list(columns[0]), *leaves)


@given(st.data())
def test_values_of_any_two_specs_are_compared(data: st.DataObject) -> None:
    specs = [data.draw(static_leaves | tensor_specs()) for _ in range(2)]
    specs = [OptionalSpec(it) if data.draw(st.booleans()) else it for it in specs]
    rows = [[data.draw(records(it)) for _ in range(2)] for it in specs]
    with tempfile.TemporaryDirectory() as folder:
        storage = LFSStorage(folder)
        for number, (spec, own) in enumerate(zip(specs, rows, strict=True)):
            storage.submit(
                [{"v": it, "n": 0} for it in own],
                "d",
                str(number),
                spec={"v": spec, "n": TensorSpec("int64", ())},
            )
        found = storage.diff("d", "0", "1")
        stay = np.setdiff1d([0, 1], [*found.deleted, *found.changed[0]])
        others = np.setdiff1d([0, 1], [*found.added, *found.changed[1]])
        for old, new in zip(stay, others, strict=True):
            assert alike(rows[0][old], rows[1][new])
        for old, new in found.changed.T:
            assert not alike(rows[0][old], rows[1][new])
        assert found.components == ({"v": found.changed.shape[1]} if found.changed.size else {})


NAN = np.array([0x7FC00001, 0x7FC00000], "u4").view("f4")


@pytest.mark.parametrize(
    ("one", "two", "changed"),
    [
        (np.array([2**53 + 1, 2**53]), np.array([2.0**53, 2.0**53]), [0]),
        (np.array([2**63 - 1, -(2**63)]), np.array([2.0**63, -(2.0**63)]), [0]),
        (np.array([2**64 - 1, 2**63], "u8"), np.array([2.0**64, 2.0**63]), [0]),
        (np.array([2**64 - 1, 1], "u8"), np.array([-1, 1]), [0]),
        (np.array([0.0, -0.0]), np.array([0, 0]), []),
        (np.array([0.0, -0.0]), np.array([0, 0], "f4"), [1]),
        (np.array([0.0, -0.0]), np.array([0, 0], "f8"), [1]),
        (NAN, np.array([np.nan, np.nan]), []),
        (NAN, NAN[::-1], [0, 1]),
        (np.array([np.inf, -np.inf]), np.array([np.inf, np.inf], "f2"), [1]),
        (np.array([True, True]), np.array([1, 2]), [1]),
        (np.array([1, 1 + 1j]), np.array([1.0, 1.0]), [1]),
        (np.array([complex(1, -0.0), complex(0, 2)]), np.array([1, 2j], "c8"), [0]),
        (np.array([0.1, 0.5]), np.array([0.1, 0.5], "f4"), [0]),
        (np.array([b"1", b""], object), np.array([1, 0]), [0, 1]),
        (np.array([[1, 2], [3, 4]]), np.array([1, 3], "i4"), [0, 1]),
        (np.array([[1, 2], [3, 4]]), np.array([[1, 2, 0], [3, 4, 0]]), [0, 1]),
    ],
)
def test_which_values_are_others(
    storage_dir: pathlib.Path, one: Any, two: Any, changed: list[int]
) -> None:
    storage = LFSStorage(storage_dir)
    storage.submit({"id": np.arange(2), "v": one}, "d", "1")
    with storage.change("d", "1", version="2") as change:
        change.drop("v")
        change.add("v", two)
    storage.submit({"id": np.arange(2), "v": two}, "d", "3")
    for before, after in (("1", "2"), ("2", "1"), ("1", "3"), ("3", "1")):
        found = storage.diff("d", before, after)
        assert (found.added.tolist(), found.deleted.tolist()) == ([], [])
        assert found.changed.tolist() == [changed, changed]
        assert found.components == ({"v": len(changed)} if changed else {})


@pytest.mark.parametrize("is_dict", [True, False])
def test_a_component_may_be_the_only_one(storage_dir: pathlib.Path, is_dict: bool) -> None:
    storage, name = LFSStorage(storage_dir), "v" if is_dict else "record"
    for version, column in (("1", np.arange(6)), ("2", np.array([9, 0, 1, 2.5, 3, 4]))):
        storage.submit({"v": column} if is_dict else column, "d", version)
    found = storage.diff("d", "1", "2")
    assert (found.added.tolist(), found.deleted.tolist()) == ([0], [5])
    assert found.changed.tolist() == [[2], [3]]
    assert found.components == {name: 1}
    if is_dict:
        with storage.change("d", "1", version="3") as change:
            change.update(lambda record: {"v": record["v"] + 300}, [2])
        with storage.change("d", "3", version="4") as change:
            cast(change, "v", "int8")
        for before, count in (("1", 1), ("3", 1)):
            found = storage.diff("d", before, "4")
            assert found.changed.tolist() == [[2], [2]]
            assert found.components == {"v": count}


def test_a_component_that_is_nested_otherwise_is_another(storage_dir: pathlib.Path) -> None:
    storage = LFSStorage(storage_dir)
    storage.submit({"id": np.arange(3), "v": np.arange(3)}, "d", "1")
    with storage.change("d", "1", version="2") as change:
        change.drop("v")
        change.add("v", [(it,) for it in range(3)])
    rows = [{"id": it, "v": (it,)} for it in (9, 0, 1, 2)]
    storage.submit(rows, "d", "3")
    found = storage.diff("d", "1", "2")
    assert found.changed.tolist() == [[0, 1, 2]] * 2
    assert found.components == {"v": 3}
    # The records are known by what can be compared.
    found = storage.diff("d", "1", "3")
    assert found.added.tolist() == [0]
    assert found.changed.tolist() == [[0, 1, 2], [1, 2, 3]]
    assert found.components == {"v": 3}


def test_values_that_are_several_arrays_are_compared(storage_dir: pathlib.Path) -> None:
    storage = LFSStorage(storage_dir)

    def spec(dtype: str, splits: str) -> Any:
        return {
            "ragged": RaggedSpec(dtype, (None, None), 1, splits),
            "sparse": SparseSpec(dtype, (4,)),
            "maybe": OptionalSpec({"a": TensorSpec(dtype, (None,)), "b": TensorSpec("string", ())}),
        }

    def row(dtype: str, splits: str, number: int) -> Any:
        numbers = np.array([1, number], dtype)
        return {
            "ragged": Ragged(numbers, (np.array([0, 1, 2], splits),)),
            "sparse": Sparse(np.array([[0], [2]]), numbers, np.array([4])),
            "maybe": None if number == 3 else {"a": numbers, "b": b"\0"},
        }

    for version, of, numbers in (
        ("1", ("int64", "int64"), (1, 2, 3)),
        ("2", ("float32", "int32"), (1, 7, 3)),
    ):
        rows = [row(*of, number) for number in numbers]
        storage.submit(rows, "d", version, spec=spec(*of))
    found = storage.diff("d", "1", "2")
    assert found.changed.tolist() == [[1], [1]]
    assert found.components == {"ragged": 1, "sparse": 1, "maybe": 1}


def test_records_that_were_moved_are_found_by_what_was_not_rounded(
    storage_dir: pathlib.Path,
) -> None:
    """Nothing is known of how the one was made, and every value is another."""
    storage = LFSStorage(storage_dir)
    rng = np.random.default_rng(1)
    values = rng.random(50)
    storage.submit({"id": np.arange(50), "v": values}, "d", "1")
    order = np.concatenate([[70, 71], np.arange(20), np.arange(25, 50)])
    single = np.append(values, rng.random(50)).astype("f4")
    storage.submit({"id": order, "v": single[order]}, "d", "2")
    found = storage.diff("d", "1", "2")
    assert found.added.tolist() == [0, 1]
    assert found.deleted.tolist() == [20, 21, 22, 23, 24]
    stay = [*range(20), *range(25, 50)]
    assert found.changed.tolist() == [stay, [*range(2, 47)]]
    assert found.components == {"v": 45}


def test_no_more_is_read_than_was_cast(
    storage_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LFSStorage(storage_dir)
    storage.submit({"id": np.arange(10), "v": np.arange(10)}, "d", "1")
    with storage.change("d", "1", version="2") as change:
        change.drop("v")
        change.add("v", np.arange(10))
        change.add("w", np.arange(10))
    with storage.change("d", "2", version="3") as change:
        change.cast("v", "int8")
    storage.tag("d", "main", "3")
    with storage.change("d", "main", version="4") as change:
        change.update(lambda record: {**record, "w": record["w"] + 1}, [3])
    read: list[tuple[set[int], int]] = []
    columns = LeafMap.columns

    def noted(self: LeafMap, readers: Any, positions: Any, *rest: Any) -> Any:
        found = columns(self, readers, positions, *rest)
        read.append(({at for at, it in enumerate(found) if it is not None}, len(positions)))
        return found

    monkeypatch.setattr(LeafMap, "columns", noted)
    found = storage.diff("d", "2", "4")
    assert found.changed.tolist() == [[3], [3]]
    assert found.components == {"w": 1}
    assert sorted(read, key=str) == sorted(
        [({1}, 9), ({1}, 9), ({0, 1, 2}, 1)] * 1 + [({0, 1, 2}, 1)], key=str
    )


@pytest.mark.parametrize("dtype", NUMBERS)
def test_a_cast_that_keeps_all_values_is_no_change(storage_dir: pathlib.Path, dtype: str) -> None:
    """Of values that every dtype has."""
    storage = LFSStorage(storage_dir)
    storage.submit({"v": np.ones(3, bool)}, "d", "1")
    with storage.change("d", "1", version="2") as change:
        cast(change, "v", dtype)
    found = storage.diff("d", "1", "2")
    assert (found.changed.shape, found.components) == ((2, 0), {})


def test_what_numpy_cannot_cast_is_told_at_once(storage_dir: pathlib.Path) -> None:
    """It can since ml_dtypes 0.7; then the values are cast like any others."""
    storage = LFSStorage(storage_dir)
    values = np.ones(2, dtypes.to_numpy("float8_e8m0fnu"))
    storage.submit({"v": values}, "a", "1")
    storage.tag("a", "main", "1")
    with storage.change("a", "main", version="2") as change:
        try:
            values.astype(dtypes.to_numpy("float6_e3m2fn"))
        except TypeError:
            with pytest.raises(InvalidArgumentError, match="float8_e8m0fnu to float6_e3m2fn"):
                change.cast("v", "float6_e3m2fn")
        else:
            change.cast("v", "float6_e3m2fn")
        change.cast("v", "float32")
    assert storage.fetch("a", "2").read([0, 1])["v"].tolist() == [1.0, 1.0]
