"""Cache files made to do harm: what must hold of all of them.

``hostile_damage`` knows the structure of the files: it flips bits and moves pages as a failing disk
does, and changes headers, specs, indexes and records and then makes the checksums right, so that
what lies behind them is reached. ``check_damaged`` reads such a file in every way that needs no
framework. As a program, it does so with many files, in little memory::

    python tests/hostile.py FILES [SEED]
"""

from __future__ import annotations

import contextlib
import functools
import pathlib
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from hostile_damage import damage
from hostile_originals import is_format_1, originals
from strategies import same

from yogadl import spec as specs
from yogadl.cache.file_reader import FileReader
from yogadl.cache.opening import open_cache
from yogadl.cache.reader import CacheFile
from yogadl.cache.record_reader import RecordReader
from yogadl.errors import YogadlError

MOST_SECONDS = 30
"""To read a file of some 100 KB."""

MOST_MEMORY = 1 << 30
"""Bytes that a process takes for it, beyond what it takes for importing the library."""

_RECORDS_READ = 48


# What must hold


class MisreadError(AssertionError):
    """A damaged file was read as something else, or raised something raw."""


@functools.lru_cache(maxsize=64)
def _intact(data: bytes) -> tuple[tuple[int, int] | None, list[Any]]:
    """What tells the records of a file apart, ``None`` of format 0, and its records."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "cache.mdb")
        path.write_bytes(data)
        with open_cache(path) as reader:
            return _sums(reader), [reader.read_record(at) for at in range(len(reader))]


def _sums(reader: FileReader) -> tuple[int, int] | None:
    if not isinstance(reader, CacheFile):
        return None
    return reader.header.spec.checksum, reader.header.index_checksums.checksum


def check_damaged(path: pathlib.Path, original: bytes) -> None:
    """Reads a file that was made of an intact one by ``hostile_damage.damage``.

    Args:
        path: of the damaged file.
        original: the bytes of the intact one.

    Raises:
        AssertionError: something else was raised than a ``YogadlError``; or a record was read as
            what it never was, where checksums can tell; or differently one by one and in a batch;
            or it took too long.
    """
    with in_time(path):
        try:
            reader = open_cache(path, check_records=True)
        except YogadlError:
            return
        with reader:
            _check_records(reader, original)
            try:
                reader.verify()
            except YogadlError:
                return
            # Without its records' changes, 0.1.4 has nothing to tell them by.
            if is_format_1(original) and path.read_bytes() != original:
                raise MisreadError("verify found nothing")


def _check_records(reader: FileReader, original: bytes) -> None:
    sums, records = _intact(original)
    sealed = sums is None or _sums(reader) != sums
    check_read(reader, None if sealed else records)


def check_read(reader: RecordReader, records: list[Any] | None) -> None:
    """Reads records one by one and in a batch.

    Args:
        reader: of a damaged file.
        records: what may be read; ``None`` where checksums cannot tell.

    Raises:
        MisreadError: they differ, or are something else.
    """
    count = len(reader)
    chosen = sorted({*range(min(count, _RECORDS_READ)), *range(max(0, count - 4), count)})
    for position in chosen:
        found = outcome(reader.read_record, position)
        batch = outcome(functools.partial(_read_as_batch, reader), position)
        if not same(_leaves(reader, found), batch):
            raise MisreadError(
                f"record {position}: {found!r:.100} by itself, {batch!r:.100} in a batch"
            )
        if found is not None and records is not None and not same(found, (records[position],)):
            raise MisreadError(
                f"record {position} is {found!r:.200}, not {records[position]!r:.200}"
            )
    with contextlib.suppress(YogadlError):
        reader.read_columns(np.array(chosen, "i8"))


def _read_as_batch(reader: RecordReader, position: int) -> list[Any]:
    return [_plain(column[0]) for column in reader.read_columns(np.array([position]))]


def _leaves(reader: RecordReader, found: tuple[Any] | None) -> tuple[list[Any]] | None:
    if found is None:
        return None
    return ([_plain(value) for value in specs.flatten(reader.spec, found[0])],)


def _plain(value: Any) -> Any:
    """Scalars as arrays of no dimensions, which they are in a batch."""
    return np.asarray(value) if isinstance(value, np.generic | bytes) else value


def outcome(read: Callable[[Any], Any], what: Any) -> tuple[Any] | None:
    """What was read, ``None`` where that was refused."""
    try:
        return (read(what),)
    except YogadlError:
        return None


@contextlib.contextmanager
def in_time(path: pathlib.Path) -> Iterator[None]:
    """Makes an ``AssertionError`` of all but errors of the library; also of taking too long."""
    started = time.monotonic()
    try:
        yield
    except MisreadError:
        raise
    except Exception as error:
        raise MisreadError(f"{path}: {type(error).__name__}: {error}") from error
    if time.monotonic() - started > MOST_SECONDS:
        raise MisreadError(f"{path}: took {time.monotonic() - started:.0f} s")


# As a program


def main(count: int, seed: int) -> None:
    """Damages and reads ``count`` files; leaves one that was misread where it says."""
    files = originals()
    for data in files:
        _intact(data)
    used = _peak()
    mapped = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MOST_MEMORY, resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(seed, seed + count):
            rng = random.Random(number)
            original = rng.choice(files)
            path = pathlib.Path(folder, "cache.mdb")
            # A new file, since changing one that is mapped would end this process.
            path.unlink(missing_ok=True)
            path.write_bytes(damage(rng, original))
            signal.alarm(2 * MOST_SECONDS)
            try:
                check_damaged(path, original)
            except AssertionError:
                kept = pathlib.Path(tempfile.gettempdir(), f"misread-{number}.mdb")
                kept.write_bytes(path.read_bytes())
                print(f"Seed {number}: see {kept}", file=sys.stderr)
                raise
            signal.alarm(0)
    print(f"{count} files, {(_peak() - used) / 1e6:.0f} MB more memory than with intact ones")


def _peak() -> int:
    """The most bytes that this process has had in memory."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
