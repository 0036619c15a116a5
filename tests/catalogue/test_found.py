"""Entries of what was found without: all in one change, which makes nothing of others undone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from catalogue_rig import FOLDER, ROOT_KEY, TryingStore, catalogue, entry, keys
from memory_store import MemoryStore

from yogadl.catalogue import Catalogue, Entry
from yogadl.catalogue._catalogue import _MERGE_EVERY
from yogadl.catalogue._state import FEWEST_MERGED, State
from yogadl.errors import AccessDeniedError, NetworkError, TagMovedError

# Of which one is a change of the root, and the other a new segment.
COUNTS = (2, FEWEST_MERGED + 1)

pytestmark = pytest.mark.usefixtures("no_pauses")


def found(count: int, number: int = 0) -> list[Entry]:
    each = [entry("a", str(at), message="found") for at in range(count)]
    return [dataclasses.replace(it, number=number) for it in each]


def root(store: MemoryStore) -> State:
    data, _ = store.read(ROOT_KEY) or (b"", "")
    return State.parse(data, "")[0]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("is_begun", [False, True])
def test_many_are_one_change_of_a_root_that_stays_small(count: int, is_begun: bool) -> None:
    store = MemoryStore()
    mine = catalogue(store)
    if is_begun:
        mine.enter(entry("a", "0", message="stale"))
        mine.enter(entry("b", "1"))
    writes: list[str] = []
    store.after = lambda name, key: writes.append(key) if name == "write" else None
    mine.enter_found(found(count, 7), mine.load())
    assert writes.count(ROOT_KEY) == 1
    assert len(writes) == (1 if count == COUNTS[0] else 2)
    assert len(root(store).entries) <= FEWEST_MERGED
    for reader in (mine, catalogue(store)):
        entries = reader.load().entries
        assert len(entries) == count + is_begun
        told = {(it.number, it.provenance.message) for it in entries.values() if it.key[0] == "a"}
        # One of each version, and the number that it is to have.
        assert told == {(7, "found")}


OTHERS: dict[str, Callable[[Catalogue], object]] = {
    "entered": lambda theirs: theirs.enter(entry("a", "1", message="theirs")),
    "committed": lambda theirs: theirs.commit(entry("a", "1", "c", "theirs"), "main", None),
    "deleted": lambda theirs: theirs.take_out(("a", "1"), "tag of 1", is_forced=False),
    "given up": lambda theirs: theirs.give_up(("a", "1"), "tag of 1", theirs.load().identity),
    "tagged": lambda theirs: theirs.tag(("a", "0"), "1", ""),
}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("merges", [False, True])
@pytest.mark.parametrize("what", OTHERS)
def test_what_others_do_meanwhile_stays(count: int, merges: bool, what: str) -> None:
    """Since the catalogue was asked, until the root is about to be written."""
    for moment in ("at first", "at last"):
        store = TryingStore()
        mine, theirs = catalogue(store), catalogue(store)
        theirs.enter(entry("b", "1"))

        def others(theirs: Catalogue = theirs) -> None:
            OTHERS[what](theirs)
            for number in range(FEWEST_MERGED + _MERGE_EVERY if merges else 0):
                theirs.enter(entry("c", str(number)))

        def between(
            name: str, key: str, store: MemoryStore = store, do: Callable[[], None] = others
        ) -> None:
            if name == "write" and key == ROOT_KEY:
                store.before = lambda _name, _key: None
                do()

        known = mine.load()
        if moment == "at first":
            others()
        else:
            store.before = between
        mine.enter_found(found(count), known)
        entries = catalogue(store).load().entries
        assert len([key for key in entries if key[0] == "c"]) == (
            FEWEST_MERGED + _MERGE_EVERY if merges else 0
        )
        if what in ("entered", "committed"):
            assert entries["a", "1"].provenance.message == "theirs"
        else:
            assert ("a", "1") not in entries
        if not merges and not (what == "tagged" and count == COUNTS[1]):
            assert entries["a", "0"].provenance.message == "found"


@pytest.mark.parametrize("count", COUNTS)
def test_what_is_being_deleted_is_not_entered(count: int) -> None:
    """Nor does it come back when older entries are written anew."""
    store = MemoryStore()
    mine = catalogue(store)
    mine.enter(entry("a", "1"))
    mine.take_out(("a", "1"), "tag of 1", is_forced=False)
    mine.enter_found(found(count), mine.load())
    for number in range(FEWEST_MERGED + _MERGE_EVERY):
        assert ("a", "1") not in catalogue(store).load().entries
        mine.enter(entry("b", str(number)))
    assert ("a", "0") in catalogue(store).load().entries


@pytest.mark.parametrize("count", COUNTS)
def test_what_cannot_be_entered_is_not_written_again_and_again(count: int) -> None:
    store = MemoryStore()
    mine = catalogue(store)
    mine.tag(("a", "x"), "0", "")
    mine.take_out(("a", "1"), "tag of 1", is_forced=False)
    odd = Entry("a", "odd", 1, "tag", content_id="\ud800")
    before = store.read(ROOT_KEY)
    mine.enter_found([*found(2), odd], mine.load())
    assert store.read(ROOT_KEY) == before
    mine.enter_found([*found(count), odd, entry("b", "1")], mine.load())
    assert ("b", "1") in keys(mine)
    assert not {("a", "0"), ("a", "1"), ("a", "odd")} & {*keys(mine)}


@pytest.mark.parametrize("count", COUNTS)
def test_a_commit_that_somebody_has_found_is_not_carried_out_by_that(count: int) -> None:
    """Its branch is moved, or not, as if nobody had."""
    store = TryingStore()
    mine, theirs = catalogue(store), catalogue(store)
    mine.commit(entry("a", "x", "first"), "main", None)
    commit = entry("a", "0", "mine")
    theirs.enter_found([commit, *found(count)[1:]], theirs.load())
    with pytest.raises(TagMovedError):
        mine.commit(commit, "main", None)
    mine.commit(commit, "main", "x")
    assert mine.tags("a") == {"main": "0"}
    # By now it is; also if its file was copied by another program, and found again.
    done = mine.load().entries["a", "0"]
    theirs.enter_found([dataclasses.replace(done, object_tag="another")], theirs.load())
    mine.commit(commit, "main", "x")
    assert mine.load().entries["a", "0"].object_tag == "another"


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("is_there", [False, True])
def test_nothing_is_entered_where_older_entries_are_lost(count: int, is_there: bool) -> None:
    """Nor are those given up by that, which may only seem to be."""
    store = MemoryStore()
    mine = catalogue(store)
    for number in range(FEWEST_MERGED + _MERGE_EVERY):
        mine.enter(entry("b", str(number)))
    (segment,) = [info.key for info in store.list(FOLDER) if info.key.endswith(".entries")]
    data, _ = store.read(segment) or (b"", "")
    known = mine.load()
    if is_there:
        store.write(segment, b"damaged")
    else:
        store.delete(segment)
    before = store.read(ROOT_KEY)
    for again in (catalogue(store).load(), known):
        if again is known and count == COUNTS[0]:
            continue
        catalogue(store).enter_found(found(count), again)
        assert store.read(ROOT_KEY) == before
    store.write(segment, data)
    assert len(keys(catalogue(store))) == FEWEST_MERGED + _MERGE_EVERY


@pytest.mark.parametrize("count", COUNTS)
def test_answers_that_are_lost(count: int) -> None:
    store = TryingStore()
    mine = catalogue(store)
    mine.tag(("b", "1"), "main", "")
    lost = []

    def lose(name: str, key: str) -> None:
        if name == "write" and key not in lost:
            lost.append(key)
            raise NetworkError("the answer was lost")

    store.after = lose
    mine.enter_found(found(count), mine.load())
    assert len(lost) == (1 if count == COUNTS[0] else 2)
    assert len(keys(catalogue(store))) == count
    assert mine.tags("b") == {"main": "1"}


@pytest.mark.parametrize("count", COUNTS)
def test_who_may_not_write_is_refused_once(count: int) -> None:
    store = MemoryStore()
    asked = []

    def refuse(name: str, key: str) -> Any:
        if name == "write":
            asked.append(key)
            raise AccessDeniedError("not you")

    store.before = refuse
    mine = catalogue(store)
    with pytest.raises(AccessDeniedError):
        mine.enter_found(found(count), mine.load())
    mine.enter_found(found(count), mine.load())
    assert len(asked) == 1
