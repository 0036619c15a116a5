"""The interface of whatever gives records by their positions."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.cache.columns import Column
from yogadl.cache.content_id import marked
from yogadl.closing import Closing

Array = np.ndarray[Any, Any]


class RecordReader(Closing):
    """Random access to the records of a data set.

    All methods may be called from many threads, and in children after a fork. A copy by
    ``copy.copy`` reads on when the original is closed.

    Attributes:
        spec: the element spec.
    """

    spec: specs.Structure

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

    @abc.abstractmethod
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

    @abc.abstractmethod
    def read_record(self, position: int) -> Any:
        """One record, a nest as of the spec, its arrays fresh and writable."""

    @property
    def lends_rows(self) -> bool:
        """Whether records may be views of what was read at once, which they then keep in memory.

        Copying each record takes a third of the time of reading it from a mapped file, so those of
        a file are views, of a megabyte at most. Elsewhere, it is little beside the rest.
        """
        return True

    # What follows is of use to data that can be larger than memory; a reader may do without.

    def are_cached(self, positions: Array) -> bool:  # noqa: ARG002
        """Whether some records need not be fetched from the disk, as far as their first bytes tell.

        Args:
            positions: as for :meth:`read_columns`; a sample is enough.
        """
        return True

    def announce(self, positions: Array) -> None:  # noqa: ARG002
        """Tells the system that some records will be read soon, so that it fetches them."""
        return

    def announce_all(self) -> None:
        """Tells the system that every record will be read soon, in no particular order."""
        return

    def forget(self, start: int, stop: int) -> None:  # noqa: ARG002
        """Takes the records ``start … stop-1`` out of this process's memory.

        They stay in the page cache, and can be read again all the same.
        """
        return

    @property
    @abc.abstractmethod
    def record_bytes(self) -> int:
        """Bytes of a record, estimated where they differ; for choosing how many to read at once."""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of the data. Reading afterwards raises ``ClosedError``. May be called twice."""
