"""The object by which builders and collectors of parts in a bucket agree."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_store import MemoryStore
from parts_in_memory import FOLDER, build, collect, needed_parts, stored_parts

from yogadl.errors import StoreError
from yogadl.storage._buckets.part_control import Control

pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"format": 2}',
        b'{"format": 1, "nonce": "", "builders": {}, "unused": [[1, "abc"]], "removed": []}',
        b'{"format": 1, "nonce": "", "builders": {"a": "b"}, "unused": [], "removed": []}',
        b'{"format": 1, "nonce": "", "builders": [], "unused": [], "removed": []}',
        b'{"format": 1, "nonce": "", "builders": {}, "unused": 5, "removed": []}',
    ],
)
def test_a_damaged_control(data: bytes, tmp_path: pathlib.Path) -> None:
    store = MemoryStore()
    build(store, tmp_path, "1")
    before = stored_parts(store)
    store.delete(f"{FOLDER}/1/cache.mdb")
    store.write(f"{FOLDER}/yogadl.parts/yogadl.control", data)
    with pytest.raises(StoreError, match=r"yogadl\.control is"):
        collect(store, tmp_path)
    with pytest.raises(StoreError, match=r"yogadl\.control is"):
        build(store, tmp_path, "2")
    assert stored_parts(store) == before


@given(
    builders=st.dictionaries(st.text(), st.none() | st.floats(0, 2e9)),
    unused=st.dictionaries(st.binary(min_size=16, max_size=16), st.none() | st.floats(0, 2e9)),
)
def test_the_control_is_read_as_it_was_written(
    builders: dict[str, float | None], unused: dict[bytes, float | None]
) -> None:
    control = Control(builders, unused, dict(reversed(unused.items())))
    assert Control.parse(control.to_json("n"), "it") == (control, "n")


@given(at=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_no_bit_of_the_control_may_be_another(at: int, bit: int) -> None:
    control = Control({"a": 1.5}, {b"0" * 16: 7.0}, {b"1" * 16: None})
    data = bytearray(control.to_json("nonce"))
    data[at % len(data)] ^= 1 << bit
    try:
        found = Control.parse(bytes(data), "it")
    except StoreError:
        return
    # The name of the checksum, without which all is taken as it is.
    assert found == (control, "nonce")
    assert at % len(data) < len('{"checksum": "')


def test_a_control_without_a_checksum_is_read() -> None:
    data = b'{"format": 1, "nonce": "n", "builders": {"b": 1}, "unused": [], "removed": []}'
    assert Control.parse(data, "it") == (Control({"b": 1}), "n")


def test_a_control_that_arrives_damaged_is_read_again(tmp_path: pathlib.Path) -> None:
    store = MemoryStore()
    build(store, tmp_path, "1")
    read, damaged = store.read, []

    def damage(key: str, *given: Any) -> tuple[bytes, str] | None:
        found = read(key, *given)
        if found is None or not key.endswith("yogadl.control") or len(damaged) % 3 == 2:
            return found
        damaged.append(key)
        return found[0].replace(b"nonce", b"Nonce"), found[1]

    store.read = damage
    damaged.append("")
    build(store, tmp_path, "2", 100)
    assert len(damaged) > 1
    assert needed_parts(store) == stored_parts(store)


def test_a_write_whose_answer_was_lost(tmp_path: pathlib.Path) -> None:
    store = MemoryStore()
    write, tries = store.write, iter([True, False, True, False])

    def twice(key: str, data: bytes, if_tag: str | None = None, *given: Any) -> str:
        if next(tries, False):
            write(key, data, if_tag)
        return write(key, data, if_tag, *given)

    store.write = twice
    build(store, tmp_path, "1")
    assert needed_parts(store) == stored_parts(store)
