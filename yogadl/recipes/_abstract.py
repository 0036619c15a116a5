"""What is registered with abstract classes."""

from __future__ import annotations

import abc
import importlib
from collections.abc import Collection
from typing import Any

from yogadl.recipes._owners import is_library, is_standard
from yogadl.recipes._users import is_users_class

# There are thousands of abstract classes beside TensorFlow.
_dump_of: Any = importlib.import_module("_abc")._get_dump


def registered(bases: Collection[abc.ABCMeta], kinds: Collection[type]) -> dict[type, set[str]]:
    """The names of the abstract classes of libraries that some classes are registered with, there
    or by others of the user's, which Python asks in turn."""
    found: dict[type, set[str]] = {}
    for base in bases if kinds else ():
        left: list[type] = [base]
        known = {id(base)}
        while left:
            within = left.pop()
            members = registered_with(within)
            for kind in members:
                if kind in kinds:
                    found.setdefault(kind, set()).add(name_among(base))
            # Whatever the user's abstract classes are, nobody asks for that.
            below: list[type] = [] if within is abc.ABC else type.__subclasses__(within)
            for kind in (*members, *below):
                if isinstance(kind, abc.ABCMeta) and id(kind) not in known and is_users_class(kind):
                    known.add(id(kind))
                    left.append(kind)
    return found


def registered_with(base: type) -> list[type]:
    """What is registered with a class, if that is an abstract one."""
    if not isinstance(base, abc.ABCMeta) or "_abc_impl" not in vars(base):
        return []
    found = [reference() for reference in _dump_of(base)[0]]
    return [it for it in found if it is not None]


def name_among(kind: type) -> str:
    """The name of a class; of a library that is not Python, with its module."""
    is_told = is_library(kind.__module__) and not is_standard(kind.__module__)
    return f"{kind.__module__}.{kind.__qualname__}" if is_told else kind.__qualname__
