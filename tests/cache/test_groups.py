"""Versions whose leaves lie in column groups are read as one file of the same records is."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import hostile_damage
import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import check_alike
from strategies import data_sets, same
from versioned import Run, chosen, write_groups, write_parts, write_plain, write_runs

from yogadl import spec as specs
from yogadl.__main__ import main
from yogadl.cache.grouped import GroupedReader
from yogadl.dataref import LMDBDataRef
from yogadl.errors import ChecksumError
from yogadl.spec import TensorSpec
from yogadl.storage import LFSStorage

pytestmark = pytest.mark.once

NUMBER = TensorSpec("int64")


@settings(max_examples=100, deadline=None)
@given(data=st.data(), data_set=data_sets(max_size=8))
def test_groups_are_read_as_one_file_is(
    data: st.DataObject, data_set: tuple[Any, list[Any]]
) -> None:
    spec, records = data_set
    leaves = list(specs.leaves(spec))
    if not records or not leaves:
        return
    numbers = data.draw(st.lists(st.integers(0, 2), min_size=len(leaves), max_size=len(leaves)))
    known = sorted(set(numbers))
    where: list[Any] = [None] * len(leaves)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = folder / "a" / "groups" / "cache.mdb"
        groups = []
        for group, number in enumerate(known):
            own = [at for at in range(len(leaves)) if numbers[at] == number]
            own = data.draw(st.permutations(own))
            for leaf, at in enumerate(own):
                where[at] = (group, leaf)
            # One more leaf, which is dropped.
            group_spec = (*[leaves[at] for at in own], *data.draw(st.sampled_from([(), (NUMBER,)])))
            values = [
                (*[specs.flatten(spec, record)[at] for at in own], 7)[: len(group_spec)]
                for record in records
            ]
            order = data.draw(st.permutations(range(len(records))))
            rows, half = [values[at] for at in order], data.draw(st.integers(1, len(records)))
            places = [order.index(at) for at in range(len(records))]
            runs = [(int(at >= half), at - half * (at >= half), 1) for at in places]
            parts = [rows[:half], rows[half:]] if half < len(rows) else [rows]
            groups.append((group_spec, write_parts(path, group_spec, parts), runs))
        one = write_plain(folder / "a" / "one" / "cache.mdb", spec, records)
        many = write_groups(path, spec, groups, where, {"made": 1})
        assert (same(many.spec, spec), many.metadata) == (True, {"made": 1})
        picked = data.draw(st.lists(st.integers(0, len(records) - 1)))
        check_alike(path, many, one, records, picked)


def images(folder: pathlib.Path, leaves: Any = ((0, 0), (1, 0))) -> LMDBDataRef:
    """Ten images, in one group, and their labels, in another, the other way round."""
    path = folder / "a" / "1" / "cache.mdb"
    image = TensorSpec("float32", (3, 4))
    one = write_parts(
        path, {"image": image}, [[{"image": np.full((3, 4), n, "f4")} for n in range(10)]]
    )
    two = write_parts(path, {"label": NUMBER}, [[{"label": n} for n in reversed(range(10))]])
    runs = [(0, 9 - n, 1) for n in range(10)]
    groups = [({"image": image}, one, [(0, 0, 10)]), ({"label": NUMBER}, two, runs)]
    spec = [{"picture": image, "class": NUMBER}, {"image": image}][len(leaves) == 1]
    if len(leaves) == 2:
        # The keys of a dict are sorted, so the class comes first.
        leaves = leaves[::-1]
    return write_groups(path, spec, groups[: len(leaves)], leaves)


def test_components_are_added_and_renamed(tmp_path: pathlib.Path) -> None:
    with images(tmp_path) as ref:
        assert isinstance(ref.reader, GroupedReader)
        records = list(ref.stream())
        assert [list(record) for record in records] == [["picture", "class"]] * 10
        assert [int(record["class"]) for record in records] == list(range(10))
        assert all((record["picture"] == record["class"]).all() for record in records)
        # What is read into given memory is the same.
        out = {"picture": np.empty((4, 3, 4), "f4"), "class": np.empty(4, "i8")}
        batch = next(iter(ref.stream().batches(4, out=[out])))
        assert batch["picture"].tolist() == np.repeat(np.arange(4.0), 12).reshape(4, 3, 4).tolist()
        reader = ref.reader
        assert len(reader.parts_by_digest()) == 2


def test_a_group_of_all_leaves_in_order_is_no_group(tmp_path: pathlib.Path) -> None:
    with images(tmp_path, ((0, 0),)) as ref:
        assert not isinstance(ref.reader, GroupedReader)
        assert ref.reader.header.index.length == 64  # type: ignore[attr-defined]


def test_leaves_that_are_not_those_of_the_groups(tmp_path: pathlib.Path) -> None:
    for wrong in (((0, 0), (0, 0)), ((1, 0), (0, 0)), ((0, 0), (1, 1)), ((0, 0), (1, 0), (1, 0))):
        with pytest.raises(ValueError, match=r"leaves|leaf"):
            images(tmp_path, wrong)


def test_a_part_of_another_spec_is_refused(tmp_path: pathlib.Path) -> None:
    """Though its file is what the table says in all else."""
    with images(tmp_path) as ref:
        one, two = sorted(ref.reader.parts_by_digest().values())
    kept = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(kept)
    ref = LMDBDataRef(tmp_path / "a" / "1" / "cache.mdb")
    with ref, pytest.raises(ChecksumError, match="is not the part that"):
        list(ref.stream())


def numbers(folder: pathlib.Path, runs: list[Run]) -> LMDBDataRef:
    """Of two parts of ten numbers each."""
    path = folder / "a" / "2" / "cache.mdb"
    parts = write_parts(path, NUMBER, [list(range(10)), list(range(10, 20))])
    return write_runs(path, NUMBER, parts, runs)


def test_versions_in_a_storage(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    images(tmp_path).close()
    other = LFSStorage(tmp_path / "other")
    storage.copy("a", "1", other)
    with storage.fetch("a", "1") as ref, other.fetch("a", "1") as copied:
        copied.verify()
        assert copied.reader.content_id == ref.reader.content_id
        assert same(list(copied.stream()), list(ref.stream()))
    # Of what is collected, it needs both.
    assert storage.collect_parts("a").removed == ()
    storage.delete("a", "1")


def test_runs_in_a_storage(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    path = tmp_path / "a" / "1" / "cache.mdb"
    records = [list(range(10)), list(range(10, 20))]
    runs = [(1, 3, 4), (0, 0, 2), (1, 0, 1)]
    write_runs(path, NUMBER, write_parts(path, NUMBER, records), runs).close()
    other = LFSStorage(tmp_path / "other")
    storage.copy("a", "1", other, new_version="2")
    with other.fetch("a", "2") as copied:
        copied.verify()
        assert [int(record) for record in copied.stream()] == chosen(records, runs)


def test_the_command(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    images(tmp_path).close()
    path = tmp_path / "a" / "1" / "cache.mdb"
    assert main(["info", str(path)]) == 0
    assert "records:  10" in capsys.readouterr().out
    assert main(["verify", str(path)]) == 0
    with LMDBDataRef(path) as ref:
        part = min(ref.reader.parts_by_digest().values())
    data = bytearray(part.read_bytes())
    data[12288 + 20] ^= 1
    part.write_bytes(data)
    assert main(["verify", str(path)]) == 1


def test_sums_that_are_not_those_of_the_records(tmp_path: pathlib.Path) -> None:
    """By them, a version is told from others."""
    for make in (images, lambda folder: numbers(folder, [(0, 3, 4), (1, 0, 10), (0, 0, 1)])):
        with make(tmp_path) as ref:
            ref.verify()
            path = ref.reader.path
        data = bytearray(path.read_bytes())
        data[8400] ^= 1
        hostile_damage.seal(data)
        header = bytes(data[8192:8416]) + bytes(24) + bytes(data[8440:12288])
        digest = xxhash.xxh3_128_digest(bytes(data[12288:]) + bytes(data[:8192]) + header)
        data[8416:8432] = digest
        hostile_damage.seal(data)
        path.write_bytes(data)
        with LMDBDataRef(path) as ref, pytest.raises(ChecksumError, match="token sums"):
            ref.verify()
