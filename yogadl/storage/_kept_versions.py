"""What storages have in common of versions that are kept, and of those that go."""

from __future__ import annotations

import abc
import builtins
import collections
import datetime
import logging
import pathlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from yogadl.arguments import as_flag, as_index
from yogadl.catalogue import Entry, Key, Known
from yogadl.errors import InvalidArgumentError
from yogadl.storage._collected import Collected, CollectedParts, StoredVersion
from yogadl.storage._disk.scratch import abandoned_in, remove_abandoned, remove_partial_files
from yogadl.storage._listed import Listed, oldest_first
from yogadl.storage._listing import V
from yogadl.storage._told_versions import ToldVersions

GRACE = datetime.timedelta(days=1)
"""For which versions are kept at least, and commits that are not entered may be under way."""

_log = logging.getLogger(__name__)


class KeptVersions(ToldVersions[V]):
    """See the module; derived by ``CacheStorage``."""

    # What a kind of storage supplies

    @abc.abstractmethod
    def _collect(
        self,
        dataset_id: str,
        older_than: datetime.timedelta | None,
        dry_run: bool,
        doomed: Collection[str] = (),
    ) -> CollectedParts:
        """See ``CacheStorage.collect_parts``.

        Args:
            dataset_id: of the parts.
            older_than: likewise.
            dry_run: likewise.
            doomed: versions that are taken for deleted.
        """

    @abc.abstractmethod
    def _collect_copies(self) -> None:
        """Removes what nobody needs of the copies that this machine has of what is stored
        elsewhere, of whichever ids."""

    @abc.abstractmethod
    def _ids_of_parts(self) -> Iterator[str]:
        """All ids that have parts."""

    @abc.abstractmethod
    def _ids_with_leftovers(self) -> Iterator[str]:
        """Ids of which killed writers have left files in this storage, also before their first
        version."""

    @abc.abstractmethod
    def _folders_here(self, dataset_id: str) -> builtins.list[pathlib.Path]:
        """The folders on this machine that the versions of an id are made in."""

    # Collecting

    def gc(
        self,
        dataset_id: str | None = None,
        *,
        keep_last: int | None = None,
        older_than: datetime.timedelta | None = None,
        dry_run: bool = False,
    ) -> Collected:
        """Deletes the versions that are not to be kept, and removes what nobody needs.

        That is: versions, but for the last ones of each id, those that are tagged, and young ones;
        what changes that were killed left behind; and, as ``collect_parts`` does, the parts that no
        version refers to then. Before that, what this machine has copies of that nobody needs. All
        times are by the clock of the disk or the bucket.

        Safe at any time, from any number of processes, whatever others read, build, commit or copy.
        One that is killed has done a part of it, and the next one does the rest.

        Args:
            dataset_id: of this one only; of one that there is not, there is nothing to do.
            keep_last: how many versions of each id to keep, the newest, beside those that are
                tagged. Without, no version is deleted.
            older_than: only what is so old; without, versions are kept for a day, and parts for as
                long as ``collect_parts`` says. What a change may still be about to commit stays for
                a day in any case.
            dry_run: tell what would go, and remove nothing.

        Raises:
            InvalidArgumentError: an argument is not what it should be.
            UnsafeStoreError: the bucket has no conditional writes that can be trusted.
            CatalogueError: the catalogue is damaged.
            StoreError: the bucket cannot be changed.
            FileSystemError: the disk cannot.
        """
        check_age(older_than)
        dry_run = as_flag("dry_run", dry_run)
        count = None if keep_last is None else as_index("keep_last", keep_last, 0)
        version = self._version("any" if dataset_id is None else dataset_id, "any")
        if not dry_run:
            self._collect_copies()
        self._prove_tags(version)
        known = self._catalogue.load(dataset_id)
        there = builtins.list(self._listed(dataset_id))
        # What is stored after this is young.
        now = self._catalogue.now()
        latest = now - (GRACE if older_than is None else older_than).total_seconds()
        pending = self._unfinished(there, known)
        unfinished = [
            one
            for one in pending
            if one.created.timestamp()
            <= (latest if one.is_doomed(known) else now - GRACE.total_seconds())
        ]
        outdated: builtins.list[Listed] = []
        if count is not None:
            keys = {listed.key for listed in pending}
            rest = [listed for listed in there if listed.key not in keys]
            found = self._looked_up(rest, known, enters=not dry_run)
            outdated = _outdated(found, known, count, latest)
        if not dry_run:
            outdated = [one for one in outdated if self._removes(one)]
            unfinished = [one for one in unfinished if self._gives_up(one, known)]
        ids = {dataset_id} if dataset_id is not None else {one.dataset_id for one in there}
        if dataset_id is None:
            ids |= set(self._ids_with_leftovers())
        scratch = self._clear(ids, dry_run)
        doomed = {one.key for one in (*outdated, *unfinished)} if dry_run else set()
        with_parts = ids if dataset_id is not None else set(self._ids_of_parts())
        return Collected(
            _stored(outdated),
            _stored(unfinished),
            tuple(scratch),
            CollectedParts.of(
                self._collect(name, older_than, dry_run, _of(name, doomed))
                for name in sorted(with_parts)
            ),
        )

    # What is not committed

    def _unfinished(self, there: Iterable[Listed], known: Known) -> builtins.list[Listed]:
        """What was published and is not in the catalogue though it must be, as a commit is under
        way or was killed; or is being deleted, or who did so was killed.

        What has no entry for another reason is a version like any other: one that was stored when
        the catalogue could not be changed, or by hand, or before the catalogue was lost.
        """
        found, unknown = [], []
        for listed in there:
            if listed.is_doomed(known):
                found.append(listed)
            elif listed.key not in known.entries:
                unknown.append(listed)
        return found + [
            listed
            for listed, entry in self._described(unknown)
            if known.is_uncommitted(entry.key, entry.going_to)
        ]

    # Deleting

    def _removes(self, listed: Listed) -> bool:
        """Deletes a version, unless it was tagged or replaced meanwhile; whether it did."""
        version = self._version(*listed.key)
        found = self._look(version)
        if found is None or found.tag != listed.tag:
            return False
        try:
            if not self._take_out(found, False):
                return False
        except InvalidArgumentError as error:
            _log.info("%s stays: %s", version.label, error)
            return False
        if not self._delete(version, found, collects=False):
            return False
        _log.info("Deleted %s, which is not to be kept.", version.label)
        return True

    def _gives_up(self, listed: Listed, known: Known) -> bool:
        """Deletes what was never committed; whether it is sure that it was not."""
        version = self._version(*listed.key)
        found = self._look(version)
        if found is None or found.tag != listed.tag:
            return False
        if not self._catalogue.give_up(listed.key, listed.tag, known.identity):
            return False
        if not self._delete(version, found, collects=False):
            return False
        _log.info("Deleted %s, which was not committed.", version.label)
        return True

    def _clear(self, ids: Iterable[str], dry_run: bool) -> builtins.list[pathlib.Path]:
        """Removes what killed changes left on this machine; the scratch folders among it."""
        found: builtins.list[pathlib.Path] = []
        for folder in [here for name in sorted(ids) for here in self._folders_here(name)]:
            abandoned = abandoned_in(folder)
            found += abandoned
            if not dry_run:
                for each in abandoned:
                    remove_abandoned(each)
                remove_partial_files(folder)
        return found


def check_age(older_than: Any) -> None:
    """Checks a time for which something is to be kept.

    Raises:
        InvalidArgumentError: it is none.
    """
    if older_than is not None and not (
        isinstance(older_than, datetime.timedelta) and older_than >= datetime.timedelta()
    ):
        raise InvalidArgumentError(
            f"older_than must be a datetime.timedelta that is not negative, not {older_than!r}"
        )


def _outdated(
    there: Iterable[tuple[Listed, Entry]], known: Known, keep_last: int, latest: float
) -> builtins.list[Listed]:
    """The versions that are not to be kept, the oldest first.

    Args:
        there: all versions, and what is known of them.
        known: what the catalogue says.
        keep_last: how many to keep of each id.
        latest: when the newest of those was stored that may go.
    """
    ordered = oldest_first(there)
    kept: set[Key] = set()
    # Whatever is newer and can hardly be read, so many stay of which more is known.
    for some in (ordered, [pair for pair in ordered if pair[1].record_count is not None]):
        left: collections.Counter[str] = collections.Counter()
        for listed, _ in reversed(some):
            left[listed.dataset_id] += 1
            if left[listed.dataset_id] <= keep_last:
                kept.add(listed.key)
    return [
        listed
        for listed, entry in ordered
        if listed.key not in kept
        and not known.tags_at(listed.key)
        and listed.stored(entry)[0].timestamp() <= latest
    ]


def _stored(listed: Iterable[Listed]) -> tuple[StoredVersion, ...]:
    return tuple(StoredVersion(*one.key, one.size) for one in listed)


def _of(dataset_id: str, keys: Iterable[Key]) -> frozenset[str]:
    """The versions of an id."""
    return frozenset(version for name, version in keys if name == dataset_id)
