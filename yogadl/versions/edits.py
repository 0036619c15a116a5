"""Edits of one version, in any order, put together to one change."""

from __future__ import annotations

from typing import Any

import numpy as np

from yogadl.errors import InvalidArgumentError
from yogadl.versions.hunks import Hunks
from yogadl.versions.runs import NO_RUNS, Runs

Array = np.ndarray[Any, Any]


class Edits:
    """What is to be changed of a version. All positions are the version's own, whatever was edited
    before; each record is deleted or replaced once at most.

    Not thread-safe.

    Args:
        count: records of the version.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        # Start and stop of what is replaced, and the source, first and count of what by; per call.
        self._rows: list[Array] = []
        # Of each record whether it is replaced; zeros take no memory until they are written to.
        self._is_replaced = np.zeros(count, bool)

    def __bool__(self) -> bool:
        """Whether anything is to be changed."""
        return bool(self._rows)

    def insert(self, position: int, source: int, count: int) -> None:
        """Puts ``count`` records of a source before the record at a position, behind what was put
        there before."""
        self._add(np.array([[position, position, source, 0, count]], dtype=np.int64))

    def delete(self, positions: Array) -> None:
        """Deletes the records at some positions, int64 ``[n]``.

        Raises:
            InvalidArgumentError: one is there twice, or was deleted or replaced before.
        """
        rows = np.zeros((len(positions), 5), dtype=np.int64)
        rows[:, 0] = np.sort(positions)
        rows[:, 1] = rows[:, 0] + 1
        self._add(rows)

    def replace(self, positions: Array, source: int) -> None:
        """Has the records of a source stand in for those at some positions, int64 ``[n]``.

        Raises:
            InvalidArgumentError: one is there twice, or was deleted or replaced before.
        """
        rows = np.empty((len(positions), 5), dtype=np.int64)
        order = np.argsort(positions, kind="stable")
        rows[:, 0] = positions[order]
        rows[:, 1] = rows[:, 0] + 1
        rows[:, 2] = source
        rows[:, 3] = order
        rows[:, 4] = 1
        self._add(rows)

    def check_new(self, positions: Array) -> None:
        """Sees that each of some records is there once, and was not deleted or replaced before.

        Raises:
            InvalidArgumentError: one is not.
        """
        places = np.sort(positions)
        again = np.concatenate(
            [places[1:][places[1:] == places[:-1]], places[self._is_replaced[places]]]
        )
        if len(again):
            raise InvalidArgumentError(
                f"record {int(again[0])} is deleted or replaced twice in one change; positions are "
                "those of the version that is changed"
            )

    def _add(self, rows: Array) -> None:
        if not len(rows) or not ((rows[:, 1] > rows[:, 0]) | (rows[:, 4] > 0)).any():
            return
        places = rows[rows[:, 1] > rows[:, 0], 0]
        self.check_new(places)
        self._is_replaced[places] = True
        self._rows.append(rows)

    def put_together(self) -> tuple[Hunks, Runs]:
        """The change, and the records that stand in for others, in their order."""
        rows = np.concatenate([np.empty((0, 5), dtype=np.int64), *self._rows])
        # What is inserted before a record comes before what stands in for it.
        rows = rows[np.lexsort((np.arange(len(rows)), rows[:, 1], rows[:, 0]))]
        starts, stops, sources, firsts, counts = np.ascontiguousarray(rows.T)
        has_new = counts > 0
        new = Runs(sources[has_new], firsts[has_new], counts[has_new])
        return Hunks(starts, stops, counts).grouped(), new.joined() if len(new) else NO_RUNS
