"""What must be there after processes were killed, by what they had noted down."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Mapping
from typing import Any

import kill_records as records
from kill_journal import History, Key
from kill_operations import (
    BRANCH,
    FIRST_START,
    FIRST_VERSION,
    IDS,
    JUST_REMOVED,
    built_start,
)
from kill_place import AT_ONCE, HERE, THERE, Place

from yogadl.errors import StoreError, YogadlError

MAKING = ("submit", "cacheable", "commit", "told", "revert", "copy")
"""The operations that make versions, by which these are noted."""

_ROUNDS = 15
_ROUND_SECONDS = 1.0
_AN_HOUR = datetime.timedelta(hours=1)


def collected(place: Place, name: str) -> Iterator[str]:
    """Collects until nothing is left to collect in a storage; what is left all the same."""
    storages = [place.storage(name, machine) for machine in range(place.machines)]
    for _ in range(_ROUNDS):
        found = [storage.gc(older_than=AT_ONCE) for storage in storages]
        parts = [one.parts for one in found]
        is_busy = any(one.unfinished or one.scratch for one in found)
        if not is_busy and not any(one.removed or one.waiting or one.skipped for one in parts):
            return
        # Until builders that were killed count as gone, and names of parts can be used again.
        time.sleep(_ROUND_SECONDS)
    yield f"{name}: after {_ROUNDS} times, gc still finds {parts}"


class Model:
    """What must be there.

    Args:
        history: what the processes have noted down.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        # These may be older ones than those that were stored last.
        self._put_back = history.asked["put_back"].keys()

    def faults(self, place: Place) -> Iterator[str]:
        """What is not as it must be, of both storages; the second is brought up to date."""
        here, there = place.storage(HERE), place.storage(THERE)
        listed = {(entry.dataset_id, entry.dataset_version) for entry in here.list()}
        yield from self._faults_of_versions(here, HERE)
        yield from self._lost_or_back(listed)
        for dataset_id in IDS:
            yield from self._faults_of_tags(here, dataset_id, listed)
            yield from self._faults_of_branch(here, dataset_id)
        _sync(here, there)
        yield from self._faults_of_versions(there, THERE)
        yield from _faults_of_sync(here, there)

    # Of each version

    def _faults_of_versions(self, storage: Any, name: str) -> Iterator[str]:
        for entry in storage.list():
            key = entry.dataset_id, entry.dataset_version
            try:
                content = records.read(storage.fetch(*key), verifies=True)
                self._check_content(key, content, name)
                self._check_entry(entry, content)
            except (AssertionError, YogadlError, OSError) as error:
                yield f"{name}, version {key}: {type(error).__name__}: {error}"

    def _check_entry(self, entry: Any, content: records.Content) -> None:
        count = len(content.tokens) * len(records.added_records(0)) + records.FIRST
        assert entry.record_count == count, f"{entry.record_count} records are said to be {count}"
        assert entry.size > 0, "it is said to have no bytes"
        assert entry.own_size is None or entry.own_size <= entry.size, "it has too few bytes"

    def _check_content(self, key: Key, content: records.Content, name: str) -> None:
        """Whether a version has what it was asked to have."""
        asked = self._history.asked
        is_copied = key in asked["copy"] or key in self._put_back or name == THERE
        while key in asked["copy"]:
            (source,) = asked["copy"][key]
            key = source[0], source[1]
        start, tokens, metadata = content
        if key in asked["submit"]:
            may_be = asked["submit"][key] if is_copied else self._may_be("submit", key)
            assert start in may_be, f"it begins with {start}, not one of {may_be}"
            assert tokens == [], f"it has {tokens}"
            return
        if key in asked["cacheable"]:
            assert (start, tokens) == (built_start(key[1]), []), f"it has {start} and {tokens}"
            return
        assert start == FIRST_START, f"it begins with {start}"
        if key in asked["commit"]:
            assert tokens[-1:] == asked["commit"][key], f"it ends with {tokens[-1:]}"
        elif key in asked["told"]:
            ((told, value),) = asked["told"][key]
            assert metadata.get(told) == value, f"{told!r} is {metadata.get(told)}, not {value}"
        elif key in asked["revert"]:
            (undone,) = asked["revert"][key]
            (token,) = asked["commit"][key[0], undone]
            assert token not in tokens, f"it has what was reverted: {token}"
        else:
            assert key[1] == FIRST_VERSION, "nobody has asked for it"
            assert tokens == [], f"it has {tokens}"

    def _may_be(self, operation: str, key: Key) -> list[Any]:
        register = self._history.registers[operation][key]
        return [register.last, *register.maybe]

    # Of all of them

    def _lost_or_back(self, listed: set[Key]) -> Iterator[str]:
        """Versions that must be there and are not, and the other way round."""
        asked, done = self._history.asked, self._history.done
        for operation in MAKING:
            for key in done[operation].keys() - asked["delete"].keys() - listed:
                yield f"{key} is lost, of which {operation!r} was acknowledged"
        for operation in ("commit", "revert", "copy"):
            for key in self._history.refused[operation] & listed:
                yield f"{key} is there, of which {operation!r} was refused"
        # What is replaced while it is deleted may stay.
        replaced = {key for key, starts in asked["submit"].items() if len(starts) > 1}
        may_be_back = replaced | asked["cacheable"].keys() | self._put_back
        for key in (done["delete"].keys() & listed) - may_be_back:
            yield f"{key} is there, of which the deletion was acknowledged"

    def _faults_of_tags(self, storage: Any, dataset_id: str, listed: set[Key]) -> Iterator[str]:
        tags: Mapping[str, str] = storage.tags(dataset_id)
        for tag, version in tags.items():
            if (dataset_id, version) not in listed:
                yield f"the tag {tag!r} of {dataset_id!r} is at {version!r}, which is not there"
        for (of, tag), register in self._history.registers["tag"].items():
            if of == dataset_id and not register.may_be(tags.get(tag)):
                yield f"the tag {tag!r} of {of!r} is at {tags.get(tag)!r}, not {register}"

    def _faults_of_branch(self, storage: Any, dataset_id: str) -> Iterator[str]:
        """What is missing on a branch of what was acknowledged."""
        try:
            content = records.read(storage.fetch(dataset_id, BRANCH))
        except (AssertionError, YogadlError) as error:
            yield f"{BRANCH} of {dataset_id!r}: {error}"
            return
        reverts, refused = self._history.asked["revert"], self._history.refused["revert"]
        undone = {(key[0], asked[0]) for key, asked in reverts.items() if key not in refused}
        for key, token in self._history.done["commit"].items():
            if key[0] == dataset_id and key not in undone and token not in content.tokens:
                yield f"the commit {key} was acknowledged, and is not on the branch"
        for (of, name), register in self._history.registers["set_metadata"].items():
            if of == dataset_id and not register.may_be(content.metadata.get(name)):
                yield f"{name!r} of {of!r} is {content.metadata.get(name)}, not {register}"


def _sync(here: Any, there: Any) -> None:
    """Brings a storage up to date, as soon as names of parts that were removed can be used again.

    Raises:
        StoreError: that takes too long, or it cannot be done.
    """
    for left in reversed(range(_ROUNDS)):
        try:
            here.sync(there, force=True)
        except StoreError as error:
            if not left or JUST_REMOVED not in str(error):
                raise
        else:
            return
        time.sleep(_ROUND_SECONDS)
        # Forgets names that were removed, and leaves alone what was just stored: its name could not
        # be used in the next round.
        there.collect_parts(older_than=_AN_HOUR)


def _faults_of_sync(here: Any, there: Any) -> Iterator[str]:
    """What a storage lacks that was just brought up to date."""
    theirs = {(it.dataset_id, it.dataset_version): it for it in there.list()}
    for entry in here.list():
        key = entry.dataset_id, entry.dataset_version
        if key not in theirs or theirs[key].content_id != entry.content_id:
            yield f"{key} was not synced"
    for dataset_id in IDS:
        tags = there.tags(dataset_id)
        for tag, version in here.tags(dataset_id).items():
            if tags.get(tag) != version:
                yield f"the tag {tag!r} of {dataset_id!r} was not synced"
