"""Opening a cache file, of whatever format."""

from __future__ import annotations

import errno
import os
import pathlib
import stat

from yogadl.cache.file_reader import FileReader
from yogadl.cache.files import shown, telling
from yogadl.cache.held import hold, is_replaced
from yogadl.cache.mapping import Access, MappedFile, open_file
from yogadl.cache.memory import keep_freed_memory
from yogadl.cache.parts import followed, is_kept
from yogadl.cache.reader import CacheFile
from yogadl.errors import (
    CacheFormatError,
    CacheNotFoundError,
    FileSystemError,
    ForeignFileError,
)
from yogadl.format import header as headers


def open_cache(
    path: pathlib.Path,
    check_records: bool = False,
    access: Access = Access.RANDOM,
    mapped: MappedFile | None = None,
) -> FileReader:
    """Opens a cache file, of this release or of 0.1.4.

    Args:
        path: of the file.
        check_records: compare every record with its checksum before it is read. A file of 0.1.4
            has none.
        access: what to tell the system of reads that are not announced. A file of 0.1.4 is left to
            the system's own ways.
        mapped: the file, if it is in this process's memory already.

    Raises:
        CacheNotFoundError: there is no such file.
        CacheFormatError: it cannot be read; see its subclasses.
        FileSystemError: it cannot be opened; see its subclasses.
    """
    while True:
        found = _open(followed(path), check_records, access, mapped)
        if found is not None:
            return found


def _open(
    path: pathlib.Path, check_records: bool, access: Access, mapped: MappedFile | None
) -> FileReader | None:
    """``None`` for one that was replaced or removed, and lost its parts, before it was locked."""
    try:
        with telling("open", path):
            descriptor = open_file(path)
    except FileSystemError as error:
        # A file where a folder would be has nothing below it, either.
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
        if is_kept(path):
            raise CacheNotFoundError(
                f"{shown(path)} is not on this machine any more, as nobody had it open; fetch it "
                "again"
            ) from error
        raise CacheNotFoundError(f"there is no cache at {shown(path)}; build it first") from error
    if not stat.S_ISREG(os.fstat(descriptor.number).st_mode):
        raise ForeignFileError(f"{shown(path)} is no regular file, so it is no cache")
    with telling("map", path):
        file = MappedFile(descriptor, path) if mapped is None else mapped
    file.expect(Access.RANDOM)
    page = file.array[headers.HEADER_OFFSET : headers.BODY_OFFSET].tobytes()
    if headers.is_header(page):
        file.expect(access)
        keep_freed_memory()
        lock = None
        if is_kept(path):
            # What is named by its contents may be removed to make room, unless it is open.
            if not hold(descriptor, path) or is_replaced(descriptor, path):
                return None
            lock = descriptor
        if headers.is_table(page):
            from yogadl.cache.grouped import GroupedReader
            from yogadl.cache.open_table import OpenTable
            from yogadl.cache.parts_reader import PartsReader

            if lock is None and not hold(descriptor, path):
                return None
            try:
                table = OpenTable(path, file, descriptor, access)
                kind = PartsReader if table.parts.table.leaves is None else GroupedReader
                return kind(path, table, check_records)
            except CacheFormatError:
                if is_replaced(descriptor, path):
                    return None
                raise
        return CacheFile(path, file, check_records, lock)
    from yogadl.legacy.reader import LegacyCacheFile

    file.expect(Access.NORMAL)
    return LegacyCacheFile(path, file)
