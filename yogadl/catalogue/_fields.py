"""Values in JSON that others may have written, checked."""

from __future__ import annotations

from typing import Any

_MOST = 1 << 63


def text(name: str, value: Any) -> str:
    """A string that UTF-8 can hold.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str):
        raise ValueError(f"{name} {value!r:.100} is no string")
    value.encode()
    return value


def count(name: str, value: Any) -> int:
    """A whole number that is not negative.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST:
        raise ValueError(f"{name} {value!r:.100} is no count")
    return value


def maybe_count(name: str, value: Any) -> int | None:
    """The same, or ``None``.

    Raises:
        ValueError: it is neither.
    """
    return None if value is None else count(name, value)
