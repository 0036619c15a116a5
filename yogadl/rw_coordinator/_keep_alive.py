"""Asking the kernel to notice that the machine at the other end of a connection is gone."""

from __future__ import annotations

import math
import socket
from typing import Any


def set_keep_alive(connection: Any, seconds: float) -> None:
    """Has a connection fail when the other machine has been silent for so long.

    The other machine's kernel answers, so a process that is busy or stopped counts as alive. Where
    the platform lacks an option, it takes longer.

    Args:
        connection: a connected TCP socket.
        seconds: rounded up to whole ones.
    """
    idle = max(1, int(seconds / 3))
    every = max(1, int(seconds / 12))
    count = max(1, math.ceil((seconds - idle) / every))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {
        "TCP_KEEPIDLE": idle,
        "TCP_KEEPALIVE": idle,  # what macOS calls it
        "TCP_KEEPINTVL": every,
        "TCP_KEEPCNT": count,
        # Probes are held back while sent data waits to be acknowledged; this limits that wait.
        "TCP_USER_TIMEOUT": math.ceil(seconds * 1000),
    }.items():
        option = getattr(socket, name, None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
