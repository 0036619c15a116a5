"""What a user's function makes of the records of a version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from yogadl.errors import InvalidArgumentError, SpecMismatchError


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

    def __iter__(self) -> Iterator[Any]:
        for position, record in self._records:
            self._position, self._made = position, self._function(record)
            yield self._made

    def explained(self, error: SpecMismatchError) -> SpecMismatchError:
        """The error of what was made last, with what led to it."""
        # Without the number that it has among those that were made.
        cause = error.__cause__ if isinstance(error.__cause__, SpecMismatchError) else error
        return SpecMismatchError(
            f"what the function returned for record {self._position}, {self._made!r:.100}, does "
            f"not fit the version: {cause}. It returns all of a record, such as "
            "{**record, 'label': 1}"
        )
