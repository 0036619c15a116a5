"""Writes the golden caches of format 1::

    PYTHONPATH=.:tests python tests/golden/make_format_1.py OUTPUT_DIRECTORY

They are the same to the byte whenever and wherever they are written: time and release are fixed.
Files of a released format never change; a test compares today's writer with them.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any
from unittest import mock

import numpy as np
from versioned import write_groups, write_parts, write_runs

from yogadl.cache.writer import CacheWriter
from yogadl.spec import (
    NoneSpec,
    OptionalSpec,
    Ragged,
    RaggedSpec,
    Sparse,
    SparseSpec,
    TensorSpec,
    namedtuple_class,
)

TIME_NS = 1_790_000_000_123_456_789
RELEASE = "1.0.0-golden"


def _fixed(number: int) -> Any:
    """Of one size, inside the leaf pages."""
    return {
        "id": np.int64(number - 2),
        "x": np.arange(3, dtype=np.float32) + number,
        "flag": np.bool_(number % 2),
    }


def _large(number: int) -> Any:
    """Of one size, on pages of their own."""
    return np.full((26, 26, 3), number, np.uint8), np.int32(number)


def _mixed(number: int) -> Any:
    """Of many sizes, some on pages of their own; every kind of leaf."""
    return {
        "name": f"näme {number}".encode() * (1 if number != 1 else 300),
        "tags": np.array([b"a" * number, b"\0"], object),
        "dense": np.full((number, 2), number, np.int16),
        "any": np.full((1,) * number, number, np.float64)[()],
        "ragged": Ragged(np.arange(number, dtype=np.int32), (np.array([0, 0, number]),)),
        "sparse": Sparse(
            np.array([[number, 0]]), np.array([number / 2], np.float32), np.array([5, 1])
        ),
        "none": None,
        "pair": namedtuple_class("Pair", ("left", "right"))(
            np.uint8(number) if number % 2 else None, np.complex64(number + 1j)
        ),
    }


MIXED_SPEC = {
    "name": TensorSpec("string"),
    "tags": TensorSpec("string", (2,)),
    "dense": TensorSpec("int16", (None, 2)),
    "any": TensorSpec("float64", None),
    "ragged": RaggedSpec("int32", (2, None), 1),
    "sparse": SparseSpec("float32", (5, None)),
    "none": NoneSpec(),
    "pair": namedtuple_class("Pair", ("left", "right"))(
        OptionalSpec(TensorSpec("uint8")), TensorSpec("complex64")
    ),
}
FIXED_SPEC = {
    "id": TensorSpec("int64"),
    "x": TensorSpec("float32", (3,)),
    "flag": TensorSpec("bool"),
}
LARGE_SPEC = (TensorSpec("uint8", (26, 26, 3)), TensorSpec("int32"))

DATA_SETS: dict[str, tuple[Any, list[Any], Any]] = {
    "empty": (TensorSpec("float32", (None,)), [], None),
    "fixed": (FIXED_SPEC, [_fixed(number) for number in range(5)], {"made": "for ever", "n": [1]}),
    "large": (LARGE_SPEC, [_large(number) for number in range(3)], None),
    "mixed": (MIXED_SPEC, [_mixed(number) for number in range(4)], {"ä": None}),
}


def _make_tables(folder: pathlib.Path) -> None:
    """Versions of the same parts: of runs of their records, and of column groups."""
    rows = [_fixed(number) for number in range(9)]
    path = folder / "runs" / "cache.mdb"
    parts = write_parts(path, FIXED_SPEC, [rows[:4], rows[4:6], rows[6:]])
    runs = [(2, 1, 2), (0, 0, 3), (2, 0, 1), (0, 2, 2), (0, 0, 1)]
    write_runs(path, FIXED_SPEC, parts, runs, {"made": "of runs"}, TIME_NS).close()
    path = folder / "groups" / "cache.mdb"
    names = {"name": TensorSpec("string")}
    named = [{"name": b"n" * number} for number in range(5)]
    added = write_parts(path, names, [named])
    # One component is dropped, one renamed, and one added.
    spec = {"name": TensorSpec("string"), "number": TensorSpec("int64"), "x": FIXED_SPEC["x"]}
    groups = [
        (FIXED_SPEC, parts, [(1, 0, 2), (0, 1, 3)]),
        (names, added, [(0, 4, 1), (0, 0, 4)]),
    ]
    where = [(1, 0), (0, 1), (0, 2)]
    write_groups(path, spec, groups, where, {"made": "of groups"}, TIME_NS).close()


def main(directory: pathlib.Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with mock.patch("yogadl.cache.container.__version__", RELEASE):
        _make_tables(directory / "tables")
    for name, (spec, records, metadata) in DATA_SETS.items():
        with (
            mock.patch("time.time_ns", return_value=TIME_NS),
            mock.patch("yogadl.cache.container.__version__", RELEASE),
            CacheWriter(directory / f"{name}.mdb", spec, metadata) as writer,
        ):
            for record in records:
                writer.append(record)
            writer.commit()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
