"""The catalogue of one storage."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from yogadl.catalogue._entry import Entry, Key
from yogadl.catalogue._kept import is_another, is_committed, kept
from yogadl.catalogue._known import Known
from yogadl.catalogue._root import CatalogueObjects, Root
from yogadl.catalogue._segment import together
from yogadl.catalogue._segments import Segments
from yogadl.catalogue._state import (
    Expected,
    NameTakenError,
    Raw,
    State,
    tag_of_object,
)
from yogadl.errors import CatalogueError, TagMovedError, UnsafeStoreError, YogadlError

CLOCK = "clock.json"

ENTRY_SECONDS = 10.0
"""For which an entry is tried to be made; without it, the version is found by its own file."""

FOUND_SECONDS = 2.0
"""For which entries of what was found without are tried to be made, while a reader waits."""

CHANGE_SECONDS = 120.0
"""For which others' changes may get in the way of one that matters."""

_ATTEMPTS = 5
_PAUSE = 0.1
# Who was to merge may have been killed.
_MERGE_EVERY = 16

_log = logging.getLogger(__name__)


class DoomedError(CatalogueError):
    """What is to be entered anew is being deleted."""


class ReplacedError(CatalogueError):
    """What a commit was made from has other records by now."""


class _ForgottenError(CatalogueError):
    """It is not known whether a change was carried out."""


class Catalogue:
    """The versions and the tags of one storage. Safe for threads and processes; can be pickled if
    the objects can.

    Every change is one conditional write of the root, and has an id of its own: one that is tried
    again after its answer was lost finds that it was carried out, also when others have changed the
    root since.

    Args:
        objects: that it is kept in.
    """

    def __init__(self, objects: CatalogueObjects) -> None:
        self._objects = objects
        self._root = Root(objects)
        self._segments = Segments(objects)
        # What the root was last seen to say, and the tag it had then.
        self._seen: tuple[State, str] | None = None
        # Who may only read need not ask each time.
        self._is_refused = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_seen": None}

    # Asking

    def load(self, dataset_id: str | None = None) -> Known:
        """All that it says, in two reads.

        Args:
            dataset_id: entries of this one only.

        Raises:
            UnsupportedFormatError: a newer yogadl wrote it.
            CatalogueError: it is damaged.
        """
        state, raws, is_whole = self._load()
        entries = {}
        for key, raw in raws.items():
            if dataset_id not in (None, key[0]):
                continue
            try:
                entries[key] = Entry.from_json(raw)
            except ValueError as error:
                _log.warning("%s: %r is left out: %s", self._objects.where, key, error)
        keys = raws.keys() if is_whole else None
        return Known(entries, state.tags, state.removed, state.identity, keys, state)

    def tags(self, dataset_id: str, patience: float | None = None) -> Mapping[str, str]:
        """The tags of an id, and at which version each is; raises what :meth:`load` does."""
        return dict(self._read(patience).tags_of(dataset_id))

    def branch(self, dataset_id: str, branch: str) -> tuple[str | None, str]:
        """The version that a branch is at, ``None`` if there is none, and the catalogue's
        identity; raises what :meth:`load` does."""
        state = self._read()
        return state.tags_of(dataset_id).get(branch), state.identity

    def now(self) -> float:
        """The time, by the store's clock, in seconds since 1970; a small object is written for it.

        Raises:
            YogadlError: it cannot be.
        """
        with self._objects.alone(CHANGE_SECONDS):
            self._objects.write(CLOCK, json.dumps({"nonce": _new_id()}).encode())
            return self._objects.times()[CLOCK]

    def _read(self, patience: float | None = None) -> State:
        self._seen = seen = self._root.read(patience)
        return seen[0]

    def _load(self) -> tuple[State, dict[Key, Raw], bool]:
        """What the root says, all entries, the oldest first, and whether none are lost."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE)
            state = self._read()
            if state.segment is None:
                return state, dict(state.entries), True
            older = self._segments.read(state.segment)
            # Otherwise it was replaced meanwhile.
            if older is not None:
                return state, together(state, older), len(older) == state.segment.count
        _log.warning("%s: a segment is missing.", self._objects.where)
        return state, dict(state.entries), False

    # Changing

    def enter(
        self, entry: Entry, patience: float | None = ENTRY_SECONDS, instead_of: str = ""
    ) -> None:
        """Adds the entry of a version, in place of any other.

        Args:
            entry: it.
            patience: seconds after which it is given up.
            instead_of: the tag of the object of the same records that was there before.

        Raises:
            DoomedError: that, or the new one, was about to be deleted.
            NameTakenError: a tag of its name was set meanwhile.
            YogadlError: that cannot be done; nothing is lost then, see the package.
        """
        change = _new_id()

        def make(state: State) -> State:
            doomed = state.removed.get(entry.key)
            if instead_of and doomed in (instead_of, entry.object_tag):
                raise DoomedError(f"{':'.join(entry.key)} was deleted meanwhile")
            if not instead_of:
                state.check_name(entry.key)
            return state.with_entry(entry, change)

        try:
            self._change(change, make, patience, self._seen)
        except _ForgottenError:
            # What was seen is so old. To enter it once more does no harm.
            self._change(change, make, patience)

    def enter_found(self, entries: Iterable[Entry], known: Known) -> None:
        """Adds entries of what had none, and whose files were asked, in one change.

        They make nothing newer: each has the number that the version had, 0 if it had none.
        Whatever others have done to a version since the catalogue was asked stays; if the older
        entries were written anew, nothing is done.

        Args:
            entries: what the files say.
            known: what the catalogue said before they were asked.

        Raises:
            YogadlError: that cannot be done.
        """
        # With entries lost, what is not committed could not be told.
        if self._is_refused or known.keys is None:
            return
        before, change = known.state, _new_id()
        found = before.fitting(kept(entries), before)
        if not found:
            return

        def make(state: State) -> State | None:
            fitting = state.fitting(found, before) if state.segment == before.segment else {}
            return state.with_found(fitting, change) if fitting else None

        try:
            if before.with_found(found, change).is_full:
                self._merge(before, FOUND_SECONDS, found)
            else:
                self._change(change, make, FOUND_SECONDS, self._seen)
        except (PermissionError, UnsafeStoreError):
            self._is_refused = True
            raise

    def take_out(self, key: Key, object_tag: str, is_forced: bool, outdated: str = "") -> str:
        """Removes the entry of a version that is about to be deleted. It cannot be tagged any more.

        Args:
            key: of the version.
            object_tag: of what is to be deleted.
            is_forced: also if it is tagged.
            outdated: the tag of what was there before that, whose entry may be left, since who
                replaced it has not entered that yet, or was killed.

        Returns:
            The tag of the object that the entry is about, if that is another one, and nothing was
            done; else an empty string.

        Raises:
            InvalidArgumentError: it is tagged.
            YogadlError: that cannot be done.
        """
        change = _new_id()
        another = ""

        def make(state: State) -> State:
            nonlocal another
            found = self._object_tag_of(state, key)
            another = "" if found in ("", object_tag, outdated) else found
            return state.without_entry(key, "" if another else object_tag, is_forced, change)

        self._change(change, make)
        return another

    def give_up(self, key: Key, object_tag: str, identity: str) -> bool:
        """Sees to it that what has no entry never gets one, if it is sure that it has none.

        Args:
            key: of a version.
            object_tag: of its object.
            identity: of the catalogue that was to have its entry.

        Returns:
            Whether that is sure, or the version was about to be deleted before.

        Raises:
            YogadlError: that cannot be done.
        """
        change = _new_id()
        is_sure = False

        def make(state: State) -> State | None:
            nonlocal is_sure
            is_doomed = state.removed.get(key) == object_tag
            is_sure = not state.tags_at(key) and (
                is_doomed or self._surely_lacks(state, key, identity)
            )
            return state.without_entry(key, object_tag, False, change) if is_sure else None

        self._change(change, make)
        return is_sure

    def _surely_lacks(self, state: State, key: Key, identity: str) -> bool:
        if not identity or state.identity != identity or key in state.entries:
            return False
        if state.segment is None or key in state.removed:
            return True
        older = self._segments.read(state.segment)
        # Of a damaged one, nothing is known.
        return older is not None and len(older) == state.segment.count and key not in older

    def _object_tag_of(self, state: State, key: Key) -> str:
        """The tag of the object that a version's entry is about, also if it is an older one; empty
        if it has none, as far as can be read."""
        if key in state.entries or key in state.removed or state.segment is None:
            return state.tag_of(key)
        older = self._segments.read(state.segment) or {}
        return tag_of_object(older.get(key)) or ""

    def tag(
        self,
        key: Key,
        tag: str,
        object_tag: str,
        expect: Expected = ...,
        outdated: str = "",
    ) -> str:
        """Sets or moves a tag.

        Args:
            key: of the version that it is to be at.
            tag: the tag.
            object_tag: of the version's object, which is there.
            expect: where it is to be now, ``None`` for nowhere.
            outdated: the tag of an object of a version of the tag's name, which is not there any
                more though its entry is.

        Returns:
            The tag of the object of a version of the tag's name, if there is an entry of another
            one, and nothing was done; else an empty string.

        Raises:
            TagMovedError: it is somewhere else.
            CatalogueError: the version is about to be deleted.
            YogadlError: that cannot be done.
        """
        change = _new_id()
        another = ""

        def make(state: State) -> State | None:
            nonlocal another
            if state.removed.get(key) == object_tag:
                raise CatalogueError(
                    f"version {key[1]!r} of data set {key[0]!r} is being deleted; if who did so "
                    "was killed, delete it again, or submit it again"
                )
            found = self._object_tag_of(state, (key[0], tag))
            another = "" if found == outdated else found
            return None if another else state.with_tag(key, tag, expect, change)

        self._change(change, make, known=self._seen)
        return another

    def untag(self, dataset_id: str, tag: str, expect: Expected = ...) -> bool:
        """Removes a tag; whether it was there.

        Raises:
            TagMovedError: it is somewhere else.
            YogadlError: that cannot be done.
        """
        change = _new_id()
        was_there = True

        def make(state: State) -> State | None:
            nonlocal was_there
            was_there = tag in state.tags_of(dataset_id)
            if not was_there and expect is ...:
                return None
            return state.without_tag(dataset_id, tag, expect, change)

        self._change(change, make)
        return was_there

    def commit(self, entry: Entry, branch: str, expect: str | None, content_id: str = "") -> None:
        """Adds the entry of a commit, and moves a branch to it, in one step.

        A commit that was carried out before is done: it is known by its id,
        ``entry.provenance.change``, for as long as it has an entry, wherever the branch is by now.

        Args:
            entry: of the version that it made.
            branch: the tag to move.
            expect: the version that it is to be at now; ``None`` if there is to be none.
            content_id: of the records that this has.

        Raises:
            NameTakenError: a tag of the version's name was set meanwhile.
            ReplacedError: another version of the name of that was stored meanwhile.
            TagMovedError: it is somewhere else, which the error says.
            YogadlError: that cannot be done, or it is not known whether it was.
        """
        change = entry.provenance.change
        assert change

        def make(state: State) -> State | None:
            if is_committed(state.entries.get(entry.key), change):
                return None
            if state.removed.get(entry.key) == entry.object_tag:
                raise CatalogueError(
                    f"version {entry.dataset_version!r} of data set {entry.dataset_id!r} was "
                    "deleted before it was committed; change it again"
                )
            committed = state.committed(entry, branch, expect)
            # Of what was stored since the commit was begun, nearly always, there is an entry here.
            if expect is not None and is_another(
                state.entries.get((entry.dataset_id, expect)), content_id
            ):
                raise ReplacedError(f"version {expect!r} was stored anew, with other records")
            return committed

        while True:
            try:
                return self._change(change, make, known=self._seen)
            except (NameTakenError, ReplacedError, TagMovedError, _ForgottenError) as error:
                # So many others may have come in between that it is among the older ones.
                _, raws, _ = self._load()
                if is_committed(raws.get(entry.key), change):
                    return None
                if not isinstance(error, _ForgottenError):
                    raise

    def _change(
        self,
        change: str,
        make: Callable[[State], State | None],
        patience: float | None = CHANGE_SECONDS,
        known: tuple[State, str] | None = None,
    ) -> None:
        """Changes the root in one step, unless that was done before.

        Args:
            change: the id of the change.
            make: what it does.
            patience: seconds after which it is given up.
            known: what the root said, and its tag then.
        """
        first: int | None = None

        def once(state: State) -> State | None:
            nonlocal first
            if state.has(change):
                return None
            if first is None:
                first = state.count
            if not state.remembers(first):
                raise _ForgottenError(
                    f"{self._root.name} was changed so often meanwhile that it is not known "
                    "whether this change was carried out"
                )
            return make(state)

        self._seen = None
        self._seen = state, _ = self._root.change(once, patience, known)
        # Of all who change it, one.
        if state.is_full and state.count % _MERGE_EVERY == 0:
            self._merge_if_possible(state, patience)

    # Merging

    def _merge_if_possible(self, state: State, patience: float | None) -> None:
        try:
            self._merge(state, patience)
        except YogadlError as error:
            _log.info("%s has more entries than it should: %s", self._root.name, error)

    def _merge(
        self, before: State, patience: float | None, found: Mapping[Key, Raw] | None = None
    ) -> None:
        """Writes the entries of the root and the older ones into a new segment, and those of what
        was found without; see :meth:`enter_found`."""
        change = _new_id()
        older = {} if before.segment is None else self._segments.read(before.segment)
        if older is None and self._read(patience).segment != before.segment:
            # Somebody else has just done so.
            return
        older = older or {}
        # Of what has no entry, it cannot be said from then on that it never had one.
        has_lost = before.segment is not None and len(older) != before.segment.count
        if found and has_lost:
            return
        entries = {**together(before, older), **(found or {})}
        segment = self._segments.write(entries.values(), change, patience)

        def make(state: State) -> State | None:
            if state.segment != before.segment or any(map(state.is_tag, found or ())):
                return None
            return state.merged(before, segment, change, has_lost)

        self._seen = None
        self._seen = state, _ = self._root.change(make, patience)
        # A reader has waited long enough.
        if state.segment == segment and not found:
            self._segments.tidy((segment.name, *state.retired), before.retired)


def _new_id() -> str:
    return uuid.uuid4().hex
