"""The small objects of a catalogue, in a bucket."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from yogadl.conditional import SMALL_BYTES
from yogadl.errors import UnsafeStoreError
from yogadl.storage._disk.kept_segment import KeptSegment
from yogadl.storage._objects.store import ObjectStore


class BucketObjects:
    """See ``CatalogueObjects``.

    Args:
        store: the bucket.
        folder: a key without its last slash.
        are_ruled_out: whether conditional writes are known to be none.
        kept: what is not to be read again.
    """

    def __init__(
        self,
        store: ObjectStore,
        folder: str,
        are_ruled_out: Callable[[], bool],
        kept: KeptSegment,
    ) -> None:
        self._store = store
        self._kept = kept
        self._prefix = f"{folder}/"
        self._are_ruled_out = are_ruled_out

    @property
    def where(self) -> str:
        return f"{self._store.url}/{self._prefix}".rstrip("/")

    def alone(self, patience: float | None) -> contextlib.AbstractContextManager[object]:  # noqa: ARG002 # the protocol has it
        return contextlib.nullcontext()

    def read(
        self, key: str, patience: float | None = None, largest: int = SMALL_BYTES
    ) -> tuple[bytes, str] | None:
        kept = self._kept.get(key)
        if kept is not None:
            # What is named by its contents needs no tag.
            return kept, ""
        found = self._store.read(f"{self._prefix}{key}", patience, largest)
        if found is not None:
            self._kept.put(key, found[0])
        return found

    def write(
        self, key: str, data: bytes, if_tag: str | None = None, patience: float | None = None
    ) -> str:
        if self._are_ruled_out():
            raise self.cannot_be_trusted("none are made there")
        tag = self._store.write(f"{self._prefix}{key}", data, if_tag, patience)
        self._kept.put(key, data)
        return tag

    def delete(self, key: str) -> None:
        self._store.delete(f"{self._prefix}{key}")

    def times(self) -> dict[str, float]:
        return {
            info.key.removeprefix(self._prefix): info.created.timestamp()
            for info in self._store.list(self._prefix)
        }

    def cannot_be_trusted(self, what: str) -> UnsafeStoreError:
        return UnsafeStoreError(
            f"{self.where} cannot have tags and entries of versions, since conditional writes of "
            f"the bucket cannot be trusted, or are ruled out by conditional_writes=False: {what}"
        )
