"""What storages have in common of looking back: what versions differ in, and were made from."""

from __future__ import annotations

import abc
import builtins
import contextlib
import functools
from collections.abc import Mapping

from yogadl.cache.record_reader import RecordReader
from yogadl.catalogue import CatalogueEntry
from yogadl.dataref import StoredDataRef
from yogadl.errors import CacheNotFoundError
from yogadl.storage._catalogued import CataloguedStorage
from yogadl.storage._commits.diff import VersionDiff, diff_of
from yogadl.storage._commits.made import Made
from yogadl.storage._listing import V

_ATTEMPTS = 3
_NO_TAGS: Mapping[str, str] = {}


class HistoryStorage(CataloguedStorage[V]):
    """See the module; derived by ``VersionedStorage``."""

    # What a kind of storage supplies

    @abc.abstractmethod
    def _made(self, version: V) -> Made:
        """Of what a stored version is made.

        Raises:
            CacheNotFoundError: it is not stored.
            CacheFormatError: it is damaged, or of yogadl 0.1.4.
        """

    @abc.abstractmethod
    def _open_here(self, version: V) -> StoredDataRef:
        """A stored version, to be read without downloading all of it."""

    # Looking back

    def diff(self, dataset_id: str, before: str, after: str) -> VersionDiff:
        """What two versions differ in: records, spec, and metadata.

        Values whose dtypes differ are compared as numbers: a cast that keeps them changes no
        record.

        Args:
            dataset_id: of both.
            before: a version or a tag.
            after: likewise.

        Raises:
            CacheNotFoundError: there is no such version or tag.
            CacheFormatError: one is damaged, or of yogadl 0.1.4.
            StoreError: the bucket cannot be read.
        """
        versions = [self._named(dataset_id, name)[0] for name in (before, after)]
        one, two = (self._made(version) for version in versions)
        with contextlib.ExitStack() as stack:

            @functools.cache
            def readers() -> tuple[RecordReader, RecordReader]:
                refs = [stack.enter_context(self._open_here(version)) for version in versions]
                return refs[0].reader, refs[1].reader

            def made_of(name: str) -> Made:
                return self._made(self._version(dataset_id, name))

            return diff_of(one, two, made_of, readers)

    def log(self, dataset_id: str, name: str) -> builtins.list[CatalogueEntry]:
        """A version and those that it was made from, each the first parent of the one before.

        Args:
            dataset_id: of them.
            name: a version or a tag.

        Raises:
            CacheNotFoundError: there is no such version or tag.
            YogadlError: what :meth:`list` raises.
        """
        for _ in range(_ATTEMPTS):
            # In this order: what a tag is at is entered already.
            version, tag = self._named(dataset_id, name)
            entries = {entry.dataset_version: entry for entry in self.list(dataset_id)}
            if tag is None or version.dataset_version in entries:
                return first_parents(entries, version.dataset_version)
            # It may have been moved on, and the version collected, meanwhile.
        raise self._left_by(name, version)

    def _named(
        self, dataset_id: str, name: str, known: Mapping[str, str] = _NO_TAGS
    ) -> tuple[V, str | None]:
        """The version of a name, and the tag, if it is one.

        Args:
            dataset_id: of it.
            name: a version, or else a tag; as ``fetch`` finds them.
            known: tags that need not be asked for.
        """
        version = self._version(dataset_id, name)
        if self._look(version) is not None:
            return version, None
        if name in known:
            return self._at(dataset_id, name, known[name]), name
        tagged = self._tagged(dataset_id, name)
        if tagged is None:
            raise self._no_such_name(dataset_id, name)
        return tagged, name

    def _no_such_name(self, dataset_id: str, name: str) -> CacheNotFoundError:
        return CacheNotFoundError(
            f"there is no version or tag {name!r} of data set {dataset_id!r} in {self._where}"
        )


def first_parents(
    entries: Mapping[str, CatalogueEntry], version: str
) -> builtins.list[CatalogueEntry]:
    """A version and those that it was made from, each the first parent of the one before.

    Args:
        entries: the versions of an id.
        version: one of them, or none.
    """
    at: str | None = version
    found: builtins.list[CatalogueEntry] = []
    seen = set()
    while at is not None and at in entries and at not in seen:
        seen.add(at)
        entry = entries[at]
        found.append(entry)
        own = [parent for of, parent in entry.parents if of == entry.dataset_id]
        at = own[0] if own else None
    return found
