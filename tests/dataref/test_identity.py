"""The content id of a data set: of what its records are, and of nothing else."""

from __future__ import annotations

import itertools
import pathlib
import tempfile
from typing import Any

import numpy as np
import pytest
from composed import arrays, composed, is_hollow, reordered, stored, submitted
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import data_sets, element_specs, same, static_specs

import yogadl
from yogadl.cache.content_id import mixed
from yogadl.cache.reader import CacheFile
from yogadl.dataref import IndexedDataRef, LMDBDataRef
from yogadl.errors import StateMismatchError
from yogadl.spec import TensorSpec
from yogadl.storage import LFSStorage


def identity(dataref: IndexedDataRef) -> str:
    return dataref.reader.content_id


@given(spec=element_specs, data=st.data())
def test_it_is_that_of_the_records_as_a_file_has_them(spec: Any, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        made = data.draw(composed(folder, spec))
        plain = stored(folder, data.draw(reordered(spec)), made.records)
        assert identity(submitted(folder, made.dataref)) == identity(plain)
        if made.is_known_by_records:
            assert identity(made.dataref) == identity(plain)


@pytest.mark.once
@given(data_set=data_sets(max_size=14), data=st.data())
def test_no_layout_changes_it(data_set: tuple[Any, list[Any]], data: st.DataObject) -> None:
    spec, records = data_set
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        whole = stored(folder, spec, records)
        assert identity(stored(folder, spec, records, metadata={"a": 1})) == identity(whole)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=3)))
        ends = itertools.pairwise([0, *cuts, len(records)])
        parts = [
            stored(folder, data.draw(reordered(spec)), records[first:stop]) for first, stop in ends
        ]
        assert identity(yogadl.concat(parts)) == identity(whole)


@given(data_set=data_sets(static_specs))
def test_arrays_have_that_of_their_rows(data_set: tuple[Any, list[Any]]) -> None:
    spec, records = data_set
    assume(not is_hollow(spec))
    columns = (arrays(spec, records),)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        in_memory = yogadl.from_arrays(columns, spec=(spec,))
        plain = stored(folder, (spec,), [(record,) for record in records])
        assert identity(in_memory) == identity(plain)
        assert identity(submitted(folder, columns, (spec,))) == identity(plain)


@pytest.mark.once
@given(spec=element_specs, data=st.data())
def test_other_records_have_another(spec: Any, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        one = data.draw(composed(folder, spec))
        two = data.draw(composed(folder, spec))
        if len(one.records) != len(two.records) or not all(map(same, one.records, two.records)):
            assert identity(one.dataref) != identity(two.dataref)


@given(lengths=st.tuples(*[st.integers(0, 5)] * 4), part=st.slices(10))
def test_what_stands_side_by_side(lengths: tuple[int, ...], part: slice) -> None:
    """It does not matter when it was cut, nor in which order it was named."""
    left = [yogadl.from_arrays(np.arange(length)) for length in lengths]
    right = [yogadl.from_arrays(np.arange(length) * 2.5) for length in lengths]
    of_wholes = yogadl.zip({"a": yogadl.concat(left), "b": yogadl.concat(right)})
    of_parts = yogadl.concat(
        [yogadl.zip({"b": two, "a": one}) for one, two in zip(left, right, strict=True)]
    )
    assert identity(of_wholes) == identity(of_parts)
    cut_first = yogadl.zip({"a": yogadl.concat(left)[part], "b": yogadl.concat(right)[part]})
    assert identity(cut_first) == identity(of_parts[part])


def test_sides_that_are_exchanged_are_another_data_set() -> None:
    one, two = yogadl.from_arrays(np.arange(4)), yogadl.from_arrays(np.arange(4) + 1)
    made = [
        yogadl.zip((one, two)),
        yogadl.zip((two, one)),
        yogadl.zip((one, one)),
        yogadl.zip({"a": one, "b": two}),
        yogadl.zip({"a": two, "b": one}),
        yogadl.zip({"a": one, "c": two}),
        yogadl.zip((one,)),
        one,
    ]
    assert len(set(map(identity, made))) == len(made)


def test_contents_alike_under_other_specs(tmp_path: pathlib.Path) -> None:
    """A zero, and nothing, are both eight bytes of zeros."""
    zero = stored(tmp_path, TensorSpec("int64", (1,)), [np.zeros(1, "i8")])
    nothing = stored(tmp_path, TensorSpec("int64", (None,)), [np.zeros(0, "i8")])
    assert zero.reader.tokens(np.array([0])) == nothing.reader.tokens(np.array([0]))
    one, two = yogadl.concat([zero, nothing]), yogadl.concat([nothing, zero])
    assert one.spec == two.spec
    assert identity(one) != identity(two)
    assert identity(yogadl.concat([nothing, zero])[:1]) == identity(nothing)


def test_records_that_nobody_looks_at(tmp_path: pathlib.Path) -> None:
    """They are told apart by their positions in a data set of some name."""
    one = yogadl.from_source([1, 2, 3, 4], identity="one")
    two = yogadl.from_source([1, 2, 3, 4], identity="two")
    made = [one, two, one[1:], two[1:], one[:3], yogadl.concat([one, two]), one.select([0, 0])]
    assert len(set(map(identity, made))) == len(made)
    assert identity(one) == "one"
    assert identity(one[1:].select([2, 0])) == identity(one.select([3, 1]))
    assert identity(yogadl.concat([one[:2], one[2:]])) == identity(one[:])
    legacy = LMDBDataRef(pathlib.Path(__file__).parent.parent / "golden/yogadl-0.1.4/range.mdb")
    assert identity(legacy[1:][1:]) == identity(legacy[2:])
    assert identity(legacy[1:]) != identity(legacy[:-1])


def test_a_run_goes_on_with_the_same_records_stored_again(tmp_path: pathlib.Path) -> None:
    """As it was found: from an iterator instead of an array, it was another data set."""
    x, n = np.arange(3000, dtype="f4").reshape(1000, 3), np.arange(1000)
    records = [{"n": n[at], "x": x[at]} for at in range(1000)]
    in_memory = yogadl.from_arrays({"x": x, "n": n})
    datarefs = [
        in_memory,
        submitted(tmp_path, {"x": x, "n": n}),
        submitted(tmp_path, iter(records)),
        submitted(tmp_path, in_memory),
        yogadl.concat(
            [
                submitted(tmp_path, records[:300]),
                in_memory[300:301],
                stored(tmp_path, in_memory.spec, records[301:]),
            ]
        ),
    ]
    stream = in_memory.stream(shuffle=True, shuffle_seed=5)
    iterator = iter(stream)
    for _ in range(10):
        next(iterator)
    state = stream.state_dict()
    rest = [int(record["n"]) for record in iterator]
    for dataref in datarefs:
        assert [int(record["n"]) for record in dataref.stream(state=state)] == rest
    changed = submitted(tmp_path, {"x": x, "n": np.where(n == 7, 8, n)})
    for other in (changed, in_memory[:999], in_memory[::-1]):
        with pytest.raises(StateMismatchError, match="another data set"):
            other.stream(state=state)


def test_opening_reads_no_index(tmp_path: pathlib.Path) -> None:
    dataref = stored(tmp_path, TensorSpec("int64"), list(range(10_000)))
    reader = dataref.reader
    assert isinstance(reader, CacheFile)
    assert reader._index is not None
    whole = dataref[:]
    whole.stream(shuffle=True, shuffle_seed=1)
    assert not reader._index._checked.any()
    assert identity(whole) == identity(dataref)
    assert reader._index._checked.all()


@given(words=st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=9, unique=True))
def test_mixed_tokens_differ(words: list[int]) -> None:
    pairs = [(one, two) for one in words for two in words]
    one, two = np.array(pairs, "u8").T
    assert len(np.unique(mixed(one, two))) == len(pairs)


def test_a_stream_is_stored_by_the_spec_that_it_has(tmp_path: pathlib.Path) -> None:
    """The first record alone would tell another one."""
    storage = LFSStorage(tmp_path)
    spec = TensorSpec("int64", (None,))
    storage.submit([np.arange(3), np.arange(2), np.arange(0)], "a", "1", spec=spec)
    with storage.fetch("a", "1") as dataref:
        storage.submit(dataref.stream(shuffle=True, shuffle_seed=1), "a", "2")
        with storage.fetch("a", "2") as again:
            assert again.spec == spec
            assert sorted(len(record) for record in again.stream()) == [0, 2, 3]
