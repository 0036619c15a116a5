"""What is known of a bucket's conditional writes, by documents, by users, or by trying them out."""

from __future__ import annotations

import logging
import os
import pathlib
import threading

from yogadl.errors import AccessDeniedError, UnsafeStoreError
from yogadl.storage._configurations import BaseCloudConfigurations
from yogadl.storage._objects.probe import (
    cannot_be_trusted,
    copies_what_was_meant,
    what_is_wrong,
)
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
        self._copies: bool | None = None
        self._wrong = self._wrong_in_races = ""
        self._probing = os.getpid(), threading.Lock()

    @property
    def are_ruled_out(self) -> bool:
        """Whether the store is known to have none, by its users or by a trial."""
        return False in (self._are_heeded, self._decide)

    @property
    def why_ruled_out(self) -> str:
        """Why they are, and what can be done."""
        if self._configurations.conditional_writes is False:
            return "conditional_writes=False rules out its conditional writes"
        wrong = self._wrong or self._wrong_in_races
        return (
            f"its conditional writes cannot be trusted: {wrong}. If you know better, "
            "conditional_writes=True skips the trial"
        )

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
                races = self._configurations.url is None
                self._wrong = "" if self._store.is_proven else self._try_out(key, races)
                self._are_heeded = not self._wrong
        if self._wrong:
            raise cannot_be_trusted(self._store, self._wrong)

    def are_heeded(self, key: str) -> bool:
        """Whether the store heeds the condition of an upload; leases need that in any case."""
        if self._are_heeded is None:
            try:
                self.prove(key)
            except UnsafeStoreError as error:
                _log.info("Nothing is published on condition: %s", error)
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
                self._wrong_in_races = self._try_out(key, True)
                self._decide = not self._wrong_in_races
        return self._decide

    def bind_copies(self, key: str) -> bool:
        """Whether the store copies no other state of an object than what is meant."""
        if self._copies is None:
            folder = pathlib.PurePosixPath(key).parent
            try:
                self._copies = self._store.is_proven or copies_what_was_meant(
                    self._store, f"{folder}/"
                )
            except AccessDeniedError as error:
                _log.info("It is not known what %s copies: %s", self._store.url, error)
                self._copies = False
        return self._copies

    def _try_out(self, key: str, races: bool) -> str:
        folder = pathlib.PurePosixPath(key).parent
        return what_is_wrong(self._store, f"{folder}/", races=races)
