"""Iterables and generators of records."""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from yogadl import spec as specs
from yogadl.adapters._base import MapSource, Source
from yogadl.adapters._convert import to_record
from yogadl.adapters._rows import NamingRecord, explaining
from yogadl.cache.writer import CacheWriter
from yogadl.errors import InvalidArgumentError


def as_spec(spec: Any) -> specs.Structure:
    """A spec of ``yogadl.spec`` leaves or of ``tf.TypeSpec``, in standard form."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None:
        leaves = list(_leaves(spec))
        if leaves and all(isinstance(leaf, tensorflow.TypeSpec) for leaf in leaves):
            from yogadl import tf_specs

            return tf_specs.from_tf(spec)
    return specs.normalize(spec)


def _leaves(nest: Any) -> Iterator[Any]:
    if isinstance(nest, dict | list | tuple):
        for child in nest.values() if isinstance(nest, dict) else nest:
            yield from _leaves(child)
    else:
        yield nest


def known_length(data: Any) -> int | None:
    """``len(data)``, or ``None`` if it has none.

    That a class has ``__len__`` need not mean that its object has a length: wrappers raise
    ``TypeError`` or ``NotImplementedError`` where what they wrap has none.
    """
    if not hasattr(type(data), "__len__"):
        return None
    try:
        return len(data)
    except (TypeError, NotImplementedError):
        return None


def _refuse_begun(data: Any) -> None:
    """A generator that was read before lacks records, all or some: often by another submit, perhaps
    one that failed."""
    if inspect.isgenerator(data) and inspect.getgeneratorstate(data) != inspect.GEN_CREATED:
        is_over = inspect.getgeneratorstate(data) == inspect.GEN_CLOSED
        how_far = "to its end" if is_over else "in part"
        only_rest = (
            "" if is_over else "; if only the rest is meant, give itertools.islice(it, None)"
        )
        raise InvalidArgumentError(
            f"the generator {data.__name__!r} was read before, {how_far}, and does not begin anew; "
            f"call its function again for another{only_rest}"
        )


def _was_it_read(data: Any) -> str:
    """What may have become of the records of an iterator that gave none."""
    if not hasattr(data, "__next__"):
        return ""
    return f": the {type(data).__name__} gave none, perhaps as it was read before"


class IterableSource(Source):
    """Records of an iterable, of a given spec or of the first record's.

    Of a generator that was begun, these are the records that are left: some may have been skipped.

    Args:
        data: the records: nests of arrays, tensors, images, numbers, strings.
        spec: as users write it.
        count: number of records, if ``len(data)`` does not tell.
        convert: makes records of NumPy values of what the iterable gives.
        lists_are_tuples: see ``to_record``; not used with ``convert``.
        map_source: makes the source of the same records by position.

    Raises:
        InvalidArgumentError: it is a generator that was read before; or no spec is given, and
            there is no record to infer it from.
        UnsupportedTypeError: the first record has something that cannot be stored.
    """

    def __init__(
        self,
        data: Iterable[Any],
        spec: Any = None,
        *,
        count: int | None = None,
        convert: Callable[[Any], Any] | None = None,
        lists_are_tuples: bool = False,
        map_source: Callable[[], MapSource] | None = None,
    ) -> None:
        _refuse_begun(data)
        self.count = known_length(data) if count is None else count
        self._inferred = spec is None
        self._lists_are_tuples = lists_are_tuples
        self._convert = convert or self._to_record
        self._map_source = map_source
        self._records = iter(data)
        if spec is not None:
            self.spec = as_spec(spec)
            return
        try:
            first = next(self._records)
        except StopIteration as error:
            raise InvalidArgumentError(
                f"there is no record to infer the element spec from{_was_it_read(data)}; give "
                "spec= to store a data set without records"
            ) from error
        self.spec = specs.infer(self._convert(first))
        self._records = itertools.chain([first], self._records)

    def _to_record(self, item: Any) -> Any:
        return to_record(item, lists_are_tuples=self._lists_are_tuples)

    def feed(self, writer: CacheWriter) -> None:
        with explaining(self._inferred):
            plain = self._convert == self._to_record
            for position, item in enumerate(self._records):
                if plain and writer.append_plain(item):
                    continue
                with NamingRecord(position):
                    record = self._convert(item)
                writer.append(record)

    def by_position(self) -> MapSource:
        return super().by_position() if self._map_source is None else self._map_source()
