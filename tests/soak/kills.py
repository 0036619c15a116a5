"""Kills processes at random moments of random operations, and compares what is there at the end.

    python tests/soak/kills.py [--kind all|disk|s3|gcs] [--kills 1000] [--seed N]

Some processes work on the same storage, on a disk or in a bucket of a real server. Now and then one
is killed, and another one started in its place. In the end, every version that was made and not
deleted has exactly its records, commits that were acknowledged are on their branch, tags are where
they were last moved, nothing else is listed, and gc leaves nothing that nobody needs.

What they did is printed as JSON. The exit status is 1 if anything was not as promised; the seed
that is printed repeats what was tried, but not the moments at which processes were killed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any, NoReturn

_TESTS = pathlib.Path(__file__).resolve().parent.parent
# As pytest does for tests, which use the same servers.
sys.path[:0] = [str(_TESTS.parent), str(_TESTS / "cloud")]

import kill_leftovers  # noqa: E402
from kill_journal import History, Journal, ended_in  # noqa: E402
from kill_model import MAKING, Model, collected  # noqa: E402
from kill_operations import Worker, prepare  # noqa: E402
from kill_place import HERE, KINDS, THERE, Place, be_impatient, be_the_last, opened  # noqa: E402
from soak_children import Child  # noqa: E402

PROCESSES = 6
_TOLD_EVERY = 50
_SHOWN = 40
_POLL_SECONDS = 0.02
# Between kills, in seconds: as long as some operations take.
_PAUSES = {"disk": (0.02, 0.6), "s3": (0.02, 2.5), "gcs": (0.02, 2.5)}
# On a busy machine, most processes would be killed before they have done anything.
_OPERATIONS_BETWEEN = 3
_LONGEST_PAUSE = 30.0


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=("all", *KINDS), default="all")
    parser.add_argument("--kills", type=int, default=1000, help="how many, of each kind")
    parser.add_argument("--seed", type=int, default=None, help="of all chance")
    arguments = parser.parse_args()
    seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    if arguments.kind == "all":
        sys.exit(max([_run_alone(kind, arguments.kills, seed) for kind in KINDS]))
    print(f"{arguments.kind}: seed {seed}", file=sys.stderr, flush=True)
    counts, faults = run(arguments.kind, arguments.kills, seed)
    for fault in faults[:_SHOWN]:
        print(fault, file=sys.stderr)
    told = {"kind": arguments.kind, "seed": seed, **counts, "faults": len(faults)}
    print(json.dumps(told, indent=2))
    sys.exit(1 if faults else 0)


def _run_alone(kind: str, kills: int, seed: int) -> int:
    """Runs one kind in a process of its own, which forks; its exit status."""
    command = [sys.executable, __file__, "--kind", kind, f"--kills={kills}", f"--seed={seed}"]
    return abs(subprocess.run(command, check=False).returncode)


def run(kind: str, kills: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Kills so many processes, and looks what is there.

    Args:
        kind: of the storages, one of ``KINDS``.
        kills: how many.
        seed: of all chance.

    Returns:
        What was done and found, and what is wrong.
    """
    logging.disable(logging.CRITICAL)
    be_impatient()
    with opened(kind) as place:
        with Child(lambda: prepare(place)) as child:
            child.wait()
        processes = Processes(place, seed)
        try:
            processes.kill(kills, _PAUSES[kind])
        finally:
            processes.end()
        history = History(place.folder)
        faults = processes.failures() or list(_faults_at_end(place, history))
        return _counts(place, history, processes.killed), faults


def _faults_at_end(place: Place, history: History) -> Iterator[str]:
    be_the_last()
    yield from collected(place, HERE)
    yield from Model(history).faults(place)
    yield from collected(place, THERE)
    yield from kill_leftovers.faults(place)


def _counts(place: Place, history: History, killed: int) -> dict[str, Any]:
    return {
        "kills": killed,
        "operations that ended": dict(sorted(history.ended.items())),
        "versions asked for": sum(len(history.asked[operation]) for operation in MAKING),
        "versions acknowledged": sum(len(history.done[operation]) for operation in MAKING),
        "commits acknowledged": len(history.done["commit"]),
        "left in both storages": dict(sorted(kill_leftovers.counts(place).items())),
    }


class Processes:
    """Some that are at work, each in a slot.

    Args:
        place: where.
        seed: of all chance.

    Attributes:
        killed: how many were.
    """

    def __init__(self, place: Place, seed: int) -> None:
        self._place = place
        self._seed = seed
        self._chance = random.Random(seed)
        self._generations = [0] * PROCESSES
        self.killed = 0
        self._running = {slot: self._start(slot) for slot in range(PROCESSES)}

    def kill(self, count: int, pauses: tuple[float, float]) -> None:
        """Kills one after another, unless one has failed.

        Args:
            count: how many.
            pauses: the shortest and the longest between two, in seconds.
        """
        while self.killed < count and not self.failures():
            self._pause(self._chance.uniform(*pauses))
            slot = self._chance.randrange(PROCESSES)
            self._end(slot)
            self.killed += 1
            self._running[slot] = self._start(slot)
            if self.killed % _TOLD_EVERY == 0:
                told = f"{self.killed} of {count} kills, {ended_in(self._place.folder)} operations"
                print(told, file=sys.stderr, flush=True)

    def _pause(self, seconds: float) -> None:
        """Waits so long, and until some operations have ended, unless one takes very long."""
        folder = self._place.folder
        wanted = ended_in(folder) + _OPERATIONS_BETWEEN
        latest = time.monotonic() + _LONGEST_PAUSE
        time.sleep(seconds)
        while ended_in(folder) < wanted and time.monotonic() < latest and not self.failures():
            time.sleep(_POLL_SECONDS)

    def end(self) -> None:
        """Kills all."""
        for slot in [*self._running]:
            self._end(slot)

    def failures(self) -> list[str]:
        """What processes that failed say."""
        return [path.read_text() for path in sorted(self._place.folder.glob("*.failure"))]

    def _start(self, slot: int) -> int:
        """Starts a process; its id."""
        generation = self._generations[slot]
        self._generations[slot] += 1
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _work(self._place, slot, generation, self._seed, parent)
        return pid

    def _end(self, slot: int) -> None:
        pid = self._running.pop(slot)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL and not self.failures():
            why = f"it ended by itself, with status {status}"
            _note_failure(self._place, slot, self._generations[slot], why)


def _work(place: Place, slot: int, generation: int, seed: int, parent: int) -> NoReturn:
    """Does one thing after another until the process is killed, or its parent."""
    try:
        journal = Journal(place.folder, slot, generation)
        chance = random.Random(f"{seed} {slot} {generation}")
        worker = Worker(place, journal, slot, generation, chance)
        while os.getppid() == parent:
            worker.step()
    except BaseException:
        _note_failure(place, slot, generation, traceback.format_exc())
    finally:
        os._exit(1)


def _note_failure(place: Place, slot: int, generation: int, why: str) -> None:
    path = place.folder / f"{slot}-{generation}.failure"
    path.write_text(f"process {slot}.{generation}: {why}")


if __name__ == "__main__":
    main()
