"""The interfaces of sources of records."""

from __future__ import annotations

import abc
import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from yogadl import chunk_sizes
from yogadl import spec as specs
from yogadl.adapters._convert import class_name
from yogadl.cache.columns import Column
from yogadl.cache.encoding import is_fixed, takes_columns
from yogadl.cache.writer import CacheWriter
from yogadl.errors import SpecMismatchError, UnsupportedTypeError
from yogadl.format.layout import RecordLayout

Array = np.ndarray[Any, Any]

_log = logging.getLogger(__name__)


class Source(abc.ABC):
    """Records that can be written once. Not thread-safe.

    Attributes:
        spec: the element spec.
        count: number of records, ``None`` where it is not known.
        first: what errors call the first record.
        tensorflow_config: a ``tf.compat.v1.ConfigProto`` or ``None``, for a source that needs a
            session of TensorFlow; others leave it alone.
        metadata: what is known of the records that is not in them, for the metadata of the data set
            if the user gives none of that name.
        prefers_threads: whether several threads read it better than several processes: no Python
            of the user's runs, and most of the time others can.
    """

    spec: specs.Structure
    count: int | None
    first: int = 0
    tensorflow_config: Any = None
    metadata: Mapping[str, Any] = MappingProxyType({})
    prefers_threads: bool = False

    @abc.abstractmethod
    def feed(self, writer: CacheWriter) -> None:
        """Appends every record, in order, to a writer of this spec."""

    def by_position(self) -> MapSource:
        """The same records, to be read at any position and any number of times.

        Raises:
            UnsupportedTypeError: they can only be read one after the other.
        """
        raise UnsupportedTypeError(
            "these records can only be read one after the other; submit them to a storage, and "
            "fetch them from there to read them by position"
        )


class MapSource(Source):
    """Records that can be read by position, again and again.

    :meth:`columns` and :meth:`record` may be called by many threads, and in children after a fork.
    It can be pickled if what it reads can.
    """

    count: int

    @abc.abstractmethod
    def columns(self, positions: Array, out: Sequence[Array] | None = None) -> list[Column]:
        """Some records as one fresh column per leaf of the spec; see ``cache.columns.Column``.

        Args:
            positions: int64 ``[n]``, each in ``[0, count)``; the caller has checked them.
            out: C-contiguous arrays ``[n, *shape]``, one per leaf, to read into and to return, for
                specs of numbers of static shape.
        """

    def record(self, position: int) -> Any:
        """One record, a nest as of the spec, its arrays fresh."""
        columns = self.columns(np.array([position]))
        return specs.unflatten(self.spec, [column[0] for column in columns])

    @property
    def fingerprint(self) -> str | None:
        """What tells it from other sources of this spec and count: the name of its type, if it does
        not say anything else. ``None`` has all records read, which then tell."""
        return class_name(type(self))

    def by_position(self) -> MapSource:
        """The source itself."""
        return self

    @property
    def chunk_size(self) -> int:
        """How many records are read at once where all are read."""
        size = RecordLayout(self.spec).content_size
        return chunk_sizes.SUBMITTED_BLINDLY if size is None else chunk_sizes.SUBMITTED.of(size)

    def rows(self, start: int, stop: int) -> list[Any]:
        """Neighbouring records as columns to be written, one per leaf of the spec; what they are
        is said at ``CacheWriter.append_columns``. They may share memory with the source.
        """
        return self.columns(np.arange(start, stop))

    def feed(self, writer: CacheWriter) -> None:
        self.feed_some(writer, 0, self.count)

    def feed_some(self, writer: CacheWriter, start: int, stop: int) -> None:
        """Appends the records from one position to another, in order. Thread-safe."""
        many = self.chunk_size
        whole, varies = takes_columns(self.spec), not is_fixed(self.spec)
        while start < stop:
            end, before = min(start + many, stop), writer.size
            if not (whole and self._wrote_rows(writer, start, end)):
                columns = self.columns(np.arange(start, end))
                append_leaves(writer, self.spec, columns, end - start)
            if varies:
                size = max(1, (writer.size - before) // (end - start))
                many = min(chunk_sizes.SUBMITTED.of(size), 4 * many)
            start = end

    def _wrote_rows(self, writer: CacheWriter, start: int, stop: int) -> bool:
        """Appends some records as columns, if all of them fit the spec; otherwise none."""
        try:
            writer.append_columns(self.rows(start, stop), stop - start)
        except (SpecMismatchError, UnsupportedTypeError) as error:
            if is_fixed(self.spec):
                raise
            # Taken one by one, the record at fault is named.
            _log.debug("Records %d to %d do not fit as columns: %s", start, stop, error)
            return False
        return True


def append_leaves(
    writer: CacheWriter, spec: specs.Structure, columns: Sequence[Column], count: int
) -> None:
    """Appends records given as one column per leaf."""
    if is_fixed(spec):
        writer.append_columns(columns, count)
        return
    if takes_columns(spec):
        try:
            writer.append_columns(columns, count)
        except (SpecMismatchError, UnsupportedTypeError) as error:
            # Taken one by one, the record at fault is named.
            _log.debug("%d records do not fit as columns: %s", count, error)
        else:
            return
    for row in zip(*columns, strict=True):
        writer.append(specs.unflatten(spec, row))
