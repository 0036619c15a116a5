"""What storages have in common of their catalogues: tags, and deleting."""

from __future__ import annotations

import abc
import contextlib
import logging
from collections.abc import Callable, Mapping
from types import EllipsisType
from typing import TypeVar

from yogadl.arguments import as_flag
from yogadl.catalogue import (
    ENTRY_SECONDS,
    DoomedError,
    Entry,
    NameTakenError,
)
from yogadl.errors import (
    AccessDeniedError,
    CacheNotFoundError,
    CatalogueError,
    FileAccessError,
    InvalidArgumentError,
    UnsafeStoreError,
    YogadlError,
)
from yogadl.storage._listed import Listed
from yogadl.storage._listing import ListedStorage, V
from yogadl.storage._paths import relative_path

_ATTEMPTS = 3
# What is no wonder to who may only read the catalogue, or has none.
_EXPECTED = (AccessDeniedError, FileAccessError, UnsafeStoreError)

Found = TypeVar("Found")

_log = logging.getLogger(__name__)


class CataloguedStorage(ListedStorage[V]):
    """See the module; derived by ``CacheStorage``."""

    # What a kind of storage supplies

    @abc.abstractmethod
    def _delete(self, version: V, listed: Listed, collects: bool = True) -> bool:
        """Deletes a version, if it is still in this state, and, if asked to, the parts that are not
        needed any more; whether it is not in another state."""

    @abc.abstractmethod
    def _withdraw(self, version: V, tag: str) -> None:
        """Takes back what was just published, as an object of this tag, and is not entered."""

    @abc.abstractmethod
    def _prove_tags(self, version: V) -> None:
        """Raises an ``UnsafeStoreError`` where tags cannot be changed safely."""

    # Tags

    def exists(self, dataset_id: str, dataset_version: str | None = None) -> bool:
        """Whether a version, or the one that a tag is at, is stored; or any of an id.

        Args:
            dataset_id: of it.
            dataset_version: the version, or a tag; ``None`` for any.

        Raises:
            InvalidArgumentError: an id or version that is empty or leaves the storage.
            StoreError: the bucket cannot be asked.
        """
        if dataset_version is None:
            self._version(dataset_id, "any")
            known = self._catalogue.load(dataset_id)
            return any(self._is_there(listed, known) for listed in self._listed(dataset_id))
        version = self._version(dataset_id, dataset_version)
        if self._look(version) is not None:
            return True
        tagged = self._tagged(dataset_id, dataset_version)
        return tagged is not None and self._look(tagged) is not None

    def tag(
        self,
        dataset_id: str,
        tag: str,
        dataset_version: str,
        *,
        expect: str | EllipsisType | None = ...,
    ) -> None:
        """Sets a tag, or moves it, in one step: ``fetch(dataset_id, tag)`` gives that version then.

        Args:
            dataset_id: of the version.
            tag: a name as versions have; no version of this id may have it.
            dataset_version: that it is to be at, which is stored; another tag is none.
            expect: move it only if it is at this version now; ``None``, only if there is no such
                tag. Without, in any case.

        Raises:
            InvalidArgumentError: the name cannot be that of a tag, or is that of a version.
            CacheNotFoundError: the version is not stored, or not committed.
            TagMovedError: the tag is not where it is expected; its ``current`` says where it is.
            UnsafeStoreError: the bucket has no conditional writes that can be trusted.
            CatalogueError: the catalogue is damaged, or others change it all the time.
            StoreError: the bucket cannot be changed.
            FileSystemError: the disk cannot.
        """
        version = self._version(dataset_id, dataset_version)
        relative_path(dataset_id, tag, "tag")
        if expect is not None and expect is not ...:
            self._version(dataset_id, expect)
        self._prove_tags(version)
        self._check_no_version(self._version(dataset_id, tag))
        listed = self._look(version)
        if listed is None:
            raise self._nothing_to("tag", version)
        self._check_committed(listed)
        left = ""
        while left := self._catalogue.tag(listed.key, tag, listed.tag, expect, left):
            # A version of that name was entered meanwhile; or its entry is all that is left of it.
            self._check_no_version(self._version(dataset_id, tag))
        _log.info("Tagged %s as %r.", version.label, tag)

    def _check_no_version(self, named: V) -> None:
        """Sees that no version has the name of a tag to be.

        Raises:
            InvalidArgumentError: one has.
        """
        if self._look(named) is not None:
            raise InvalidArgumentError(
                f"{named.dataset_version!r} is a version of data set {named.dataset_id!r}, which "
                "fetch would find first; give the tag another name"
            )

    def untag(self, dataset_id: str, tag: str, *, expect: str | EllipsisType | None = ...) -> None:
        """Removes a tag; the version stays.

        Args:
            dataset_id: of it.
            tag: its name.
            expect: only if it is at this version now.

        Raises:
            InvalidArgumentError: ``expect`` cannot be a version.
            CacheNotFoundError: there is no such tag.
            TagMovedError: it is not where it is expected.
            YogadlError: what :meth:`tag` raises.
        """
        self._version(dataset_id, "any")
        relative_path(dataset_id, tag, "tag")
        if expect is not None and expect is not ...:
            self._version(dataset_id, expect)
        self._prove_tags(self._version(dataset_id, tag))
        if not self._catalogue.untag(dataset_id, tag, expect):
            raise CacheNotFoundError(f"data set {dataset_id!r} has no tag {tag!r} in {self._where}")

    def tags(self, dataset_id: str) -> dict[str, str]:
        """The tags of an id, and at which version each is, sorted.

        Raises:
            InvalidArgumentError: the id is empty or leaves the storage.
            CatalogueError: the catalogue is damaged.
            StoreError: the bucket cannot be read.
        """
        self._version(dataset_id, "any")
        return dict(sorted(self._catalogue.tags(dataset_id).items()))

    def _tagged(self, dataset_id: str, tag: str) -> V | None:
        """The version that a tag is at; ``None`` if there is no such tag."""
        at = self._catalogue.tags(dataset_id).get(tag)
        return None if at is None else self._at(dataset_id, tag, at)

    def _at(self, dataset_id: str, tag: str, at: str) -> V:
        """The version that a tag is at.

        Raises:
            CatalogueError: there can be no such version.
        """
        try:
            return self._version(dataset_id, at)
        except InvalidArgumentError as error:
            raise CatalogueError(
                f"the tag {tag!r} of data set {dataset_id!r} is at no version: {error}"
            ) from error

    def _fetch_named(self, dataset_id: str, name: str | None, fetch: Callable[[V], Found]) -> Found:
        """What is stored under a version, or else a tag; without a name, the newest."""
        if name is not None:
            try:
                return fetch(self._version(dataset_id, name))
            except CacheNotFoundError:
                version = self._tagged(dataset_id, name)
                if version is None:
                    raise
            return self._fetch_tagged(name, version, fetch)
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(CacheNotFoundError):
                # It may be deleted meanwhile.
                return fetch(self._version(dataset_id, self.latest(dataset_id)))
        return fetch(self._version(dataset_id, self.latest(dataset_id)))

    def _fetch_tagged(self, tag: str, version: V, fetch: Callable[[V], Found]) -> Found:
        """What is stored where a tag is, which may be moved, and that version collected, meanwhile.

        Args:
            tag: its name.
            version: that it was seen at.
            fetch: reads a version.

        Raises:
            CacheNotFoundError: nothing is stored there.
        """
        while True:
            try:
                return fetch(version)
            except CacheNotFoundError as error:
                at = self._tagged(version.dataset_id, tag)
                if at is None or at.dataset_version == version.dataset_version:
                    raise self._left_by(tag, version) from error
                version = at

    def _left_by(self, tag: str, version: V) -> CacheNotFoundError:
        return CacheNotFoundError(
            f"the tag {tag!r} is at {version}, which is not stored any more in {self._where}; move "
            "the tag"
        )

    # Changing

    def delete(self, dataset_id: str, dataset_version: str, *, force: bool = False) -> None:
        """Deletes a version, of a bucket the copy on this machine, too.

        Who has it open can go on reading it.

        Args:
            dataset_id: of it.
            dataset_version: of it; a tag is none.
            force: also if it is tagged, or the catalogue cannot be changed. The tags stay, and can
                be moved.

        Raises:
            CacheNotFoundError: it is not stored.
            InvalidArgumentError: an id or version that is empty or leaves the storage; or it is
                tagged.
            StoreError: the bucket cannot be changed.
        """
        version = self._version(dataset_id, dataset_version)
        force = as_flag("force", force)
        listed = self._look(version)
        if listed is None:
            raise self._nothing_to("delete", version)
        while listed is not None and not self._has_deleted(version, listed, force):
            # It was replaced meanwhile: by what is newer, or by a compact, which may be killed now.
            found = self._look(version)
            is_same = found is not None and self._is_in_place_of(found, listed)
            listed = found if is_same else None

    def _has_deleted(self, version: V, listed: Listed, force: bool) -> bool:
        """Deletes a version, or what has replaced it before that began; whether it was not replaced
        since."""
        try:
            while not self._take_out(listed, force):
                # It was replaced meanwhile, maybe only compacted.
                found = self._look(version)
                if found is None:
                    return True
                listed = found
        except InvalidArgumentError:
            raise
        except YogadlError as error:
            if not force:
                raise
            _log.warning("Deleting %s all the same: %s", version.label, error)
        return self._delete(version, listed)

    def _is_in_place_of(self, listed: Listed, before: Listed) -> bool:
        """Whether ``compact`` has stored a version in place of what was there before."""
        renewed = [entry.renewed for _, entry in self._described([listed])]
        return any(it is not None and it.instead_of == before.tag for it in renewed)

    def _take_out(self, listed: Listed, force: bool) -> bool:
        """Takes the entry of what is to be deleted out of the catalogue; whether that does not say
        that it was replaced."""
        outdated = ""
        try:
            while outdated := self._catalogue.take_out(listed.key, listed.tag, force, outdated):
                # If it is still there, that was there before it, and its own entry is not made yet.
                found = self._look(self._version(*listed.key))
                if found is None or found.tag != listed.tag:
                    return False
        except UnsafeStoreError as error:
            # There are no tags.
            _log.debug("%s", error)
        except (AccessDeniedError, FileAccessError) as error:
            tags = [
                tag
                for tag, at in self._catalogue.tags(listed.dataset_id).items()
                if at == listed.dataset_version
            ]
            if tags:
                raise
            _log.info("The catalogue keeps the entry of %s: %s", listed.key, error)
        return True

    def _enter(self, entry: Entry, instead_of: str = "") -> bool:
        """Enters what was just published; whether it did. That it cannot be is no error: it is
        found without.

        Raises:
            DoomedError: see ``Catalogue.enter``.
            InvalidArgumentError: a tag has its name by now; what was published is taken back.
        """
        try:
            self._catalogue.enter(entry, instead_of=instead_of)
        except DoomedError:
            raise
        except NameTakenError as error:
            self._withdraw(self._version(*entry.key), entry.object_tag)
            raise InvalidArgumentError(str(error)) from None
        except YogadlError as error:
            level = logging.INFO if isinstance(error, _EXPECTED) else logging.WARNING
            _log.log(
                level, "%s is stored, and not in the catalogue: %s", ":".join(entry.key), error
            )
            return False
        return True

    def _check_name(self, version: V) -> None:
        """Sees that no tag has the name of a version to be.

        Raises:
            InvalidArgumentError: one has.
        """
        self._check_no_tag(version, self._known_tags(version))

    def _nothing_to(self, do: str, version: V) -> CacheNotFoundError:
        """What to raise where a version is needed, and there is none of the name."""
        at = self._known_tags(version).get(version.dataset_version)
        advice = "" if at is None else f"; that is a tag, which is at version {at!r}: give that"
        return CacheNotFoundError(f"there is no {version} to {do} in {self._where}{advice}")

    def _known_tags(self, version: V) -> Mapping[str, str]:
        """The tags of an id, as far as they are known."""
        try:
            return self._catalogue.tags(version.dataset_id, ENTRY_SECONDS)
        except YogadlError as error:
            _log.debug("It is not known whether %s is a tag: %s", version.label, error)
            return {}

    def _check_no_tag(self, version: V, tags: Mapping[str, str]) -> None:
        if version.dataset_version in tags:
            raise InvalidArgumentError(
                f"{version.dataset_version!r} is a tag of data set {version.dataset_id!r}, so no "
                "version can have that name; choose another, or remove the tag (untag)"
            )
