"""A lock that a lock server keeps."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from yogadl.errors import LockLostError
from yogadl.rw_coordinator import HeldLock, RwCoordinatorClient
from yogadl.storage._configurations import BaseCloudConfigurations
from yogadl.storage._leases.locks import PublishLock


class CoordinatedLock(PublishLock):
    """The write lock on one cache of a lock server; see ``yogadl.rw_coordinator``.

    Args:
        configurations: the server's address, and how to prove who is who.
        storage_type: as in the server's protocol.
        cache_path: the object's key.
    """

    def __init__(
        self, configurations: BaseCloudConfigurations, storage_type: str, cache_path: str
    ) -> None:
        assert configurations.url is not None
        self._client = RwCoordinatorClient(
            configurations.url,
            configurations.skip_verify,
            configurations.coordinator_cert_file,
            configurations.coordinator_cert_name,
            client_cert=configurations.coordinator_client_cert,
            client_key=configurations.coordinator_client_key,
            secret=configurations.coordinator_secret,
        )
        self._place = (storage_type, configurations.bucket, pathlib.PurePosixPath(cache_path))
        self._held: HeldLock | None = None

    def acquire(self, is_published: Callable[[], bool]) -> bool:
        """See ``PublishLock.acquire``. The server answers as soon as nobody else holds the lock."""
        self._held = self._client.acquire(*self._place, read_lock=False)
        return not is_published()

    def check(self) -> None:
        """See ``PublishLock.check``."""
        if self._held is None:
            raise LockLostError("the lock server's lock was given back")
        self._held.check()

    def release(self) -> None:
        """See ``PublishLock.release``."""
        if self._held is not None:
            self._held.close()
            self._held = None
