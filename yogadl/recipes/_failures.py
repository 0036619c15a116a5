"""How the import of a module has failed, as far as code that catches the error can tell."""

from __future__ import annotations

import copy
import opcode
import os
import sys
import types
from typing import Any

from yogadl.recipes._owners import is_library_file, is_standard
from yogadl.recipes._protocol import Walk, is_plain, text

# Errors whose arguments are those of the program, even if Python's own code has raised them.
_OF_PROGRAMS = (Exception, RuntimeError, SystemExit, KeyError)
# What Python tells besides the arguments, in the same words in every version.
_TOLD = (
    (ImportError, "name"),
    (NameError, "name"),
    (AttributeError, "name"),
    (OSError, "filename"),
    (OSError, "filename2"),
)
_RAISE = bytes([opcode.opmap["RAISE_VARARGS"]])


def failure_of(walk: Walk, error: BaseException, name: str) -> str:
    """How the import of a module has failed; empty if there is no such module."""
    kind, is_raised = type(error), _is_raised(error)
    # Whatever their classes, or the classes of these, have by the names.
    arguments = _of(BaseException, "args", error)
    told = [
        (member, value)
        for base, member in _TOLD
        if issubclass(kind, base) and (value := _of(base, member, error)) is not None
    ]
    if is_raised:
        own = _of(BaseException, "__dict__", error)
        told += [(name, own[name]) for name in sorted(own, key=str)]
        if issubclass(kind, ImportError):
            told.append(("path", _of(ImportError, "path", error)))
    elif kind is ModuleNotFoundError and told == [("name", name)]:
        return ""
    elif kind not in _OF_PROGRAMS:
        # Each version of Python has its own texts, and those of syntax come with places in them.
        arguments = tuple(it for it in arguments if not isinstance(it, str | tuple))
    parts = [text(_lineage(kind))]
    if arguments or is_raised:
        parts.append(walk.token(tuple(map(_bare, arguments))))
    parts += [f".{member}={walk.token(_bare(value))}" for member, value in told]
    return f" by {''.join(parts)}"


def _of(base: type, member: str, value: Any) -> Any:
    return vars(base)[member].__get__(value)


def _lineage(kind: type) -> str:
    """The name of a class of errors; if it is none of Python's own, those of its bases, too, by
    which it may be caught."""
    is_pythons = _of(type, "__module__", kind) == "builtins"
    lineage = (kind,) if is_pythons else _of(type, "__mro__", kind)
    return "<".join(_of(type, "__qualname__", it) for it in lineage)


def _is_raised(error: BaseException) -> bool:
    """Whether a statement of the user's, or of a library other than Python's, has raised an error,
    or let it go on."""
    trace: types.TracebackType | None = _of(BaseException, "__traceback__", error)
    while trace is not None:
        code, module = trace.tb_frame.f_code, str(trace.tb_frame.f_globals.get("__name__"))
        operation = code.co_code[trace.tb_lasti : trace.tb_lasti + 1]
        # What was compiled by other means than Python's does not say where in it that was.
        if operation in (_RAISE, b"") and not (
            is_standard(module) and is_library_file(code.co_filename)
        ):
            return True
        trace = trace.tb_next
    return False


def _bare(value: Any) -> Any:
    """A value without where files are, or no more than what it is an object of."""
    if isinstance(value, str):
        for place in _places():
            value = value.replace(place, "…")
        return value
    if is_plain(value):
        # Of what others have, too, this is not where it was met first.
        return copy.deepcopy(value)
    kind = value if issubclass(type(value), type) else type(value)
    return "object of", _of(type, "__qualname__", kind)


def _places() -> list[str]:
    """Folders that are others on other machines; those in others first."""
    found = {sys.prefix, os.path.expanduser("~")}
    found.update(it for it in sys.path if isinstance(it, str) and os.path.isabs(it))
    return sorted((it for it in found if it != os.path.sep), key=lambda it: (-len(it), it))
