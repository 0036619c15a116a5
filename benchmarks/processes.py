"""What processes read and hold, from ``/proc``."""

from __future__ import annotations

import os
import pathlib
import resource

_PROC = pathlib.Path("/proc")


def family(pid: int | str = "self") -> list[str]:
    """A process and all its living descendants, by their ids."""
    children: dict[str, list[str]] = {}
    for path in _PROC.glob("[0-9]*/stat"):
        try:
            # pid (name) state parent ...; the name may contain anything.
            parent = path.read_text().rpartition(")")[2].split()[1]
        except OSError:  # it ended meanwhile
            continue
        children.setdefault(parent, []).append(path.parent.name)
    found = [str(os.getpid() if pid == "self" else pid)]
    for member in found:
        found += children.get(member, [])
    return found


def cpu_seconds() -> float:
    """What this process has taken of processors, with its threads, and with those of its children
    that have ended and were waited for."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def read_bytes(pid: int | str = "self") -> int:
    """Bytes that a process and its descendants have had read from the disk so far.

    Counts the living ones, and those that were waited for. Includes what the system read ahead.
    """
    return sum(_numbers(member, "io").get("read_bytes", 0) for member in family(pid))


class Memory:
    """Memory in bytes: what is a process's own, and all that it has mapped.

    Attributes:
        own: anonymous and shared memory; not the pages of files, which the system may drop.
        resident: all of it.
    """

    def __init__(self, pids: list[str]) -> None:
        self.own = self.file = self.resident = 0
        for pid in pids:
            numbers = _numbers(pid, "status")
            self.own += (numbers.get("RssAnon", 0) + numbers.get("RssShmem", 0)) * 1024
            self.file += numbers.get("RssFile", 0) * 1024
            self.resident += numbers.get("VmRSS", 0) * 1024


class MemoryPeak:
    """The highest of many samples of a process and its descendants."""

    _SAMPLES_PER_SEARCH = 25

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._samples = 0
        self._family: list[str] = []
        self.own = self.resident = 0

    def sample(self) -> None:
        if self._samples % self._SAMPLES_PER_SEARCH == 0:
            self._family = family(self._pid)
        self._samples += 1
        memory = Memory(self._family)
        self.own = max(self.own, memory.own)
        self.resident = max(self.resident, memory.resident)


def _numbers(pid: str, name: str) -> dict[str, int]:
    try:
        lines = (_PROC / pid / name).read_text().splitlines()
    except OSError:  # it ended meanwhile
        return {}
    numbers = {}
    for line in lines:
        key, _, rest = line.partition(":")
        word = rest.split()[:1]
        if word and word[0].isdigit():
            numbers[key] = int(word[0])
    return numbers
