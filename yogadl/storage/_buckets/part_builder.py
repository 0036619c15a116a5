"""Storing the parts of a version in a bucket so that none is collected before it is published.

What is promised between builders and collectors, and why it holds, is told in
``yogadl.storage._buckets.part_collector``.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pathlib
import platform
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator

from yogadl.cache.files import leads_to, make_folders, telling
from yogadl.cache.partial import PartialFile, locked_file
from yogadl.closing import Closing
from yogadl.errors import StoreError
from yogadl.not_inherited import not_for_children
from yogadl.storage._buckets.clock import boot_seconds
from yogadl.storage._buckets.part_control import Control, is_over
from yogadl.storage._buckets.parts import BucketParts
from yogadl.storage._disk.note import FOLDER_MODE, trusted_status
from yogadl.storage._objects.store import ObjectInfo

BUILDER_SECONDS = 7 * 86400.0
"""A builder that has not said so for so long is not taken for one any more."""

REQUEST_SECONDS = 43200.0
"""A request arrives so long after the last check before it, at the latest."""

_SIGN = ".builder"
_RENEW_SECONDS = 3600.0
# One that publishes has just said so.
_FRESH_SECONDS = 60.0
_BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")

_log = logging.getLogger(__name__)


class PartBuilder(Closing):
    """A builder that stores parts and then publishes a table of them. Not thread-safe.

    Args:
        parts: of the id.
        folder: makes the folder on this machine for the parts of the id.
        is_safe: whether the store's conditional writes decide races; asked if parts are stored.
        may_stamp: whether a part may get another name.

    Attributes:
        may_publish: whether a request that publishes may be under way. Set by :meth:`check`; for
            the caller to unset when it is known what became of it.
    """

    def __init__(
        self,
        parts: BucketParts,
        folder: Callable[[], pathlib.Path],
        is_safe: Callable[[], bool],
        may_stamp: bool,
    ) -> None:
        self._parts = parts
        self._folder = folder
        self._is_safe = is_safe
        self._may_stamp = may_stamp
        self._name = uuid.uuid4().hex
        self._sign: BuilderSign | None = None
        self._is_known = self._has_begun = self.may_publish = False
        self._renewed = 0.0
        # What this builder has last written to the control.
        self._written: tuple[Control, str] | None = None
        self._stored: set[bytes] = set()
        self._removed: set[bytes] = set()
        self._has_forgotten = False

    def store(self, file: PartialFile, digest: bytes) -> bool:
        """See ``Parts.store``.

        Raises:
            StoreError: the bucket cannot be written to, or this builder was away for too long.
        """
        self._prepare()
        if digest in self._removed and self._may_stamp:
            return False
        if self.is_removed(digest):
            raise StoreError(
                f"{self._parts.key(digest)} was collected less than two days ago, and cannot be "
                "stored again before then; copy to another id, or later"
            )
        self._parts.store(file, digest, self._is_known)
        self._stored.add(digest)
        return True

    def is_removed(self, digest: bytes) -> bool:
        """Whether a part may not get its name, since one of this name was collected of late.

        Raises:
            StoreError: the bucket cannot be read or written to.
        """
        self._prepare()
        if digest in self._removed:
            self._forget_names()
        return digest in self._removed

    def take(self, info: ObjectInfo, digest: bytes) -> None:
        """Has the bucket make the plain file of a version a part of its digest, too.

        Args:
            info: of the file.
            digest: of it, whose name may be used.

        Raises:
            ObjectGoneError: it was deleted or replaced.
            StoreError: the bucket cannot be written to, or this builder was away for too long.
        """
        self._prepare()
        self._parts.take(info, digest)
        self._stored.add(digest)

    def _prepare(self) -> None:
        self.begin()
        if self._is_known and boot_seconds() - self._renewed > _RENEW_SECONDS:
            self._renew()

    def _forget_names(self) -> None:
        """Forgets the names of parts that were removed long ago; collecting does, too, but nobody
        need have done so since."""
        if not self._is_known or self._has_forgotten:
            return
        self._has_forgotten = True
        control, _, now = self._parts.control.now()
        removed = control.removed.items()
        over = {name for name, since in removed if since is not None and is_over(since, now)}

        def forget(control: Control) -> None:
            for name in over:
                control.removed.pop(name, None)

        if over:
            self._written = self._parts.control.change(forget)
            self._removed -= over

    def adopt(self, digests: Iterable[bytes]) -> None:
        """Takes for its own what others have stored since this one began, on its behalf."""
        self._stored.update(digests)

    @property
    def removed(self) -> frozenset[bytes]:
        """What may not be stored."""
        return frozenset(self._removed)

    def check(self) -> None:
        """To be called before each request that publishes the table.

        Raises:
            StoreError: parts may have been removed, or it is not known.
        """
        if self._is_known and boot_seconds() - self._renewed > _FRESH_SECONDS:
            self._renew()
        self.may_publish = True

    def before_publishing(self) -> None:
        """To be called once, when all parts are stored; raises what :meth:`check` does."""
        if self._is_known:
            self._renew()

    def begin(self) -> None:
        """Is a builder from now on, if it is not one yet.

        Raises:
            StoreError: the bucket cannot be written to.
        """
        if self._has_begun:
            return
        if self._is_safe():
            self._sign = BuilderSign(self._folder(), self._name)
            self._is_known = True
            self._renewed = boot_seconds()
            self._written = self._parts.control.change(self._enter)
        else:
            # First that, so that who removes parts after this was read does not.
            self._parts.forbid_collecting()
            control, _ = self._parts.control.read()
            self._removed = set(control.removed)
        self._has_begun = True

    def _enter(self, control: Control) -> None:
        control.builders[self._name] = None
        self._removed = set(control.removed)

    def _renew(self) -> None:
        started = boot_seconds()

        def renew(control: Control) -> None:
            if self._name not in control.builders:
                raise StoreError(
                    f"this builder was not heard of for so long that parts in {self._parts.where} "
                    "may have been removed; build again"
                )
            control.builders[self._name] = None
            for digest in self._stored:
                control.unused.pop(digest, None)

        self._written = self._parts.control.change(renew, self._written)
        self._renewed = started

    def close(self) -> None:
        """Is no builder any more. That the store cannot be told is no error."""
        if self._is_known and self.may_publish:
            # It counts as a builder until that is over, as one that was killed does.
            _log.warning("No parts of %s are removed for a while.", self._parts.where)
        elif self._is_known:
            try:
                self._parts.control.change(
                    lambda control: control.builders.pop(self._name, None), self._written
                )
            except StoreError as error:
                _log.warning("No parts of %s are removed for a while: %s", self._parts.where, error)
            self._is_known = False
        if self._sign is not None:
            self._sign.give_up(forget=not self.may_publish)


class BuilderSign:
    """A locked file that shows on this machine that a builder lives; the lock falls with it.

    Args:
        folder: for the parts of the id on this machine.
        name: of the builder.
    """

    def __init__(self, folder: pathlib.Path, name: str) -> None:
        make_folders(folder, FOLDER_MODE)
        self._path = _sign_path(folder, name)
        with telling("write", self._path):
            # Locked before anything is in it, so that no other is ever blank.
            self._descriptor = locked_file(self._path, 0o644)
            os.write(self._descriptor, _machine())
        not_for_children(self)

    def give_up(self, *, forget: bool) -> None:
        """Unlocks the file, and removes it if the builder is to be forgotten."""
        if self._descriptor >= 0:
            if forget:
                with contextlib.suppress(OSError):
                    self._path.unlink()
            self.close()

    def close(self) -> None:
        """Unlocks the file, unless it was inherited."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_dead(folder: pathlib.Path, name: str) -> bool:
    """Whether a builder of this machine has died, as far as that is known."""
    with contextlib.suppress(OSError), _opened(folder, _sign_path(folder, name)) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # On a file system of many machines, locks may be those of one.
        return os.read(descriptor, 1000) == _machine()
    return False


@contextlib.contextmanager
def _opened(folder: pathlib.Path, path: pathlib.Path) -> Iterator[int]:
    """The descriptor of a builder's file; raises ``OSError`` if it is not to be trusted."""
    if trusted_status(folder) is None or trusted_status(path) is None:
        raise PermissionError(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sign_names(folder: pathlib.Path) -> list[str]:
    """The names of builders that have begun on this machine and left or have a file there.

    Args:
        folder: for the parts of the id on this machine.
    """
    return [path.stem for path in folder.glob(f"*{_SIGN}")]


def remove_strays(folder: pathlib.Path, known: Collection[str]) -> None:
    """Removes what builders left that died on this machine before anybody else knew of them.

    Args:
        folder: for the parts of the id on this machine.
        known: the names of those that others know of.
    """
    for name in sign_names(folder):
        if name not in known:
            if is_dead(folder, name):
                forget(folder, name)
            else:
                _remove_blank(folder, name)


def _remove_blank(folder: pathlib.Path, name: str) -> None:
    """Removes the file of a builder that died before it wrote there whose machine it is of."""
    path = _sign_path(folder, name)
    with contextlib.suppress(OSError), _opened(folder, path) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_size == 0 and leads_to(path, descriptor):
            path.unlink()


def forget(folder: pathlib.Path, name: str) -> None:
    """Removes what a dead builder left on this machine."""
    with contextlib.suppress(OSError):
        _sign_path(folder, name).unlink()


def _sign_path(folder: pathlib.Path, name: str) -> pathlib.Path:
    return folder / f"{name}{_SIGN}"


def _machine() -> bytes:
    """Of this machine since it was started; nothing that two have in common."""
    try:
        started = _BOOT_ID.read_text().strip()
    except OSError:
        # Without it, the name has to do.
        started = ""
    return f"{platform.node()} {started}".encode()
