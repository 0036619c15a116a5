"""Notes of files that are named by their contents: that they are what they are named.

``<name>.whole`` has what the file system said of the file when it was compared with its digest, as
JSON: bytes, inode, and the times of its contents and of its status in ns. So nobody has to read it
all to know that, unless it was touched. Behind these is what tells one start of the machine from
another, if the file was not written through to the disk: what a crash takes of it is not seen
otherwise, and to write it through takes as long as to fetch it.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
from typing import TypeAlias

from yogadl.cache.mapping import Descriptor

_LARGEST_NOTE = 1000
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# Linux's.
_START = pathlib.Path("/proc/sys/kernel/random/boot_id")

Fingerprint: TypeAlias = list[int]
"""Bytes, inode, and the times of contents and status in ns."""


def is_noted(path: pathlib.Path, file: Descriptor | None = None) -> bool:
    """Whether a file was compared with its digest, and not touched since.

    Args:
        path: of the file.
        file: the one that is meant, if another may be there by now.
    """
    try:
        noted = Descriptor(os.open(note_of(path), _FLAGS))
        found = json.loads(os.read(noted.number, _LARGEST_NOTE))
        known = fingerprint_of(path if file is None else file.number)
        return found in (known, [*known, _start_of_machine()])
    except (OSError, ValueError, RecursionError):
        # Then it is compared with its digest, which says for sure.
        return False


def fingerprint_of(file: pathlib.Path | int) -> Fingerprint:
    """That of the file of a name, or of an open one.

    Raises:
        OSError: it cannot be had.
    """
    status = os.stat(file) if isinstance(file, int) else os.lstat(file)
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def text_of(fingerprint: Fingerprint, is_on_disk: bool) -> bytes:
    """A note of a file.

    Args:
        fingerprint: of it.
        is_on_disk: whether a crash of the machine would take nothing of it.
    """
    return json.dumps(fingerprint if is_on_disk else [*fingerprint, _start_of_machine()]).encode()


@functools.cache
def _start_of_machine() -> str:
    """What each start of it has another of; of systems that do not tell, nothing."""
    try:
        return _START.read_text().strip()
    except (OSError, ValueError):
        return ""


def note_of(path: pathlib.Path) -> pathlib.Path:
    """Where the note of a file is."""
    return path.with_name(f"{path.name}.whole")
