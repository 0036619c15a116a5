"""What storages have in common of listing what they have."""

from __future__ import annotations

import abc
import bisect
import builtins
import dataclasses
import datetime
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Generic, TypeVar

from yogadl.catalogue import Catalogue, CatalogueEntry, Entry, Known
from yogadl.core import Storage
from yogadl.errors import CacheNotFoundError, YogadlError
from yogadl.storage._listed import Age, Listed, ages_of
from yogadl.storage._version import Version

_FEW = 16
_YOUNG = datetime.timedelta(minutes=1)

V = TypeVar("V", bound=Version)

_log = logging.getLogger(__name__)


class ListedStorage(Storage, Generic[V]):
    """See the module; derived by ``CataloguedStorage``."""

    # What a kind of storage supplies

    _catalogue: Catalogue

    # Whether there is to be a catalogue only because somebody has looked at what is stored.
    _looking_begins_catalogue: ClassVar[bool] = True

    @abc.abstractmethod
    def _version(self, dataset_id: str, dataset_version: str) -> V:
        """A version, which need not be stored.

        Raises:
            InvalidArgumentError: an id or version that is empty or leaves the storage.
        """

    @abc.abstractmethod
    def _listed(self, dataset_id: str | None) -> Iterator[Listed]:
        """What is stored of an id, or of all, in any order; what cannot be fetched is left out."""

    @abc.abstractmethod
    def _look(self, version: V) -> Listed | None:
        """The state of a version; ``None`` if it is not stored."""

    @abc.abstractmethod
    def _described(self, listed: Sequence[Listed]) -> Iterable[tuple[Listed, Entry]]:
        """What versions' own files say of them, whatever is in them; what is gone is left out."""

    @property
    @abc.abstractmethod
    def _where(self) -> str:
        """Where everything is stored, for messages."""

    # Listing

    def list(self, dataset_id: str | None = None) -> builtins.list[CatalogueEntry]:
        """What is stored, sorted by id and version; no records are read.

        What the catalogue does not know, as it was stored by an earlier yogadl, for one, is found
        all the same: a few kilobytes of each such file are read, once, as it is entered then, if
        this user may do so. Two reads of the catalogue, and, of a bucket, a request for each 1,000
        objects of versions.

        Args:
            dataset_id: list only the versions of this one; of one that there is not, none.

        Raises:
            InvalidArgumentError: the id is empty or leaves the storage.
            StoreError: the bucket cannot be listed.
            CatalogueError: the catalogue is damaged.
        """
        if dataset_id is not None:
            self._version(dataset_id, "any")
        known = self._catalogue.load(dataset_id)
        found = [
            entry.shown(listed.stored(entry)[0], known.tags_at(listed.key))
            for listed, entry in self._looked_up(self._listed(dataset_id), known)
        ]
        return sorted(found, key=lambda entry: (entry.dataset_id, entry.dataset_version))

    def _entries(self, there: Iterable[Listed], known: Known) -> Iterator[tuple[Listed, Entry]]:
        """What is stored, and what is known of it."""
        others = []
        for listed in there:
            entry = listed.entry_in(known)
            if entry is not None and entry.is_whole:
                yield listed, entry
            else:
                others.append(listed)
        for listed, entry in self._described(others) if others else ():
            if not known.is_uncommitted(entry.key, entry.going_to):
                yield listed, known.with_age(entry, listed.created)

    def _looked_up(
        self, there: Iterable[Listed], known: Known, enters: bool = True
    ) -> builtins.list[tuple[Listed, Entry]]:
        """The same of all of it; what had to be looked up in files is entered, so that it need not
        be the next time.

        Args:
            there: what is stored.
            known: what the catalogue said.
            enters: whether to.
        """
        pairs = builtins.list(self._entries(there, known))
        found = [pair for pair in pairs if pair[1].is_sure and pair[0].entry_in(known) is None]
        if enters and found and (known.is_begun or self._looking_begins_catalogue):
            self._enter_found(found, known)
        return pairs

    def _enter_found(self, found: Sequence[tuple[Listed, Entry]], known: Known) -> None:
        oldest = min(listed.created for listed, _ in found)
        now = datetime.datetime.now(datetime.timezone.utc)
        if len(found) <= _FEW and oldest > now - _YOUNG:
            # Who has just stored it is about to enter it.
            return
        # As old as before: what was never entered is between the others by its time.
        entries = [
            dataclasses.replace(entry, number=listed.stored(entry)[1]) for listed, entry in found
        ]
        try:
            self._catalogue.enter_found(entries, known)
        except YogadlError as error:
            _log.debug("Of %d versions, files are read each time: %s", len(found), error)

    def _newest_first(
        self, dataset_id: str, enters: bool = False
    ) -> Iterator[tuple[Listed, Entry]]:
        """The versions of an id, and what is known of them, the newest first; of those without an
        entry, files are asked only as it gets to them.

        Args:
            dataset_id: of them.
            enters: see :meth:`_looked_up`.
        """
        known = self._catalogue.load(dataset_id)
        entered = builtins.list[tuple[Listed, Entry]]()
        # Those that another program has copied, mostly, and those of which nothing is known.
        changed, others = builtins.list[Listed](), builtins.list[Listed]()
        for listed in self._listed(dataset_id):
            entry = listed.entry_in(known)
            if listed.is_doomed(known):
                # Nor do gc and sync take it for a version.
                continue
            if entry is not None:
                entered.append((listed, entry))
            else:
                (changed if listed.key in known.entries else others).append(listed)
        entered += self._looked_up(changed, known, enters)
        ages = ages_of(entered)
        waiting: builtins.list[tuple[Age, Listed, Entry | None]] = [
            (ages[listed.key], listed, entry) for listed, entry in entered
        ]
        # What its file says may make it older.
        waiting += [((listed.created, sys.maxsize, ""), listed, None) for listed in others]
        waiting.sort(key=_age)
        while waiting:
            _, listed, entry = waiting.pop()
            if entry is not None and entry.is_whole:
                yield listed, entry
            elif entry is not None:
                yield from self._entries([listed], known)
            else:
                for pair in self._entries([listed], known):
                    bisect.insort(waiting, (ages_of([pair])[listed.key], *pair), key=_age)

    def _is_there(self, listed: Listed, known: Known) -> bool:
        """Whether what is stored is a version, and not left by a commit that was killed."""
        return any(True for _ in self._entries([listed], known))

    def _check_committed(self, listed: Listed, known: Known | None = None) -> Entry:
        """Sees that what is stored is a version; what is known of it.

        Args:
            listed: what is stored.
            known: what the catalogue says; without, it is asked.

        Raises:
            CacheNotFoundError: it is not committed yet, or was left by who was killed.
            CatalogueError: the catalogue is damaged.
        """
        known = self._catalogue.load(listed.dataset_id) if known is None else known
        for _, entry in self._entries([listed], known):
            return entry
        raise CacheNotFoundError(
            f"version {listed.dataset_version!r} of data set {listed.dataset_id!r} in "
            f"{self._where} is being committed or deleted by somebody else, or was left by one "
            "who was killed, so it is no version"
        )

    def latest(self, dataset_id: str) -> str:
        """The version of an id that was stored last; ``compact`` makes none newer.

        Those in the catalogue are in the order in which they were entered; any others are between
        them by the times of their files, by the clock of the disk or the bucket.

        Raises:
            CacheNotFoundError: there is none.
            InvalidArgumentError: the id is empty or leaves the storage.
            StoreError: the bucket cannot be listed.
        """
        self._version(dataset_id, "any")
        for listed, _ in self._newest_first(dataset_id, enters=True):
            return listed.dataset_version
        raise self._none_of(dataset_id)

    def _none_of(self, dataset_id: str) -> CacheNotFoundError:
        return CacheNotFoundError(
            f"no data set {dataset_id!r} in {self._where}; submit it first, or use cacheable"
        )


def _age(waiting: tuple[Age, Listed, Entry | None]) -> Age:
    return waiting[0]
