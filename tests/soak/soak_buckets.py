"""Builders in a bucket that are killed, with machines whose copies are damaged, and outages."""

from __future__ import annotations

import os
import pathlib
import random
from typing import Any

from rig import Remote
from soak_builders import MACHINES, REPLACED, KilledBuilders
from soak_content import check

LEASE_SECONDS = 2.0


class BucketKills(KilledBuilders):
    """Versions in a bucket, of which every machine has copies.

    Args:
        seed, folder, deadline: see ``Job``.
        remote: the bucket, through a proxy where things go wrong meanwhile.
    """

    def __init__(self, seed: str, folder: pathlib.Path, deadline: float, remote: Remote) -> None:
        super().__init__(seed, folder, deadline)
        self._remote = remote

    def prepare(self) -> None:
        """See ``Job.prepare``."""
        os.environ.update(self._remote.env)
        super().prepare()

    def round(self) -> None:
        """See ``Job.round``."""
        self.chance.choice((self.replace, self.build, self._damage))()

    def storage(self, machine: str) -> Any:
        """See ``KilledBuilders.storage``.

        Readers have machines of their own: what the others damage in place would damage what they
        have mapped.
        """
        folder = self.folder / machine
        folder.mkdir(exist_ok=True)
        return self._remote.make_storage(folder, lease_seconds=LEASE_SECONDS)

    def check_left(self, machine: str, was_finished: bool) -> None:
        """See ``KilledBuilders.check_left``; what was published leaves its file to the next."""
        partial = self._copies(machine, "*.partial")
        assert not was_finished or not partial, f"left behind: {partial}"

    def check_builds(self, builds: int, killed: int) -> None:
        """See ``KilledBuilders.check_builds``."""
        assert builds >= 1
        # More than one of those who live: an outage cost somebody the lease.
        self.counts["leases lost"] += max(0, builds - 1 - killed)

    def _copies(self, machine: str, pattern: str) -> list[pathlib.Path]:
        return list((self.folder / machine).rglob("/".join((*REPLACED, pattern))))

    def _damage(self) -> None:
        """One machine's copy is damaged; it is fetched again, and nothing is built."""
        machine = self.chance.choice(MACHINES)
        storage = self.storage(machine)
        with storage.fetch(*REPLACED) as ref:
            (path,) = self._copies(machine, "cache.mdb")
            parts = sorted(ref.reader.parts_by_digest().values())
        if parts and self.chance.random() < 0.7:
            self.chance.choice((_flip, _cut, _remove))(self.chance.choice(parts), self.chance)
            self.counts["damaged parts"] += 1
            # That a part was touched is not noted, so its bytes have to be compared.
            storage.fetch(*REPLACED, check_records=True).close()
        else:
            self.chance.choice((_flip, _cut, _remove, _note_rubbish))(path, self.chance)
            self.counts["damaged copies"] += 1

        def make() -> Any:
            raise AssertionError("a damaged copy made cacheable build what the bucket has")

        with storage.cacheable(*REPLACED)(make)() as ref:
            ref.verify()
            assert check(ref, self.chance) == self.generation


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
