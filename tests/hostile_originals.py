"""Intact cache files to damage, of both formats and of every way of storing a record."""

from __future__ import annotations

import functools
import pathlib
import tempfile
from typing import Any

import numpy as np

from yogadl.cache.writer import CacheWriter
from yogadl.format import header as headers
from yogadl.spec import OptionalSpec, Ragged, RaggedSpec, TensorSpec

GOLDEN = pathlib.Path(__file__).parent / "golden"


@functools.cache
def originals() -> tuple[bytes, ...]:
    """Intact files of both formats, and of every way of storing a record."""
    golden = [
        *sorted((GOLDEN / "format-1").glob("*.mdb")),
        *sorted((GOLDEN / "yogadl-0.1.4").glob("*.mdb")),
    ]
    files = [path.read_bytes() for path in golden if path.stem != "killed"]
    return (*files, *map(_written, record_sets()))


def record_sets() -> list[tuple[Any, list[Any]]]:
    """Specs and records of them, of every way of storing a record."""
    return [_tokens(), _strings(), _nested(), _wide()]


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


def is_format_1(data: bytes) -> bool:
    """Whether a file, or its first pages, is of format 1."""
    return headers.is_header(data[headers.HEADER_OFFSET : headers.BODY_OFFSET])
