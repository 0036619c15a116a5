"""What storages have in common of storing a version of the same records in its own place."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import pathlib
from typing import Any

from yogadl.cache.partial import PartialFile, claimed
from yogadl.cache.table_writer import StoredGroups, write_version
from yogadl.catalogue import DoomedError, Entry
from yogadl.dataref import StoredDataRef
from yogadl.errors import CacheReplacedError, CatalogueError
from yogadl.storage._building.submission import Parts
from yogadl.storage._commits.made import Made
from yogadl.storage._commits.new_records import PartWriter
from yogadl.storage._commits.rewriting import stored_anew
from yogadl.storage._history import HistoryStorage
from yogadl.storage._listed import Listed
from yogadl.storage._listing import V


class RenewingStorage(HistoryStorage[V]):
    """See the module; derived by ``VersionedStorage``."""

    # What a kind of storage supplies

    @abc.abstractmethod
    def _adding(self, version: V, may_stamp: bool, /) -> contextlib.AbstractContextManager[Parts]:
        """What parts of a version are stored by, none of which is collected before the end.

        Args:
            version: that is to be published before the end.
            may_stamp: whether parts may get another name, see ``Parts.store``.
        """

    @abc.abstractmethod
    def _part_bytes(self, given: Any) -> int | None:
        """Where parts are cut, by what the user says of it, ``None`` for nothing."""

    @abc.abstractmethod
    def _open_whole(self, version: V) -> StoredDataRef:
        """A stored version, all of which is about to be read."""

    @abc.abstractmethod
    def _publish_again(self, file: PartialFile, version: V, parts: Any, listed: Listed) -> Entry:
        """Stores the same records in place of a version in some state; its entry, which is not
        entered.

        Raises:
            CacheReplacedError: it is in another state.
        """

    def compact(self, dataset_id: str, name: str, *, part_bytes: int | None = None) -> None:
        """Stores the records of a version anew, in parts that have them in order and nothing else.

        It is the same version as before, of the same content id; who reads it goes on reading what
        he has open. So it is read as fast as one that was submitted, and what was dropped of it is
        stored no longer, when other versions do not have it and it is collected.

        Args:
            dataset_id: of it.
            name: a version or a tag.
            part_bytes: see ``submit``.

        Raises:
            CacheNotFoundError: there is no such version or tag, or it is not committed.
            ChecksumError: its records are damaged; nothing was changed.
            CacheReplacedError: it was replaced or deleted meanwhile, or somebody else compacted it.
            CatalogueError: the catalogue does not have it, and cannot be changed; it would be the
                newest version by that.
            UnsafeStoreError: the bucket has no conditional writes that can be trusted; likewise.
        """
        version, tag = self._named(dataset_id, name)
        self._prove_tags(version)
        size = self._part_bytes(part_bytes)
        listed = self._look(version)
        if listed is None:
            raise self._replaced(version) if tag is None else self._left_by(tag, version)
        entry = self._entered(version, listed)
        with claimed(version.claim) as path, self._adding(version, True) as parts:
            parts.begin()
            made = self._made(version)
            writer = PartWriter(version.label, path, parts, size)
            with self._open_whole(version) as ref:
                stored = stored_anew(made, ref.reader, writer)
            self._renew(version, listed, entry, made, stored, path, parts)

    def _make_table(self, version: V, listed: Listed, made: Made, parts: Any) -> None:
        """Stores a table in place of a plain file that was made a part, so that its bytes are not
        stored twice.

        Args:
            version: it.
            listed: its state.
            made: of what it is made.
            parts: by which the part was stored.

        Raises:
            CacheReplacedError: it was replaced or deleted meanwhile.
            CatalogueError: see :meth:`compact`.
        """
        entry = self._entered(version, listed)
        with claimed(version.claim) as path:
            self._renew(version, listed, entry, made, made.stored, path, parts)

    def _entered(self, version: V, listed: Listed) -> Entry:
        """The entry of a version whose file is about to be replaced: it is no newer by that, and
        the file says so as long as it has an entry.

        Raises:
            CacheNotFoundError: it is not committed.
            CacheReplacedError: it is about to be deleted.
            CatalogueError: it has no entry, and cannot get one.
        """
        known = self._catalogue.load(version.dataset_id)
        # With an entry, it would be taken for committed.
        entry = self._check_committed(listed, known)
        since, number = listed.stored(entry)
        if listed.entry_in(known) is None:
            again = dataclasses.replace(entry, stored=(since, number))
            if not self._enter_again(again, listed, version):
                raise CatalogueError(
                    f"{version} is not in the catalogue, which cannot be changed now (the log says "
                    "why), so it would be the newest version when it is stored anew; try again "
                    "later"
                )
        return entry

    def _renew(
        self,
        version: V,
        listed: Listed,
        entry: Entry,
        made: Made,
        stored: StoredGroups,
        path: pathlib.Path,
        parts: Any,
    ) -> None:
        """Stores a table in place of a version in some state.

        Args:
            version: it.
            listed: its state.
            entry: what is known of that, see :meth:`_entered`.
            made: of what it was made.
            stored: of what it is to be made, which are the same records.
            path: where the table can be made, claimed.
            parts: by which its parts were stored.

        Raises:
            CacheReplacedError: it is in another state, or about to be deleted.
        """
        since, number = listed.stored(entry)
        with write_version(
            path,
            stored.groups,
            stored.spec,
            stored.leaves,
            metadata=made.renewed_since(since, number, listed.tag),
            created_ns=made.created_ns,
            sums=made.sums,
        ) as file:
            entry = self._publish_again(file, version, parts, listed)
        try:
            self._enter_again(dataclasses.replace(entry, stored=(since, number)), listed, version)
        except CacheReplacedError:
            self._withdraw(version, entry.object_tag)
            raise

    def _enter_again(self, entry: Entry, listed: Listed, version: V) -> bool:
        """Enters a version of the same records as what is stored; whether it could.

        Raises:
            CacheReplacedError: that is about to be deleted.
        """
        try:
            return self._enter(entry, listed.tag)
        except DoomedError:
            raise CacheReplacedError(f"{version} is being deleted by somebody else") from None

    def _replaced(self, version: V) -> CacheReplacedError:
        return CacheReplacedError(
            f"{version} was compacted by somebody else meanwhile, replaced or deleted; look what "
            "is there, and try again if need be"
        )
