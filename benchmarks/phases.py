"""The measures: each writes or reads one workload with one loader."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import shutil
import time
from collections.abc import Callable
from typing import Any

import checks
import disk
import processes
from loaders import BATCH, Loader, Unsupported
from workloads import Workload

SHARD, SHARDS = 5, 64
RESUME_AT = 0.9
WARM_UP_BATCHES = 20
REPEATS = 3
CHECK_SECONDS = 20.0

Result = dict[str, Any]


def own_memory() -> int:
    """What this process holds now, before it has opened anything."""
    return processes.Memory(["self"]).own


class Writing:
    """Writes a workload in every way the loader has, in turn; the files of the first way stay.

    Until every way was written three times, or for ``seconds``. Nothing waits for the disk while it
    writes, unless the loader always does so; at the end, which is measured, every file is synced.
    """

    def __init__(
        self, kind: type[Loader], workload: Workload, directory: pathlib.Path, seconds: float
    ) -> None:
        self._kind = kind
        self._workload = workload
        self._directory = directory
        self._seconds = seconds

    def measure(self) -> Result:
        ways: dict[str, Result] = {}
        for _ in range(REPEATS):
            for name in self._kind.writes:
                if sum(ways.get(name, {}).get("all_seconds", [])) < self._seconds:
                    ways[name] = self._better(ways.get(name), name)
        return {"record_bytes": self._workload.total_bytes(), "ways": ways}

    def _better(self, before: Result | None, name: str) -> Result:
        """The rates of the best of all times that a way was measured."""
        if before is not None and "unsupported" in before:
            return before
        try:
            result = self._write(name, before is None)
        except Unsupported as reason:
            return {"unsupported": str(reason)}
        for key in ("records_per_second", "records_per_cpu_second"):
            result[key] = max(result[key], (before or {}).get(key, 0.0))
        result["all_seconds"] = [*(before or {}).get("all_seconds", []), result.pop("seconds")]
        return {**(before or {}), **result}

    def _write(self, name: str, is_first: bool) -> Result:
        directory = self._directory / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        loader = self._kind(self._workload, directory)
        loader.prepare(name)
        cpu = processes.cpu_seconds()
        started = time.perf_counter()
        getattr(loader, f"write_{name}")()
        written = time.perf_counter() - started
        disk.sync(directory)
        elapsed = time.perf_counter() - started
        cpu = processes.cpu_seconds() - cpu
        result: Result = {
            "records_per_second": self._workload.count / elapsed,
            "records_per_cpu_second": self._workload.count / max(cpu, 1e-3),
            "seconds": elapsed,
            "seconds_before_sync": written,
            "disk_bytes": disk.used_bytes(directory),
        }
        if name != self._kind.writes[0]:
            if is_first:
                loader.open()
                result["checked"] = checks.check_epoch(loader, loader.ways[0], CHECK_SECONDS)
            loader.close()
            shutil.rmtree(directory)
        return result


class Reading:
    """What a phase has to work with.

    Attributes:
        watch, watched: called before and after reading that memory is measured of.
        ways: of reading, instead of all that the loader has.
    """

    def __init__(
        self, kind: type[Loader], workload: Workload, directory: pathlib.Path, seconds: float
    ) -> None:
        self._kind = kind
        self.workload = workload
        self.directory = directory
        self.seconds = seconds
        self.watch: Callable[[], None] = lambda: None
        self.watched: Callable[[], None] = lambda: None
        self.ways: tuple[str, ...] = ()

    def loader(self) -> Loader:
        loader = self._kind(self.workload, self.directory)
        if self.ways:
            loader.ways = self.ways
        return loader

    def measure(self, phase: Callable[[Reading, Loader], Result]) -> Result:
        loader = self.loader()
        try:
            return phase(self, loader)
        finally:
            loader.close()


def _close(iterator: Any) -> None:
    close = getattr(iterator, "close", None)
    if close is not None:
        close()


def _first_batch_seconds(loader: Loader, way: str, **place: int) -> float:
    started = time.perf_counter()
    batches = iter(loader.epoch(way, seed=1, **place))
    next(batches)
    elapsed = time.perf_counter() - started
    _close(batches)
    return elapsed


@dataclasses.dataclass(frozen=True)
class _Epoch:
    """What was read of an epoch.

    Attributes:
        records: how many.
        rate: records per second of the whole epoch.
        seconds: how long reading took.
    """

    records: int
    rate: float
    seconds: float


def _read(loader: Loader, way: str, seed: int, seconds: float) -> _Epoch:
    """Reads an epoch, but not for over ``seconds`` after the first batch.

    If that is not all of it, the rest counts as if it went on as it did after the first batch. So a
    loader that first fills a shuffle buffer takes as long as it takes, once an epoch.

    What a loader does after the last batch is left out, such as ending its workers. At the end of
    an iterator TensorFlow waits for its own tuning thread, at times for as long as the epoch took,
    whatever the data set is.
    """
    total = loader.workload.count
    count = 0
    started = first = now = time.perf_counter()
    batches = iter(loader.epoch(way, seed=seed))
    for count, _batch in enumerate(batches, 1):
        now = time.perf_counter()
        if count == 1:
            first = now
        # One batch tells no rate, however long it took.
        elif now > first + seconds:
            break
    _close(batches)
    records = min(count * BATCH, total)
    after_first = (now - first) / max(records - BATCH, 1)
    whole = first - started + after_first * (total - BATCH)
    return _Epoch(
        records, total / whole if records < total else total / (now - started), now - started
    )


def _by_way(loader: Loader, function: Callable[[str], Any]) -> Result:
    """What a function returns for every way; a way that cannot is told in words."""
    results: Result = {}
    for way in loader.ways:
        try:
            results[way] = function(way)
        except Unsupported as reason:
            results[way] = {"unsupported": str(reason)}
    return results


def opening(run: Reading, loader: Loader) -> Result:
    """Opens in a process that has opened nothing yet."""
    disk.fill_cache(run.directory)
    started = time.perf_counter()
    loader.open()
    elapsed = time.perf_counter() - started
    return {
        "open_seconds": elapsed,
        "first_seconds": elapsed + _first_batch_seconds(loader, loader.ways[0]),
    }


def warm(run: Reading, loader: Loader) -> Result:
    """Shuffled epochs with the files in the page cache; the best of up to three."""
    disk.fill_cache(run.directory)
    watching = [True]

    def rate(way: str) -> Result:
        epoch = iter(loader.epoch(way, seed=100))
        for _ in itertools.islice(epoch, WARM_UP_BATCHES):
            pass
        _close(epoch)
        rates: list[float] = []
        spent = 0.0
        while len(rates) < REPEATS and spent < run.seconds:
            epoch_read = _read(loader, way, len(rates), run.seconds)
            rates.append(epoch_read.rate)
            spent += epoch_read.seconds
        if watching:
            watching.clear()
            run.watched()
        return {"records_per_second": max(rates), "epochs": rates}

    run.watch()
    loader.open()
    return {"ways": _by_way(loader, rate)}


def cold(run: Reading, loader: Loader) -> Result:
    """A shuffled epoch with nothing of the files in the page cache."""
    disk.drop_cache(run.directory)
    before = processes.read_bytes()
    loader.open()
    epoch = _read(loader, loader.ways[0], 1, run.seconds)
    read = processes.read_bytes() - before
    share = run.workload.total_bytes() / run.workload.count
    return {
        "records_per_second": epoch.rate,
        "bytes_per_second": epoch.rate * share,
        "records": epoch.records,
        "read_bytes": read,
    }


def shard(run: Reading, loader: Loader) -> Result:
    """One shard of 64, opened and read with nothing of the files in the page cache."""
    stored = disk.used_bytes(run.directory)
    disk.drop_cache(run.directory)
    before = processes.read_bytes()
    started = time.perf_counter()
    loader.open()
    opened = processes.read_bytes()
    for _batch in loader.epoch(loader.ways[0], seed=1, shard=SHARD, shards=SHARDS):
        pass
    elapsed = time.perf_counter() - started
    read = processes.read_bytes() - before
    return {
        "seconds": elapsed,
        "read_bytes": read,
        "read_bytes_of_open": opened - before,
        "read_to_record_bytes": read / (run.workload.total_bytes() / SHARDS),
        "read_to_disk_bytes": read / (stored / SHARDS),
    }


def resume(run: Reading, loader: Loader) -> Result:
    """From 90 % of an epoch to the first batch; the best of three."""
    disk.fill_cache(run.directory)
    loader.open()
    offset = int(run.workload.count * RESUME_AT)

    def seconds(way: str) -> Result:
        tries: list[float] = []
        while len(tries) < REPEATS and sum(tries) < run.seconds:
            tries.append(_first_batch_seconds(loader, way, offset=offset))
        return {"seconds": min(tries)}

    return {"ways": _by_way(loader, seconds)}


def check(run: Reading, loader: Loader) -> Result:
    """Whether every way delivers the right records, from the start, an offset and a shard."""
    loader.open()
    count = run.workload.count

    def checked(way: str) -> Result:
        result: Result = {"epoch": checks.check_epoch(loader, way, CHECK_SECONDS)}
        places = {"resumed": {"offset": int(count * RESUME_AT)}}
        places["shard"] = {"shard": SHARD, "shards": SHARDS}
        for name, place in places.items():
            try:
                result[name] = checks.check_epoch(loader, way, CHECK_SECONDS, **place)
            except Unsupported as reason:
                result[name] = {"unsupported": str(reason)}
        return result

    return {"records": count, "ways": _by_way(loader, checked)}


READING: dict[str, Callable[[Reading, Loader], Result]] = {
    "open": opening,
    "warm": warm,
    "resume": resume,
    "check": check,
    "cold": cold,
    "shard": shard,
}
