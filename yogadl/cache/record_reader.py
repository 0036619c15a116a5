"""The interface of whatever gives records by their positions."""

from __future__ import annotations

import abc
import contextlib
import copy
import dataclasses
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from yogadl import spec as specs
from yogadl.cache.columns import Column
from yogadl.cache.content_id import marked
from yogadl.cache.machine import machine_bytes
from yogadl.cache.mapping import Extents
from yogadl.cache.traffic import Traffic
from yogadl.closing import Closing
from yogadl.format.layout import RecordLayout
from yogadl.format.pages import PAGE_SIZE

Array = np.ndarray[Any, Any]


_LARGEST_WHOLE = 1 << 30
# A disk that reads 4 KiB here and there at 0.3 GB/s reads 150 KB here and there, or a file from end
# to end, at 2 GB/s.
_DENSE_BYTES = 4 * PAGE_SIZE


class Observer(Protocol):
    """Is told of everything that a reader reads."""

    def reading(
        self, extents: Sequence[Extents], count: int
    ) -> contextlib.AbstractContextManager[None]:
        """Surrounds the reading of ``count`` records, which lie in some extents of files."""


@dataclass(frozen=True)
class MappedRecords:
    """Records of one size in one buffer, for who reads them there without this library's help.

    Attributes:
        buffer: uint8; not to be written to.
        layout: of the records.
        value_size: bytes of the LMDB value of each.
        alignment: values up to ``INLINE_LIMIT`` bytes start on a multiple of it.
        offsets: where in the buffer the values of some records start: int64 ``[n]`` of positions.
            Checks what is to be checked before they are read.
    """

    buffer: Array
    layout: RecordLayout
    value_size: int
    alignment: int
    offsets: Callable[[Array], Array]


class RecordReader(Closing):
    """Random access to the records of a data set.

    All methods may be called from many threads, and in children after a fork. A copy by
    ``copy.copy`` reads on when the original is closed.

    Attributes:
        spec: the element spec.
        observer: is told of what is read.
        closings: how many readers of this process have been closed, or about as many: another
            number after each. Who reads what many others have looks at them only then.
    """

    closings: ClassVar[int] = 0
    spec: specs.Structure
    observer: Observer | None = None
    _observed: weakref.WeakSet[RecordReader] | None = None

    @abc.abstractmethod
    def __len__(self) -> int:
        """Number of records."""

    @property
    @abc.abstractmethod
    def content_id(self) -> str:
        """Tells data sets apart: equal only where the same positions mean the same records.

        It is found when it is first asked for, and then kept.
        """

    def tokens(self, positions: Array) -> Array:
        """What tells records apart, as ``cache.content_id`` describes it: equal ones for equal
        records of one spec.

        Args:
            positions: as for :meth:`read_columns`.

        Returns:
            uint64 ``[n]``. Where the contents of records are not known, they tell apart positions
            in the data set of this content id.
        """
        return marked(positions.astype("u8"), self.content_id)

    def read_columns(
        self, positions: Array, out: Sequence[Array] | None = None, spans: bool = False
    ) -> list[Column]:
        """One column per leaf of the spec for some records; see ``cache.columns.Column``.

        Args:
            positions: int64 ``[n]``, each in ``[0, len(self))``; the caller has checked them.
            out: arrays to read into, one per leaf: C-contiguous, of the columns' shapes and dtypes,
                for specs of numbers of static shape.
            spans: values of one unknown dimension may be returned as ``Spans``, to be read by the
                caller.
        """
        if self.observer is None:
            return self._columns(positions, out, spans)
        with self.observer.reading(self.extents(positions), len(positions)):
            return self._columns(positions, out, spans)

    @abc.abstractmethod
    def _columns(self, positions: Array, out: Sequence[Array] | None, spans: bool) -> list[Column]:
        """See :meth:`read_columns`."""

    def read_leaves(self, positions: Array, wanted: Collection[int]) -> list[Column]:
        """As :meth:`read_columns`, for who needs some leaves only: what lies apart from all of
        these is not read.

        Args:
            positions: likewise.
            wanted: the numbers of the leaves.

        Returns:
            The columns; in place of others than these, ``None``, or what was read with them.
        """
        columns = self.read_columns(positions)
        return [column if number in wanted else None for number, column in enumerate(columns)]

    def read_record(self, position: int) -> Any:
        """One record, a nest as of the spec, its arrays fresh and writable."""
        if self.observer is None:
            return self._record(position)
        with self.observer.reading(self.extents(np.array([position])), 1):
            return self._record(position)

    @abc.abstractmethod
    def _record(self, position: int) -> Any:
        """See :meth:`read_record`."""

    def mapped_records(self) -> MappedRecords | None:
        """The records where they lie, if they are of one size in one buffer."""
        found, observer = self._mapped_records(), self.observer
        if found is None or observer is None:
            return found
        look_up = found.offsets

        def offsets(positions: Array) -> Array:
            with observer.reading(self.extents(positions), len(positions)):
                return look_up(positions)

        return dataclasses.replace(found, offsets=offsets)

    def _mapped_records(self) -> MappedRecords | None:
        """See :meth:`mapped_records`."""
        return None

    @property
    def lends_rows(self) -> bool:
        """Whether records may be views of what was read at once, which they then keep in memory.

        Copying each record takes a third of the time of reading it from a mapped file, so those of
        a file are views, of a megabyte at most. Elsewhere, it is little beside the rest.
        """
        return True

    @property
    @abc.abstractmethod
    def record_bytes(self) -> int:
        """Bytes of a record, estimated where they differ; for choosing how many to read at once."""

    @property
    def bytes_in_order(self) -> int:
        """As :attr:`record_bytes`, of records that are read in order, and all of them."""
        return self.record_bytes

    def observed_by(self, observer: Observer) -> RecordReader:
        """A copy that tells an observer what it reads, to be closed by :meth:`close_observed`."""
        made = self._copied_to_observe()
        made.observer, made._observed = observer, None
        if self._observed is None:
            self._observed = weakref.WeakSet()
        self._observed.add(made)
        return made

    def _copied_to_observe(self) -> RecordReader:
        """A copy to be closed with this one."""
        return copy.copy(self)

    def close_observed(self) -> None:
        """Closes all copies that :meth:`observed_by` has made of this one."""
        for reader in list(self._observed or ()):
            reader.close()

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of the data. Reading afterwards raises ``ClosedError``. May be called twice."""

    def check_open(self) -> None:
        """Sees that it can be read.

        Raises:
            ClosedError: it is closed, or what it reads is.
        """

    # What is of use where data can be larger than memory.

    def extents(self, positions: Array | range) -> list[Extents]:  # noqa: ARG002
        """Where in files some records lie, as far as there are files.

        Args:
            positions: as for :meth:`read_columns`; or a run of positions, in no particular order,
                of which the extents may have what lies between them, too.
        """
        return []

    @property
    def is_far(self) -> bool:
        """Whether records may come from another machine."""
        return False

    def traffic(self) -> list[Traffic]:
        """What was asked for of other machines, one for each place that it comes from."""
        return []

    def is_read_whole(self, num_shards: int, rank: int) -> bool | None:  # noqa: ARG002 # for others
        """Whether all is to be announced before a shard of it is read in some other order.

        Then reading it from end to end is several times faster than record by record.

        Args:
            num_shards: into which it is divided.
            rank: which of them is read.

        Returns:
            ``None`` if that cannot be said yet, but soon.
        """
        largest = min(_LARGEST_WHOLE, machine_bytes() // 8)
        return (
            self.record_bytes * num_shards <= _DENSE_BYTES
            and self.record_bytes * len(self) <= largest
        )

    def are_cached(self, positions: Array) -> bool:
        """Whether some records need not be fetched from the disk, as far as their first bytes tell.

        Args:
            positions: as for :meth:`read_columns`; a sample is enough.
        """
        return all(extents.are_cached() for extents in self.extents(positions))

    def announce(self, positions: Array | range) -> None:
        """Tells the system that some records will be read soon, so that it fetches them."""
        for extents in self.extents(positions):
            extents.will_need()

    def forget(self, start: int, stop: int) -> None:
        """Takes the records ``start … stop-1`` out of this process's memory.

        They stay in the page cache, and can be read again all the same.
        """
        for extents in self.extents(range(start, stop)):
            extents.forget()
