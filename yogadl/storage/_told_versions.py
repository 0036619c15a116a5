"""What storages have in common of what is told of versions: the user's metadata, and cards."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from yogadl.arguments import as_index
from yogadl.cache.writer import metadata_json
from yogadl.cards import Card, ComponentSample, sample_of
from yogadl.errors import ForeignFileError, InvalidArgumentError
from yogadl.format.provenance import UNKNOWN
from yogadl.storage._commits.commit import Committer
from yogadl.storage._commits.made import Made
from yogadl.storage._commits.purpose import Purpose, new_change
from yogadl.storage._commits.user_metadata import same_json
from yogadl.storage._history import first_parents
from yogadl.storage._listed import oldest_first
from yogadl.storage._listing import V
from yogadl.storage._versioned import VersionedStorage


class ToldVersions(VersionedStorage[V]):
    """See the module; derived by ``CacheStorage``."""

    def card(self, dataset_id: str, name: str | None = None, *, sample: int = 0) -> Card:
        """What is known of a version, on a page: ``card.to_markdown()``, ``card.to_html()``. The
        last line of a notebook's cell shows it.

        No records are read, unless asked for; of a bucket, the list of the versions, and what the
        version's own object says of itself.

        Args:
            dataset_id: of the version.
            name: a version or a tag; ``None`` for what ``latest`` says.
            sample: read so many records, evenly spread, and tell the least, mean and greatest
                values of each component in them.

        Raises:
            CacheNotFoundError: there is no such version or tag.
            CacheFormatError: it is damaged.
            YogadlError: what ``list`` raises.
        """
        size = as_index("sample", sample, 0)
        self._version(dataset_id, "any" if name is None else name)
        known = self._catalogue.load(dataset_id)
        there = self._looked_up(self._listed(dataset_id), known)
        entries = {
            entry.dataset_version: entry.shown(listed.stored(entry)[0], known.tags_at(listed.key))
            for listed, entry in there
        }
        if name is None:
            # What is being deleted is not the newest, as for ``latest``.
            staying = [(listed, entry) for listed, entry in there if not listed.is_doomed(known)]
            if not staying:
                raise self._none_of(dataset_id)
            at = oldest_first(staying)[-1][0].dataset_version
        else:
            tagged = [version for version, entry in entries.items() if name in entry.tags]
            at = name if name in entries else next(iter(tagged), "")
            if not at:
                raise self._no_such_name(dataset_id, name)
        entry, log = entries[at], tuple(first_parents(entries, at))
        version = self._version(dataset_id, at)
        try:
            made = self._made(version)
        except ForeignFileError:
            # Of 0.1.4, which says nothing of itself.
            return Card(entry, log=log)
        recipe = made.recipe
        count = min(size, made.count)
        return Card(
            entry,
            made.metadata,
            made.provenance.arguments,
            () if recipe is None else recipe.items,
            log,
            len(made.digests) + made.is_table,
            count,
            self._sample(version, count) if count else (),
        )

    def set_metadata(
        self,
        dataset_id: str,
        on: str,
        metadata: Mapping[str, Any],
        *,
        remove: Iterable[str] = (),
        version: str | None = None,
        message: str = "",
    ) -> str:
        """Makes a version of the same records with other metadata, by a commit that stores a table
        of a few kilobytes, and reads no records::

            storage.set_metadata("digits", "main", {"license": "CC0"}, remove=["draft"])

        Of several that commit to a branch at once, each comes behind the one before, whatever that
        has done to records and components; if both have changed one key, the second is told.

        Args:
            dataset_id: of the versions.
            on: a tag, which is the branch that is moved, or a version.
            metadata: keys that are set, each to a value that JSON can hold. All others stay.
            remove: keys that go, if they are there.
            version: see :meth:`change`.
            message: likewise.

        Returns:
            The new version; that which there was if it has these metadata already.

        Raises:
            InvalidArgumentError: JSON cannot hold the metadata, or a key is both set and removed.
            ConflictError: another commit has set the same key to something else, or removed it.
            YogadlError: what :meth:`change` raises.
        """
        given, gone = _checked(metadata, remove)
        target = self._target(dataset_id, on, version, message)
        started = time.monotonic()

        def begin(
            stack: contextlib.ExitStack, base: V, branch: str | None, tags: Mapping[str, str]
        ) -> tuple[Any, Made, str | None]:
            _, parts, made = self._begin_on(stack, base, target, tags, version is not None)
            return parts, made, branch

        with contextlib.ExitStack() as stack:
            parts, made, branch = self._begin_at(stack, on, target, begin)
            told = {name: it for name, it in made.metadata.items() if name not in gone} | given
            if same_json(told, made.metadata):
                return made.dataset_version
            purpose = Purpose(message, told, new_change(), started)
            Committer(self, made, target, branch, parts, purpose).commit_metadata()
        return target.dataset_version

    def _sample(self, version: V, size: int) -> tuple[ComponentSample, ...]:
        with self._open_here(version) as ref:
            positions = np.linspace(0, len(ref) - 1, size).round().astype(np.int64)
            return sample_of(ref.spec, ref.select(positions).stream())


def _checked(metadata: Any, remove: Any) -> tuple[dict[str, Any], set[str]]:
    """The metadata as a file has them, and the keys to remove.

    Raises:
        InvalidArgumentError: they are none.
    """
    if not isinstance(metadata, Mapping):
        raise InvalidArgumentError(f"metadata are a dict, not {metadata!r:.100}")
    given: dict[str, Any] = json.loads(metadata_json(metadata, UNKNOWN))
    names = [remove] if isinstance(remove, str) else remove
    names = list(names) if isinstance(names, Iterable) else [None]
    if not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(f"remove takes keys of metadata, not {remove!r:.100}")
    both = sorted(given.keys() & {*names})
    if both:
        raise InvalidArgumentError(f"{', '.join(map(repr, both))}: both set and removed")
    return given, set(names)
