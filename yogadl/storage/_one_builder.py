"""Building a version as the only one who does, of all threads, processes and machines."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator

from yogadl.cache.partial import PartialFile
from yogadl.cache.progress import waiting_for
from yogadl.catalogue import Entry
from yogadl.dataref import LMDBDataRef, StoredDataRef
from yogadl.errors import AccessDeniedError, LockLostError, UnsafeStoreError
from yogadl.storage._buckets.conditions import ConditionalWrites
from yogadl.storage._buckets.part_builder import PartBuilder
from yogadl.storage._buckets.publisher import publish
from yogadl.storage._buckets.version import ObjectVersion
from yogadl.storage._configurations import BaseCloudConfigurations
from yogadl.storage._leases.lease import Lease
from yogadl.storage._leases.lease_board import LeaseBoard
from yogadl.storage._leases.lease_object import patience_of
from yogadl.storage._leases.locks import PublishLock
from yogadl.storage._objects.probe import cannot_be_trusted
from yogadl.storage._objects.store import ABSENT, ObjectStore, PreconditionFailedError
from yogadl.storage._paths import LEASE_OBJECT, WAITING_FILE

ATTEMPTS = 5


_log = logging.getLogger(__name__)


class OneBuilder:
    """Builds versions in a bucket. Safe for threads.

    Args:
        store: the bucket.
        configurations: how builders agree.
        conditions: of the bucket.
        storage_type: its name in the lock server's protocol.
        fetch_usable: what is stored of a version; ``None`` if it has to be built.
        enter: is told what was published.
    """

    def __init__(
        self,
        store: ObjectStore,
        configurations: BaseCloudConfigurations,
        conditions: ConditionalWrites,
        storage_type: str,
        fetch_usable: Callable[[ObjectVersion], StoredDataRef | None],
        enter: Callable[[Entry], object],
    ) -> None:
        self._store = store
        self._configurations = configurations
        self._conditions = conditions
        self._storage_type = storage_type
        self._fetch_usable = fetch_usable
        self._enter = enter

    @contextlib.contextmanager
    def turn(self, version: ObjectVersion) -> Iterator[ObjectTurn | StoredDataRef | None]:
        """Waits until it is this one's turn to build a version, or somebody has published it.

        Yields:
            The turn, which lasts as long as the context; or what is stored, ``None`` if that has
            still to be fetched.
        """
        replaces = ABSENT
        broken = self._store.head(version.key)
        if broken is not None:
            found = self._fetch_usable(version)
            if found is not None:
                yield found
                return
            # It cannot be read, so only something else is what we wait for.
            replaces = broken.tag

        def is_published() -> bool:
            info = self._store.head(version.key, self._patience)
            return info is not None and info.tag != replaces

        with self._telling_readers(version):
            lock = self._lock(version)
        try:
            with self._telling_readers(version):
                with waiting_for(f"for another builder of {version.name}"):
                    is_mine = lock.acquire(is_published)
                # What cannot be tried out is told before anything is built.
                is_conditional = is_mine and self._conditions.are_heeded(version.key)
            if is_mine:
                yield ObjectTurn(
                    self._store, version, lock, replaces, is_published, is_conditional, self._enter
                )
            else:
                yield None
        finally:
            lock.release()

    @contextlib.contextmanager
    def _telling_readers(self, version: ObjectVersion) -> Iterator[None]:
        """Says it clearly to those who may read the bucket, but not write to it."""
        try:
            yield
        except AccessDeniedError as error:
            raise AccessDeniedError(
                f"no {version} is stored that can be read, and these credentials may not build "
                f"one: {error}"
            ) from error

    def _lock(self, version: ObjectVersion) -> PublishLock:
        configurations = self._configurations
        if configurations.url is not None:
            from yogadl.storage._leases.coordinated import CoordinatedLock

            return CoordinatedLock(configurations, self._storage_type, version.key)
        if configurations.conditional_writes is False:
            raise UnsafeStoreError(
                f"leases in {self._store.url} are ruled out by conditional_writes=False; give the "
                "address of a lock server as url="
            )
        return Lease(
            self._store,
            version.beside(LEASE_OBJECT),
            configurations.lease_seconds,
            board=LeaseBoard(version.claim().with_name(WAITING_FILE)),
            prove=functools.partial(self._conditions.prove, version.key),
        )

    @property
    def _patience(self) -> float | None:
        """Seconds for requests that others wait for, who share the answer."""
        given = self._configurations
        return patience_of(given.lease_seconds) if given.url is None else None


class ObjectTurn:
    """One's turn to build a version in a bucket. For one thread.

    Args:
        store: the bucket.
        version: to build.
        lock: which is held.
        replaces: the tag of what is to be replaced.
        is_published: whether somebody else has published it.
        is_conditional: whether the store knows conditions.
        enter: is told what was published.
    """

    def __init__(
        self,
        store: ObjectStore,
        version: ObjectVersion,
        lock: PublishLock,
        replaces: str,
        is_published: Callable[[], bool],
        is_conditional: bool,
        enter: Callable[[Entry], object],
    ) -> None:
        self._store = store
        self._version = version
        self._lock = lock
        self._replaces = replaces
        self._is_published = is_published
        self._is_conditional = is_conditional
        self._enter = enter

    def publish(self, file: PartialFile, parts: PartBuilder) -> LMDBDataRef | None:
        """Publishes what was built, unless the lock was lost and somebody else did.

        On condition that the object is as it was found, since a lock may be lost between the last
        look at it and the arrival of the request. Where the store knows no conditions, that gap
        remains, with a lock server; there are no leases then.

        Returns:
            It, if there is a copy; ``None`` if what is stored has still to be fetched.
        """
        version, lock, replaces = self._version, self._lock, self._replaces
        is_published, is_conditional = self._is_published, self._is_conditional

        def check() -> None:
            if not is_conditional and is_published():
                raise PreconditionFailedError
            lock.check()

        refusals = 0
        while True:
            try:
                if_tag = replaces if is_conditional else None
                published = publish(self._store, file, version, parts, if_tag, check)
                self._enter(published.entry)
                return published.ref
            except LockLostError as error:
                _log.warning("Not publishing %s yet: %s", version.name, error)
                lock.release()
                if not lock.acquire(is_published):
                    return None
            except PreconditionFailedError:
                found = self._store.head(version.key)
                if found is not None and found.tag != replaces:
                    _log.warning("Somebody else published %s.", version.name)
                    return None
                if found is None and replaces != ABSENT:
                    _log.warning("%s was deleted while it was built again.", version.name)
                    replaces = ABSENT
                    continue
                # Some stores refuse for a moment while others write; some, always.
                refusals += 1
                if refusals == ATTEMPTS:
                    raise cannot_be_trusted(
                        self._store,
                        f"it refused to write {version.key}, which is as it was asked to be",
                    ) from None
