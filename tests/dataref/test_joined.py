"""Concatenations of stored data sets are read by one map, as reading one by one reads them."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pathlib
import pickle
import tempfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import write
from strategies import data_sets, same

import yogadl
from yogadl.cache import joined as joining
from yogadl.cache import mapping
from yogadl.cache.joined import JoinedReader
from yogadl.dataref import IndexedDataRef, LMDBDataRef
from yogadl.dataref._views import ConcatenatedReader, SelectedReader
from yogadl.errors import ChecksumError, ClosedError
from yogadl.spec import TensorSpec
from yogadl.storage import LFSStorage

pytestmark = pytest.mark.skipif(
    not mapping.can_map_again(), reason="this system cannot map again what is mapped"
)


def is_joined(dataref: IndexedDataRef) -> bool:
    reader = dataref.reader
    return isinstance(reader, SelectedReader) and isinstance(reader.base, JoinedReader)


def plain(dataref: IndexedDataRef, *parts: IndexedDataRef) -> IndexedDataRef:
    """The same concatenation, read one by one."""
    found = copy.copy(dataref)
    found._reader = ConcatenatedReader(*[part.reader for part in parts])  # type: ignore[attr-defined]
    return found


def submit(storage: LFSStorage, spec: Any, records: list[Any], version: str, parts: bool) -> None:
    if parts:
        storage.submit(records, "a", version, spec=spec, part_bytes=60)
    else:
        storage.submit(records, "a", version, spec=spec)


@st.composite
def pieces(draw: st.DrawFn, dataref: IndexedDataRef, depth: int = 2) -> IndexedDataRef:
    """Some of the records of a data set."""
    count = len(dataref)
    kind = draw(st.sampled_from(["all", "slice", "select", "split"]))
    if kind == "all" or depth == 0:
        return dataref
    if kind == "slice":
        found: IndexedDataRef = dataref[draw(st.slices(count))]
    elif kind == "split":
        found = dataref.split({"a": 0.5, "b": 0.5}, seed=1)["a"]
    else:
        found = dataref.select(draw(st.lists(st.integers(0, count - 1))) if count else [])
    return draw(pieces(found, depth - 1))


@pytest.mark.once
@settings(max_examples=60, deadline=None)
@given(data=st.data(), data_set=data_sets(max_size=12))
def test_one_map_reads_what_reading_one_by_one_does(
    data: st.DataObject, data_set: tuple[Any, list[Any]]
) -> None:
    spec, records = data_set
    with tempfile.TemporaryDirectory() as folder:
        storage = LFSStorage(folder)
        cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=2)))]
        bases = []
        for number, (start, stop) in enumerate(zip(cuts, [*cuts[1:], len(records)], strict=True)):
            submit(storage, spec, records[start:stop], str(number), data.draw(st.booleans()))
            bases.append(storage.fetch("a", str(number)))
        draws = st.lists(st.sampled_from(bases).flatmap(pieces), min_size=1, max_size=4)
        parts = data.draw(st.just(bases) | draws)
        whole = yogadl.concat(parts)
        other = plain(whole, *parts)
        assert is_joined(whole) == any(len(part) for part in parts)
        check_alike(whole, other, data)
        nested = yogadl.concat([whole, parts[0], whole[1:]])
        check_alike(nested, plain(nested, whole, parts[0], whole[1:]), data)
        if parts is bases:
            submit(storage, spec, records, "whole", False)
            assert whole.reader.content_id == storage.fetch("a", "whole").reader.content_id


def check_alike(whole: IndexedDataRef, other: IndexedDataRef, data: st.DataObject) -> None:
    count = len(whole)
    positions = data.draw(st.lists(st.integers(0, count - 1), max_size=9)) if count else []
    at = np.array(positions, "i8")
    assert (len(whole), whole.spec, whole.metadata) == (len(other), other.spec, {})
    assert whole.reader.content_id == other.reader.content_id
    assert (whole.reader.tokens(at) == other.reader.tokens(at)).all()
    assert same([whole[i] for i in positions], [other[i] for i in positions])
    columns = zip(whole.reader.read_columns(at), other.reader.read_columns(at), strict=True)
    assert all(same(list(one), list(two)) for one, two in columns)
    stream = {"shuffle": True, "shuffle_seed": 3, "start_offset": count // 2}
    assert same(list(whole.stream(**stream)), list(other.stream(**stream)))
    assert same(list(whole.stream(**stream).batches(3)), list(other.stream(**stream).batches(3)))
    state = other.stream(**stream).state_dict()
    assert same(list(whole.stream(state=state)), list(other.stream(state=state)))
    clone = pickle.loads(pickle.dumps(whole))
    assert same(list(clone.stream()), list(other.stream()))
    whole.reader.announce(range(count))
    whole.reader.announce(at)
    assert whole.reader.are_cached(at)
    whole.reader.forget(0, count)
    assert same(list(whole.stream()), list(other.stream()))


NUMBER = TensorSpec("int64")


@pytest.fixture
def bases(tmp_path: pathlib.Path) -> list[LMDBDataRef]:
    """The numbers 0 … 99 in a file and 100 … 999 in parts."""
    storage = LFSStorage(tmp_path / "storage")
    storage.submit(range(100), "a", "one")
    storage.submit(range(100, 1000), "a", "parts", part_bytes=500)
    return [storage.fetch("a", "one"), storage.fetch("a", "parts")]


def ints(records: Any) -> list[int]:
    return [int(record) for record in records]


def test_the_keys_of_dicts_stand_as_in_the_first(tmp_path: pathlib.Path) -> None:
    one = write(tmp_path / "1.mdb", {"a": NUMBER, "b": NUMBER}, [{"a": 1, "b": 2}])
    two = write(tmp_path / "2.mdb", {"b": NUMBER, "a": NUMBER}, [{"a": 3, "b": 4}])
    for parts in ([one, two], [two, one], [two[:0], one]):
        whole = yogadl.concat(parts)
        assert is_joined(whole)
        assert all(list(record) == list(parts[0].spec) for record in whole.stream())
        assert same(list(whole.stream()), list(plain(whole, *parts).stream()))


def test_what_has_been_replaced_or_deleted_since_is_read(
    bases: list[LMDBDataRef], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "own.mdb"
    own = write(path, NUMBER, range(5))
    write(tmp_path / "other.mdb", NUMBER, range(50, 55)).close()
    (tmp_path / "other.mdb").rename(path)
    ints(bases[1].stream())  # maps its parts
    whole = yogadl.concat([own, *bases])
    for gone in (tmp_path / "storage").rglob("*.mdb"):
        gone.unlink()
    assert is_joined(whole)
    assert ints(whole.stream()) == [*range(5), *range(1000)]
    late = yogadl.concat([bases[1], own])
    assert ints(late.stream()) == [*range(100, 1000), *range(5)]


def test_closing_one_closes_the_whole_but_not_its_copies(bases: list[LMDBDataRef]) -> None:
    for closed in (0, 1):
        refs = [copy.copy(base) for base in bases]
        sliced = refs[1 - closed][:10]
        wholes = [yogadl.concat(refs), yogadl.concat([refs[closed], sliced])]
        wholes += [yogadl.concat([whole, whole]) for whole in wholes]
        wholes += [whole[1:] for whole in wholes]
        expected = [ints(whole.stream()) for whole in wholes]
        copies = [copy.copy(whole.reader) for whole in wholes]
        stream = wholes[0].stream()
        next(iter(stream))
        refs[closed].close()
        for whole in (*wholes, stream.epochs):
            reader = whole.reader() if callable(whole.reader) else whole.reader
            with pytest.raises(ClosedError, match="closed"):
                reader.read_record(0)
            with pytest.raises(ClosedError, match="closed"):
                reader.read_columns(np.arange(1))
        for copied, numbers in zip(copies, expected, strict=True):
            assert copied.read_columns(np.arange(len(copied)))[0].tolist() == numbers
            copied.close()
            with pytest.raises(ClosedError, match="closed"):
                copied.read_record(0)


def test_closing_a_slice_closes_what_is_made_of_it(bases: list[LMDBDataRef]) -> None:
    part = bases[0][:10]
    whole = yogadl.concat([part, bases[1]])
    assert whole[0] == 0
    part.close()
    with pytest.raises(ClosedError):
        whole[20]
    assert bases[0][3] == 3


def _read(whole: IndexedDataRef, found: Any) -> None:
    found.put(ints(whole.stream(shuffle=True, shuffle_seed=1)))


def test_forks(bases: list[LMDBDataRef]) -> None:
    whole = yogadl.concat([bases[1], bases[0][::2]])
    assert whole[0] == 100
    context = multiprocessing.get_context("fork")
    found: Any = context.SimpleQueue()
    child = context.Process(target=_read, args=(whole, found))
    child.start()
    numbers = found.get()
    child.join()
    assert numbers == ints(whole.stream(shuffle=True, shuffle_seed=1))
    assert sorted(numbers) == sorted([*range(100, 1000), *range(0, 100, 2)])


def test_damage_is_told_of_the_file_that_has_it(
    bases: list[LMDBDataRef], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "bad.mdb"
    with write(path, NUMBER, range(7)) as ref:
        offset = int(ref.reader.lookup(np.array([5]))["offset"][0])  # type: ignore[attr-defined]
        index = ref.reader.header.index.offset  # type: ignore[attr-defined]
    whole = path.read_bytes()
    path.write_bytes(whole[:offset] + b"\xff" + whole[offset + 1 :])
    checking = LMDBDataRef(path, check_records=True)
    with pytest.raises(ChecksumError, match=r"bad\.mdb: record 5 is not what was written"):
        yogadl.concat([bases[0], bases[0][1:], checking])[99 + 100 + 5]
    path.write_bytes(whole[:index] + b"\xff" + whole[index + 1 :])
    with pytest.raises(ChecksumError, match=r"bad\.mdb has a damaged index at records 0 to 6"):
        ints(yogadl.concat([bases[1], LMDBDataRef(path)]).stream())


def test_what_cannot_be_joined_is_read_one_by_one(
    bases: list[LMDBDataRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = yogadl.from_source(range(3))
    whole = yogadl.concat([bases[0], numbers])
    assert isinstance(whole.reader, ConcatenatedReader)
    assert ints(whole.stream()) == [*range(100), *range(3)]
    watched = copy.copy(bases[0])
    watched.reader.observer = object()  # type: ignore[assignment]
    assert isinstance(yogadl.concat([watched, bases[1]]).reader, ConcatenatedReader)
    monkeypatch.setattr(joining, "_MOST_FILES", 2)
    many = yogadl.concat(bases)
    assert isinstance(many.reader, ConcatenatedReader)
    assert ints(many.stream()) == list(range(1000))
    assert is_joined(yogadl.concat([bases[0], bases[0]]))


def test_maps_go_with_the_last_that_reads_them(bases: list[LMDBDataRef]) -> None:
    def mapped() -> int:
        return pathlib.Path("/proc/self/maps").read_text().count(f"{os.sep}storage{os.sep}a")

    before = mapped()
    whole = yogadl.concat(bases)
    assert ints(whole.stream()) == list(range(1000))
    assert mapped() > before
    for base in bases:
        base.close()
    whole.close()
    del whole
    assert mapped() == 0
