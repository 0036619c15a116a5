"""Cache files made to do harm: how they are made, and what must hold of all of them.

``damage`` knows the structure of the files: it flips bits and moves pages as a failing disk does,
and changes headers, specs, indexes and records and then makes the checksums right, so that what
lies behind them is reached. ``check_damaged`` reads such a file in every way that needs no
framework. As a program, it does so with many files, in little memory::

    python tests/hostile.py FILES [SEED]
"""

from __future__ import annotations

import contextlib
import functools
import json
import pathlib
import random
import resource
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xxhash
from strategies import same

from yogadl import spec as specs
from yogadl.cache.reader import CacheFile, FileReader, open_cache
from yogadl.cache.writer import CacheWriter
from yogadl.errors import YogadlError
from yogadl.format import header as headers
from yogadl.format import spec_json
from yogadl.format.layout import RecordLayout
from yogadl.format.pages import PAGE_SIZE
from yogadl.spec import OptionalSpec, Ragged, RaggedSpec, TensorSpec

Random = random.Random

GOLDEN = pathlib.Path(__file__).parent / "golden"
NUMBERS = [0, 1, 2, 3, 8, 16, 4095, 4096, 12287, 12288, 2**15, 2**16 - 1, 2**31 - 1, 2**31]
NUMBERS += [2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 4096, 2**64 - 2, 2**64 - 1]
FIELDS = [8224, 8232, 8240, 8248, 8256, *range(8264, 8360, 8)]
"""Offsets of the header's ``u64``."""

MOST_SECONDS = 30
"""To read a file of some 100 KB."""

MOST_MEMORY = 1 << 30
"""Bytes that a process takes for it, beyond what it takes for importing the library."""

_RECORDS_READ = 48


# Files to damage


@functools.cache
def originals() -> tuple[bytes, ...]:
    """Intact files of both formats, and of every way of storing a record."""
    golden = [
        *sorted((GOLDEN / "format-1").glob("*.mdb")),
        *sorted((GOLDEN / "yogadl-0.1.4").glob("*.mdb")),
    ]
    files = [path.read_bytes() for path in golden if path.stem != "killed"]
    return (*files, *map(_written, [_tokens(), _strings(), _nested(), _wide()]))


def _written(data: tuple[Any, list[Any]]) -> bytes:
    spec, records = data
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "cache.mdb")
        with CacheWriter(path, spec, {"made": "by a test"}) as writer:
            for record in records:
                writer.append(record)
            writer.commit()
        return path.read_bytes()


def _tokens() -> tuple[Any, list[Any]]:
    spec = {"tokens": TensorSpec("int32", (None, 2)), "label": TensorSpec("int64")}
    return spec, [{"tokens": np.full((n, 2), n, "i4"), "label": n} for n in range(30)]


def _strings() -> tuple[Any, list[Any]]:
    spec = (TensorSpec("string", (3,)), TensorSpec("string", (None,)), TensorSpec("string"))
    return spec, [([b"a" * n, b"", b"c"], [b"x" * n] * n, b"y" * 40 * n) for n in range(12)]


def _nested() -> tuple[Any, list[Any]]:
    spec = {
        "ragged": RaggedSpec("float32", (None, None), 1),
        "optional": OptionalSpec((TensorSpec("uint8", None), TensorSpec("bool"))),
        "any": TensorSpec("string", None),
    }
    return spec, [
        {
            "ragged": Ragged(np.arange(n, dtype="f4"), (np.array([0, n // 2, n]),)),
            "optional": (np.zeros((n, n), "u1"), n > 3) if n % 2 else None,
            "any": np.array([[b"z"] * n], object),
        }
        for n in range(10)
    ]


def _wide() -> tuple[Any, list[Any]]:
    spec = {"image": TensorSpec("uint8", (40, 60)), "label": TensorSpec("int16")}
    return spec, [{"image": np.full((40, 60), n, "u1"), "label": np.int16(n)} for n in range(8)]


# Damage


def damage(rng: Random, data: bytes) -> bytes:
    """The bytes of an intact file, changed in one of many ways."""
    changed = bytearray(data)
    ways = [_flip_bits] * 3 + [_change_page, _cut]
    if _is_format_1(data):
        ways += [_change_header] * 2 + [_change_spec] * 4 + [_change_metadata]
        ways += [_change_index] * 2 + [_change_records] * 3
    else:
        ways += [_change_meta_page] * 3 + [_change_nodes] * 3 + [_change_pickles] * 2
    rng.choice(ways)(rng, changed)
    return bytes(changed)


def _is_format_1(data: bytes) -> bool:
    return headers.is_header(data[headers.HEADER_OFFSET : headers.BODY_OFFSET])


def _number(rng: Random, near: int = 0) -> int:
    how = rng.randrange(4)
    if how == 0:
        return (near + rng.choice([-4096, -16, -8, -1, 1, 8, 16, 4096])) % 2**64
    if how == 1:
        return near ^ 1 << rng.randrange(64)
    return rng.randrange(100_000) if how == 2 else rng.choice(NUMBERS)


def _flip_bits(rng: Random, data: bytearray) -> None:
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        # Half of them where most harm can be done.
        places = rng.choice([range(len(data)), _marked(data)])
        data[rng.choice(places)] ^= 1 << rng.randrange(8)


def _marked(data: bytearray) -> range:
    """The header, or the meta pages."""
    return range(8208, 8416) if _is_format_1(bytes(data[:12288])) else range(0, 4096 + 160)


def _change_page(rng: Random, data: bytearray) -> None:
    pages = len(data) // PAGE_SIZE
    at, other = (rng.randrange(pages) * PAGE_SIZE for _ in range(2))
    how = rng.randrange(4)
    page = [
        bytes(PAGE_SIZE),
        rng.randbytes(PAGE_SIZE),
        data[other : other + PAGE_SIZE],
        data[at : at + 2048] + bytes(2048),
    ][how]
    data[at : at + PAGE_SIZE] = page


def _cut(rng: Random, data: bytearray) -> None:
    if rng.randrange(2):
        del data[rng.randrange(len(data)) :]
    else:
        data += rng.choice([b"x", bytes(PAGE_SIZE), bytes(1 << 20)])


def _seal(data: bytearray) -> None:
    """Makes the checksum of the header right."""
    digest = xxhash.xxh3_64_intdigest(bytes(data[8208:8408]))
    struct.pack_into("<Q", data, 8408, digest)


def _change_header(rng: Random, data: bytearray) -> None:
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.choice(FIELDS)
        (near,) = struct.unpack_from("<Q", data, at)
        struct.pack_into("<Q", data, at, _number(rng, near))
    if rng.randrange(3) == 0:
        for at in (8264, 8288, 8336):
            _sum_section(data, at)
    _seal(data)


def _sum_section(data: bytearray, field: int) -> None:
    """Makes the checksum of a section right, of which the header has place and sum at ``field``."""
    offset, length = struct.unpack_from("<QQ", data, field)
    section = bytes(data[offset : offset + length]) if length < len(data) else b""
    struct.pack_into("<Q", data, field + 16, xxhash.xxh3_64_intdigest(section))


def _replace_section(data: bytearray, field: int, section: bytes) -> None:
    """Puts a section on new pages at the end of the file."""
    data += bytes(16) + section
    data += bytes(-len(data) % PAGE_SIZE)
    place = len(data) - (16 + len(section)) - (-(16 + len(section)) % PAGE_SIZE) + 16
    struct.pack_into("<QQ", data, field, place, len(section))
    _sum_section(data, field)
    struct.pack_into("<Q", data, 8248, len(data))
    _seal(data)


def _section(data: bytearray, field: int) -> bytes:
    offset, length = struct.unpack_from("<QQ", data, field)
    return bytes(data[offset : offset + length])


def _change_spec(rng: Random, data: bytearray) -> None:
    spec = json.loads(_section(data, 8264))
    for _ in range(rng.choice([1, 1, 2, 4])):
        spec = _mutated(rng, spec)
    if rng.randrange(2):
        # So that what comes behind the check of the size is reached.
        with contextlib.suppress(YogadlError, TypeError, RecursionError, struct.error):
            layout = RecordLayout(spec_json.from_json(spec))
            struct.pack_into("<Q", data, 8240, layout.value_size or 0)
    try:
        section = json.dumps(spec).encode()
    except RecursionError:
        section = b'{"kind": "optional", "value": ' * 2000
    _replace_section(data, 8264, section)


def _change_metadata(rng: Random, data: bytearray) -> None:
    hostile = [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"1" * 50_000,
        b"",
        b"[]",
        b"\xff",
        b'{"a": 1e999}',
    ]
    section = rng.choice([*hostile, rng.randbytes(50), b"{}" + bytes(rng.randrange(3))])
    _replace_section(data, 8288, section)


_DTYPES = ("int8", "float64", "string", "bool", "bfloat16", "complex128", "int4", "int65", "object")
_KINDS = ("tensor", "ragged", "sparse", "none", "optional", "dict", "tuple", "namedtuple", "list")
_SHAPES: list[Any] = [
    None, [], [None], [None, None], [0], [0, 2**70], [None, 2**62, 2**62], [2**62, 2**62], [1] * 65,
    [None] * 64, [1] * 63, [1] * 62 + [None], [2**31], [2**32], [-1], [2**63], [1e5], ["a"], "a",
    [None, 0], [0, None], [0, 2**62, None], [3, None], [True],
]  # fmt: skip


def _mutated(rng: Random, node: Any) -> Any:
    """A spec in JSON with one of its parts changed."""
    if isinstance(node, dict) and node:
        node = dict(node)
        inner = [key for key in ("items", "value") if key in node]
        if inner and rng.randrange(3):
            key = rng.choice(inner)
            node[key] = _mutated(rng, node[key])
            return node
        key = rng.choice(sorted(node))
        changes: dict[str, Callable[[], Any]] = {
            "shape": lambda: rng.choice(_SHAPES),
            "dtype": lambda: rng.choice(_DTYPES),
            "kind": lambda: rng.choice(_KINDS),
            "ragged_rank": lambda: rng.choice([0, 1, 2, 62, 63, 10**9, -1, None, 1.5]),
            "row_splits_dtype": lambda: rng.choice(["int32", "int8", None]),
            "items": lambda: rng.choice([[], {}, None, [[]], [["a", dict(node)]] * 2]),
        }
        node[key] = changes.get(key, lambda: rng.choice([None, 0, "", [], {}]))()
        if rng.randrange(8) == 0:
            for _ in range(rng.choice([3, 70, 300])):
                node = {"kind": "tuple", "items": [node]}
        return node
    if isinstance(node, list) and node:
        node = list(node)
        at = rng.randrange(len(node))
        if rng.randrange(6) == 0:
            del node[at]
        elif rng.randrange(6) == 0:
            node.insert(at, rng.choice(node))
        else:
            node[at] = _mutated(rng, node[at])
        return node
    return rng.choice([None, 0, -1, 2**70, "", "x" * 1000, [], {}, 1.5, True])


def _entries(data: bytearray) -> tuple[int, int]:
    """Place and number of the index's entries."""
    return struct.unpack_from("<Q", data, 8312)[0], struct.unpack_from("<Q", data, 8224)[0]


def _seal_index(data: bytearray) -> None:
    place, count = _entries(data)
    sums = b"".join(
        struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(data[at : at + 65536])))
        if at + 65536 <= place + 16 * count
        else struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(data[at : place + 16 * count])))
        for at in range(place, place + 16 * count, 65536)
    )
    (at,) = struct.unpack_from("<Q", data, 8336)
    data[at : at + len(sums)] = sums
    _sum_section(data, 8336)
    _seal(data)


def _checksum(data: bytearray, offset: int, length: int) -> int:
    """Of the content of the value at ``offset``."""
    start = offset + (48 if length > 2000 else 0)
    return xxhash.xxh3_64_intdigest(bytes(data[start : offset + length])) & 0xFFFFFFFF


def _change_index(rng: Random, data: bytearray) -> None:
    place, count = _entries(data)
    if not count:
        return _change_header(rng, data)
    for _ in range(rng.choice([1, 1, 3])):
        at = place + 16 * rng.randrange(count)
        offset, length, checksum = struct.unpack_from("<QII", data, at)
        how = rng.randrange(3)
        if how != 1:
            offset = _number(rng, offset)
        if how != 0:
            length = _number(rng, length) % 2**32
        if offset + length < len(data):
            checksum = _checksum(data, offset, length)
        struct.pack_into("<QII", data, at, offset, length, checksum)
    _seal_index(data)
    return None


def _change_records(rng: Random, data: bytearray) -> None:
    """Changes the sizes at the beginning of records, or what comes behind them."""
    place, count = _entries(data)
    if not count:
        return _change_spec(rng, data)
    for _ in range(rng.choice([1, 2, 5])):
        at = place + 16 * rng.randrange(count)
        offset, length, _ = struct.unpack_from("<QII", data, at)
        start = offset + (48 if length > 2000 else 0)
        room = max(offset + length - start, 8)
        word = start + 8 * rng.randrange(min(room // 8, rng.choice([1, 4, 16, 1000])))
        if word + 8 <= len(data):
            (near,) = struct.unpack_from("<Q", data, word)
            struct.pack_into("<Q", data, word, _number(rng, near))
        struct.pack_into("<I", data, at + 12, _checksum(data, offset, length))
    _seal_index(data)
    return None


def _change_meta_page(rng: Random, data: bytearray) -> None:
    # Page size, flags and depth; then counts, root, last page and transaction.
    size, at = rng.choice(
        [("<I", 40), ("<H", 92), ("<H", 94), *[("<Q", n) for n in range(96, 152, 8)]]
    )
    (near,) = struct.unpack_from(size, data, at)
    number = rng.choice([_number(rng, near), near + 1, near - 1, 1]) % 2 ** (
        8 * struct.calcsize(size)
    )
    for page in rng.choice([[0], [PAGE_SIZE], [0, PAGE_SIZE]]):
        struct.pack_into(size, data, page + at, number)


def _change_nodes(rng: Random, data: bytearray) -> None:
    """Changes 16-bit words at the beginning of pages and nodes."""
    for _ in range(rng.choice([1, 2, 4])):
        page = rng.randrange(2, max(3, len(data) // PAGE_SIZE)) * PAGE_SIZE
        at = page + 2 * rng.randrange(rng.choice([8, 40, PAGE_SIZE // 2]))
        if rng.randrange(2):
            # A node that the page points to.
            (node,) = struct.unpack_from("<H", data, page + 16 + 2 * rng.randrange(8))
            at = page + min(node + 2 * rng.randrange(8), PAGE_SIZE - 2)
        (near,) = struct.unpack_from("<H", data, at)
        struct.pack_into("<H", data, at, _number(rng, near) % 2**16)


def _change_pickles(rng: Random, data: bytearray) -> None:
    """Changes bytes around the names in pickles, and their opcodes."""
    marks = (
        b"\x80",
        b"TensorShape",
        b"as_dtype",
        b"int64",
        b"float32",
        b"string",
        b"dtype",
        b"\x94",
    )
    places = [data.find(mark, rng.randrange(len(data))) for mark in marks]
    for at in rng.sample(places, 3):
        if 0 <= at < len(data) - 16:
            data[at + rng.randrange(16)] = rng.choice(
                [rng.randrange(256), *b"]}()NRb.\x8e\x96\x94C"]
            )


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
    """Reads a file that was made of an intact one by :func:`damage`.

    Args:
        path: of the damaged file.
        original: the bytes of the intact one.

    Raises:
        AssertionError: something else was raised than a ``YogadlError``; or a record was read as
            what it never was, where checksums can tell; or differently one by one and in a batch;
            or it took too long.
    """
    with _in_time(path):
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
            if _is_format_1(original) and path.read_bytes() != original:
                raise MisreadError("verify found nothing")


def _check_records(reader: FileReader, original: bytes) -> None:
    sums, records = _intact(original)
    sealed = sums is None or _sums(reader) != sums
    count = len(reader)
    chosen = sorted({*range(min(count, _RECORDS_READ)), *range(max(0, count - 4), count)})
    for position in chosen:
        found = _outcome(reader.read_record, position)
        batch = _outcome(functools.partial(_read_as_batch, reader), position)
        if not same(_leaves(reader, found), batch):
            raise MisreadError(
                f"record {position}: {found!r:.100} by itself, {batch!r:.100} in a batch"
            )
        if found is not None and not sealed and not same(found, (records[position],)):
            raise MisreadError(
                f"record {position} is {found!r:.200}, not {records[position]!r:.200}"
            )
    with contextlib.suppress(YogadlError):
        reader.read_columns(np.array(chosen, "i8"))


def _read_as_batch(reader: FileReader, position: int) -> list[Any]:
    return [_plain(column[0]) for column in reader.read_columns(np.array([position]))]


def _leaves(reader: FileReader, found: tuple[Any] | None) -> tuple[list[Any]] | None:
    if found is None:
        return None
    return ([_plain(value) for value in specs.flatten(reader.spec, found[0])],)


def _plain(value: Any) -> Any:
    """Scalars as arrays of no dimensions, which they are in a batch."""
    return np.asarray(value) if isinstance(value, np.generic | bytes) else value


def _outcome(read: Callable[[int], Any], position: int) -> tuple[Any] | None:
    """What was read, ``None`` where that was refused."""
    try:
        return (read(position),)
    except YogadlError:
        return None


@contextlib.contextmanager
def _in_time(path: pathlib.Path) -> Iterator[None]:
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
            rng = Random(number)
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
