"""Global variables that libraries look up by what a text says, as pandas does of
``frame.query("x > @LIMIT")``."""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Iterator
from typing import Any

from yogadl.recipes._reads import Read, Reads
from yogadl.recipes._special import LOOKING_UP

_FUNCTIONS = (types.BuiltinFunctionType, types.FunctionType, types.MethodType)
_NAME = re.compile(r"[^\W\d]\w*")


def named_in(texts: Iterable[str], function: types.FunctionType) -> Iterator[Read]:
    """The global variables of a function that some texts name."""
    space = function.__globals__
    for name in sorted({name for it in texts for name in _NAME.findall(it)}):
        if not isinstance(space.get(name, types), types.ModuleType):
            yield Read(name)


def named_in_own(function: types.FunctionType, reads: Reads) -> Iterator[Read]:
    """Those that the texts of the function name, and the strings that it reads."""
    values = [function.__globals__.get(read.root) for read in reads.names]
    yield from named_in((*reads.texts, *(it for it in values if isinstance(it, str))), function)


def looks_up_by_another_name(
    function: types.FunctionType, cells: dict[str, Any], reads: Reads
) -> bool:
    """Whether a function reads what looks for names in text by a name that does not say so."""
    for read in reads.names:
        if read.imported is not None:
            if read.imported.name in LOOKING_UP:
                return True
            continue
        value: Any = cells.get(read.root, function.__globals__.get(read.root))
        # A metaclass may say that its classes equal any other.
        if any(type(value) is kind for kind in _FUNCTIONS) and value.__name__ in LOOKING_UP:
            return True
    return False


class Lookups:
    """Functions that look up names in texts that they are given, which may be any of a recipe's.

    Attributes:
        texts: of all code and values that were met.
    """

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self._functions: list[tuple[str, types.FunctionType, dict[str, Any], set[Read]]] = []

    def add(self, token: str, function: types.FunctionType, cells: dict[str, Any]) -> None:
        """Takes note of one, by its token, with what it closes over."""
        self._functions.append((token, function, cells, set()))

    def due(self) -> list[tuple[str, types.FunctionType, dict[str, Any], Read]]:
        """What they may read of the texts that were met since this was last asked."""
        found = []
        for token, function, cells, known in list(self._functions):
            for read in named_in(self.texts, function):
                if read not in known:
                    known.add(read)
                    found.append((token, function, cells, read))
        return found
