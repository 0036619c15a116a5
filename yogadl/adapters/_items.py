"""Objects that give a record for a position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from yogadl import chunk_sizes
from yogadl import spec as specs
from yogadl.adapters._base import Array, MapSource
from yogadl.adapters._convert import to_record, type_name
from yogadl.adapters._iterable import as_spec, known_length
from yogadl.adapters._rows import NamingRecord, RowStacker, explaining, put
from yogadl.cache.columns import Column
from yogadl.cache.writer import CacheWriter
from yogadl.errors import InvalidArgumentError, UnsupportedTypeError


class ItemsSource(MapSource):
    """The items of an object with ``__len__`` and ``__getitem__``, of positions ``0 … len - 1``.

    ``__getitems__`` is used where there is one: it takes a list of positions and returns a list of
    items. Safe for threads if the object is. What the object raises passes through.

    Args:
        data: the object.
        spec: as users write it; inferred from item 0 without.
        lists_are_tuples: see ``to_record``.

    Raises:
        UnsupportedTypeError: it has no length, or item 0 has something that cannot be stored.
        InvalidArgumentError: it is empty, and no spec is given.
    """

    def __init__(self, data: Any, spec: Any = None, *, lists_are_tuples: bool = False) -> None:
        self._data = data
        self._lists_are_tuples = lists_are_tuples
        self._inferred = spec is None
        self.count = self._count()
        if spec is not None:
            self.spec = as_spec(spec)
        elif self.count:
            self.spec = specs.infer(self.convert(self.items([0])[0], 0))
        else:
            raise InvalidArgumentError(
                f"an empty {type_name(data)} does not tell its element spec; give spec="
            )
        self._stacker = RowStacker(self.spec)

    def _count(self) -> int:
        count = known_length(self._data)
        if count is None:
            raise UnsupportedTypeError(
                f"a {type_name(self._data)} has no length; give it a __len__, or submit an "
                "iterable of its records"
            )
        return count

    def items(self, positions: list[int]) -> list[Any]:
        """The items at some positions, as they are."""
        if hasattr(self._data, "__getitems__"):
            return list(self._data.__getitems__(positions))
        return [self._data[position] for position in positions]

    def convert(self, item: Any, position: int) -> Any:
        """An item as a record of NumPy values."""
        with NamingRecord(position):
            return to_record(item, lists_are_tuples=self._lists_are_tuples)

    def columns(self, positions: Array, out: Sequence[Array] | None = None) -> list[Column]:
        places = positions.tolist()
        with explaining(self._inferred):
            records = map(self.convert, self.items(places), places)
            return put(self._stacker.columns(records, positions), out)

    @property
    def fingerprint(self) -> str:
        """The name of the type: what is in it is not looked at."""
        return type_name(self._data)

    def feed_some(self, writer: CacheWriter, start: int, stop: int) -> None:
        many = chunk_sizes.SUBMITTED_ITEMS if hasattr(self._data, "__getitems__") else 1
        with explaining(self._inferred):
            for first in range(start, stop, many):
                places = list(range(first, min(first + many, stop)))
                for record in map(self.convert, self.items(places), places):
                    writer.append(record)
