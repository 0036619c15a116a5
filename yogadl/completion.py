"""What an interactive shell offers of a module or an object."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any


def is_asked_by_jedi() -> bool:
    """Whether who asks for the attribute of a module is jedi, by which IPython completes names.

    It takes the value of every name it offers, and would import whatever is imported at first use.
    """
    asking = sys._getframe(2).f_globals.get("__name__", "")
    return str(asking).startswith("jedi.")


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
