"""Processes of their own for tests, which have imported already what takes long.

They begin as processes that are spawned do, with nothing of the one that starts them but what they
are given; one who waits for that, started once, forks them.
"""

from __future__ import annotations

import os
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any, ClassVar


class _Environment:
    """That of the process that starts another; whoever unpickles it has the same."""

    def __getstate__(self) -> dict[str, str]:
        return dict(os.environ)

    def __setstate__(self, state: dict[str, str]) -> None:
        os.environ.clear()
        os.environ.update(state)


class _ReadyProcess(ForkServerProcess):
    def __init__(self, *args: Any, **options: Any) -> None:
        # The first to be unpickled: making what it is given may need it.
        self._environment = _Environment()
        super().__init__(*args, **options)


class _ReadyContext(ForkServerContext):
    Process: ClassVar[type[ForkServerProcess]] = _ReadyProcess


READY = _ReadyContext()
READY.set_forkserver_preload(
    ["boto3", "google.cloud.storage", "hypothesis", "pytest", "yogadl.storage"]
)
