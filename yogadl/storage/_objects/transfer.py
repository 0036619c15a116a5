"""Moving whole files out of an object store, and telling how far that has come."""

from __future__ import annotations

import concurrent.futures
import io
import os
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import xxhash

from yogadl.backoff import Backoff
from yogadl.cache.partial import FLUSH_EVERY, PartialFile, check_room
from yogadl.cache.parts import read_header
from yogadl.cache.progress import ByteProgress
from yogadl.cache.whole_file import digest_of
from yogadl.errors import CacheFormatError, NetworkError, StoreError
from yogadl.format import header as headers
from yogadl.storage._objects.store import AlteredAnswerError, ObjectInfo, ObjectStore

_HASH_BYTES = 4 << 20
_ADVICE = (
    "choose a local_cache_dir on another disk, or read it without a download, "
    "fetch(…, download=False)"
)


def file_digest(path: pathlib.Path) -> str:
    """XXH3-128 of a file's bytes, in hexadecimal."""
    digest = xxhash.xxh3_128()
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_HASH_BYTES):
            digest.update(data)
    return digest.hexdigest()


def file_digests(path: pathlib.Path) -> tuple[str, str | None]:
    """The same, and the digest by which a file of the current format is named.

    The latter is ``None`` if the file has another format, or not the digest that it says it has.
    """
    try:
        header, _ = read_header(path)
    except CacheFormatError:
        return file_digest(path), None
    whole = xxhash.xxh3_128()
    with open(path, "rb", buffering=0) as file:
        head = file.read(headers.BODY_OFFSET)
        whole.update(head)

        def body() -> Iterator[bytes]:
            while data := file.read(_HASH_BYTES):
                whole.update(data)
                yield data

        found = digest_of(np.frombuffer(head, "u1"), body())
    return whole.hexdigest(), found.hex() if found == header.digest else None


class FileSlice(io.RawIOBase):
    """A range of a file as a file of its own, of which nothing is held in memory.

    Attributes:
        size: bytes.
    """

    def __init__(self, path: pathlib.Path, start: int, size: int) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._start = start
        self._at = 0
        self.size = max(0, min(size, os.fstat(self._descriptor).st_size - start))

    def read(self, size: int | None = -1) -> bytes:
        rest = self.size - self._at
        wanted = rest if size is None or size < 0 else min(size, rest)
        data = os.pread(self._descriptor, wanted, self._start + self._at)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size}[whence]
        self._at = min(max(0, origin + offset), self.size)
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


def in_parallel(works: Sequence[Callable[[threading.Event], object]], threads: int) -> None:
    """Does all works in some threads; when one fails, no further one begins.

    Args:
        works: are given what is set when they need not go on.
        threads: of these, at most.

    Raises:
        BaseException: of the first work that failed, when those under way have ended.
    """
    stop = threading.Event()

    def run(work: Callable[[threading.Event], object]) -> None:
        if not stop.is_set():
            work(stop)

    with concurrent.futures.ThreadPoolExecutor(threads, "yogadl transfer") as pool:
        futures = [pool.submit(run, work) for work in works]
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
        finally:
            stop.set()


def download(store: ObjectStore, info: ObjectInfo, file: PartialFile) -> None:
    """Downloads just this state of an object into an empty file.

    A part that breaks off goes on where it broke off.

    Raises:
        ObjectGoneError: the object was deleted or replaced meanwhile.
        StoreError: it cannot be read.
        StorageFullError: the disk is full, or nearly so.
    """
    check_room(file.path, info.size, _ADVICE)
    with ByteProgress(f"Downloading {store.url}/{info.key}", info.size) as progress:
        parts = [
            _Part(store, info, start, min(start + store.range_bytes, info.size), file, progress)
            for start in range(0, info.size, store.range_bytes)
        ]
        in_parallel([part.read for part in parts], store.parallel_ranges)
        progress.done()


class _Part:
    """A range of an object that is being read into a file."""

    def __init__(
        self,
        store: ObjectStore,
        info: ObjectInfo,
        start: int,
        stop: int,
        file: PartialFile,
        progress: ByteProgress,
    ) -> None:
        self._store = store
        self._info = info
        self._at = start
        self._flushed = start
        self._stop = stop
        self._file = file
        self._progress = progress

    def read(self, stop: threading.Event) -> None:
        backoff = Backoff(stop=stop)
        while self._at < self._stop:
            before = self._at
            try:
                self._store.read_range(self._info, self._at, self._stop, self._write)
                if self._at == before:
                    raise NetworkError(f"{self._info.key} broke off at byte {self._at:,}")
            except StoreError as error:
                if isinstance(error, AlteredAnswerError):
                    self._go_back_to(before)
                if self._at > before:
                    backoff.progressed()
                if not backoff.waits(error):
                    raise

    def _go_back_to(self, start: int) -> None:
        self._progress.update(start - self._at)
        self._at = start
        self._flushed = min(self._flushed, start)

    def _write(self, data: bytes) -> None:
        if self._at + len(data) > self._stop:
            raise StoreError(
                f"{self._store.url}/{self._info.key} was answered with more bytes than asked for"
            )
        self._file.write_at(data, self._at)
        self._at += len(data)
        if self._at - self._flushed >= FLUSH_EVERY or self._at == self._stop:
            self._file.start_flushing(self._flushed, self._at)
            self._flushed = self._at
        self._progress.update(len(data))
