"""What the cloud storages need of an object store."""

from __future__ import annotations

import abc
import datetime
import pathlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from typing import TypeAlias

from yogadl.conditional import ABSENT, SMALL_BYTES, PreconditionFailedError
from yogadl.errors import NetworkError, StoreError
from yogadl.remote._fetching.remote_object import RemoteObject

__all__ = [
    "ABSENT",
    "SMALL_BYTES",
    "AlteredAnswerError",
    "ObjectGoneError",
    "ObjectInfo",
    "ObjectStore",
    "OnBytes",
    "PreconditionFailedError",
    "Skip",
]

Skip: TypeAlias = Callable[[str], str]
"""See ``ObjectStore.list``."""

OnBytes: TypeAlias = Callable[[int], object]
"""Is told how many more bytes were transferred, from any thread."""


class AlteredAnswerError(NetworkError):
    """What arrived is not what the store sent; nothing of the answer can be trusted."""


class ObjectGoneError(Exception):
    """The object, or this state of it, does not exist any more."""


@dataclass(frozen=True)
class ObjectInfo:
    """An object as it was at one moment.

    Attributes:
        key: its name in the bucket.
        size: bytes.
        tag: differs whenever the contents do: an ETag or a generation.
        created: when it was written, by the store's clock; seconds may be its finest unit.
        metadata: what was given when it was uploaded; lower-case keys. Not known from listing.
    """

    key: str
    size: int
    tag: str
    created: datetime.datetime
    metadata: Mapping[str, str] = field(default_factory=dict)


class ObjectStore(abc.ABC):
    """One bucket.

    All methods may be called from many threads, and in children after a fork. A request is tried
    again when the store is throttling or failing or the network broken, see ``backoff``; what
    still fails is raised. ``read_range`` is not: who calls it knows where to go on.

    Some methods take a ``patience`` for what must not take long: no try begins later than so many
    seconds after the call, and none waits for an answer for longer than a third of that. Without,
    the limits of ``backoff`` hold.

    Raises:
        StoreError: any method may raise it or one of its subclasses, except that a missing object
            is reported as each method says.

    Attributes:
        parallel_ranges: ranges of an object that are read at a time.
        range_bytes: of each.
    """

    parallel_ranges = 8
    range_bytes = 32 << 20

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """The bucket as people write it, such as ``s3://bucket``."""

    @property
    def origin(self) -> str:
        """Tells the bucket from all others, also those of other stores; without secrets."""
        return self.url

    @property
    @abc.abstractmethod
    def is_proven(self) -> bool:
        """Whether conditional writes are known to be atomic; a probe finds out otherwise."""

    @abc.abstractmethod
    def check(self) -> None:
        """Sees whether the bucket is there and may be used."""

    @abc.abstractmethod
    def head(self, key: str, patience: float | None = None) -> ObjectInfo | None:
        """The state of an object, in one request if it is there; ``None`` if it is not."""

    @abc.abstractmethod
    def list(self, prefix: str, skip: Skip | None = None) -> Iterator[ObjectInfo]:
        """All objects whose keys begin with ``prefix``, without their metadata.

        Args:
            prefix: what the keys begin with.
            skip: given the last key of an answer that is not the last one, behind which key the
                next one is to begin: the same, or a later one in the order of code points. Some
                answers may be asked for all the same.
        """

    @abc.abstractmethod
    def read(
        self, key: str, patience: float | None = None, largest: int = SMALL_BYTES
    ) -> tuple[bytes, str] | None:
        """A small object and its tag; ``None`` if it is not there.

        Args:
            key: of the object.
            patience: see the class.
            largest: bytes that it may have; one with more is a ``StoreError``.
        """

    def read_dated(
        self, key: str, patience: float | None = None, largest: int = SMALL_BYTES
    ) -> tuple[bytes, str, datetime.datetime | None] | None:
        """See :meth:`read`; and when it was written, ``None`` if the answer does not say."""
        found = self.read(key, patience, largest)
        return None if found is None else (*found, None)

    @abc.abstractmethod
    def write(
        self, key: str, data: bytes, if_tag: str | None = None, patience: float | None = None
    ) -> str:
        """Writes a small object and returns its tag.

        Args:
            if_tag: do so only if the object has this tag, or, if ``ABSENT``, is not there.
            patience: see the class.

        Raises:
            PreconditionFailedError: it is otherwise. After a lost answer, the object may be in this
                state because an earlier attempt of the same call succeeded.
        """

    @abc.abstractmethod
    def upload(
        self,
        path: pathlib.Path,
        key: str,
        metadata: Mapping[str, str],
        if_tag: str | None = None,
        before_publishing: Callable[[], object] = lambda: None,
        *,
        in_parts: bool | None = None,
    ) -> str:
        """Publishes a file as an object, whole or not at all, and returns its tag.

        Args:
            path: of the file, which nobody changes meanwhile.
            key: of the object.
            metadata: for it; lower-case keys.
            if_tag: as for :meth:`write`.
            before_publishing: called as late as the store allows; what it raises stops the upload.
            in_parts: whether to send it in several requests; if ``None``, if it is large.

        Raises:
            PreconditionFailedError: as for :meth:`write`.
        """

    @abc.abstractmethod
    def copy(self, info: ObjectInfo, key: str, metadata: Mapping[str, str]) -> None:
        """Has the store copy just this state of an object, replacing what is there.

        Args:
            info: of the object.
            key: of the copy.
            metadata: for it; lower-case keys.

        Raises:
            ObjectGoneError: it was deleted or replaced.
        """

    @abc.abstractmethod
    def read_range(
        self, info: ObjectInfo, start: int, stop: int, write: Callable[[bytes], object]
    ) -> None:
        """Reads bytes ``start … stop-1`` of just this state of an object, in pieces.

        Raises:
            ObjectGoneError: it was deleted or replaced.
        """

    def remote(self, key: str, tag: str | None = None) -> RemoteObject:  # noqa: ARG002 # overrides need it
        """An object as it is read without downloading it.

        Args:
            key: of the object.
            tag: of the state that is meant; ``None`` for any.
        """
        raise StoreError(f"{self.url}/{key} can only be downloaded")

    def tag_of(self, key: str, answer: Message) -> str:  # noqa: ARG002 # overrides need it
        """The tag of the state of an object that was answered with some headers."""
        return (answer.get("ETag") or "").strip('"')

    @abc.abstractmethod
    def delete(self, key: str, tag: str | None = None) -> bool:
        """Deletes an object, if it is there; whether it is not in another state.

        Args:
            key: of the object.
            tag: of the state that is to go; another one stays. Where deletions know no condition,
                one that somebody writes between the last look and the deletion goes, too.
        """
