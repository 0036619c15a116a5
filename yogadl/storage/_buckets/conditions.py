"""What is known of a bucket's conditional writes, by documents, by users, or by trying them out."""

from __future__ import annotations

import logging
import os
import pathlib
import threading

from yogadl.errors import UnsafeStoreError
from yogadl.storage._configurations import BaseCloudConfigurations
from yogadl.storage._objects.probe import check_conditional_writes
from yogadl.storage._objects.store import ObjectStore

_log = logging.getLogger(__name__)


class ConditionalWrites:
    """Those of one bucket. Safe for threads and forks.

    Args:
        store: the bucket.
        configurations: say what users know of it, and how builders agree.
    """

    def __init__(self, store: ObjectStore, configurations: BaseCloudConfigurations) -> None:
        self._store = store
        self._configurations = configurations
        self._are_heeded: bool | None = configurations.conditional_writes
        self._decide: bool | None = None
        self._probing = os.getpid(), threading.Lock()

    @property
    def are_ruled_out(self) -> bool:
        """Whether the store is known to have none, by its users or by a trial."""
        return False in (self._are_heeded, self._decide)

    def prove(self, key: str) -> None:
        """Tries the store out beside a key, once, unless it is known.

        Raises:
            UnsafeStoreError: its conditional writes are not good enough for the kind of lock.
        """
        if self._probing[0] != os.getpid():
            # A child may have been born while a thread of its parent held it.
            self._probing = os.getpid(), threading.Lock()
        with self._probing[1]:
            if self._are_heeded is None:
                if not self._store.is_proven:
                    races = self._configurations.url is None
                    folder = pathlib.PurePosixPath(key).parent
                    check_conditional_writes(self._store, f"{folder}/", races=races)
                self._are_heeded = True

    def are_heeded(self, key: str) -> bool:
        """Whether the store heeds the condition of an upload; leases need that in any case."""
        if self._are_heeded is None:
            try:
                self.prove(key)
            except UnsafeStoreError as error:
                self._are_heeded = False
                _log.info("Publishing under the lock server's lock alone: %s", error)
        return bool(self._are_heeded)

    def decide_races(self, key: str) -> bool:
        """Whether the store decides who wins a race of conditional writes."""
        if self._decide is None:
            if self._configurations.url is None:
                self.are_heeded(key)
                self._decide = self._are_heeded
            else:
                self._decide = self._configurations.conditional_writes
        if self._decide is None:
            self._decide = self._store.is_proven
            if not self._decide:
                try:
                    folder = pathlib.PurePosixPath(key).parent
                    check_conditional_writes(self._store, f"{folder}/")
                    self._decide = True
                except UnsafeStoreError as error:
                    _log.info("Parts cannot be collected: %s", error)
        return self._decide
