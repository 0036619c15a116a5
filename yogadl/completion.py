"""What an interactive shell offers of a module or an object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def public_names(namespace: Mapping[str, Any]) -> list[str]:
    """The names of a module that are for users: its ``__all__``, or all its own."""
    if "__all__" in namespace:
        return sorted(namespace["__all__"])
    own = namespace["__name__"]
    return sorted(
        name
        for name, value in namespace.items()
        if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith(own)
    )


def without(names: Iterable[str], hidden: Iterable[str]) -> list[str]:
    """The names that are meant to be used, in order."""
    return sorted(set(names).difference(hidden))
