"""What storages have in common of versions that are copied from one to another."""

from __future__ import annotations

import abc
import contextlib
import logging
from collections.abc import Iterable, Mapping

from yogadl.arguments import as_flag
from yogadl.core import Storage
from yogadl.errors import CacheNotFoundError, InvalidArgumentError, YogadlError
from yogadl.storage._copying.copying import Copier, Original
from yogadl.storage._copying.sync import Synced, synced
from yogadl.storage._kept_versions import KeptVersions
from yogadl.storage._listing import V

_log = logging.getLogger(__name__)


class CopiedVersions(KeptVersions[V]):
    """See the module; derived by ``CacheStorage``."""

    # What a kind of storage supplies

    @abc.abstractmethod
    def _original(self, version: V) -> contextlib.AbstractContextManager[Original]:
        """A stored version, to be copied.

        Raises:
            CacheNotFoundError: it is not stored.
        """

    @abc.abstractmethod
    def _missing_parts(self, version: V, sizes: Mapping[bytes, int]) -> set[bytes]:
        """Which parts of these digests and bytes are not there, or not whole as far as can be told
        without downloading them; the caller sees to it that none is collected."""

    # Copying

    def copy(
        self,
        dataset_id: str,
        dataset_version: str,
        to: Storage,
        *,
        new_id: str | None = None,
        new_version: str | None = None,
    ) -> None:
        """Copies a version into another storage, or this one, byte for byte.

        Parts that are there already are not transferred, nor downloaded. What is transferred is
        compared with its digest.

        Args:
            dataset_id: of the version.
            dataset_version: of the version, or a tag.
            to: where to; what is stored there under the new id and version is replaced.
            new_id: its id there, the same without.
            new_version: its version there, the same without; that of the tag, if one was given.

        Raises:
            CacheNotFoundError: it is not stored here, or not committed.
            CacheFormatError: it is damaged; nothing was copied.
            InvalidArgumentError: an id or version that is empty or leaves the storage.
        """
        if not isinstance(to, CopiedVersions):
            raise InvalidArgumentError(
                f"copy needs a storage of yogadl's to copy to, not {to!r}; to any other, submit "
                "what is fetched"
            )
        source = self._source(dataset_id, dataset_version)
        new_id = dataset_id if new_id is None else new_id
        new_version = source.dataset_version if new_version is None else new_version
        target = to._version(new_id, new_version)
        to._check_name(target)
        with (
            self._original(source) as original,
            to._adding(target, False) as parts,
        ):
            Copier(to, parts).copy(original, target)

    def _source(self, dataset_id: str, name: str) -> V:
        """What is to be copied, which is not just being committed, as far as that is known."""
        version = self._version(dataset_id, name)
        listed = self._look(version)
        if listed is None:
            tagged = self._tagged(dataset_id, name)
            return version if tagged is None else tagged
        try:
            self._check_committed(listed)
        except CacheNotFoundError:
            raise
        except YogadlError as error:
            _log.warning("It is not known whether %s was committed: %s", version.label, error)
        return version

    def sync(
        self,
        to: Storage,
        dataset_id: str | None = None,
        *,
        names: str | Iterable[str] | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> Synced:
        """Copies the versions and tags that another storage lacks, see ``docs/keeping.md``.

        What is there already is not transferred again, so that a sync which was killed goes on
        where it was. A tag that is elsewhere in ``to`` is moved if the version that it is at there
        is one that the other was made from.

        Args:
            to: where to.
            dataset_id: of the versions; all without.
            names: versions and tags of that id, or one of them; tags come with the versions that
                they are at. All without.
            force: replace versions of the same name that differ, and move tags wherever they are.
            dry_run: tell what would be copied, and copy nothing.

        Raises:
            CacheNotFoundError: there is no such data set, version or tag.
            ConflictError: a version or a tag in ``to`` is another one; nothing was copied.
            TagMovedError: somebody else has moved a tag in ``to`` meanwhile.
            CacheFormatError: a version is damaged; it was not copied.
            InvalidArgumentError: an argument is not what it should be, or a name is that of a
                version in one storage and of a tag in the other.
            UnsafeStoreError: there are tags, and ``to`` can have none.
        """
        if not isinstance(to, CopiedVersions) or to is self:
            raise InvalidArgumentError(f"sync needs another storage of yogadl's, not {to!r}")
        if names is not None and dataset_id is None:
            raise InvalidArgumentError("names are those of one data set; give its dataset_id, too")
        chosen = [names] if isinstance(names, str) else names
        if isinstance(chosen, Iterable):
            chosen = list(chosen)
        if chosen is not None and not (
            isinstance(chosen, list) and all(isinstance(name, str) for name in chosen)
        ):
            raise InvalidArgumentError(f"names are versions and tags, not {names!r:.100}")
        force, dry_run = as_flag("force", force), as_flag("dry_run", dry_run)
        return synced(self, to, dataset_id, chosen, force, dry_run)
