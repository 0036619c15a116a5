"""Modules of the user's that code imports, which are imported to be looked at."""

from __future__ import annotations

import importlib
import os
import sys
import types

from yogadl.recipes._protocol import Walk, is_plain, text
from yogadl.recipes._users import is_users_class

# What programs raise. What Python raises by itself has other texts in other versions.
_OF_PROGRAMS = (Exception, RuntimeError, SystemExit)


def imported(walk: Walk, name: str) -> types.ModuleType | None:
    """A module, imported now if it is not yet; ``None`` if that fails, in whatever way."""
    if name in walk.failed and name not in sys.modules:
        return None
    try:
        return importlib.import_module(name)
    except RecursionError:
        # It need not be the module's fault.
        raise
    except ImportError:
        walk.failed[name] = ""
    except (Exception, SystemExit) as error:
        walk.failed[name] = _failure(walk, error)
    return None


def failure(walk: Walk, name: str) -> str:
    """How the import of a module has failed, if code can tell that from a module that is not
    there; else empty."""
    return walk.failed.get(name, "")


def _failure(walk: Walk, error: BaseException) -> str:
    kind, told = type(error), ""
    # Whatever its class, or the class of that, has by the names.
    name = type.__dict__["__qualname__"].__get__(kind)
    arguments = BaseException.args.__get__(error)  # type: ignore[attr-defined]
    if (kind in _OF_PROGRAMS or is_users_class(kind)) and is_plain(arguments):
        # Where a file is does not count.
        told = "" if os.sep in repr(arguments) else walk.token(arguments)
    return f" by {text(name)}{told}"
