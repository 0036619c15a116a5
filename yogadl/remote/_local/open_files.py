"""How many files that are read from afar a process has open, of those that its system lets it have.

Each takes two descriptors, and each thread that fetches has a socket. What limits them here leaves
about a quarter of all to the program, however many files a version has and however large a batch
is. Where the system's limit is high, as it is on most servers, none of this limits anything.
"""

from __future__ import annotations

import resource

_UNLIMITED = 1 << 20


def _share(part: int, most: int) -> int:
    """So much of the descriptors that this process may have, but no more than is of use."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(4, min(most, (_UNLIMITED if soft == resource.RLIM_INFINITY else soft) // part))


def most_remembered() -> int:
    """How many files stay open though nobody uses them just now, of all versions together."""
    # Half of what may be open when more is asked for ahead: they are not what keeps it from that.
    return _share(16, 8192)


def most_versions() -> int:
    """How many versions have their own file open as long as they are read."""
    return _share(32, 8192)


def most_at_once() -> int:
    """How many files of a version are read together."""
    return _share(16, 512)


def most_queued() -> int:
    """How many files there may be open for more to be asked for ahead."""
    return _share(8, 8192)


def most_passing() -> int:
    """How many files there may be open of which something waits in memory to be read."""
    return _share(16, 8192)


def most_connections(usual: int) -> int:
    """How many threads fetch from one server."""
    return _share(12, usual)


def most_connections_in_all() -> int:
    """How many threads fetch, of all servers, but for one of each."""
    return _share(6, 256)
