"""What a user's function makes of the records of a version."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from yogadl.adapters import can_be_read
from yogadl.errors import InvalidArgumentError, SpecMismatchError

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
    """Iterates once over what a function makes of some records.

    Args:
        function: takes a record, and returns one.
        positions: of the records.
        records: they themselves, as many.

    Raises:
        InvalidArgumentError: there is no function.
    """

    def __init__(
        self, function: Callable[[Any], Any], positions: Iterable[int], records: Iterable[Any]
    ) -> None:
        if not callable(function):
            raise InvalidArgumentError(
                f"update takes a function, and then the positions, not {function!r:.100}"
            )
        self._function = function
        self._records = zip(positions, records, strict=True)
        self._position = -1
        self._made: Any = None
        self._is_called = False

    def __iter__(self) -> Iterator[Any]:
        for position, record in self._records:
            self._is_called = True
            self._position, self._made = position, self._function(record)
            self._is_called = False
            yield self._made

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
