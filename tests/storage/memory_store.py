"""An object store in memory, for tests of what needs no network."""

from __future__ import annotations

import contextlib
import datetime
import pathlib
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping

from yogadl.storage._objects.store import (
    ABSENT,
    SMALL_BYTES,
    ObjectGoneError,
    ObjectInfo,
    ObjectStore,
    PreconditionFailedError,
    Skip,
)


class MemoryStore(ObjectStore):
    """One bucket.

    Attributes:
        before: called before each request with its name and key; may raise.
        after: likewise after it was done, before the answer arrives.
        offset: of its clock.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._objects: dict[str, tuple[bytes, ObjectInfo]] = {}
        self.offset = datetime.timedelta()
        self.before: Callable[[str, str], object] = lambda _name, _key: None
        self.after: Callable[[str, str], object] = lambda _name, _key: None

    @contextlib.contextmanager
    def _request(self, name: str, key: str) -> Iterator[None]:
        self.before(name, key)
        with self._mutex:
            yield
        self.after(name, key)

    @property
    def url(self) -> str:
        return "memory://bucket"

    @property
    def is_proven(self) -> bool:
        return False

    def check(self) -> None:
        return

    def head(self, key: str, patience: float | None = None) -> ObjectInfo | None:
        with self._request("head", key):
            return self._objects[key][1] if key in self._objects else None

    def list(self, prefix: str, skip: Skip | None = None) -> Iterator[ObjectInfo]:
        with self._request("list", prefix):
            found = [info for key, (_, info) in self._objects.items() if key.startswith(prefix)]
        yield from found

    def read(
        self, key: str, patience: float | None = None, largest: int = SMALL_BYTES
    ) -> tuple[bytes, str] | None:
        with self._request("read", key):
            if key not in self._objects:
                return None
            data, info = self._objects[key]
            return data, info.tag

    def write(
        self, key: str, data: bytes, if_tag: str | None = None, patience: float | None = None
    ) -> str:
        with self._request("write", key):
            return self._put(key, data, {}, if_tag)

    def _put(self, key: str, data: bytes, metadata: Mapping[str, str], if_tag: str | None) -> str:
        tag = self._objects[key][1].tag if key in self._objects else ABSENT
        if if_tag is not None and if_tag != tag:
            raise PreconditionFailedError
        now = datetime.datetime.now(datetime.timezone.utc) + self.offset
        info = ObjectInfo(key, len(data), uuid.uuid4().hex, now, dict(metadata))
        self._objects[key] = data, info
        return info.tag

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
        before_publishing()
        with self._request("upload", key):
            return self._put(key, path.read_bytes(), metadata, if_tag)

    def read_range(
        self, info: ObjectInfo, start: int, stop: int, write: Callable[[bytes], object]
    ) -> None:
        with self._request("read_range", info.key):
            data, found = self._objects.get(info.key, (b"", None))
        if found is None or found.tag != info.tag:
            raise ObjectGoneError(info.key)
        write(data[start:stop])

    def copy(self, info: ObjectInfo, key: str, metadata: Mapping[str, str]) -> None:
        with self._request("copy", key):
            data, found = self._objects.get(info.key, (b"", None))
            if found is None or found.tag != info.tag:
                raise ObjectGoneError(info.key)
            self._put(key, data, metadata, None)

    def delete(self, key: str, tag: str | None = None) -> bool:
        with self._request("delete", key):
            found = self._objects.get(key)
            if found is None:
                return True
            if tag not in (None, found[1].tag):
                return False
            del self._objects[key]
        return True
