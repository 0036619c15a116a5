"""Kills, cuts connections, damages files and fills disks beside readers that compare all.

    python tests/soak/soak.py [--minutes 10] [--seed N] [--jobs NAME …] [--folder DIR]

Every job has a process of its own and goes on until the time is over. What they did is printed as
JSON. The exit status is 1 if anything was not as promised; the seed that is printed repeats what
was tried, but not the moments at which processes were killed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import multiprocessing
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from multiprocessing import connection
from typing import Any

_TESTS = pathlib.Path(__file__).resolve().parent.parent
# As pytest does for tests, which use the same servers and proxy.
sys.path[:0] = [str(_TESTS.parent), str(_TESTS), str(_TESTS / "cloud")]

from rig import Rig  # noqa: E402
from servers import gcs_server, s3_server  # noqa: E402
from soak_buckets import BucketKills  # noqa: E402
from soak_damage import DamagedFiles  # noqa: E402
from soak_disks import FullDisks, small_disk  # noqa: E402
from soak_evicted import EvictedVersions  # noqa: E402
from soak_job import Job  # noqa: E402
from soak_local import LocalKills  # noqa: E402

JOBS = ("local", "s3", "gcs", "damage", "disks", "evicted")
_ENDING_SECONDS = 120.0
_LOGGED_BYTES = 4000
_FAULTS_CHANCE = 0.01
# Far enough apart for any request to get through on a busy machine.
_OUTAGES_APART = 1.0, 30.0
_OUTAGE_SECONDS = 0.05, 1.5

_spawn = multiprocessing.get_context("spawn")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long")
    parser.add_argument("--seed", type=int, default=None, help="of all chance")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--folder", type=pathlib.Path, default=None, help="an existing one")
    arguments = parser.parse_args()
    seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", file=sys.stderr, flush=True)
    failures, counts = soak(arguments.jobs, seed, 60 * arguments.minutes, arguments.folder)
    print(json.dumps({"seed": seed, "minutes": arguments.minutes, "jobs": counts}, indent=2))
    sys.exit(1 if failures else 0)


def soak(
    names: list[str], seed: int, seconds: float, folder: pathlib.Path | None = None
) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Runs jobs side by side.

    Args:
        names: of them, from ``JOBS``.
        seed: of all chance.
        seconds: after which every job ends its round.
        folder: an existing one for all files.

    Returns:
        What failed, by job, and what each job counted.
    """
    failures: dict[str, str] = {}
    counts: dict[str, dict[str, int]] = {}
    with contextlib.ExitStack() as stack:
        place = pathlib.Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-", dir=folder))
        )
        jobs = {}
        for name in names:
            made = stack.enter_context(_job(name, f"{seed} {name}", place / name))
            if made is None:
                counts[name] = {"not possible here": 1}
            else:
                jobs[name] = made
        running = {
            stack.enter_context(Process(kind, time.monotonic() + seconds, options)): name
            for name, (kind, options) in jobs.items()
        }
        left = time.monotonic() + seconds + _ENDING_SECONDS
        while running and not failures:
            ended = connection.wait([*running], max(0.0, left - time.monotonic()))
            for process in ended or running:
                failure, counts[running[process]] = process.result()
                if failure:
                    failures[running[process]] = failure
                    print(f"{running[process]} failed:\n{failure}", file=sys.stderr, flush=True)
            for process in ended:
                del running[process]
    return failures, counts


@contextlib.contextmanager
def _job(
    name: str, seed: str, folder: pathlib.Path
) -> Iterator[tuple[type[Job], dict[str, Any]] | None]:
    """The class and arguments of a job, with what it needs; ``None`` if that is not to be had."""
    options: dict[str, Any] = {"seed": seed, "folder": folder}
    with contextlib.ExitStack() as stack:
        if name == "disks":
            if not stack.enter_context(small_disk(folder)):
                yield None
                return
        else:
            folder.mkdir()
        if name in ("s3", "gcs", "disks", "evicted"):
            server = stack.enter_context(gcs_server() if name == "gcs" else s3_server())
            dialect = "gcs" if name == "gcs" else "s3"
            rig = stack.enter_context(
                contextlib.closing(Rig(dialect, server, f"bucket-{uuid.uuid4().hex}"))
            )
            options["remote"] = rig.remote()
            stack.enter_context(_going_wrong(rig, random.Random(seed)))
        kinds = {
            "local": LocalKills,
            "damage": DamagedFiles,
            "disks": FullDisks,
            "evicted": EvictedVersions,
        }
        yield kinds.get(name, BucketKills), options


@contextlib.contextmanager
def _going_wrong(rig: Rig, chance: random.Random) -> Iterator[None]:
    """Requests fail now and then meanwhile, and the store is out of reach for moments."""
    over = threading.Event()

    def cut_off_now_and_then() -> None:
        while not over.wait(chance.uniform(*_OUTAGES_APART)):
            with rig.proxy.cut_off():
                over.wait(chance.uniform(*_OUTAGE_SECONDS))

    thread = threading.Thread(target=cut_off_now_and_then, name="outages")
    with rig.random_faults(chance.random(), _FAULTS_CHANCE):
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


class Process:
    """A job in a process of its own."""

    def __init__(self, kind: type[Job], deadline: float, options: dict[str, Any]) -> None:
        self._results, told = _spawn.Pipe(duplex=False)
        self._process = _spawn.Process(target=run, args=(kind, deadline, options, told))
        self._process.start()
        told.close()

    def fileno(self) -> int:
        """Readable when there is a result."""
        return self._results.fileno()

    def result(self) -> tuple[str, dict[str, int]]:
        """Why it failed, empty if it did not, and what it counted."""
        if not self._results.poll():
            return "it does not end", {}
        try:
            failure, counted = self._results.recv()
        except EOFError:
            return "it died without a word", {}
        return failure, counted

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        pid = self._process.pid
        assert pid is not None
        # With all that it started; who is done has nothing left to do.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        self._process.kill()
        self._process.join()
        self._results.close()


def run(kind: Callable[..., Job], deadline: float, options: dict[str, Any], told: Any) -> None:
    """Runs a job, and sends why it failed, if it did, and what it counted."""
    os.setpgid(0, 0)
    folder: pathlib.Path = options["folder"]
    # Beside the folder, which may be a disk that is full.
    log = folder.with_name(f"{folder.name}.log")
    logging.basicConfig(filename=log, level=logging.INFO, format="%(process)d %(message)s")
    job = kind(deadline=deadline, **options)
    failure = ""
    try:
        job.run()
    except Exception:
        said = log.read_bytes()[-_LOGGED_BYTES:].decode(errors="replace")
        failure = f"{said}\n{traceback.format_exc()}"
    told.send((failure, dict(job.counts)))


if __name__ == "__main__":
    main()
