"""Readers without a download below a limit, beside a writer of new versions; some are killed."""

from __future__ import annotations

import logging
import os
import pathlib
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from rig import Remote
from soak_children import Child
from soak_content import WAYS, Generation
from soak_job import Job

from yogadl.errors import CacheNotFoundError

LIMIT = 32 << 20
"""Bytes that may be kept: fewer than the versions that are read at a time."""

NOTES = 1 << 20
"""Bytes for what is noted of versions and parts, which is not counted as it is written."""

_ID = "evicted"
_READERS = 8
_FAMILY = 4
_SIZES = ((60, 3_000), (300, 20_000), (200, 60_000))
_PART_BYTES = (None, 400_000, 1_500_000)
# Versions that are read, of those that are stored; no reader is so slow that it sees one deleted.
_READ, _STORED = 6, 60


class Growing(Generation):
    """A version of a family of which all begin with the same records, and so share parts.

    Args:
        version: which one.
    """

    def __init__(self, version: int) -> None:
        super().__init__(version // _FAMILY)
        chance = random.Random(f"family {self.number}")
        self.count, self._bytes = _SIZES[self.number % len(_SIZES)]
        self.size = self.count * self._bytes
        self.part_bytes = chance.choice(_PART_BYTES)
        self._version = version

    def record(self, at: int) -> dict[str, Any]:
        record = super().record(at)
        if at >= self.count // 2:
            record["text"] = b"%d of version %d" % (at, self._version)
        return record


class EvictedVersions(Job):
    """One machine, whose processes read the newest versions while others have to go.

    Args:
        seed, folder, deadline: see ``Job``.
        remote: a bucket, through a proxy where things go wrong meanwhile.
    """

    # The last one measures.
    readers = _READERS + 1

    def __init__(self, seed: str, folder: pathlib.Path, deadline: float, remote: Remote) -> None:
        super().__init__(seed, folder, deadline)
        self._remote = remote
        self._newest = folder / "newest"
        self._copies = folder / "copies"

    def prepare(self) -> None:
        """See ``Job.prepare``."""
        os.environ.update(self._remote.env)
        writer = self.folder / "writer"
        for folder in (self._copies, writer):
            folder.mkdir()
        # Another machine, which keeps what it has written.
        self._writer = self._remote.make_storage(writer)
        self._local = self._storage().local
        self._written = 0
        self._write()

    def round(self) -> None:
        """See ``Job.round``."""
        self._write()
        with Child(self.reading(self.counts["rounds"] + 100)) as child:
            self.kill(child, "read")
        self.chance.choice((self._pin, self._prune, self._nothing))()

    def _storage(self) -> Any:
        return self._remote.make_storage(self._copies, local_cache_bytes=LIMIT)

    def _write(self) -> None:
        number = self._written
        Growing(number).submit(self._writer, _ID, str(number))
        if number >= _STORED:
            self._writer.delete(_ID, str(number - _STORED))
        # At once, so that nobody reads half of it.
        partial = self._newest.with_name("newer")
        partial.write_text(str(number))
        partial.replace(self._newest)
        self._written += 1
        self.counts["versions written"] += 1

    def _pin(self) -> None:
        local, number = self._local, str(self._written - 1)
        try:
            local.pin(_ID, number)
        except CacheNotFoundError:
            return
        assert any(kept.is_pinned for kept in local.list()), "what is pinned is gone"
        local.unpin(_ID, number)
        self.counts["pins"] += 1

    def _prune(self) -> None:
        self.counts["MB pruned"] += self._local.prune(LIMIT // 4) >> 20

    def _nothing(self) -> None: ...

    def reading(self, number: int) -> Callable[[], Counter[str]]:
        """See ``Job.reading``."""
        if number == _READERS:
            return self._measuring()
        chance = random.Random(f"{self.seed} reader {number}")
        # One for each process.
        storages: list[Any] = []

        def read() -> Counter[str]:
            storage = storages[0] if storages else self._storage()
            storages[:] = [storage]
            wanted = max(0, int(self._newest.read_text()) - chance.randrange(_READ))
            version = Growing(wanted)
            with _counting_evictions() as counted, storage.fetch(_ID, str(wanted)) as ref:
                assert len(ref) == version.count
                for _ in range(chance.choice((1, 1, 3))):
                    chance.choice(WAYS)(ref, version, chance)
                    counted["records compared, at least"] += version.count
                counted["KB fetched"] += sum(it.nbytes for it in ref.reader.traffic()) >> 10
            counted["data sets read"] += 1
            return counted

        return read

    def _measuring(self) -> Callable[[], Counter[str]]:
        most = 0

        def measure() -> Counter[str]:
            nonlocal most
            before, most = most, max(most, _on_disk(self._copies))
            assert most <= LIMIT + NOTES, f"{most - LIMIT:,} bytes above the limit"
            return Counter({"most bytes kept": most - before, "times measured": 1})

        return measure


class _counting_evictions(logging.Handler):  # noqa: N801 - a context manager
    """Counts versions that this process removes to make room."""

    def __enter__(self) -> Counter[str]:
        self.counted: Counter[str] = Counter()
        logging.getLogger("yogadl.remote._local.collecting").addHandler(self)
        return self.counted

    def __exit__(self, *_: object) -> None:
        logging.getLogger("yogadl.remote._local.collecting").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.counted["versions evicted"] += record.getMessage().startswith("Removed")


def _on_disk(folder: pathlib.Path) -> int:
    """What all that is kept takes now."""
    total = 0
    for path in folder.glob("*/yogadl.pieces/*/*"):
        try:
            total += 512 * path.lstat().st_blocks
        except FileNotFoundError:
            # Evicted.
            continue
    return total
