"""What commits need of their storage."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from yogadl.cache.partial import PartialFile
from yogadl.cache.record_reader import RecordReader
from yogadl.catalogue import Catalogue, Entry
from yogadl.dataref import StoredDataRef
from yogadl.errors import CacheNotFoundError
from yogadl.storage._commits.made import Made
from yogadl.storage._version import Version

V = TypeVar("V", bound=Version)


class CommitStorage(Protocol[V]):
    """What a commit needs of its storage."""

    _catalogue: Catalogue

    def _version(self, dataset_id: str, dataset_version: str) -> V: ...

    def _made(self, version: V) -> Made: ...

    def _publish_new(self, file: PartialFile, version: V, parts: Any) -> Entry: ...

    def _withdraw(self, version: V, tag: str) -> None: ...

    def _made_to_share(self, version: V, parts: Any) -> Made: ...

    def _open_here(self, version: V) -> StoredDataRef: ...

    def _open_whole(self, version: V) -> StoredDataRef: ...

    def _open_part(self, version: V, digest: bytes) -> RecordReader: ...

    def _enter(self, entry: Entry) -> object: ...

    def _left_by(self, tag: str, version: V) -> CacheNotFoundError: ...
