"""What a user's function makes of the records of a version."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from yogadl.adapters import can_be_read
from yogadl.errors import InvalidArgumentError, SpecMismatchError, UnsupportedTypeError
from yogadl.format.codec import RecordCodec

_ADVICE_ON_SPEC = (
    "; make it fit, or first commit a change of the component: change.cast, or drop and add"
)


def is_function(data: Any) -> bool:
    """Whether something is to be called with a record, and is no data itself."""
    return callable(data) and (isinstance(data, type) or not can_be_read(data))


def values_of(function: Callable[[Any], Any], records: Iterable[Any]) -> Iterator[Any]:
    """What a function makes of records. No map, to which its StopIteration would be the end."""
    for record in records:
        yield function(record)


class Updated:
    """Iterates once over what a function makes of some records, as far as that is another record.

    Args:
        function: takes a record, and returns one.
        positions: of the records.
        records: they themselves, as many.
        codec: of both.
        note: is told of each record, that it is one more, and the bytes of all so far.

    Attributes:
        changed: which of the records the others stand in for, by their numbers.

    Raises:
        InvalidArgumentError: there is no function.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        positions: Iterable[int],
        records: Iterable[Any],
        codec: RecordCodec,
        note: Callable[[int, int], object],
    ) -> None:
        if not callable(function):
            raise InvalidArgumentError(
                f"update takes a function, and then the positions, not {function!r:.100}"
            )
        self._function = function
        self._records = zip(positions, records, strict=True)
        self._codec = codec
        self._note = note
        self.changed: list[int] = []
        self._position = -1
        self._made: Any = None
        self._is_called = False

    def __iter__(self) -> Iterator[Any]:
        nbytes = 0
        for number, (position, record) in enumerate(self._records):
            # The function may change it, and return it.
            before = self._codec.encode(record)
            nbytes += len(before)
            self._is_called = True
            self._position, self._made = position, self._function(record)
            self._is_called = False
            self._note(1, nbytes)
            if not self._is_still(before):
                self.changed.append(number)
                yield self._made

    def _is_still(self, before: bytes) -> bool:
        """Whether what was made last has the same bytes as before."""
        try:
            return self._codec.encode(self._made) == before
        except (SpecMismatchError, UnsupportedTypeError):
            # Who is to store it says so.
            return False

    def explained(self, error: SpecMismatchError) -> SpecMismatchError:
        """The error of what was made last, with what led to it; that of the function as it is."""
        if self._is_called:
            return error
        # Without the number that it has among those that were made.
        cause = str(error.__cause__ if isinstance(error.__cause__, SpecMismatchError) else error)
        return SpecMismatchError(
            f"what the function returned for record {self._position}, {self._made!r:.100}, does "
            f"not fit the version: {_advised(cause)}. It returns all of a record, such as "
            "{**record, 'label': 1}"
        )


@contextlib.contextmanager
def advising() -> Iterator[None]:
    """Of records that do not fit the spec, tells what can be done where that is a version's."""
    try:
        yield
    except SpecMismatchError as error:
        advised = _advised(str(error))
        if advised == str(error):
            raise
        raise SpecMismatchError(advised) from error


def _advised(text: str) -> str:
    told, _, advice = text.rpartition("; ")
    return f"{told}{_ADVICE_ON_SPEC}" if "spec=" in advice else text
