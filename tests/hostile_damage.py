"""Ways to damage a cache file that do as much harm as can be done; see ``hostile``."""

from __future__ import annotations

import contextlib
import json
import random
import struct
from collections.abc import Callable
from typing import Any

import xxhash
from hostile_originals import is_format_1

from yogadl.errors import YogadlError
from yogadl.format import spec_json
from yogadl.format.layout import RecordLayout
from yogadl.format.pages import PAGE_SIZE

Random = random.Random

NUMBERS = [0, 1, 2, 3, 8, 16, 4095, 4096, 12287, 12288, 2**15, 2**16 - 1, 2**31 - 1, 2**31]
NUMBERS += [2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 4096, 2**64 - 2, 2**64 - 1]
FIELDS = [8224, 8232, 8240, 8248, 8256, *range(8264, 8360, 8)]
"""Offsets of the header's ``u64``."""


def damage(rng: Random, data: bytes) -> bytes:
    """The bytes of an intact file, changed in one of many ways."""
    changed = bytearray(data)
    ways = [_flip_bits] * 3 + [_change_page, _cut]
    if is_format_1(data):
        ways += [_change_header] * 2 + [_change_spec] * 4 + [_change_metadata]
        ways += [_change_index] * 2 + [_change_records] * 3
    else:
        ways += [_change_meta_page] * 3 + [_change_nodes] * 3 + [_change_pickles] * 2
    rng.choice(ways)(rng, changed)
    return bytes(changed)


def damage_outside_records(rng: Random, data: bytes) -> bytes:
    """The same, of a file of format 1 that may be a table of parts."""
    changed = bytearray(data)
    ways = [_flip_bits, _flip_bits, _change_page, _cut, _change_header, _change_spec]
    rng.choice([*ways, _change_metadata])(rng, changed)
    return bytes(changed)


def change_number(rng: Random, data: bytearray, at: int) -> None:
    """Changes the ``u64`` at an offset."""
    (near,) = struct.unpack_from("<Q", data, at)
    struct.pack_into("<Q", data, at, _number(rng, near))


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
    return range(8208, 8440) if is_format_1(bytes(data[:12288])) else range(0, 4096 + 160)


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


def seal(data: bytearray) -> None:
    """Makes the checksum of the header right."""
    digest = xxhash.xxh3_64_intdigest(bytes(data[8208:8432]))
    struct.pack_into("<Q", data, 8432, digest)


def _change_header(rng: Random, data: bytearray) -> None:
    for _ in range(rng.choice([1, 1, 2, 3])):
        change_number(rng, data, rng.choice(FIELDS))
    if rng.randrange(3) == 0:
        for at in (8264, 8288, 8336):
            sum_section(data, at)
    seal(data)


def sum_section(data: bytearray, field: int) -> None:
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
    sum_section(data, field)
    struct.pack_into("<Q", data, 8248, len(data))
    seal(data)


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
    end = place + 16 * count
    sums = b"".join(
        struct.pack("<Q", xxhash.xxh3_64_intdigest(bytes(data[at : min(at + 65536, end)])))
        for at in range(place, end, 65536)
    )
    (at,) = struct.unpack_from("<Q", data, 8336)
    data[at : at + len(sums)] = sums
    sum_section(data, 8336)
    seal(data)


def _content(offset: int, length: int) -> int:
    """Where the content of a value at ``offset`` begins."""
    return offset + (48 if length > 2000 else 0)


def _checksum(data: bytearray, offset: int, length: int, at: int) -> int:
    """Of the content of the value at ``offset``, for the entry at ``at``."""
    content = bytes(data[_content(offset, length) : offset + length])
    position = (at - _entries(data)[0]) // 16
    (token_sum,) = struct.unpack_from("<Q", data, 8400)
    return (xxhash.xxh3_64_intdigest(content) ^ position * 0x9E3779B1 + token_sum) & 0xFFFFFFFF


def _change_entries(
    rng: Random, data: bytearray, times: list[int], change: Callable[[int], None]
) -> None:
    """Changes some entries of the index, or what they are of, by where they are."""
    place, count = _entries(data)
    if not count:
        _change_spec(rng, data)
        return
    for _ in range(rng.choice(times)):
        change(place + 16 * rng.randrange(count))
    _seal_index(data)


def _change_index(rng: Random, data: bytearray) -> None:
    """Changes where records are, and how long."""

    def change(at: int) -> None:
        offset, length, checksum = struct.unpack_from("<QII", data, at)
        how = rng.randrange(3)
        if how != 1:
            offset = _number(rng, offset)
        if how != 0:
            length = _number(rng, length) % 2**32
        if offset + length < len(data):
            checksum = _checksum(data, offset, length, at)
        struct.pack_into("<QII", data, at, offset, length, checksum)

    _change_entries(rng, data, [1, 1, 3], change)


def _change_records(rng: Random, data: bytearray) -> None:
    """Changes the sizes at the beginning of records, or what comes behind them."""

    def change(at: int) -> None:
        offset, length, _ = struct.unpack_from("<QII", data, at)
        start = _content(offset, length)
        room = max(offset + length - start, 8)
        word = start + 8 * rng.randrange(min(room // 8, rng.choice([1, 4, 16, 1000])))
        if word + 8 <= len(data):
            (near,) = struct.unpack_from("<Q", data, word)
            struct.pack_into("<Q", data, word, _number(rng, near))
        struct.pack_into("<I", data, at + 12, _checksum(data, offset, length, at))

    _change_entries(rng, data, [1, 2, 5], change)


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
