"""Making a version of another one, and publishing it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from yogadl.cache.content_id import TokenSums
from yogadl.cache.partial import PartialFile, remove_leftovers
from yogadl.cache.parts import parts_of
from yogadl.cache.record_reader import RecordReader
from yogadl.cache.table_writer import (
    ColumnGroup,
    PartList,
    StoredGroups,
    write_version,
)
from yogadl.cache.writer import metadata_json
from yogadl.catalogue import Entry, GoingTo, NameTakenError, ReplacedError
from yogadl.dataref import StoredDataRef
from yogadl.errors import (
    CacheFormatError,
    CacheNotFoundError,
    CacheReplacedError,
    ConflictError,
    InvalidArgumentError,
    TagMovedError,
)
from yogadl.storage._building import provenance
from yogadl.storage._building.submission import Parts
from yogadl.storage._commits.commit_storage import CommitStorage
from yogadl.storage._commits.conflicts import (
    Look,
    check_undone,
    is_as_before,
    put_behind,
)
from yogadl.storage._commits.made import (
    Made,
    runs_of,
    stored_runs,
    with_branch,
    with_origin,
)
from yogadl.storage._commits.merging import Rewritten
from yogadl.storage._commits.new_records import PartWriter
from yogadl.storage._commits.new_runs import NEW, NewRuns, sums_after
from yogadl.storage._commits.purpose import Purpose
from yogadl.storage._commits.refitting import refitted
from yogadl.storage._commits.user_metadata import BothChangedError, merged
from yogadl.storage._version import Version
from yogadl.versions.hunks import NO_HUNKS, PARENT, Hunks
from yogadl.versions.runs import NO_RUNS, Runs

Array = np.ndarray[Any, Any]
V = TypeVar("V", bound=Version)

_log = logging.getLogger(__name__)


class Committer(Generic[V]):
    """One commit. Not thread-safe.

    Args:
        storage: in which.
        base: the version that is changed.
        target: the version that is made.
        branch: the tag to move; ``None`` for none.
        parts: by which parts are stored.
        purpose: what is said of it.
        opened: the base, if it is open.
    """

    def __init__(
        self,
        storage: CommitStorage[V],
        base: Made,
        target: V,
        branch: str | None,
        parts: Parts,
        purpose: Purpose,
        opened: StoredDataRef | None = None,
    ) -> None:
        self._storage = storage
        self._base = base
        self._target = target
        self._branch = branch
        self._parts = parts
        self._purpose = purpose
        # Digests of parts that commits made, beside those of the base.
        self._own: set[bytes] = set()
        self._opened = opened

    def commit_records(
        self,
        hunks: Hunks,
        new: NewRuns,
        writer: PartWriter,
        others: Sequence[Rewritten | None] = (),
        expected: TokenSums | None = None,
    ) -> None:
        """Publishes the base with some records replaced.

        Others who have moved the branch meanwhile come first, where they changed other records.

        Args:
            hunks: what is replaced.
            new: what stands in for it.
            writer: stores that anew, if a version that it comes into is laid out otherwise.
            others: of each column group, records that are read from other parts from now on.
            expected: the sums over the tokens of what the base becomes by it, if they are known.

        Raises:
            CacheFormatError: they are others, so that files lie.
            ConflictError: they changed some of the same, or what cannot be put together.
            VersionExistsError: the version is there already.
            YogadlError: it cannot be published.
        """
        base, given = self._base, hunks
        self._own.update(digest for other in others if other for digest in other.parts.digests)
        while True:
            joined = hunks.joined()
            new = self._fitted(base, joined, new, writer)
            self._own |= new.young
            stored = self._applied(base, joined, new)
            sums = self._sums(base, joined, new, stored)
            if base is self._base and expected not in (None, sums):
                raise CacheFormatError(
                    f"version {base.dataset_version!r} does not say rightly what it changed"
                )
            stored = self._rewritten(stored, others)
            moved = self._publish(stored, base, hunks, sums)
            if moved is None:
                return
            head = self._head(moved)
            if head is not None:
                # In what order records come back, only the commit that is taken back can say.
                is_back = bool(self._purpose.reverts)
                before = (given, self._base) if is_back else (hunks, base)
                hunks, base = self._rebased(*before, head), head

    def commit_spec(
        self,
        stored: StoredGroups,
        sums: TokenSums,
        hunks: Hunks | None = NO_HUNKS,
        young: Collection[bytes] = (),
    ) -> None:
        """Publishes the base with other column groups.

        Args:
            stored: of what it is made then.
            sums: over the tokens of its records.
            hunks: which records are others than those of the base; ``None`` if it is not known.
            young: digests of parts that commits made, beside those of the base.

        Raises:
            ConflictError: others have changed records or components meanwhile.
            VersionExistsError: the version is there already.
            YogadlError: it cannot be published.
        """
        self._own.update(young)
        base, look = self._base, functools.cache(self._look_at)
        while True:
            moved = self._publish(stored, base, hunks, sums)
            if moved is None:
                return
            head = self._head(moved)
            if head is None:
                continue
            self._check_undone(head, look)
            if not is_as_before(self._base, head, look):
                raise ConflictError(
                    f"the branch {self._branch!r} is at {moved!r} by now, and no longer at "
                    f"{self._base.dataset_version!r}, whose components are changed; "
                    f"{self._purpose.advice}"
                )
            base = head

    def commit_metadata(self) -> None:
        """Publishes the base with other metadata, of the same records; none is read.

        Whatever others have committed to the branch meanwhile comes first, unless they have changed
        the same keys.

        Raises:
            ConflictError: they have.
            VersionExistsError: the version is there already.
            YogadlError: it cannot be published.
        """
        base = self._base
        while True:
            moved = self._publish(base.stored, base, NO_HUNKS, base.sums)
            if moved is None:
                return
            head = self._head(moved)
            if head is not None:
                self._check_undone(head)
                base = head

    # Putting together

    def _fitted(self, base: Made, hunks: Hunks, new: NewRuns, writer: PartWriter) -> NewRuns:
        """The new records in parts that can stand beside those of the base, if any of it stays."""
        layout = base.stored.layout
        if new.layout != layout and hunks.old_count < base.count:
            if len(new.tokens):
                new = refitted(new, base.spec, layout, self._open_part, writer)
            else:
                nothing = tuple((PartList(), NO_RUNS) for _ in layout.specs)
                new = NewRuns(layout, nothing, new.tokens, new.young)
        return new

    def _open_part(self, digest: bytes) -> RecordReader:
        return self._storage._open_part(self._target, digest)

    def _applied(self, base: Made, hunks: Hunks, new: NewRuns) -> StoredGroups:
        if hunks.old_count == base.count:
            return new.alone(base.stored.spec)
        groups = []
        for group, (parts, runs) in zip(base.stored.groups, new.groups, strict=True):
            both = PartList()
            both.extend(group.parts)
            first = len(both)
            both.extend(parts)
            whole = hunks.applied(base.count, NEW).through(
                {
                    PARENT: runs_of(group),
                    NEW: Runs(runs.sources + first, runs.firsts, runs.counts),
                }
            )
            groups.append(ColumnGroup(group.spec, both, stored_runs(whole)))
        return StoredGroups(base.stored.spec, tuple(groups), base.stored.leaves)

    def _rewritten(self, stored: StoredGroups, others: Sequence[Rewritten | None]) -> StoredGroups:
        if not others or stored.layout != self._base.stored.layout:
            return stored
        groups = tuple(
            group if other is None else other.applied(group)
            for group, other in zip(stored.groups, others, strict=True)
        )
        return dataclasses.replace(stored, groups=groups)

    def _young(self, base: Made, stored: StoredGroups) -> set[bytes]:
        """Of the parts that a version uses, those that commits made."""
        used: set[bytes] = set()
        for group in stored.groups:
            digests = group.parts.digests
            used.update(digests[number] for number in np.unique(group.runs["part"]).tolist())
        return used & (base.young | self._own)

    def _sums(self, base: Made, hunks: Hunks, new: NewRuns, stored: StoredGroups) -> TokenSums:
        with contextlib.ExitStack() as stack:

            def reader(is_whole: bool) -> RecordReader:
                return self._reader(base, stack, is_whole)

            return sums_after(reader, base, hunks, new, stored)

    def _reader(self, made: Made, stack: contextlib.ExitStack, is_whole: bool) -> RecordReader:
        """Reads a version, all of which may be wanted; what is open is read also if it was
        deleted."""
        version = self._storage._version(self._target.dataset_id, made.dataset_version)
        ref = self._opened if made is self._base else None
        if ref is None or (is_whole and ref.reader.is_far):
            opens = self._storage._open_whole if is_whole else self._storage._open_here
            ref = stack.enter_context(opens(version))
        if ref.reader.content_id != made.sums.content_id(made.spec):
            raise CacheReplacedError(f"{version} was replaced while it was changed; try again")
        return ref.reader

    # Publishing

    def _publish(
        self, stored: StoredGroups, base: Made, hunks: Hunks | None, sums: TokenSums
    ) -> str | None:
        """Publishes a version of ``base``, unless the branch has moved; the version that it is at
        then."""
        going_to = None
        target = self._target
        if self._branch is not None:
            at, catalogue = self._storage._catalogue.branch(target.dataset_id, self._branch)
            if at is not None and at != base.dataset_version:
                return at
            key = target.dataset_id, target.dataset_version
            going_to = GoingTo(catalogue, key, self._branch)
        with self._table(stored, base, hunks, sums, going_to) as file:
            # Of what it is put together, it may need less.
            needed = parts_of(file.path)
            entry = self._storage._publish_new(file, self._target, self._parts)
        shared = base.digests
        own = [size for digest, size in needed.items() if digest not in shared]
        entry = dataclasses.replace(entry, own_size=entry.object_size + sum(own))
        if self._branch is None:
            self._storage._enter(entry)
            return None
        try:
            self._enter(entry, self._branch, base)
        except NameTakenError as error:
            self._storage._withdraw(target, entry.object_tag)
            raise InvalidArgumentError(str(error)) from None
        except ReplacedError as error:
            self._storage._withdraw(target, entry.object_tag)
            raise ConflictError(f"{error}, while it was changed; {self._purpose.advice}") from None
        except TagMovedError as moved:
            self._storage._withdraw(target, entry.object_tag)
            if moved.current is None:
                raise
            return moved.current
        except BaseException:
            _log.warning(
                "It is not known whether %s was committed; see storage.tags", self._target.label
            )
            raise
        return None

    def _enter(self, entry: Entry, branch: str, base: Made) -> None:
        """Enters a commit, and moves the branch from its base.

        Raises:
            ReplacedError: the base is another version of its name by now.
            NameTakenError, TagMovedError, YogadlError: see ``Catalogue.commit``.
        """
        catalogue = self._storage._catalogue
        try:
            catalogue.commit(entry, branch, base.dataset_version, base.content_id)
        except ReplacedError:
            # The catalogue may be wrong: of several who store a version at once, or who are killed
            # amid that, the last need not have entered it.
            try:
                is_same = self._look_at(base.dataset_version).content_id == base.content_id
            except CacheNotFoundError:
                is_same = False
            if not is_same:
                raise
            catalogue.commit(entry, branch, base.dataset_version)

    @contextlib.contextmanager
    def _table(
        self,
        stored: StoredGroups,
        base: Made,
        hunks: Hunks | None,
        sums: TokenSums,
        going_to: GoingTo | None,
    ) -> Iterator[PartialFile]:
        path = self._target.claim()
        remove_leftovers(path)
        purpose = self._purpose
        given = self._metadata(base)
        told = dataclasses.replace(
            provenance.of_here(),
            parents=((self._target.dataset_id, base.dataset_version),),
            message=purpose.message,
            change=purpose.change,
            reverts=purpose.reverts,
            duration=round(time.monotonic() - purpose.started, 6),
        )
        document = metadata_json(given, told)
        document = with_origin(document, base, hunks, self._young(base, stored))
        if going_to is not None:
            document = with_branch(document, going_to)
        with write_version(
            path,
            stored.groups,
            stored.spec,
            stored.leaves,
            metadata=document,
            created_ns=time.time_ns(),
            sums=sums,
        ) as file:
            yield file

    def _metadata(self, base: Made) -> Mapping[str, Any]:
        """The user's metadata: of a version that others have made meanwhile, with ours.

        Raises:
            ConflictError: both have changed the same.
        """
        ours = self._purpose.metadata
        if ours is None:
            return base.metadata
        try:
            return merged(self._base.metadata, base.metadata, ours)
        except BothChangedError as error:
            raise ConflictError(
                f"the branch {self._branch!r} was moved to {base.dataset_version!r} meanwhile, "
                f"which changes the metadata {error.key!r}, too; {self._purpose.advice}"
            ) from None

    # Others' commits

    def _head(self, name: str) -> Made | None:
        """The version that the branch was seen at; ``None`` if it has moved on, and that version
        was deleted."""
        try:
            return self._made_of(name)
        except CacheNotFoundError:
            assert self._branch is not None
            at, _ = self._storage._catalogue.branch(self._target.dataset_id, self._branch)
            if at == name:
                left = self._storage._version(self._target.dataset_id, name)
                raise self._storage._left_by(self._branch, left) from None
            return None

    def _made_of(self, name: str) -> Made:
        version = self._storage._version(self._target.dataset_id, name)
        return self._storage._made_to_share(version, self._parts)

    def _rebased(self, hunks: Hunks, base: Made, head: Made) -> Hunks:
        assert self._branch is not None
        look = functools.cache(self._look_at)
        self._check_undone(head, look)
        takes_back = bool(self._purpose.reverts)
        return put_behind(hunks, base, head, self._branch, look, takes_back=takes_back)

    def _check_undone(self, head: Made, look: Look | None = None) -> None:
        """Sees that what is taken back, if anything is, is on the branch, and was not yet."""
        if self._purpose.reverts:
            assert self._branch is not None
            check_undone(self._base, head, self._branch, look or functools.cache(self._look_at))

    def _look_at(self, name: str) -> Made:
        return self._storage._made(self._storage._version(self._target.dataset_id, name))
