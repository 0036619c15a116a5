"""What this process has of a file in memory alone, as there was no room to keep it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

CELL = 1024
"""Bytes that are there or not as a whole; the sizes of files are multiples of it."""


@dataclass(eq=False)
class Passed:
    """A range that was fetched together, of which the memory goes when no cell of it is left.

    Attributes:
        start, stop: of the range, multiples of ``CELL``.
        left: how many of its cells are still there.
    """

    start: int
    stop: int
    left: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


class InMemory:
    """For one thread at a time, but for reading."""

    def __init__(self) -> None:
        # By cell: the offset of a range, all its bytes, and what is known of it.
        self._cells: dict[int, tuple[int, memoryview, Passed]] = {}
        # Ranges of cells that somebody is reading, by who.
        self._held: dict[object, list[tuple[int, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._cells)

    def __contains__(self, cell: int) -> bool:
        return cell in self._cells

    def cells(self, first: int, last: int) -> list[int]:
        """Which cells of a range of them are here, in any order."""
        # Of a large range, few may be. To copy the keys is one step for other threads.
        if len(self._cells) < last - first:
            return [cell for cell in list(self._cells) if first <= cell < last]
        return [cell for cell in range(first, last) if cell in self._cells]

    def add(self, start: int, data: memoryview) -> tuple[Passed, list[Passed]]:
        """Adds some bytes, from a multiple of ``CELL`` on, which nobody may change any more.

        Returns:
            What was added; and what nothing is left of, since this came in its place.
        """
        first, count = start // CELL, len(data) // CELL
        gone = self._remove(range(first, first + count))
        passed = Passed(start, start + len(data), count)
        self._cells.update(dict.fromkeys(range(first, first + count), (start, data, passed)))
        return passed, gone

    def hold(self, start: int, stop: int, who: object) -> None:
        """Keeps what is here of a range, or will be, until ``who`` lets go of it.

        The ranges of this and of what follows may begin and end anywhere.
        """
        self._held.setdefault(who, []).append((start // CELL, -(-stop // CELL)))

    def let_go(self, who: object) -> None:
        """Ends every :meth:`hold` of theirs."""
        self._held.pop(who, None)

    def is_held(self, start: int, stop: int) -> bool:
        """Whether somebody holds any of a range."""
        return bool(self._held_of(start // CELL, -(-stop // CELL)))

    def _held_of(self, first: int, last: int) -> list[tuple[int, int]]:
        held = itertools.chain.from_iterable(self._held.values())
        return [other for other in held if other[0] < last and first < other[1]]

    def drop(self, start: int, stop: int, only: Passed | None = None) -> list[Passed]:
        """Lets go of a range, but for what somebody holds.

        Args:
            start, stop: the range.
            only: what was fetched with this, and not what came in its place.

        Returns:
            What nothing is left of.
        """
        if not self._cells:
            return []
        first, last = start // CELL, -(-stop // CELL)
        cells = self.cells(first, last)
        if only is not None:
            cells = [at for at in cells if self._cells[at][2] is only]
        held = self._held_of(first, last) if cells else []
        if held:
            cells = [at for at in cells if not any(begin <= at < end for begin, end in held)]
        return self._remove(cells)

    def discard(self, start: int, stop: int) -> list[Passed]:
        """Lets go of a range, whoever holds it; returns what nothing is left of."""
        return self._remove(range(start // CELL, -(-stop // CELL)))

    def _remove(self, cells: Iterable[int]) -> list[Passed]:
        gone = []
        for cell in cells:
            found = self._cells.pop(cell, None)
            if found is not None:
                found[2].left -= 1
                if not found[2].left:
                    gone.append(found[2])
        return gone

    def within(self, start: int, stop: int) -> Iterator[Passed]:
        """What some bytes of a range were fetched with."""
        cell, last = start // CELL, -(-stop // CELL)
        while self._cells and cell < last:
            found = self._cells.get(cell)
            cell += 1
            if found is not None:
                yield found[2]
                cell = max(cell, found[2].stop // CELL)

    def read_into(self, cell: int, start: int, out: memoryview) -> None:
        """Puts in what is here of a cell; ``start`` is the offset of ``out``."""
        found = self._cells.get(cell)
        if found is not None:
            begin, data, _ = found
            first, last = max(start, cell * CELL), min(start + len(out), (cell + 1) * CELL)
            out[first - start : last - start] = data[first - begin : last - begin]

    def clear(self) -> None:
        self._cells.clear()
        self._held.clear()
