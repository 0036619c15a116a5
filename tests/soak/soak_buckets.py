"""Builders in a bucket that are killed, with machines whose copies are damaged, and outages."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from rig import Remote
from soak_children import Child
from soak_content import Generation, check
from soak_job import Job

_REPLACED = "team/replaced", "1"
_MACHINES = 3
LEASE_SECONDS = 2.0


class BucketKills(Job):
    """Versions that are replaced and built by processes of several machines that are killed.

    Args:
        seed, folder, deadline: see ``Job``.
        remote: the bucket, through a proxy where things go wrong meanwhile.
    """

    readers = 2

    def __init__(self, seed: str, folder: pathlib.Path, deadline: float, remote: Remote) -> None:
        super().__init__(seed, folder, deadline)
        self._remote = remote

    def prepare(self) -> None:
        """See ``Job.prepare``."""
        os.environ.update(self._remote.env)
        self._machines = [self.folder / f"machine-{number}" for number in range(_MACHINES)]
        for machine in self._machines:
            machine.mkdir()
        self._generation = 0
        self._submit(self._machines[0], 0)

    def round(self) -> None:
        """See ``Job.round``."""
        self.chance.choice((self._replace, self._build, self._damage))()

    def reading(self, number: int) -> Callable[[], Counter[str]]:
        """See ``Job.reading``."""
        chance = random.Random(f"{self.seed} reader {number}")
        newest = 0
        # Of its own: what the others damage in place would damage what it has mapped.
        machine = self.folder / f"reader-{number}"
        machine.mkdir()

        def read() -> Counter[str]:
            nonlocal newest
            storage = self._storage(machine)
            with storage.fetch(*_REPLACED, check_records=chance.random() < 0.5) as ref:
                found = check(ref, chance)
                assert found >= newest, f"generation {found} came back after {newest}"
                newest = found
                return Counter({"data sets read": 1, "records compared": len(ref)})

        return read

    def _storage(self, machine: pathlib.Path) -> Any:
        return self._remote.make_storage(machine, lease_seconds=LEASE_SECONDS)

    def _submit(self, machine: pathlib.Path, number: int) -> None:
        Generation(number).submit(self._storage(machine), *_REPLACED)

    def _replace(self) -> None:
        """A submit that is killed leaves the old generation or the new, whole."""
        old, new = self._generation, self._generation + 1
        # A number is used once: readers tell an old generation from the next one by it.
        self._generation = new
        machine, other = self.chance.sample(self._machines, 2)
        with Child(lambda: self._submit(machine, new)) as child:
            cut_short = self.kill(child, ("replace", Generation(new).size))
        with self._storage(other).fetch(*_REPLACED) as ref:
            ref.verify()
            found = check(ref, self.chance)
        assert found == new or (cut_short and found == old), f"{found} after {old} and {new}"
        if found == old:
            self._submit(machine, new)
        partial = list(machine.rglob(f"{_REPLACED[0]}/{_REPLACED[1]}/*.partial"))
        assert found != old or not partial, f"left behind: {partial}"

    def _build(self) -> None:
        """Machines ask for a version at once, and some of their processes die."""
        version = str(self.counts["rounds"])
        generation = Generation(self.chance.randrange(1 << 30))
        log = self.folder / f"built-{version}"

        def make() -> Iterator[Any]:
            with open(log, "ab", buffering=0) as file:
                file.write(b"%d\n" % os.getpid())
            return generation.records()

        def ask(machine: pathlib.Path) -> None:
            storage = self._storage(machine)
            with storage.cacheable("built", version, spec=generation.spec)(make)() as ref:
                assert check(ref, random.Random(version)) == generation.number

        with contextlib.ExitStack() as stack:
            machines = self.chance.choices(self._machines, k=3)
            children = [
                stack.enter_context(Child(lambda machine=machine: ask(machine)))
                for machine in machines
            ]
            kind = "build", generation.size
            killed = sum(self.kill(child, kind) for child in children[:-1])
            children[-1].wait()
        ask(self._machines[0])
        builds = len(log.read_bytes().split())
        assert builds >= 1
        # More than one of those who live: an outage cost somebody the lease.
        self.counts.update({"builds": builds, "leases lost": max(0, builds - 1 - killed)})
        self._storage(self._machines[1]).delete("built", version)
        log.unlink()

    def _damage(self) -> None:
        """One machine's copy is damaged; it is fetched again, and nothing is built."""
        machine = self.chance.choice(self._machines)
        storage = self._storage(machine)
        with storage.fetch(*_REPLACED):
            (path,) = machine.rglob(f"{_REPLACED[0]}/{_REPLACED[1]}/cache.mdb")
        self.chance.choice((_flip, _cut, _remove, _note_rubbish))(path, self.chance)
        self.counts["damaged copies"] += 1

        def make() -> Any:
            raise AssertionError("a damaged copy made cacheable build what the bucket has")

        with storage.cacheable(*_REPLACED)(make)() as ref:
            ref.verify()
            assert check(ref, self.chance) == self._generation


def _flip(path: pathlib.Path, chance: random.Random) -> None:
    with open(path, "r+b") as file:
        at = chance.randrange(os.fstat(file.fileno()).st_size)
        (byte,) = os.pread(file.fileno(), 1, at)
        os.pwrite(file.fileno(), bytes([byte ^ 1 << chance.randrange(8)]), at)


def _cut(path: pathlib.Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(os.path.getsize(path)))


def _remove(path: pathlib.Path, chance: random.Random) -> None:
    del chance
    path.unlink()


def _note_rubbish(path: pathlib.Path, chance: random.Random) -> None:
    (path.parent / "local_metadata.json").write_bytes(chance.randbytes(chance.randrange(200)))
