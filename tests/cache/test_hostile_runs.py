"""Tables with runs and column groups whose checksums are right, and what they say is not."""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import hostile_damage
import numpy as np
import pytest
import xxhash
from versioned import write_groups, write_parts, write_runs

from yogadl.cache.parts import PartFiles, read_header
from yogadl.dataref import LMDBDataRef
from yogadl.errors import ChecksumError, YogadlError
from yogadl.format import table as tables
from yogadl.spec import TensorSpec

Array = np.ndarray[Any, Any]

NUMBER, TEXT = TensorSpec("int64"), TensorSpec("string")
COUNT, PARTS, INDEX, VALUE_SIZE = 8224, 8392, 8312, 8240


def runs_table(folder: pathlib.Path) -> pathlib.Path:
    """Of parts of 10, 20 and 5 records, in runs of 8, 20, 1 and 5."""
    path = folder / "a" / "1" / "cache.mdb"
    parts = write_parts(path, NUMBER, [list(range(10)), list(range(20)), list(range(5))])
    write_runs(path, NUMBER, parts, [(0, 2, 8), (1, 0, 20), (0, 0, 1), (2, 0, 5)]).close()
    return path


def groups_table(folder: pathlib.Path) -> pathlib.Path:
    """Of ten records in two groups, of two leaves, of which one is dropped, and of one."""
    path = folder / "a" / "1" / "cache.mdb"
    pair = {"n": NUMBER, "old": TEXT}
    one = write_parts(path, pair, [[{"n": n, "old": b"x"} for n in range(5)] for _ in range(2)])
    two = write_parts(path, (TEXT,), [[(b"text",) for _ in range(10)]])
    groups = [(pair, one, [(0, 0, 5), (0, 0, 5)]), ((TEXT,), two, [(0, 0, 10)])]
    write_groups(path, {"n": NUMBER, "t": TEXT}, groups, [(0, 0), (1, 0)]).close()
    return path


def change(path: pathlib.Path, make: Callable[[bytes], bytes]) -> None:
    """Changes what stands behind the parts of a table, and makes the checksums right."""
    data = bytearray(path.read_bytes())
    offset, length, _ = struct.unpack_from("<QQQ", data, INDEX)
    at = 64 * struct.unpack_from("<Q", data, PARTS)[0]
    section = bytes(data[offset : offset + length])
    changed = section[:at] + make(section[at:])
    # There is room up to the end of the page.
    assert len(changed) <= 4096 - 16
    data[offset : offset + len(changed)] = changed
    struct.pack_into("<QQQ", data, INDEX, offset, len(changed), xxhash.xxh3_64_intdigest(changed))
    hostile_damage.seal(data)
    path.write_bytes(data)


def columns(runs: Sequence[tuple[int, int, int]], width: int = 4) -> bytes:
    """Up to 1,024 runs, as a table has them if their numbers need so many bytes."""
    ends: dict[int, int] = {}
    numbers: tuple[list[int], ...] = ([], [], [])
    for part, first, count in runs:
        step = first - ends.get(part, 0)
        ends[part] = first + count
        for column, number in zip(
            numbers, (part, 2 * step if step >= 0 else -2 * step - 1, count - 1), strict=True
        ):
            column.append(number)
    raw = [b"".join(number.to_bytes(width, "little") for number in column) for column in numbers]
    return b"".join(bytes([width]) + column for column in raw)


def with_runs(
    runs: Sequence[tuple[int, int, int]], count: int | None = None, width: int = 4
) -> Any:
    """These, instead of those that are there."""
    head = struct.pack("<QQ", len(runs) if count is None else count, 0)
    return lambda _old: head + columns(runs, width)


def with_width(column: int, width: int) -> Any:
    """Another one for the numbers of a column, which are there as before."""
    raw = bytearray(columns(FEW))
    raw[column * (1 + 4 * len(FEW))] = width
    return lambda _old: struct.pack("<QQ", len(FEW), 0) + bytes(raw)


FEW = [(0, 2, 8), (1, 0, 20), (0, 0, 1), (2, 0, 5)]
LATER = [(1, 0, 20), (2, 0, 5)]
WRONG_RUNS: dict[str, Any] = {
    "a part that is not there": with_runs([*FEW[:3], (3, 0, 5)]),
    "a part of a huge number": with_runs([*FEW[:3], (2**32 - 1, 0, 5)]),
    "a record behind the last": with_runs([(0, 3, 8), *FEW[1:]]),
    "a first record far behind": with_runs([(0, 2**31 - 1, 8), *LATER]),
    "a first record before the first": with_runs([(0, -1, 8), *FEW[1:]]),
    "a first record far before the first": with_runs([(0, -(2**31), 8), *LATER]),
    "a first record that wraps around": with_runs(
        [(0, 2**31 - 1, 2**31), (0, 2**32 + 2, 8), *LATER]
    ),
    "as many records as 32 bits do not hold": with_runs([(0, 2, 2**32), *LATER]),
    "too many records": with_runs([*FEW, (0, 0, 1)]),
    "too few records": with_runs([(0, 2, 7), *FEW[1:]]),
    "counts that add up when they wrap around": with_runs([*FEW, (2, 5, 2**32)]),
    "a part of which nothing is used": with_runs([(0, 2, 8), (1, 0, 20), (0, 0, 1), (0, 0, 5)]),
    "numbers of no bytes": with_runs([], 4),
    "only the parts": lambda old: old[:16] + columns(FEW)[:17],
    "no counts": lambda old: old[:16] + columns(FEW)[:34],
    "a count that is cut off": lambda old: old[:16] + columns(FEW)[:-1],
    **{
        f"{width} bytes for the numbers of column {column}": with_width(column, width)
        for column in range(3)
        for width in (0, 1, 3, 8, 255)
    },
    "more runs than there are": with_runs(FEW, 5),
    "fewer runs than there are": with_runs(FEW, 3),
    "no runs": with_runs([], 0),
    "a number of runs that wraps around": with_runs(FEW, 2**60 + 4),
    "more blocks of runs than there are": with_runs(FEW, 1025),
    "the largest number of runs": with_runs(FEW, 2**64 - 1),
    "half a number": lambda old: old[:12],
    "something behind them": lambda old: old + bytes(8),
    "groups of which nothing is said": lambda old: old[:8] + struct.pack("<Q", 1) + old[16:],
    "a huge number of groups": lambda old: old[:8] + struct.pack("<Q", 2**64 - 1) + old[16:],
    "a number of groups that wraps around": lambda old: (
        old[:8] + struct.pack("<Q", 2**60) + old[16:]
    ),
}


def refused(path: pathlib.Path) -> None:
    """A table is, before any part is opened."""
    with (
        mock.patch.object(PartFiles, "check_sizes", side_effect=AssertionError("parts were read")),
        pytest.raises(ChecksumError, match=r"cache\.mdb.* has .*; rebuild it|make no sense"),
    ):
        LMDBDataRef(path)
    header, file = read_header(path)
    place = header.index
    with pytest.raises(YogadlError):
        tables.load(file.array[place.offset : place.offset + place.length], header, "a table")


@pytest.mark.parametrize("name", WRONG_RUNS)
def test_runs_that_cannot_be(tmp_path: pathlib.Path, name: str) -> None:
    path = runs_table(tmp_path)
    change(path, WRONG_RUNS[name])
    refused(path)


def test_what_is_changed_is_what_is_read(tmp_path: pathlib.Path) -> None:
    """That the others are refused says something."""
    path = runs_table(tmp_path)
    for width in (1, 2, 4):
        change(path, with_runs([(2, 0, 5), (0, 0, 9), (1, 0, 20)], width=width))
        with LMDBDataRef(path) as ref:
            assert [int(record) for record in ref] == [*range(5), *range(9), *range(20)]
    path.unlink()
    path = groups_table(tmp_path)
    change(path, set_group(1, 16, 8))
    with LMDBDataRef(path) as ref:
        assert [int(record["n"]) for record in ref] == [*range(5), *range(5)]


def set_u64(at: int, value: int) -> Any:
    return lambda old: old[:at] + struct.pack("<Q", value) + old[at + 8 :]


def set_u32(at: int, value: int) -> Any:
    return lambda old: old[:at] + struct.pack("<I", value) + old[at + 4 :]


# Behind the counts, two groups, of two runs and of one.
GROUPS_AT = 16
LEAVES_AT = GROUPS_AT + 48 * 2 + 3 * (1 + 2) + 3 * (1 + 1)


def set_group(number: int, field: int, value: int) -> Any:
    return set_u64(GROUPS_AT + 48 * number + field, value)


HUGE = (2**32, 2**60, 2**63, 2**64 - 1)
WRONG_GROUPS: dict[str, Any] = {
    "one group": set_u64(8, 1),
    "three groups": set_u64(8, 3),
    **{f"{value:x} groups": set_u64(8, value) for value in HUGE},
    **{
        f"{field} {value:x}": set_group(0, at, value)
        for field, at in (("parts", 0), ("runs", 8), ("alignment", 16), ("spec length", 24))
        for value in (0, 4, *HUGE)
    },
    "another checksum of a spec": set_group(0, 32, 5),
    "something in a reserved place": set_group(0, 40, 1),
    "a group without parts": lambda old: set_group(0, 0, 0)(set_group(1, 0, 2)(old)),
    "a group without runs": lambda old: set_group(0, 8, 0)(set_group(1, 8, 3)(old)),
    "runs of the other group": lambda old: set_group(0, 8, 1)(set_group(1, 8, 2)(old)),
    "a leaf of a group that is not there": set_u32(LEAVES_AT, 2),
    "a leaf of a huge group": set_u32(LEAVES_AT, 2**32 - 1),
    "a leaf that is not there": set_u32(LEAVES_AT + 4, 2),
    "a leaf of a huge number": set_u32(LEAVES_AT + 4, 2**32 - 1),
    "a leaf of another spec": set_u32(LEAVES_AT + 4, 1),
    "a leaf twice": set_u32(LEAVES_AT, 1),
    "a group of which nothing is used": set_u32(LEAVES_AT + 8, 0),
    "a leaf too many": lambda old: (
        old[:LEAVES_AT] + old[LEAVES_AT : LEAVES_AT + 8] + old[LEAVES_AT:]
    ),
    "no leaves": lambda old: old[:LEAVES_AT] + old[LEAVES_AT + 16 :],
    "half a leaf": lambda old: old[:LEAVES_AT] + old[LEAVES_AT + 4 :],
}


@pytest.mark.parametrize("name", WRONG_GROUPS)
def test_groups_that_cannot_be(tmp_path: pathlib.Path, name: str) -> None:
    path = groups_table(tmp_path)
    change(path, WRONG_GROUPS[name])
    with pytest.raises(ChecksumError, match=r"cache\.mdb"):
        LMDBDataRef(path)


def test_a_spec_of_a_group_that_is_none(tmp_path: pathlib.Path) -> None:
    path = groups_table(tmp_path)

    def spoiled(old: bytes) -> bytes:
        text = b'{"kind": "tuple", "items": [{"kind": "tensor", "dtype": "string", "shape": []}]}'
        at = old.index(text)
        wrong = text.replace(b"tuple", b"tupel")
        changed = old[:at] + wrong + old[at + len(text) :]
        return set_group(1, 32, xxhash.xxh3_64_intdigest(wrong))(changed)

    change(path, spoiled)
    with pytest.raises(ChecksumError, match=r"cache\.mdb.*unknown kind"):
        LMDBDataRef(path)
