"""Tables of parts made to do harm: what must hold of all of them.

Changes a table, or the files of its parts, or both so that they agree, and reads the result in
every way that needs no framework. As a program, it does so many times, in little memory::

    python tests/hostile_parts.py TIMES [SEED]
"""

from __future__ import annotations

import functools
import pathlib
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import hostile
import hostile_damage
import numpy as np
import xxhash
from hostile_originals import record_sets
from strategies import same
from versioned import write_groups, write_parts, write_runs

from yogadl import spec as specs
from yogadl.cache.file_reader import FileReader
from yogadl.cache.opening import open_cache
from yogadl.cache.partial import PartialFile
from yogadl.cache.parts import PARTS_FOLDER
from yogadl.cache.record_reader import RecordReader
from yogadl.cache.writer import CacheWriter
from yogadl.errors import YogadlError
from yogadl.format.header import Header
from yogadl.format.table import PART

_ENTRY_FIELDS = range(0, 64, 8)
_COUNT, _INDEX, _CHECKSUMS, _PARTS, _SUMS = 8224, 8312, 8336, 8392, (8400, 8408)
_DIGEST = 8416


@dataclass(frozen=True)
class Table:
    """The files of a version in parts.

    Attributes:
        table: the bytes of the table.
        parts: those of its parts, by the names of their files.
        records: what is in them.
    """

    table: bytes
    parts: dict[str, bytes]
    records: list[Any]

    def write(self, folder: pathlib.Path) -> pathlib.Path:
        """Makes the files; the path of the table."""
        path = folder / "version" / "cache.mdb"
        path.parent.mkdir(parents=True)
        path.write_bytes(self.table)
        (folder / PARTS_FOLDER).mkdir()
        for name, data in self.parts.items():
            (folder / PARTS_FOLDER / name).write_bytes(data)
        return path

    def first(self, number: int) -> int:
        """The position of the first record of a part, of a table without runs."""
        return sum(self.entries["count"][:number].tolist())

    @property
    def entries(self) -> np.ndarray[Any, Any]:
        """What the table says of its parts, ``PART`` ``[n]``."""
        offset, length = _entries_at(self.table)
        return np.frombuffer(self.table[offset : offset + length], PART)

    @property
    def has_runs(self) -> bool:
        """Whether there is something behind the entries."""
        return struct.unpack_from("<QQQ", self.table, _INDEX)[1] > _entries_at(self.table)[1]


def _entries_at(table: bytes | bytearray) -> tuple[int, int]:
    """Offset and length of what a table says of its parts."""
    (offset,), (parts,) = (struct.unpack_from("<Q", table, at) for at in (_INDEX, _PARTS))
    return offset, PART.itemsize * parts


@functools.cache
def originals() -> tuple[Table, ...]:
    """Intact tables, of every way of storing a record."""
    made = [
        _written(*data_set, part_bytes) for data_set in record_sets() for part_bytes in (1, 900)
    ]
    for spec, records in record_sets():
        if len(records) > 1:
            made += [_of_runs(spec, records), _of_groups(spec, records)]
    return tuple(table for table in made if len(table.parts) > 1)


def _of_runs(spec: Any, records: list[Any]) -> Table:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "id", "version", "cache.mdb")
        half = len(records) // 2
        parts = write_parts(path, spec, [records[:half], records[half:]])
        count = len(records) - half
        runs = [(1, 0, count), (0, 0, 1), (1, count - 1, 1), (0, 0, half)]
        with write_runs(path, spec, parts, runs) as ref:
            return _stored(path, ref.reader)


def _of_groups(spec: Any, records: list[Any]) -> Table:
    """Its leaves, in one group that is used in order, and one of which half is used twice."""
    leaves, half = list(specs.leaves(spec)), len(records) // 2
    rows = [specs.flatten(spec, record) for record in records]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "id", "version", "cache.mdb")
        groups, where = [], []
        bounds = [(0, 1), (1, len(leaves))] if len(leaves) > 1 else [(0, 1)]
        for number, (start, stop) in enumerate(bounds):
            own = tuple(leaves[start:stop])
            values = [tuple(row[start:stop]) for row in rows]
            parts = write_parts(path, own, [values[:half], values[half:]])
            runs = [(0, 0, half), (1, 0, half)] if number else [(0, 0, half)] * 2
            groups.append((own, parts, runs))
            where += [(number, leaf) for leaf in range(stop - start)]
        with write_groups(path, spec, groups, where) as ref:
            return _stored(path, ref.reader)


def _stored(path: pathlib.Path, reader: FileReader) -> Table:
    files = {part.name: part.read_bytes() for part in reader.parts_by_digest().values()}
    found = [reader.read_record(at) for at in range(len(reader))]
    return Table(path.read_bytes(), files, found)


def _written(spec: Any, records: list[Any], part_bytes: int) -> Table:
    parts = {}

    def take(part: PartialFile, header: Header) -> None:
        parts[f"{header.digest.hex()}.mdb"] = part.path.read_bytes()

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "cache.mdb")
        with CacheWriter(path, spec, part_bytes=part_bytes, take_part=take) as writer:
            for record in records:
                writer.append(record)
            writer.commit()
        made = Table(path.read_bytes(), parts, [])
        with open_cache(made.write(pathlib.Path(folder, "id"))) as reader:
            found = [reader.read_record(at) for at in range(len(reader))]
        return replace(made, records=found)


# Changing them


def damage(rng: random.Random, intact: Table) -> Table:
    """A version of many parts, changed in one of many ways."""
    ways: list[Callable[[random.Random, Table], Table]] = [
        _damage_table,
        _change_fields,
        _change_fields,
        _change_entries,
        _change_entries,
        _change_runs,
        _change_runs,
        _change_runs,
        _move_entries,
        _damage_part,
        _damage_part,
        _exchange_parts,
        _adopt_part,
        _adopt_part,
        _adopt_part,
    ]
    return rng.choice(ways)(rng, intact)


def _damage_table(rng: random.Random, intact: Table) -> Table:
    return replace(intact, table=hostile_damage.damage_outside_records(rng, intact.table))


def _change_fields(rng: random.Random, intact: Table) -> Table:
    data = bytearray(intact.table)
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.choice([*hostile_damage.FIELDS, _COUNT, _PARTS, *_SUMS])
        hostile_damage.change_number(rng, data, at)
    _seal(data)
    return replace(intact, table=bytes(data))


def _seal(data: bytearray) -> None:
    """Makes the checksums of a table right, but for its digest."""
    offset, length, checksum = struct.unpack_from("<QQQ", data, _INDEX)
    if checksum and offset + length <= len(data):
        hostile_damage.sum_section(data, _INDEX)
    hostile_damage.seal(data)


def _change_runs(rng: random.Random, intact: Table) -> Table:
    """Changes what stands behind the entries: runs, groups, leaves, and their numbers."""
    if not intact.has_runs:
        return _change_entries(rng, intact)
    data = bytearray(intact.table)
    offset, length, _ = struct.unpack_from("<QQQ", data, _INDEX)
    start, stop = sum(_entries_at(data)), offset + length
    for _ in range(rng.choice([1, 1, 2, 3])):
        how = rng.randrange(4)
        at = rng.randrange(start, stop - 8, 4)
        if how == 0:
            struct.pack_into("<I", data, at, rng.choice([0, 1, 2, 3, 2**31, 2**32 - 1]))
        elif how == 1:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 2:
            other = rng.randrange(start, stop - 8, 4)
            data[at : at + 4], data[other : other + 4] = data[other : other + 4], data[at : at + 4]
        else:
            hostile_damage.change_number(rng, data, at)
    _seal(data)
    return replace(intact, table=bytes(data))


def _change_entries(rng: random.Random, intact: Table) -> Table:
    """Changes what the table says of parts; the sum over their records may be right again."""
    data = bytearray(intact.table)
    offset, length = _entries_at(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        entry = offset + PART.itemsize * rng.randrange(length // PART.itemsize)
        hostile_damage.change_number(rng, data, entry + rng.choice(_ENTRY_FIELDS))
    return _with_entries(
        intact, np.frombuffer(data[offset : offset + length], PART), rng.random() < 0.7
    )


def _move_entries(rng: random.Random, intact: Table) -> Table:
    """Parts that come more than once, in another order, or not at all."""
    entries = intact.entries
    chosen = [rng.randrange(len(entries)) for _ in entries]
    if rng.randrange(2):
        chosen = rng.sample(range(len(entries)), len(entries))
    return _with_entries(intact, entries[chosen], rng.random() < 0.7)


def _with_entries(intact: Table, entries: np.ndarray[Any, Any], are_counted: bool = True) -> Table:
    data = bytearray(intact.table)
    (offset,) = struct.unpack_from("<Q", data, _INDEX)
    data[offset : offset + entries.nbytes] = entries.tobytes()
    if are_counted:
        if not intact.has_runs:
            total = sum(entries["count"].tolist()) % 2**64
            struct.pack_into("<Q", data, _COUNT, total)
        _seal(data)
    return replace(intact, table=bytes(data))


def _damage_part(rng: random.Random, intact: Table) -> Table:
    name = rng.choice(sorted(intact.parts))
    changed = hostile_damage.damage(rng, intact.parts[name])
    return replace(intact, parts={**intact.parts, name: changed})


def _exchange_parts(rng: random.Random, intact: Table) -> Table:
    """One has the bytes of another, of the table, or none."""
    parts = dict(intact.parts)
    one, other = rng.sample(sorted(parts), 2)
    changed = rng.choice([parts[other], intact.table, b"", parts[one][:-4096], None])
    if changed is None:
        del parts[one]
    else:
        parts[one] = changed
    return replace(intact, parts=parts)


def _adopt_part(rng: random.Random, intact: Table) -> Table:
    """A part that was changed, or a table, and a table that agrees with it in all."""
    number = rng.randrange(len(intact.entries))
    if rng.randrange(4) == 0:
        return naming_table(intact, number)
    name = f"{intact.entries['digest'][number].tobytes().hex()}.mdb"
    part = hostile_damage.damage(rng, intact.parts[name])
    if len(part) < 12288:
        return replace(intact, table=part)
    return _naming(intact, number, part)


def naming_table(intact: Table, number: int) -> Table:
    """A table that says of itself, as it was, that it is its part of a number."""
    return _naming(intact, number, intact.table)


def _naming(intact: Table, number: int, part: bytes) -> Table:
    entries = intact.entries.copy()
    digest = part[_DIGEST : _DIGEST + 16]
    entries["digest"][number] = np.frombuffer(digest, "V16")[0]
    places = {"size": 8248, "count": _COUNT, "entries": _INDEX}
    for name, at in places.items():
        entries[name][number] = struct.unpack_from("<Q", part, at)[0]
    entries["token_sums"][number] = struct.unpack_from("<QQ", part, _SUMS[0])
    made = _with_entries(intact, entries)
    data = bytearray(made.table)
    _seal_checksums(data, entries, number, part)
    return replace(made, table=bytes(data), parts={**intact.parts, f"{digest.hex()}.mdb": part})


def _seal_checksums(
    data: bytearray, entries: np.ndarray[Any, Any], number: int, part: bytes
) -> None:
    """Makes the checksum of the first block of a part's index right in the table."""
    offset, length, _ = struct.unpack_from("<QQQ", data, _CHECKSUMS)
    before = sum(-(-count // 4096) for count in entries["count"][:number].tolist())
    start = int(entries["entries"][number])
    index = part[start : start + 16 * min(int(entries["count"][number]), 4096)]
    if 8 * before + 8 <= length:
        struct.pack_into("<Q", data, offset + 8 * before, xxhash.xxh3_64_intdigest(index))
        hostile_damage.sum_section(data, _CHECKSUMS)
        hostile_damage.seal(data)


# What must hold


def check_damaged(path: pathlib.Path, changed: Table, intact: Table) -> None:
    """Reads a version that :func:`damage` made.

    Raises:
        AssertionError: something else was raised than a ``YogadlError``; or a record was read as
            what it never was, where checksums can tell; or differently one by one and in a batch;
            or it took too long; or ``verify`` did not see that it was changed.
    """
    with hostile.in_time(path):
        try:
            reader = open_cache(path, check_records=True)
        except YogadlError:
            return
        with reader:
            records = intact.records if changed.table == intact.table else None
            hostile.check_read(reader, records)
            _check_rows(reader)
            for announce in (reader.announce, lambda some: reader.forget(0, len(some))):
                hostile.outcome(announce, range(len(reader)))
            try:
                reader.verify()
            except YogadlError:
                return
            named = {f"{digest.hex()}.mdb" for digest in reader.parts_by_digest()}
            is_as_it_was = changed.table == intact.table and all(
                changed.parts[name] == intact.parts[name] for name in named
            )
            if not is_as_it_was:
                raise hostile.MisreadError("verify found nothing")


def _check_rows(reader: RecordReader) -> None:
    """Reads records where they lie, as TensorFlow does."""
    mapped = reader.mapped_records()
    if mapped is None:
        return
    for position in range(min(len(reader), 48)):
        found = hostile.outcome(mapped.offsets, np.array([position]))
        if found is not None:
            (offset,) = found[0].tolist()
            row = mapped.buffer[offset : offset + mapped.value_size]
            if len(row) != mapped.value_size or same(row.copy(), b""):
                raise hostile.MisreadError(f"record {position} lies outside of all files")


# As a program


def main(times: int, seed: int) -> None:
    """Damages and reads so many versions; leaves one that was misread where it says."""
    tables = originals()
    mapped = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + hostile.MOST_MEMORY, resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for number in range(seed, seed + times):
        rng = random.Random(number)
        intact = rng.choice(tables)
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"misread-{number}-"))
        changed = damage(rng, intact)
        signal.alarm(2 * hostile.MOST_SECONDS)
        try:
            check_damaged(changed.write(folder / "id"), changed, intact)
        except AssertionError:
            print(f"Seed {number}: see {folder}", file=sys.stderr)
            raise
        shutil.rmtree(folder)
        signal.alarm(0)
    print(f"{times} versions")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
