"""Builders that are killed beside readers that compare every record, wherever versions are."""

from __future__ import annotations

import abc
import contextlib
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from soak_children import Child
from soak_content import Generation, check
from soak_job import Job

from yogadl.errors import CacheNotFoundError

REPLACED = "team/replaced", "1"
MACHINES = ("machine-0", "machine-1", "machine-2")


class KilledBuilders(Job):
    """Versions that are replaced and built by processes that are killed at any moment.

    Attributes:
        generation: which one is stored as ``REPLACED``.
    """

    readers = 2

    @abc.abstractmethod
    def storage(self, machine: str) -> Any:
        """What the processes of a machine use: one of ``MACHINES``, or of a reader's own."""

    @abc.abstractmethod
    def check_left(self, machine: str, was_finished: bool) -> None:
        """Nothing is left of a submit that was killed on a machine; ``was_finished``: of one that
        was not, after it."""

    def prepare_build(self, version: str) -> None:
        """What is done before a version of ``built`` is asked for."""

    @abc.abstractmethod
    def check_builds(self, builds: int, killed: int) -> None:
        """It was built as often as it had to be, given how many who asked were killed."""

    def prepare(self) -> None:
        """See ``Job.prepare``."""
        self.generation = 0
        self._submit(MACHINES[0], 0)

    def reading(self, number: int) -> Callable[[], Counter[str]]:
        """See ``Job.reading``."""
        chance = random.Random(f"{self.seed} reader {number}")
        newest = 0

        def read() -> Counter[str]:
            nonlocal newest
            storage = self.storage(f"reader-{number}")
            with storage.fetch(*REPLACED, check_records=chance.random() < 0.5) as ref:
                found = check(ref, chance)
                assert found >= newest, f"generation {found} came back after {newest}"
                newest = found
                return Counter({"data sets read": 1, "records compared": len(ref)})

        return read

    def _submit(self, machine: str, number: int) -> None:
        Generation(number).submit(self.storage(machine), *REPLACED)

    def replace(self) -> None:
        """A submit that is killed leaves the old generation or the new, whole."""
        old, new = self.generation, self.generation + 1
        # A number is used once: readers tell an old generation from the next one by it.
        self.generation = new
        machine, other = self.chance.sample(MACHINES, 2)
        with Child(lambda: self._submit(machine, new)) as child:
            cut_short = self.kill(child, ("replace", Generation(new).size))
        with self.storage(other).fetch(*REPLACED) as ref:
            ref.verify()
            found = check(ref, self.chance)
        assert found == new or (cut_short and found == old), f"{found} after {old} and {new}"
        if found == old:
            self._submit(machine, new)
        self.check_left(machine, found == old or not cut_short)

    def build(self) -> None:
        """Several ask for a version at once, and some of them die."""
        version = str(self.counts["rounds"])
        generation = Generation(self.chance.randrange(1 << 30))
        log = self.folder / f"built-{version}"

        def make() -> Iterator[Any]:
            with open(log, "ab", buffering=0) as file:
                file.write(b"%d\n" % os.getpid())
            return generation.records()

        def ask(machine: str) -> None:
            storage = self.storage(machine)
            options = {"spec": generation.spec, "part_bytes": generation.part_bytes}
            with storage.cacheable("built", version, **options)(make)() as ref:
                assert check(ref, random.Random(version)) == generation.number

        self.prepare_build(version)
        with contextlib.ExitStack() as stack:
            children = [
                stack.enter_context(Child(lambda machine=machine: ask(machine)))
                for machine in self.chance.choices(MACHINES, k=3)
            ]
            kind = "build", generation.size
            killed = sum(self.kill(child, kind) for child in children[:-1])
            children[-1].wait()
        ask(MACHINES[0])
        builds = len(log.read_bytes().split())
        self.counts["builds"] += builds
        self.check_builds(builds, killed)
        storage = self.storage(MACHINES[1])
        storage.delete("built", version)
        log.unlink()
        try:
            storage.fetch("built", version)
        except CacheNotFoundError:
            return
        raise AssertionError("what was deleted is still there")
