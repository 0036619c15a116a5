"""What files take on the disk."""

from __future__ import annotations

import contextlib
import pathlib
import stat
from collections.abc import Iterable


def disk_bytes(paths: Iterable[pathlib.Path]) -> int:
    """Bytes on the disk of those that are regular files, and still there when they are looked at:
    other threads replace their notes."""
    found = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            found += 512 * status.st_blocks * stat.S_ISREG(status.st_mode)
    return found
