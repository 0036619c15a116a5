"""The LMDB file around what is stored: its pages, its tree, and yogadl's header."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import lmdb
import xxhash

from yogadl._version import __version__
from yogadl.cache.files import shown
from yogadl.cache.partial import PartialFile
from yogadl.errors import FileSystemError, TooManyFilesError, YogadlError
from yogadl.format import header as headers
from yogadl.format.pages import (
    PAGE_HEADER,
    PAGE_SIZE,
    LeafPacker,
    big_payload,
    leaf_node,
    meta_pages,
    overflow_header,
    overflow_pages,
    write_branches,
)

_LARGE_BYTES = 64 << 10


class Container:
    """An LMDB file that is written front to back, once. Not thread-safe.

    Args:
        path: of the file.

    Attributes:
        file: the file, under its partial name.
        packer: makes leaf pages of the nodes it is given, in the order of keys.
        overflow_pages: pages of values outside the leaves.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.file = PartialFile(path)
        self.packer = LeafPacker(self.write, self.next_page)
        self.overflow_pages = 1
        self._gathered: list[Any] | None = None
        self._gathered_bytes = 0
        self._digest = xxhash.xxh3_128()
        self._copies = b""
        try:
            # Room for the meta pages and the header, which are written last.
            self.file.append(bytes(headers.BODY_OFFSET))
        except BaseException:
            self.file.close()
            raise

    def next_page(self) -> int:
        """The number of the page that is written next."""
        return (self.file.size + self._gathered_bytes) // PAGE_SIZE

    def write(self, data: Any) -> None:
        """Appends whole pages."""
        if self._gathered is None:
            self.file.append(data)
            self._digest.update(data)
        else:
            self._gathered.append(data)
            self._gathered_bytes += memoryview(data).nbytes

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Has what is written meanwhile written at the end: a page costs less among many.

        Nobody may change it before.
        """
        self._gathered = []
        try:
            yield
        finally:
            gathered, self._gathered = self._gathered, None
            size, self._gathered_bytes = self._gathered_bytes, 0
        # To copy large ones costs more than to write them by themselves.
        are_large = size > _LARGE_BYTES * len(gathered)
        if not are_large:
            gathered = [b"".join(gathered)] if gathered else []
        for data in gathered:
            self.write(data)

    def write_overflow(self, *parts: bytes) -> int:
        """Writes one value, given in parts, on pages of its own; returns the first one's number."""
        page, size = self.next_page(), sum(map(len, parts))
        pages = overflow_pages(size)
        padding = bytes(pages * PAGE_SIZE - PAGE_HEADER - size)
        self.write(b"".join((overflow_header(page, size), *parts, padding)))
        self.overflow_pages += pages
        return page

    def finish(
        self,
        sections: Mapping[str, bytes],
        records: int,
        fields: Mapping[str, Any],
        sums_index: bool = False,
    ) -> headers.Header:
        """Writes what is not records, and completes the file.

        Args:
            sections: ``checksums``, ``metadata``, ``spec``, ``index``.
            records: nodes of records among those that the packer was given.
            fields: those of the header that do not follow from the file.
            sums_index: whether the header has a checksum of the index, too. That of records has
                others, so that it need not be read when the file is opened.
        """
        self.packer.flush()
        places, nodes = self._write_sections(sections)
        index = places["index"]
        for node in nodes:
            self.packer.add(node)
        self.packer.flush()
        leaves, entries = self.packer.leaves, records + len(nodes)
        root, depth, branches = write_branches(leaves, self.write, self.next_page)
        metas = meta_pages(
            root, depth, branches, len(leaves), self.overflow_pages, entries, self.next_page()
        )
        header = headers.Header(
            file_size=self.file.size,
            spec=places["spec"],
            metadata=places["metadata"],
            index=index if sums_index else dataclasses.replace(index, checksum=0),
            index_checksums=places["checksums"],
            library_version=__version__,
            digest=bytes(16),
            **fields,
        )
        self._copies = headers.copies_of(sections["spec"], sections["metadata"])
        self._digest.update(metas)
        self.file.overwrite(metas, 0)
        header = self.stamp(header, header.created_ns)
        self._check_with_lmdb(entries)
        return header

    def stamp(self, header: headers.Header, created_ns: int) -> headers.Header:
        """Writes the header with a time of creation, on which the digest depends.

        Args:
            header: of the file, otherwise finished.
            created_ns: nanoseconds since 1970.
        """
        digest = self._digest.copy()
        header = dataclasses.replace(header, created_ns=created_ns, digest=bytes(16))
        digest.update(headers.clear_digest(header.pack(self._copies)))
        header = dataclasses.replace(header, digest=digest.digest())
        self.file.overwrite(header.pack(self._copies), headers.HEADER_OFFSET)
        return header

    def _write_sections(
        self, sections: Mapping[str, bytes]
    ) -> tuple[dict[str, headers.Section], list[bytes]]:
        """Writes the sections; returns their places and leaf nodes, sorted by key."""
        places = {}
        nodes = []
        for name, data in sections.items():
            page = self.write_overflow(data)
            offset, checksum = page * PAGE_SIZE + PAGE_HEADER, xxhash.xxh3_64_intdigest(data)
            places[name] = headers.Section(offset, len(data), checksum)
            key = b"__%s__" % name.encode()
            nodes.append(leaf_node(key, len(data), big_payload(page), True))
        size = headers.PAYLOAD
        nodes.append(leaf_node(b"__yogadl__", size, big_payload(headers.HEADER_PAGE), True))
        return places, sorted(nodes, key=lambda node: node[8:])

    def _check_with_lmdb(self, entries: int) -> None:
        """Lets LMDB itself, whose format this is, open the file before anybody gets to see it."""
        with self._open_with_lmdb() as environment, environment.begin() as transaction:
            found = transaction.stat()["entries"]
            header = transaction.get(b"__yogadl__")
        if found != entries or header is None:
            raise AssertionError(f"wrote a tree of {entries} entries in which LMDB finds {found}")

    def _open_with_lmdb(self) -> Any:
        path = os.fsencode(self.file.path)
        try:
            return lmdb.open(path, subdir=False, readonly=True, lock=False)
        except (lmdb.Error, OSError) as error:
            # Not all releases of lmdb tell the number; and some import a module first.
            if any(os.strerror(number) in str(error) for number in (errno.EMFILE, errno.ENFILE)):
                raise TooManyFilesError(
                    f"{shown(path)} cannot be checked: {error}. Close what is not needed, or "
                    "raise the limit (ulimit -n)"
                ) from error
            said = f"LMDB cannot open {shown(path)}: {error}"
            if os.strerror(errno.ENOENT) in str(error):
                raise FileSystemError(
                    f"{said}. Was its folder removed or renamed meanwhile?", errno.ENOENT
                ) from error
            raise YogadlError(said) from error
