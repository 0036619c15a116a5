"""Bytes that are fetched, and fetched again as long as they are not right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from yogadl.remote._fetcher import fetcher
from yogadl.remote._work import Range

Array = np.ndarray[Any, Any]

_FETCHES = 4


class WrongBytesError(Exception):
    """A range is not right, however often it is fetched."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def right_bytes(
    wanted: Sequence[Range], is_right: Callable[[int, Array], bool]
) -> Iterator[tuple[int, Array]]:
    """The bytes of some ranges, which are waited for together.

    Args:
        wanted: the ranges.
        is_right: whether the bytes, uint8, of the range of a number can be what was written.

    Yields:
        The number of a range, and its bytes; in any order.

    Raises:
        WrongBytesError: the bytes of a range are not right.
        YogadlError: they cannot be had.
    """
    numbers = list(range(len(wanted)))
    for _ in range(_FETCHES):
        wrong = []
        with fetcher().holding([wanted[number] for number in numbers]):
            for number in numbers:
                file, start, stop = wanted[number]
                data = np.empty(stop - start, "u1")
                file.pieces.read_into(start, memoryview(data))
                if is_right(number, data):
                    yield number, data
                else:
                    wrong.append(number)
        if not wrong:
            return
        fetcher().discard([wanted[number] for number in wrong])
        numbers = wrong
    raise WrongBytesError(numbers[0])
