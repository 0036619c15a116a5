"""What storages have in common of what is told of versions: data cards."""

from __future__ import annotations

import numpy as np

from yogadl.arguments import as_index
from yogadl.cards import Card, ComponentSample, sample_of
from yogadl.errors import ForeignFileError
from yogadl.storage._catalogued import V
from yogadl.storage._versioned import VersionedStorage, first_parents


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
        there = list(self._entries(self._listed(dataset_id), known))
        entries = {
            entry.dataset_version: entry.shown(listed.created, known.tags_at(listed.key))
            for listed, entry in there
        }
        if name is None:
            if not there:
                raise self._none_of(dataset_id)
            at = max((listed for listed, _ in there), key=lambda it: it.age(known)).dataset_version
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

    def _sample(self, version: V, size: int) -> tuple[ComponentSample, ...]:
        with self._open_here(version) as ref:
            positions = np.linspace(0, len(ref) - 1, size).round().astype(np.int64)
            return sample_of(ref.spec, ref.select(positions).stream())
