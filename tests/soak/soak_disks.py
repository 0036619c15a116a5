"""Disks that fill up while somebody writes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

from rig import Remote
from soak_content import Generation, check
from soak_job import Job

from yogadl.errors import StorageFullError
from yogadl.storage import LFSConfigurations, LFSStorage

_BYTES = 48 << 20
_VERSION = "full", "1"


class FullDisks(Job):
    """Local versions and copies of a bucket's, on a small disk that others fill.

    Args:
        seed, folder, deadline: see ``Job``; the folder is the disk.
        remote: a bucket.
    """

    def __init__(self, seed: str, folder: pathlib.Path, deadline: float, remote: Remote) -> None:
        super().__init__(seed, folder, deadline)
        self._remote = remote

    def prepare(self) -> None:
        """See ``Job.prepare``."""
        os.environ.update(self._remote.env)
        for name in ("local", "copies"):
            (self.folder / name).mkdir()
        self._local = LFSStorage(LFSConfigurations(self.folder / "local"))
        self._bucket = self._remote.make_storage(self.folder / "copies")
        self._generations = {self._local: 0, self._bucket: 0}
        for storage in self._generations:
            Generation(0).submit(storage, *_VERSION)

    def round(self) -> None:
        """Something that needs room; what was stored stays, and there is no trace of a failure."""
        storage = self.chance.choice(list(self._generations))
        old, new = self._generations[storage], self._generations[storage] + 1
        generation = Generation(new)
        with self._filled():
            try:
                generation.submit(storage, *_VERSION)
                self._generations[storage] = new
            except StorageFullError:
                self.counts["full disks"] += 1
            try:
                with storage.fetch(*_VERSION) as ref:
                    assert check(ref, self.chance) == self._generations[storage]
            except StorageFullError:
                assert storage is self._bucket, f"generation {old} is here, and needs no room"
        with storage.fetch(*_VERSION) as ref:
            ref.verify()
            assert check(ref, self.chance) == self._generations[storage]
            self._remove_parts(set(ref.reader.parts_by_digest().values()))
        partial = list(self.folder.rglob("*.partial"))
        assert not partial, f"left behind: {partial}"

    def _remove_parts(self, named: set[pathlib.Path]) -> None:
        """All others beside these, which nobody reads any more."""
        for folder in {path.parent for path in named}:
            for path in folder.glob("*.mdb"):
                if path not in named:
                    path.unlink()

    @contextlib.contextmanager
    def _filled(self) -> Iterator[None]:
        """The disk has only so much room, by chance, meanwhile."""
        filler = self.folder / "filler"
        free = os.statvfs(self.folder).f_bavail * os.statvfs(self.folder).f_frsize
        left = self.chance.choice((0, 4096, 64 << 10, 2 << 20, 16 << 20))
        with open(filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, free - left))
        try:
            yield
        finally:
            filler.unlink()


@contextlib.contextmanager
def small_disk(folder: pathlib.Path) -> Iterator[bool]:
    """Mounts a small file system in memory on a folder; whether that is allowed here."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={_BYTES}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)
