"""What keeps a server's process from outliving the tests that started it."""

from __future__ import annotations

import os
import select
import threading


def end_with_parent() -> None:
    """Ends this process when its standard input does, or when its parent is gone.

    The second, since a child that the tests fork holds the other end of the pipe, too.
    """
    parent = os.getppid()

    def watch() -> None:
        while True:
            readable, _, _ = select.select([0], [], [], 1.0)
            if (readable and not os.read(0, 1)) or os.getppid() != parent:
                os._exit(0)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
