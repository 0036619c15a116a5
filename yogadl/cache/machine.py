"""How much memory there is for this process and what runs beside it."""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Iterator

_SELF = pathlib.Path("/proc/self/cgroup")
_GROUPS = pathlib.Path("/sys/fs/cgroup")


@functools.cache
def machine_bytes() -> int:
    """Bytes of memory that this machine has, or that the container has in which this runs."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([whole, *_limits(_SELF, _GROUPS)])


def _limits(groups_of_self: pathlib.Path, mounted: pathlib.Path) -> Iterator[int]:
    """The limits of the control groups of this process, of both versions; see cgroups(7).

    Args:
        groups_of_self: the file that names them, with lines of ``number:controllers:path``.
        mounted: where they are.
    """
    try:
        lines = groups_of_self.read_text(errors="surrogateescape").splitlines()
    except OSError:
        # Systems that are not Linux have none.
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield from _limits_above(mounted / "memory", path, "memory.limit_in_bytes")
        elif not controllers:
            yield from _limits_above(mounted, path, "memory.max")


def _limits_above(root: pathlib.Path, path: str, name: str) -> Iterator[int]:
    """Those of a group and of the groups that it is in, which hold for it, too."""
    group = root / path.lstrip("/")
    # A container may see its own group as the root, though the path is that of the machine.
    for folder in (group, *group.parents):
        if folder.is_relative_to(root):
            try:
                yield int((folder / name).read_text())
            except (OSError, ValueError):
                # There is no limit ("max"), or no such file.
                continue
