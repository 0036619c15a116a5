"""Bytes that are fetched, and fetched again as long as they are not right."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from yogadl.remote._fetching.fetcher import fetcher
from yogadl.remote._fetching.work import Range

Array = np.ndarray[Any, Any]

# Times that something is fetched before it is given up as damaged; the first of them, and the pause
# before the next, which is twice as long each time.
_FETCHES, _AT_ONCE, _PAUSE_SECONDS = 10, 3, 0.01


class WrongBytesError(Exception):
    """A range is not right, however often it is fetched."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def fetches() -> Iterator[None]:
    """The times that something is fetched, the later ones after a while.

    What damages answers on their way may damage every other one, or be over soon.
    """
    for number in range(_FETCHES):
        if number >= _AT_ONCE:
            time.sleep(_PAUSE_SECONDS * 2 ** (number - _AT_ONCE))
        yield


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
    for _ in fetches():
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
