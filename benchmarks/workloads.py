"""The data sets of the benchmark: NumPy only, for every loader's environment.

A record is a flat dict of fields. Every record is made of its number, so what a loader delivers can
be checked by the number it comes with. Making a record costs next to nothing: large fields are cut
from a pool that is made once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Record = dict[str, Any]

NUMBER = "number"
"""The field that every record has: its position in the data set, int64."""


@dataclasses.dataclass(frozen=True)
class Field:
    """A feature: its dtype, ``"bytes"`` for a byte string; its shape, ``None`` where it varies."""

    dtype: str
    shape: tuple[int | None, ...] = ()

    @property
    def is_static(self) -> bool:
        return self.dtype != "bytes" and None not in self.shape


@dataclasses.dataclass(frozen=True)
class Workload:
    """One data set.

    Attributes:
        fields: by name, in order. A ``/`` in a name stands for a nested dict.
        count: records.
        record: makes a record of its number.
    """

    name: str
    title: str
    fields: dict[str, Field]
    count: int
    record: Callable[[int], Record]

    def records(self) -> Iterator[Record]:
        return map(self.record, range(self.count))

    @property
    def is_static(self) -> bool:
        """Whether all records have one shape, so that batches are stacked arrays."""
        return all(field.is_static for field in self.fields.values())

    @property
    def is_nested(self) -> bool:
        return any("/" in name for name in self.fields)

    def record_bytes(self, record: Record) -> int:
        """Bytes of a record's values alone."""
        return sum(
            len(v) if isinstance(v, bytes) else np.asarray(v).nbytes for v in record.values()
        )

    def total_bytes(self) -> int:
        """Bytes of all records' values."""
        if self.is_static:
            return self.record_bytes(self.record(0)) * self.count
        return sum(map(self.record_bytes, self.records()))


def columns(workload: Workload) -> dict[str, Any]:
    """All records as arrays in memory, one per field: of what varies, arrays of objects."""
    fields = workload.fields.items()
    found: dict[str, Any] = {
        name: np.empty((workload.count, *field.shape), field.dtype)
        if field.is_static
        else np.empty(workload.count, object)
        for name, field in fields
    }
    for number, record in enumerate(workload.records()):
        for name, value in record.items():
            found[name][number] = value
    return found


def rows(arrays: dict[str, Any]) -> Iterator[Record]:
    """The records of such arrays, for loaders that take no others."""
    names = list(arrays)
    for row in zip(*arrays.values(), strict=True):
        yield dict(zip(names, row, strict=True))


def nest(flat: dict[str, Any]) -> Any:
    """A flat dict as nested ones, by the slashes in its names."""
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, last = name.split("/")
        place = nested
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return nested


def flatten(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The reverse of :func:`nest`."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            flat.update(flatten(value, f"{prefix}{name}/"))
        else:
            flat[prefix + name] = value
    return flat


_POOL = 64


@functools.cache
def image_pool(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Random images ``[64, *shape]``: record ``n`` has number ``n % 64``."""
    return np.random.default_rng(0).integers(0, 255, (_POOL, *shape)).astype(dtype)


@functools.cache
def text_pool() -> bytes:
    return np.random.default_rng(1).bytes(400_000)


def span(number: Any, shortest: int, longest: int, room: int) -> tuple[Any, Any]:
    """Start and length of what a record cuts from a pool of ``room`` items; also for arrays."""
    length = shortest + number * 7919 % (longest - shortest + 1)
    return number * 104_729 % (room - longest), length


@functools.cache
def token_pool() -> np.ndarray[Any, Any]:
    return np.random.default_rng(2).integers(0, 50_000, 200_000, dtype=np.int32)


def _scalar(number: int) -> Record:
    return {NUMBER: np.int64(number)}


def _image(number: int, shape: tuple[int, ...], dtype: str) -> Record:
    return {"image": image_pool(shape, dtype)[number % _POOL], NUMBER: np.int64(number)}


STRING_SPAN = (60_000, 160_000, 400_000)
TOKEN_SPAN = (64, 2048, 200_000)


def _string(number: int) -> Record:
    start, length = span(number, *STRING_SPAN)
    return {"text": text_pool()[start : start + length], NUMBER: np.int64(number)}


def _tokens(number: int) -> Record:
    start, length = span(number, *TOKEN_SPAN)
    return {"tokens": token_pool()[start : start + length], NUMBER: np.int64(number)}


@functools.cache
def embedding_pool() -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).standard_normal((_POOL, 32), dtype=np.float32)


def _features(number: int) -> Record:
    return {
        "user/id": np.int64(number * 31),
        "user/age": np.float32(number % 90),
        "user/embedding": embedding_pool()[number % _POOL],
        "item/id": np.int32(number % 100_003),
        "item/price": np.float32(number % 997 / 8),
        "item/tags": np.arange(number % 7, number % 7 + 8, dtype=np.int32),
        "clicked": np.bool_(number % 3 == 0),
        NUMBER: np.int64(number),
    }


def _make(scale: float) -> list[Workload]:
    def count(full: int) -> int:
        return max(int(full * scale), 64)

    number = {NUMBER: Field("int64")}
    return [
        Workload("scalars", "int64 scalars", number, count(1_000_000), _scalar),
        Workload(
            "small_images",
            "28×28×1 float32 + label",
            {"image": Field("float32", (28, 28, 1)), **number},
            count(60_000),
            functools.partial(_image, shape=(28, 28, 1), dtype="float32"),
        ),
        Workload(
            "images",
            "224×224×3 uint8 + label",
            {"image": Field("uint8", (224, 224, 3)), **number},
            count(6_000),
            functools.partial(_image, shape=(224, 224, 3), dtype="uint8"),
        ),
        Workload(
            "strings",
            "60–160 kB byte strings + label",
            {"text": Field("bytes"), **number},
            count(8_000),
            _string,
        ),
        Workload(
            "tokens",
            "64–2048 int32 tokens + label",
            {"tokens": Field("int32", (None,)), **number},
            count(60_000),
            _tokens,
        ),
        Workload(
            "features",
            "nested dict of eight features",
            {
                "user/id": Field("int64"),
                "user/age": Field("float32"),
                "user/embedding": Field("float32", (32,)),
                "item/id": Field("int32"),
                "item/price": Field("float32"),
                "item/tags": Field("int32", (8,)),
                "clicked": Field("bool"),
                **number,
            },
            count(300_000),
            _features,
        ),
    ]


NAMES = tuple(workload.name for workload in _make(1.0))


def workload(name: str, scale: float = 1.0) -> Workload:
    """One of ``NAMES``, with ``scale`` times its records, at least 64."""
    return next(found for found in _make(scale) if found.name == name)
