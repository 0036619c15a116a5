"""What storages have in common of versions that are made of others."""

from __future__ import annotations

import abc
import contextlib
import datetime
import pathlib
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from yogadl.cache.partial import PartialFile, claimed
from yogadl.cache.record_reader import RecordReader
from yogadl.catalogue import Entry
from yogadl.errors import (
    CacheNotFoundError,
    ForeignFileError,
    InvalidArgumentError,
    VersionExistsError,
)
from yogadl.format.provenance import is_text
from yogadl.storage._catalogued import Found
from yogadl.storage._commits.begun import Begun
from yogadl.storage._commits.change import Change
from yogadl.storage._commits.commit import Committer
from yogadl.storage._commits.lineage import changes_of, is_parent
from yogadl.storage._commits.made import Made
from yogadl.storage._commits.new_records import PartWriter
from yogadl.storage._commits.purpose import Purpose, new_change
from yogadl.storage._commits.rewriting import taken_back
from yogadl.storage._commits.user_metadata import metadata_digest
from yogadl.storage._disk.scratch import scratch_folder
from yogadl.storage._listing import V
from yogadl.storage._renewed_versions import RenewingStorage

_ATTEMPTS = 3


class VersionedStorage(RenewingStorage[V]):
    """See the module; derived by ``CacheStorage``."""

    # What a kind of storage supplies

    @abc.abstractmethod
    def _open_part(self, version: V, digest: bytes) -> RecordReader:
        """A stored part of the id of a version, to be read without downloading all of it.

        Raises:
            CacheNotFoundError: it is missing.
            CacheFormatError: it is damaged.
        """

    @abc.abstractmethod
    def _take(self, version: V, made: Made, parts: Any) -> bool:
        """Makes the plain file that a version is a part, too, without transferring it. Where that
        is a copy, the version becomes a table of the part. ``False`` if it is another by now."""

    @abc.abstractmethod
    def _publish_new(self, file: PartialFile, version: V, parts: Any) -> Entry:
        """Stores a whole file as a version that is not there yet; its entry, which is not entered.

        Raises:
            VersionExistsError: it is there.
        """

    # Changing

    def change(
        self,
        dataset_id: str,
        on: str,
        *,
        version: str | None = None,
        message: str = "",
        part_bytes: int | None = None,
    ) -> Change:
        """A new version, made of another by changing it, in a ``with`` block; see :class:`Change`.

        At the end of the block it is published, and the branch moved, in one step. Of several that
        change a branch at once, each comes behind the one before, if they change other records.

        Args:
            dataset_id: of the versions.
            on: a tag, which is the branch that is moved, or a version.
            version: the name of the new one, which is there afterwards even if nothing was changed;
                without, one is made of the time.
            message: says what was changed.
            part_bytes: see ``submit``.

        Raises:
            CacheNotFoundError: there is no such version or tag.
            InvalidArgumentError: a name cannot be that of a version.
            ConflictError: at the end of the block, another commit has changed the same records.
            VersionExistsError: at the end of the block, the new version is there already.
            UnsafeStoreError: the bucket has no conditional writes that can be trusted.
        """
        size = self._part_bytes(part_bytes)
        target = self._target(dataset_id, on, version, message)
        is_named = version is not None
        return Change(lambda stack: self._begin(stack, on, target, is_named), message, size)

    def _target(self, dataset_id: str, on: str, version: str | None, message: str) -> V:
        """The version that a commit is to make; sees that its arguments are what they should be."""
        if not is_text(message):
            raise InvalidArgumentError(
                f"a message is a string that UTF-8 can hold, not {message!r:.100}"
            )
        self._version(dataset_id, on)
        return self._version(dataset_id, _new_name() if version is None else version)

    def _begin(self, stack: contextlib.ExitStack, on: str, target: V, is_named: bool) -> Begun:
        def begin(
            stack: contextlib.ExitStack, base: V, branch: str | None, tags: Mapping[str, str]
        ) -> Begun:
            path, parts, made = self._begin_on(stack, base, target, tags, is_named)
            return Begun(
                storage=self,
                made=made,
                base=stack.enter_context(self._open_here(base)),
                target=target,
                branch=branch,
                parts=parts,
                path=path,
                scratch=stack.enter_context(scratch_folder(path.parent)),
                change=new_change(),
                open_whole=lambda: self._open_whole(base),
                is_named=is_named,
            )

        return self._begin_at(stack, on, target, begin)

    def _begin_at(
        self,
        stack: contextlib.ExitStack,
        on: str,
        target: V,
        begin: Callable[[contextlib.ExitStack, V, str | None, Mapping[str, str]], Found],
    ) -> Found:
        """Begins a commit on the version that a branch is at, which others may move on meanwhile,
        and collect that version.

        Args:
            stack: of the context at whose end the commit is over.
            on: a tag or a version.
            target: the version to be.
            begin: what begins it in a context, given that version, the branch and the known tags.

        Raises:
            CacheNotFoundError: there is no such version or tag.
        """
        tags = self._known_tags(target)
        while True:
            base, branch = self._base_of(target.dataset_id, on, tags)
            try:
                with contextlib.ExitStack() as own:
                    begun = begin(own, base, branch, tags)
                    stack.enter_context(own.pop_all())
                    return begun
            except CacheNotFoundError as error:
                if branch is None:
                    raise
                tags = self._known_tags(target)
                if tags.get(branch) in (None, base.dataset_version):
                    raise self._left_by(branch, base) from error

    def _base_of(self, dataset_id: str, on: str, tags: Mapping[str, str]) -> tuple[V, str | None]:
        """The version that a commit changes, and the branch, if it is given one.

        Args:
            dataset_id: of it.
            on: a version, or else a tag.
            tags: those that are known.
        """
        try:
            return self._named(dataset_id, on, tags)
        except CacheNotFoundError as error:
            raise CacheNotFoundError(
                f"{error}; a branch is a tag: storage.tag({dataset_id!r}, {on!r}, VERSION) makes it"
            ) from error

    def _begin_on(
        self,
        stack: contextlib.ExitStack,
        base: V,
        target: V,
        tags: Mapping[str, str],
        is_named: bool,
    ) -> tuple[pathlib.Path, Any, Made]:
        """Where a commit makes its file, by what it stores parts, and of what its base is made,
        until the end of a context.

        Args:
            stack: of the context.
            base: what is changed.
            target: the version to be.
            tags: those that are known.
            is_named: whether a user has chosen its name, so that there may be one.
        """
        self._prove_tags(target)
        if is_named:
            self._check_new(target)
        self._check_no_tag(target, tags)
        path = stack.enter_context(claimed(target.claim))
        parts: Any = stack.enter_context(self._adding(target, True))
        parts.begin()
        return path, parts, self._made_to_share(base, parts)

    def _check_new(self, version: V) -> None:
        """Sees that a version is not stored.

        Raises:
            VersionExistsError: it is.
        """
        listed = self._look(version)
        if listed is None:
            return
        if self._is_there(listed, self._catalogue.load(version.dataset_id)):
            raise VersionExistsError(f"there is a {version} already; give the new one another name")
        raise VersionExistsError(
            f"{version} is being committed by somebody else, or was left by one who was killed; "
            f"if so, storage.delete({version.dataset_id!r}, {version.dataset_version!r}), and "
            "change it again"
        )

    def _made_to_share(self, version: V, parts: Any) -> Made:
        """Of what a version is made, whose parts are not collected from now on."""
        for _ in range(_ATTEMPTS):
            made = self._made_to_change(version)
            parts.adopt(made.digests)
            if made.is_table or self._take(version, made, parts):
                return made
        raise self._replaced(version)

    def _made_to_change(self, version: V) -> Made:
        """Of what a version is made.

        Raises:
            ForeignFileError: it is of 0.1.4, and cannot be changed.
        """
        try:
            return self._made(version)
        except ForeignFileError as error:
            raise ForeignFileError(
                f"{version} is no file of this format (yogadl 0.1.4's is another), so it cannot be "
                f"changed; submit what fetch({version.dataset_id!r}, {version.dataset_version!r}) "
                "gives as another version, and change that"
            ) from error

    def revert(
        self,
        dataset_id: str,
        dataset_version: str,
        *,
        on: str,
        version: str | None = None,
        message: str | None = None,
    ) -> str:
        """Takes back what one commit has changed, records, components and metadata, by another
        commit that stores no records; but those that it puts back, if one of the versions was
        compacted since their components were changed.

        Args:
            dataset_id: of the versions.
            dataset_version: that the commit made, or a tag.
            on: the branch that has it.
            version: see :meth:`change`.
            message: see :meth:`change`; without, it says what was reverted.

        Returns:
            The new version.

        Raises:
            CacheNotFoundError: there is no such version, or the one that it was made from is not
                stored any more, or was replaced by another.
            ConflictError: later commits have changed the same records, components or metadata, it
                was taken back already, or the branch does not follow from it.
            InvalidArgumentError: it was made by no commit, or ``on`` is no tag.
            YogadlError: what :meth:`change` raises.
        """
        started = time.monotonic()
        undone, _ = self._named(dataset_id, dataset_version)
        target = self._version(dataset_id, _new_name() if version is None else version)
        self._version(dataset_id, on)
        if self._tagged(dataset_id, on) is None:
            raise InvalidArgumentError(f"{on!r} is no tag of data set {dataset_id!r} to move")
        self._prove_tags(target)
        self._check_new(target)
        self._check_name(target)
        said = f"Revert {undone.dataset_version}" if message is None else message
        with contextlib.ExitStack() as stack:
            path = stack.enter_context(claimed(target.claim))
            parts: Any = stack.enter_context(self._adding(target, True))
            parts.begin()
            made = self._made_to_share(undone, parts)
            parent = self._parent_of(undone, made, parts)
            changes = changes_of(made, parent)
            metadata = self._metadata_before(undone, made, parent)
            purpose = Purpose(said, metadata, new_change(), started, made.provenance.change)
            committer = Committer(self, made, target, on, parts, purpose)
            if changes is None and not made.parent_content:
                raise InvalidArgumentError(
                    f"it is not known what {undone} changed of {parent.dataset_version!r}"
                )
            if changes is None:
                committer.commit_spec(parent.stored, parent.sums, None, parent.young)
            elif changes.of_components:
                undoing = changes.hunks.inverted()
                committer.commit_spec(parent.stored, parent.sums, undoing, parent.young)
            elif not len(changes.hunks):
                committer.commit_metadata()
            else:
                parent_version = self._version(dataset_id, parent.dataset_version)
                with self._open_here(parent_version) as ref:
                    if ref.reader.content_id != parent.content_id:
                        raise self._replaced(parent_version)
                    new = taken_back(changes.hunks, parent, ref.reader)
                writer = PartWriter(target.label, path, parts, self._part_bytes(None))
                undoing = changes.hunks.inverted()
                committer.commit_records(undoing, new, writer, expected=parent.sums)
        return target.dataset_version

    def _parent_of(self, version: V, made: Made, parts: Any) -> Made:
        """Of what the first parent of a version is made; see :meth:`_made_to_share`."""
        if not made.provenance.parents:
            raise InvalidArgumentError(f"{version} was made by no commit")
        parent_id, parent_version = made.provenance.parents[0]
        # A copy under another id has the copies of its parents there, if any.
        parent = self._version(version.dataset_id, parent_version)
        told = f"{version} was made from {parent_version!r}"
        if parent_id != version.dataset_id:
            told += f" of {parent_id!r}"
        try:
            found = self._made_to_share(parent, parts)
        except CacheNotFoundError as error:
            raise CacheNotFoundError(
                f"{told}, which is not stored here any more, so what it changed cannot be taken "
                "back"
            ) from error
        if not is_parent(found, made):
            raise self._replaced_parent(version, found)
        return found

    def _metadata_before(self, version: V, made: Made, parent: Made) -> Mapping[str, Any] | None:
        """The metadata that a version has changed; ``None`` if it has not changed any."""
        if made.parent_metadata in ("", metadata_digest(parent.metadata)):
            return parent.metadata
        if made.parent_metadata == metadata_digest(made.metadata):
            return None
        raise self._replaced_parent(version, parent)

    def _replaced_parent(self, version: V, parent: Made) -> CacheNotFoundError:
        return CacheNotFoundError(
            f"{version} was made from {parent.dataset_version!r}, which was replaced since by "
            "another version of this name, so what it changed cannot be taken back"
        )


def _new_name() -> str:
    """A name that no other version has, by which they stand in the order of their time."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
