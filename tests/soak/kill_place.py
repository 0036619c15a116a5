"""Where processes are killed: two storages, on a disk or in a bucket of a real server."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from rig import RawGCS, RawS3, Remote, environment
from servers import gcs_server, s3_server

from yogadl import backoff
from yogadl.remote._local.kept import STAGED_FILE
from yogadl.storage import LFSStorage, _kept_versions
from yogadl.storage._buckets import part_collector, part_control
from yogadl.storage._disk import scratch

KINDS = ("disk", "s3", "gcs")
HERE, THERE = "here", "there"
"""The storages: the one that is worked on, and the one that it is synced to."""

MACHINES = 2
"""Of buckets: folders for copies, each shared by some of the processes."""

AT_ONCE = datetime.timedelta()
_LEASE_SECONDS = 2.0


@dataclass(frozen=True)
class Place:
    """Two storages.

    Attributes:
        folder: an empty one, for all files.
        remote: the bucket; ``None`` on a disk.
        raw: likewise, without yogadl; see ``rig.Raw``.
    """

    folder: pathlib.Path
    remote: Remote | None = None
    raw: Any = None

    def storage(self, name: str, machine: int = 0) -> Any:
        """One of both, as a machine opens it.

        Args:
            name: ``HERE`` or ``THERE``.
            machine: below ``machines``.
        """
        if self.remote is None:
            return LFSStorage(self.folder / name)
        local = self.folder / f"machine-{machine}-{name}"
        local.mkdir(exist_ok=True)
        return self.remote.make_storage(
            local, name, conditional_writes=True, lease_seconds=_LEASE_SECONDS
        )

    @property
    def machines(self) -> int:
        """How many there are."""
        return 1 if self.remote is None else MACHINES

    def files(self) -> list[str]:
        """All that is stored, as paths that begin with the name of a storage."""
        if self.remote is not None:
            return list(self.raw.list())
        found = (path for name in (HERE, THERE) for path in (self.folder / name).rglob("*"))
        return [path.relative_to(self.folder).as_posix() for path in found if path.is_file()]

    def begun_files(self) -> list[str]:
        """What processes on this machine had begun and not ended."""
        patterns = "yogadl.scratch.*", "*.partial", "*.builder"
        found = {path for pattern in patterns for path in self.folder.rglob(pattern)}
        # The next download into the folder removes what those that were killed have left.
        found = {path for path in found if not path.name.startswith(f"{STAGED_FILE}.")}
        return sorted(path.relative_to(self.folder).as_posix() for path in found)


@contextlib.contextmanager
def opened(kind: str) -> Iterator[Place]:
    """Two empty storages, gone at the end.

    Args:
        kind: one of ``KINDS``.
    """
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kills-")))
        # What those leave there that are killed goes with it.
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="kills-"))
        stack.enter_context(mock.patch.object(tempfile, "tempdir", temporary))
        if kind == "disk":
            yield Place(folder)
            return
        server = stack.enter_context(s3_server() if kind == "s3" else gcs_server())
        bucket = f"bucket-{uuid.uuid4().hex}"
        # Without a proxy, whose threads have no place in a process that forks.
        dialect: Any = kind
        remote = Remote(dialect, server.url, bucket, environment(dialect, server.url))
        os.environ.update(remote.env)
        raw = (RawS3 if kind == "s3" else RawGCS)(server.url, bucket)
        raw.create_bucket()
        stack.callback(raw.delete_bucket)
        yield Place(folder, remote, raw)


def be_impatient() -> None:
    """Has what takes days or hours take seconds, in this process and its children."""
    _kept_versions.GRACE = datetime.timedelta(seconds=3)
    part_collector.GRACE = datetime.timedelta(seconds=2)
    # Long enough for the last request of a killed process to arrive on a busy machine.
    part_collector.DEAD_SECONDS = 1.0
    part_control.REMOVED_SECONDS = 2.0
    scratch._YOUNG_SECONDS = 2.0
    backoff.LIMITS = backoff.Limits(patience=30.0, first_pause=0.01, longest_pause=0.1)


def be_the_last() -> None:
    """Has nothing be too young to be collected: nobody else is at work."""
    _kept_versions.GRACE = AT_ONCE
    scratch._YOUNG_SECONDS = -1.0
