"""The catalogue by itself: changes, merging, lost answers, and whatever its objects may hold."""

from __future__ import annotations

import json
import pickle
import zlib
from typing import Any

import pytest
import xxhash
from catalogue_rig import FOLDER, ROOT_KEY, TryingStore, catalogue, entry, keys
from hypothesis import given
from hypothesis import strategies as st
from memory_store import MemoryStore

from yogadl.catalogue import Entry, NameTakenError
from yogadl.catalogue._state import KEPT_CHANGES, State
from yogadl.errors import (
    CatalogueError,
    InvalidArgumentError,
    NetworkError,
    TagMovedError,
    UnsupportedFormatError,
)
from yogadl.format.provenance import Provenance

MANY = 400

pytestmark = pytest.mark.usefixtures("no_pauses")


def segments(store: MemoryStore) -> list[str]:
    return [info.key for info in store.list(FOLDER) if info.key.endswith(".entries")]


def test_what_was_entered_is_found_also_after_it_was_merged() -> None:
    store = MemoryStore()
    found = catalogue(store)
    for number in range(MANY):
        found.enter(entry("a", str(number)))
    assert segments(store)
    for reader in (found, catalogue(store), pickle.loads(pickle.dumps(entry("a", "1")))):
        if not isinstance(reader, Entry):
            assert len(keys(reader)) == MANY
    entries = catalogue(store).load().entries
    numbers = [entries["a", str(number)].number for number in range(MANY)]
    assert numbers == sorted(set(numbers))


def test_who_writes_a_segment_reads_it_no_more() -> None:
    store = MemoryStore()
    found = catalogue(store)
    while not segments(store):
        found.enter(entry("a", str(len(keys(found)))))
    expected = keys(catalogue(store))
    for key in segments(store):
        store.delete(key)
    assert keys(found) == expected


def test_the_root_stays_small_and_old_segments_go() -> None:
    store = MemoryStore()
    found = catalogue(store)
    for number in range(MANY):
        found.enter(entry("a", str(number)))
    root = store.read(ROOT_KEY)
    assert root is not None
    assert len(State.parse(root[0], "")[0].entries) < 100
    # Those of the root, and one that some reader may be about to read.
    assert len(segments(store)) == 2


def test_what_is_removed_does_not_fill_the_root() -> None:
    store = MemoryStore()
    found = catalogue(store)
    for number in range(MANY):
        found.enter(entry("a", str(number)))
    for number in range(MANY - 1):
        found.take_out(("a", str(number)), f"tag of {number}", is_forced=False)
    root = store.read(ROOT_KEY)
    assert root is not None
    state, _ = State.parse(root[0], "")
    assert len(state.removed) + len(state.entries) < 200
    assert keys(catalogue(store)) == [("a", str(MANY - 1))]


def test_a_newer_entry_replaces_an_older_one() -> None:
    found = catalogue(MemoryStore())
    found.enter(entry("a", "1", message="old"))
    for number in range(MANY):
        found.enter(entry("b", str(number)))
    found.enter(entry("a", "1", message="new"))
    assert found.load().entries["a", "1"].provenance.message == "new"
    found.take_out(("a", "1"), "tag of 1", is_forced=False)
    assert ("a", "1") not in found.load().entries
    for number in range(MANY):
        found.enter(entry("c", str(number)))
    assert ("a", "1") not in found.load().entries


def test_a_reader_with_an_old_root_reads_it_again() -> None:
    """The segment that it refers to may be gone."""
    store = MemoryStore()
    writer, reader = catalogue(store), catalogue(store)
    for number in range(MANY):
        writer.enter(entry("a", str(number)))
    entered = []

    def between(name: str, key: str) -> None:
        if name == "read" and key.endswith(".entries") and not entered:
            store.before = lambda _name, _key: None
            for number in range(MANY):
                entered.append(number)
                writer.enter(entry("b", str(number)))
            store.before = between

    store.before = between
    assert len(keys(reader)) == 2 * MANY


def test_a_segment_that_is_gone_or_damaged_is_made_anew(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    found = catalogue(store)
    for number in range(MANY):
        found.enter(entry("a", str(number)))
    for key in segments(store):
        store.write(key, b"damaged")
    found = catalogue(store)
    left = len(keys(found))
    assert 0 < left < 100
    assert "is damaged" in caplog.text
    for key in segments(store):
        store.delete(key)
    found = catalogue(store)
    assert len(keys(found)) == left
    for number in range(MANY):
        found.enter(entry("b", str(number)))
    assert len(keys(catalogue(store))) == left + MANY


# Tags


def test_tags_are_set_moved_and_removed() -> None:
    found = catalogue(MemoryStore())
    assert found.tags("a") == {}
    found.tag(("a", "1"), "prod", "")
    found.tag(("a", "2"), "prod", "", expect="1")
    found.tag(("a", "1"), "old", "", expect=None)
    found.tag(("b", "9"), "prod", "")
    assert (found.tags("a"), found.tags("b")) == ({"prod": "2", "old": "1"}, {"prod": "9"})
    for expect in ("1", None):
        with pytest.raises(TagMovedError, match=r"'prod'.*is at version '2'") as error:
            found.tag(("a", "3"), "prod", "", expect=expect)
        assert error.value.current == "2"
        assert pickle.loads(pickle.dumps(error.value)).current == "2"
    with pytest.raises(TagMovedError, match="is not there"):
        found.tag(("a", "3"), "new", "", expect="1")
    assert found.untag("a", "prod")
    assert not found.untag("a", "prod")
    with pytest.raises(TagMovedError):
        found.untag("a", "old", expect="2")
    assert found.tags("a") == {"old": "1"}


@pytest.mark.parametrize("others", [0, 200])
def test_a_version_and_a_tag_of_one_name_exclude_each_other(others: int) -> None:
    """Also where the entry is an older one."""
    store = TryingStore()
    mine, theirs = catalogue(store), catalogue(store)
    mine.enter(entry("a", "1"))
    mine.enter(entry("a", "q"))
    theirs.tag(("a", "1"), "r", "")
    for number in range(others):
        theirs.enter(entry("b", str(number)))
    assert mine.tag(("a", "1"), "q", "") == "tag of q"
    assert mine.tags("a") == {"r": "1"}
    for enter in (
        lambda: mine.enter(entry("a", "r")),
        lambda: mine.commit(entry("a", "r", "c"), "main", expect=None),
    ):
        with pytest.raises(NameTakenError, match="'r' became a tag of data set 'a'"):
            enter()
    # What has replaced a version of the same records is no new one.
    mine.enter(entry("a", "r"), instead_of="another")
    assert mine.tag(("a", "1"), "q", "", ..., "tag of q") == ""
    assert mine.tags("a") == {"q": "1", "r": "1"}


def test_what_was_entered_knows_itself_though_its_name_is_a_tag_by_now() -> None:
    store = TryingStore()
    mine, theirs = catalogue(store), catalogue(store)
    mine.enter(entry("a", "1"))
    lost = []

    def lose(name: str, key: str) -> None:
        if name == "write" and key == ROOT_KEY and not lost:
            lost.append(key)
            theirs.take_out(("a", "2"), "tag of 2", is_forced=True)
            assert not theirs.tag(("a", "1"), "2", "")
            raise NetworkError("the answer was lost")

    store.after = lose
    mine.commit(entry("a", "2", "c"), "main", expect=None)
    assert lost


def test_what_is_tagged_is_not_taken_out_and_what_is_deleted_not_tagged() -> None:
    found = catalogue(MemoryStore())
    found.tag(("a", "1"), "prod", "x")
    with pytest.raises(InvalidArgumentError, match="has the tag 'prod'"):
        found.take_out(("a", "1"), "x", is_forced=False)
    found.take_out(("a", "1"), "x", is_forced=True)
    with pytest.raises(CatalogueError, match="is being deleted"):
        found.tag(("a", "1"), "other", "x")
    # Another object of that version.
    found.tag(("a", "1"), "other", "y")


# Commits


def test_a_commit_adds_an_entry_and_moves_a_branch() -> None:
    found = catalogue(MemoryStore())
    found.commit(entry("a", "1", "c1"), "main", expect=None)
    found.commit(entry("a", "2", "c2"), "main", expect="1")
    assert keys(found) == [("a", "1"), ("a", "2")]
    assert found.tags("a") == {"main": "2"}
    with pytest.raises(TagMovedError) as error:
        found.commit(entry("a", "3", "c3"), "main", expect="1")
    assert error.value.current == "2"
    assert ("a", "3") not in keys(found)
    # It is told apart by its id, wherever the branch is.
    found.commit(entry("a", "1", "c1"), "main", expect=None)
    assert found.tags("a") == {"main": "2"}


@pytest.mark.parametrize("others", [0, 1, KEPT_CHANGES // 2, KEPT_CHANGES + 100])
def test_a_commit_whose_answer_is_lost_finds_itself(others: int) -> None:
    """However many others have moved the branch on before it hears of itself."""
    store = TryingStore()
    mine, theirs = catalogue(store), catalogue(store)
    lost = []

    def lose(name: str, key: str) -> None:
        if name == "write" and key == ROOT_KEY and not lost:
            lost.append(key)
            for number in range(others):
                at = theirs.tags("a")["main"]
                theirs.commit(entry("a", f"x{number}", f"x{number}"), "main", expect=at)
            raise NetworkError("the answer was lost")

    store.after = lose
    mine.commit(entry("a", "1", "mine"), "main", expect=None)
    assert lost
    assert len(keys(mine)) == others + 1
    assert mine.tags("a") == {"main": f"x{others - 1}" if others else "1"}


def test_a_move_of_which_nothing_is_known_any_more_is_an_error() -> None:
    store = TryingStore()
    mine, theirs = catalogue(store), catalogue(store)
    lost = []

    def lose(name: str, key: str) -> None:
        if name == "write" and key == ROOT_KEY and not lost:
            lost.append(key)
            for number in range(KEPT_CHANGES + 1):
                theirs.tag(("b", str(number)), "main", "")
            raise NetworkError("the answer was lost")

    store.after = lose
    with pytest.raises(CatalogueError, match="not known whether this change was carried out"):
        mine.tag(("a", "1"), "prod", "", expect=None)


def test_an_entry_is_made_whatever_was_seen_long_ago() -> None:
    store = TryingStore()
    mine, theirs = catalogue(store), catalogue(store)
    mine.tags("a")
    for number in range(KEPT_CHANGES + 1):
        theirs.tag(("b", str(number)), "main", "")
    mine.enter(entry("a", "1"))
    assert keys(theirs) == [("a", "1")]


def test_what_was_seen_is_a_guess() -> None:
    store = TryingStore()
    mine, theirs = catalogue(store), catalogue(store)
    theirs.tag(("a", "1"), "main", "")
    assert mine.tags("a") == {"main": "1"}
    theirs.tag(("a", "2"), "main", "")
    mine.tag(("a", "3"), "main", "", expect="2")
    assert theirs.tags("a") == {"main": "3"}


def test_the_entry_of_what_replaced_another_is_kept_when_that_is_removed() -> None:
    store = TryingStore()
    mine = catalogue(store)
    mine.enter(entry("a", "1"))
    for number in range(200):
        mine.enter(entry("b", str(number)))
    assert mine.load().keys == {("a", "1"), *(("b", str(number)) for number in range(200))}
    # Its entry is among the older ones, and somebody has seen it before it was replaced.
    mine.take_out(("a", "1"), "another tag", False)
    assert ("a", "1") in keys(mine)
    mine.take_out(("a", "1"), "tag of 1", False)
    assert ("a", "1") not in keys(mine)


# Text, limits, and hostile bytes

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(TEXT, TEXT, TEXT, st.lists(st.tuples(TEXT, TEXT), max_size=3), st.floats(0, 1e9))
def test_text_comes_back_as_it_was(
    name: str, version: str, message: str, parents: list[tuple[str, str]], duration: float
) -> None:
    store = MemoryStore()
    made = Provenance(message=message, parents=tuple(parents), duration=duration, user=name)
    given_entry = Entry(name, version, 1, version, None, 1, None, "", message, made)
    catalogue(store).enter(given_entry)
    # No version has the name of a tag.
    tag = f"{message} of {version}"
    catalogue(store).tag((name, version), tag, "")
    known = catalogue(store).load()
    found = known.entries[name, version]
    assert (found.provenance, found.content_id, found.object_tag) == (made, message, version)
    assert known.tags_at((name, version)) == (tag,)


def test_an_entry_that_is_too_long_says_so() -> None:
    found = catalogue(MemoryStore())
    found.enter(entry("a", "1", "c1", message="m" * 100_000))
    known = found.load().entries["a", "1"]
    assert (known.is_whole, known.provenance.change, known.record_count) == (False, "c1", 3)


def rewritten(data: bytes, change: Any) -> bytes:
    """A root that says something else, with the right checksum."""
    found = json.loads(data)
    del found["checksum"]
    change(found)
    body = json.dumps(found).encode()
    return b'{"checksum": "%s", ' % xxhash.xxh3_128_hexdigest(body).encode() + body[1:]


def _set(*path: Any, value: Any) -> Any:
    def change(found: Any) -> None:
        for name in path[:-1]:
            found = found[name]
        found[path[-1]] = value

    return change


DAMAGES = [
    _set("count", value=-1),
    _set("count", value=True),
    _set("count", value=1e9),
    _set("changes", value=[1]),
    _set("changes", value=None),
    _set("entries", value={"a": 1}),
    _set("entries", value=[[]]),
    _set("entries", value=[{"dataset_id": 1, "dataset_version": "1"}]),
    _set("entries", 0, "dataset_id", value="\ud800"),
    _set("removed", value=[["a"]]),
    _set("segment", value={}),
    _set("segment", value={"name": "../../x", "size": 1, "raw_size": 1, "count": 1}),
    _set("segment", value={"name": "0" * 32, "size": 10**30, "raw_size": 1, "count": 1}),
    _set("retired", value="abc" and {"a": 1} and 5),
    _set("tags", value=[]),
    _set("tags", value={"a": {"prod": None}}),
    _set("nonce", value=None),
    _set("format", value=None),
]


@pytest.mark.parametrize("number", range(len(DAMAGES)))
def test_a_root_that_makes_no_sense_is_told(number: int) -> None:
    store = MemoryStore()
    found = catalogue(store)
    found.enter(entry("a", "1"))
    data, _ = store.read(ROOT_KEY) or (b"", "")
    assert rewritten(data, lambda _found: None) == data
    store.write(ROOT_KEY, rewritten(data, DAMAGES[number]))
    for ask in (found.load, lambda: found.tags("a"), lambda: found.tag(("a", "1"), "x", "")):
        with pytest.raises((CatalogueError, UnsupportedFormatError), match=r"root\.json"):
            ask()


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_root_with_one_other_byte_is_told(at: int, flip: int) -> None:
    store = MemoryStore()
    catalogue(store).enter(entry("a", "1"))
    data = bytearray((store.read(ROOT_KEY) or (b"", ""))[0])
    data[at % len(data)] ^= flip
    store.write(ROOT_KEY, bytes(data))
    with pytest.raises((CatalogueError, UnsupportedFormatError)):
        catalogue(store).load()


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b"\xff", b"[" * 100_000, b"1" * 9999])
def test_a_root_that_is_something_else_is_told(data: bytes) -> None:
    store = MemoryStore()
    store.write(ROOT_KEY, data)
    with pytest.raises(CatalogueError, match="Delete it"):
        catalogue(store).load()


def test_one_of_a_newer_yogadl_is_left_alone() -> None:
    store = MemoryStore()
    catalogue(store).enter(entry("a", "1"))
    data, _ = store.read(ROOT_KEY) or (b"", "")
    newer = rewritten(data, _set("format", value=2))
    store.write(ROOT_KEY, newer)
    with pytest.raises(UnsupportedFormatError, match="use a newer yogadl"):
        catalogue(store).enter(entry("a", "2"))
    assert (store.read(ROOT_KEY) or (b"", ""))[0] == newer


@pytest.mark.parametrize(
    "change",
    [
        {"records": -1},
        {"records": 1 << 63},
        {"records": "3"},
        {"object": [1]},
        {"object": [1, None]},
        {"size": None},
        {"spec": "{"},
        {"spec": '{"kind": "none of ours"}'},
        {"spec": "[" * 100_000},
        {"content_id": 5},
        {"number": 1.5},
        {"stored": 1},
        {"stored": [1, -1]},
        {"stored": [1 << 62, 1]},
    ],
)
def test_an_entry_that_makes_no_sense_is_left_out(
    change: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    found = catalogue(store)
    found.enter(entry("a", "1"))
    found.enter(entry("a", "2"))
    data, _ = store.read(ROOT_KEY) or (b"", "")
    store.write(ROOT_KEY, rewritten(data, lambda root: root["entries"][0].update(change)))
    assert keys(catalogue(store)) == [("a", "2")]
    assert "is left out" in caplog.text


def test_a_segment_that_would_fill_the_memory_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    catalogue(store).enter(entry("a", "1"))
    bomb = zlib.compress(bytes(10_000_000))
    name = xxhash.xxh3_128_hexdigest(bomb)
    store.write(f"{FOLDER}/{name}.entries", bomb)
    data, _ = store.read(ROOT_KEY) or (b"", "")
    for raw_size in (100, 1 << 62):
        segment = {"name": name, "size": len(bomb), "raw_size": raw_size, "count": 1}
        store.write(ROOT_KEY, rewritten(data, _set("segment", value=segment)))
        assert keys(catalogue(store)) == [("a", "1")]
        assert "is damaged" in caplog.text
        caplog.clear()
