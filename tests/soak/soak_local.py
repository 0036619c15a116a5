"""Builders on the local file system that are killed, beside readers that compare every record."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from soak_children import Child
from soak_content import Generation, check
from soak_job import Job

from yogadl.errors import CacheNotFoundError
from yogadl.storage import LFSConfigurations, LFSStorage

_REPLACED = "team/replaced", "1"


class LocalKills(Job):
    """Versions that are replaced and built by processes that are killed at any moment."""

    readers = 2

    def prepare(self) -> None:
        """See ``Job.prepare``."""
        self._storage = LFSStorage(LFSConfigurations(self.folder))
        self._generation = 0
        self._submit(0)

    def round(self) -> None:
        """See ``Job.round``."""
        self.chance.choice((self._replace, self._build))()

    def reading(self, number: int) -> Callable[[], Counter[str]]:
        """See ``Job.reading``."""
        chance = random.Random(f"{self.seed} reader {number}")
        newest = 0

        def read() -> Counter[str]:
            nonlocal newest
            with self._storage.fetch(*_REPLACED, check_records=chance.random() < 0.5) as ref:
                found = check(ref, chance)
                assert found >= newest, f"generation {found} came back after {newest}"
                newest = found
                return Counter({"data sets read": 1, "records compared": len(ref)})

        return read

    def _submit(self, number: int) -> None:
        Generation(number).submit(self._storage, *_REPLACED)

    def _replace(self) -> None:
        """A submit that is killed leaves the old generation or the new, whole."""
        old, new = self._generation, self._generation + 1
        # A number is used once: readers tell an old generation from the next one by it.
        self._generation = new
        with Child(lambda: self._submit(new)) as child:
            cut_short = self.kill(child, ("replace", Generation(new).size))
        with self._storage.fetch(*_REPLACED) as ref:
            ref.verify()
            found = check(ref, self.chance)
        assert found == new or (cut_short and found == old), f"{found} after {old} and {new}"
        if found == old:
            self._submit(new)
        names = {path.name for path in (self.folder / "team/replaced/1").iterdir()}
        assert names == {"cache.mdb"}, f"left behind: {names}"

    def _build(self) -> None:
        """Several ask for a version at once, and some die: it is built as often as it has to be."""
        version = str(self.counts["rounds"])
        generation = Generation(self.chance.randrange(1 << 30))
        log = self.folder / f"built-{version}"

        def make() -> Iterator[Any]:
            with open(log, "ab", buffering=0) as file:
                file.write(b"%d\n" % os.getpid())
            return generation.records()

        if self.chance.random() < 0.3:
            self._plant(self.folder / "built" / version)
        build = self._storage.cacheable("built", version, spec=generation.spec)(make)

        def ask() -> None:
            with build() as ref:
                assert check(ref, random.Random(version)) == generation.number

        with contextlib.ExitStack() as stack:
            children = [stack.enter_context(Child(ask)) for _ in range(3)]
            kind = "build", generation.size
            killed = sum(self.kill(child, kind) for child in children[:-1])
            children[-1].wait()
        ask()
        builds = len(log.read_bytes().split())
        assert 1 <= builds <= 1 + killed, f"built {builds} times with {killed} killed"
        self.counts["builds"] += builds
        self._storage.delete("built", version)
        log.unlink()
        try:
            self._storage.fetch("built", version)
        except CacheNotFoundError:
            return
        raise AssertionError("what was deleted is still there")

    def _plant(self, folder: pathlib.Path) -> None:
        """What somebody else's crash may have left there."""
        folder.mkdir(parents=True)
        data = self.chance.choice((b"", b"not a cache", self.chance.randbytes(20_000)))
        for name in ("cache.mdb", "cache.mdb.0123.partial"):
            (folder / name).write_bytes(data)
