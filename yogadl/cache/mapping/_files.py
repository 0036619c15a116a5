"""A file mapped into memory."""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import pathlib
import weakref

import numpy as np

from yogadl.cache.mapping._descriptors import Descriptor, keep, kept, let_go, open_file
from yogadl.cache.mapping._ranges import AddressRange, MappedRange, ReservedRange

_NO_WAIT = getattr(os, "RWF_NOWAIT", 0)

_keys = itertools.count()


class MappedFile(MappedRange):
    """An open file in memory. Read-only; safe for threads and forks.

    The map lives as long as the last array on it, and needs no descriptor. One serves to ask what
    is in the page cache: it is kept for the last files opened, and for others opened anew.

    Args:
        descriptor: of the file.
        path: of the file.
        into: a range, an offset in it, and bytes, to map a file of so many bytes to.

    Attributes:
        path: of the file, absolute.

    Raises:
        OSError: the file cannot be mapped, or has another size.
    """

    def __init__(
        self,
        descriptor: Descriptor,
        path: pathlib.Path,
        into: tuple[ReservedRange, int, int] | None = None,
    ) -> None:
        status = os.fstat(descriptor.number)
        self.path = pathlib.Path(os.path.abspath(path))
        self._identity = status.st_dev, status.st_ino
        self._key = next(_keys)
        size = status.st_size
        if not size:
            super().__init__(np.empty(0, "u1"))
        elif into is None:
            mapped = AddressRange(size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor.number)
            super().__init__(np.asarray(mapped))
        else:
            place, offset, wanted = into
            if size != wanted:
                raise OSError(errno.ESTALE, f"it has {size:,} bytes and should have {wanted:,}")
            super().__init__(place.map(descriptor, size, offset))
        keep(self._key, descriptor)
        weakref.finalize(self, let_go, self._key)

    def _descriptor(self) -> Descriptor | None:
        """A descriptor of the file, ``None`` if it has been replaced or cannot be opened."""
        known = kept(self._key)
        if known is not None:
            return known
        try:
            opened = open_file(self.path)
        except OSError:
            # It is only needed to ask, and who cannot ask goes without the answer.
            return None
        status = os.fstat(opened.number)
        if (status.st_dev, status.st_ino) != self._identity:
            return None
        keep(self._key, opened)
        return opened

    def file(self, number: int) -> MappedFile:  # noqa: ARG002 # it is the only one
        """See ``Memory.file``."""
        return self

    def reach(self, start: int, end: int) -> None:
        """See ``Memory.reach``: all of it is mapped."""

    def is_cached(self, offset: int) -> bool:
        """Whether the byte at an offset is in the page cache; ``False`` where that is not known."""
        if self.is_present(offset):
            # To ask of the file takes several times as long, and to open it, which would have to be
            # done for most of a thousand parts, far longer.
            return True
        descriptor = self._descriptor() if _NO_WAIT else None
        if descriptor is None:
            return False
        try:
            return os.preadv(descriptor.number, [bytearray(1)], offset, _NO_WAIT) == 1
        except OSError:
            # It is not, or the file system cannot tell.
            return False
