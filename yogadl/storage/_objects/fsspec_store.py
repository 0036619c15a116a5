"""What fsspec can read, as a store of objects that cannot be written to."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import xxhash

from yogadl.backoff import retried
from yogadl.errors import (
    AccessDeniedError,
    CacheFormatError,
    InvalidArgumentError,
    MissingExtraError,
    NetworkError,
    StoreError,
    UnsafeStoreError,
)
from yogadl.extras import require
from yogadl.format import header as headers
from yogadl.redaction import without_password, without_secrets
from yogadl.storage._objects.failures import BROKEN_CONNECTIONS, told
from yogadl.storage._objects.metadata_keys import told_by
from yogadl.storage._objects.store import (
    SMALL_BYTES,
    ObjectGoneError,
    ObjectInfo,
    ObjectStore,
    Skip,
)
from yogadl.storage._paths import CACHE_FILE

if TYPE_CHECKING:
    from yogadl.storage._configurations import FsspecConfigurations

# What file systems call that of which another state has another one; other fields, such as the time
# of the last access, say nothing. Lower case, without "-" and "_".
_TELLING: tuple[str, ...] = ("etag", "generation", "versionid", "md5", "contentmd5", "digest")
_TELLING += ("sha256", "blobid", "lfs", "crc", "mtime", "modified", "lastmodified", "created")
_TELLING += ("datetime", "ino")
_TIMES = ("lastmodified", "mtime", "modified", "created", "datetime")
_UNKNOWN_TIME = datetime.datetime.fromtimestamp(0, datetime.timezone.utc)
_NOT_THERE = (404, 410)
_LOCAL = frozenset(("file", "local", "memory"))
_WEB = frozenset(("http", "https"))
_MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError, KeyError)


class FsspecStore(ObjectStore):
    """See ``ObjectStore``. Over one of fsspec's file systems, which is made anew in each process.

    None has the writes on condition that a storage needs: some create a file only if there is none,
    and nobody replaces one only if it is as it was. So all writes are refused.

    Args:
        configurations: the URL, and what the file system is given besides.

    Raises:
        MissingExtraError: fsspec is not installed, or what it needs for such URLs.
        InvalidArgumentError: it knows no such URLs.
    """

    def __init__(self, configurations: FsspecConfigurations) -> None:
        self._configurations = configurations
        self._fsspec = require("fsspec", "fsspec")
        self._made: tuple[int, Any, str] | None = None
        self._mutex = os.getpid(), threading.Lock()
        _ = self._system

    @property
    def _system(self) -> tuple[Any, str]:
        """The file system of this process, and the path of the storage in it."""
        if self._made is None or self._made[0] != os.getpid():
            given = self._configurations
            try:
                system, root = self._fsspec.core.url_to_fs(given.location, **given.options)
            except ImportError as error:
                raise MissingExtraError(f"{self.url}: {without_secrets(str(error))}") from error
            except (ValueError, TypeError, AttributeError) as error:
                # Of what a chained URL lacks, some file systems are made with None.
                said = without_secrets(str(error))
                raise InvalidArgumentError(f"fsspec cannot open {self.url}: {said}") from None
            except OSError as error:
                said = without_secrets(str(error))
                raise StoreError(f"fsspec cannot open {self.url}: {said}") from None
            self._made = os.getpid(), system, str(root).rstrip("/")
        return self._made[1], self._made[2]

    @property
    def _is_web(self) -> bool:
        """Whether paths are addresses of a web server."""
        return not _WEB.isdisjoint(_protocols(self._system[0]))

    @property
    def url(self) -> str:
        """See ``ObjectStore.url``."""
        return without_password(self._configurations.location).rstrip("/")

    @property
    def is_proven(self) -> bool:
        """See ``ObjectStore.is_proven``."""
        return False

    def check(self) -> None:
        """See ``ObjectStore.check``; of a web server, nothing can be asked."""

    # Reading

    def head(self, key: str, patience: float | None = None) -> ObjectInfo | None:  # noqa: ARG002 # fsspec has none
        """See ``ObjectStore.head``. Of a version, the first page of its file is read, too, which
        says what objects in buckets have in their metadata."""
        info = self._asked("looking for", key, lambda system, path: system.info(path))
        if info is None or info.get("type") == "directory":
            return None
        found = self._object(key, info)
        if not key.endswith(f"/{CACHE_FILE}"):
            return found
        length = min(headers.BODY_OFFSET, found.size)
        page = self._range(key, 0, length, found.size)
        if page is None:
            return None
        tag = f"{found.tag}-{xxhash.xxh3_64_hexdigest(page)}"
        told_of = _metadata(page, found.size, key)
        return ObjectInfo(key, found.size, tag, found.created, told_of)

    def _object(self, key: str, info: Mapping[str, Any]) -> ObjectInfo:
        size = info.get("size")
        if not isinstance(size, int):
            raise StoreError(
                f"the server of {self.url} does not say how large {key} is, without which it "
                "cannot be read"
            )
        known = {_plain(name): value for name, value in info.items()}
        tag = xxhash.xxh3_64()
        for name in _TELLING:
            tag.update(f"{name} {known.get(name)!r}\n".encode(errors="replace"))
        times = (_time(known.get(name)) for name in _TIMES)
        created = next((time for time in times if time is not None), _UNKNOWN_TIME)
        return ObjectInfo(key, size, f"{size:x}-{tag.hexdigest()}", created)

    def list(self, prefix: str, skip: Skip | None = None) -> Iterator[ObjectInfo]:  # noqa: ARG002 # fsspec lists folders
        """See ``ObjectStore.list``; the state of each version is asked for."""
        folder = prefix.rpartition("/")[0]
        found = self._asked("listing", folder, lambda system, path: system.find(path, detail=True))
        root = self._system[1]
        for path, info in sorted((found or {}).items()):
            rest = str(path).removeprefix(f"{root}/")
            key = urllib.parse.unquote(rest) if self._is_web else rest
            if (rest == path and root) or not key.startswith(prefix):
                continue
            if key.endswith(f"/{CACHE_FILE}"):
                state = self.head(key)
            elif isinstance(info.get("size"), int):
                state = self._object(key, info)
            else:
                continue
            if state is not None:
                yield state

    def read(
        self,
        key: str,
        patience: float | None = None,  # noqa: ARG002 # fsspec has none
        largest: int = SMALL_BYTES,
    ) -> tuple[bytes, str] | None:
        """See ``ObjectStore.read``."""
        info = self._asked("looking for", key, lambda system, path: system.info(path))
        if info is None or info.get("type") == "directory":
            return None
        found = self._object(key, info)
        if found.size > largest:
            raise StoreError(f"{self.url}/{key} has {found.size:,} bytes, and should be small")
        data = self._range(key, 0, found.size, found.size)
        return None if data is None else (data, found.tag)

    def read_range(
        self, info: ObjectInfo, start: int, stop: int, write: Callable[[bytes], object]
    ) -> None:
        """See ``ObjectStore.read_range``: the state is compared after reading."""
        data = self._range(info.key, start, stop, info.size, tries=False)
        found = self._asked("looking for", info.key, lambda system, path: system.info(path))
        if data is None or found is None:
            raise ObjectGoneError(info.key)
        if not info.tag.startswith(self._object(info.key, found).tag):
            raise ObjectGoneError(info.key)
        write(data)

    def _range(
        self, key: str, start: int, stop: int, size: int, tries: bool = True
    ) -> bytes | None:
        if start >= stop:
            return b""
        data = self._asked(
            "reading",
            key,
            lambda system, path: system.cat_file(path, start=start, end=stop),
            tries,
        )
        if data is None:
            return None
        if len(data) == size > stop - start:
            # Of a server that knows no ranges.
            data = data[start:stop]
        if len(data) != stop - start:
            raise NetworkError(
                f"{len(data):,} bytes came of {stop - start:,} of {self.url}/{key}; it broke off, "
                "or was replaced meanwhile"
            )
        return bytes(data)

    def _asked(
        self, what: str, key: str, ask: Callable[[Any, str], Any], tries: bool = True
    ) -> Any:
        """What a file system answers; ``None`` if there is no such file."""
        system, root = self._system
        # What is special in addresses, nobody else escapes.
        name = urllib.parse.quote(key) if self._is_web else key
        path = f"{root}/{name}" if root and name else root or name

        def once() -> Any:
            with self._alone(system), told(lambda error: self._failure(what, key, error)):
                try:
                    # Others may have changed it, which its caches do not know.
                    system.invalidate_cache()
                    return ask(system, path)
                except (
                    FileNotFoundError,
                    NotADirectoryError,
                    IsADirectoryError,
                    KeyError,
                ) as error:
                    # fsspec tells of whatever a web server answers in this way.
                    if _is_missing(error.__cause__):
                        return None
                    raise

        return retried(once, lambda _error: None) if tries else once()

    def _alone(self, system: Any) -> contextlib.AbstractContextManager[object]:
        """Most file systems have one connection or one open file."""
        if system.async_impl or not _LOCAL.isdisjoint(_protocols(system)):
            return contextlib.nullcontext()
        if self._mutex[0] != os.getpid():
            self._mutex = os.getpid(), threading.Lock()
        return self._mutex[1]

    def _failure(self, what: str, key: str, error: Exception) -> StoreError:
        cause = error.__cause__ if isinstance(error, FileNotFoundError) else None
        at = error if cause is None or not isinstance(cause, Exception) else cause
        message = f"{what} {self.url}/{key}: {type(at).__name__}: {at}"
        status = getattr(at, "status", None)
        if isinstance(at, PermissionError) or status in (401, 403):
            return AccessDeniedError(message)
        is_passing = isinstance(status, int) and (status >= 500 or status == 429)
        if is_passing or _is_broken(at):
            return NetworkError(message)
        return StoreError(message)

    # Writing

    def _refuse(self) -> NoReturn:
        raise read_only(self.url)

    def write(
        self,
        key: str,  # noqa: ARG002
        data: bytes,  # noqa: ARG002
        if_tag: str | None = None,  # noqa: ARG002
        patience: float | None = None,  # noqa: ARG002
    ) -> str:
        """Refuses to."""
        self._refuse()

    def upload(
        self,
        path: pathlib.Path,  # noqa: ARG002
        key: str,  # noqa: ARG002
        metadata: Mapping[str, str],  # noqa: ARG002
        if_tag: str | None = None,  # noqa: ARG002
        before_publishing: Callable[[], object] = lambda: None,  # noqa: ARG002
        *,
        in_parts: bool | None = None,  # noqa: ARG002
    ) -> str:
        """Refuses to."""
        self._refuse()

    def copy(self, info: ObjectInfo, key: str, metadata: Mapping[str, str]) -> None:  # noqa: ARG002
        """Refuses to."""
        self._refuse()

    def delete(self, key: str, tag: str | None = None) -> bool:  # noqa: ARG002
        """Refuses to."""
        self._refuse()


def _protocols(system: Any) -> tuple[str, ...]:
    """The names of a file system."""
    found: str | tuple[str, ...] = system.protocol
    return (found,) if isinstance(found, str) else tuple(found)


def _is_broken(error: BaseException) -> bool:
    """Whether an answer did not arrive."""
    is_network = type(error).__module__.startswith("aiohttp") and not hasattr(error, "status")
    return is_network or isinstance(error, BROKEN_CONNECTIONS)


def _is_missing(cause: BaseException | None) -> bool:
    """Whether what caused a ``FileNotFoundError`` is that there is no such file."""
    if cause is None:
        return True
    return getattr(cause, "status", 404) in _NOT_THERE and not _is_broken(cause)


def read_only(url: str) -> UnsafeStoreError:
    """The error of who wants to change what is there."""
    return UnsafeStoreError(
        f"{url} can only be read: fsspec's file systems have no writes on condition that nobody "
        "else has written meanwhile, without which data sets can be lost. Change them where they "
        "come from (a path, s3:// or gs://), and copy them there"
    )


def _metadata(page: bytes, size: int, name: str) -> dict[str, str]:
    """What the first page of a version says, as ``publisher`` tells it; nothing of 0.1.4's."""
    try:
        header = headers.unpack(page[headers.HEADER_OFFSET :], size, name)
    except CacheFormatError:
        return {}
    return told_by(header)


def _plain(name: Any) -> str:
    return str(name).lower().replace("-", "").replace("_", "")


def _time(value: Any) -> datetime.datetime | None:
    """A time in UTC, in whatever form a file system has it."""
    utc = datetime.timezone.utc
    try:
        if isinstance(value, datetime.datetime):
            return value.astimezone(utc) if value.tzinfo else value.replace(tzinfo=utc)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.datetime.fromtimestamp(value, utc)
        if isinstance(value, tuple):
            return datetime.datetime(*value[:6]).replace(tzinfo=utc)
    except (ValueError, OverflowError, OSError, TypeError):
        return None
    return None
