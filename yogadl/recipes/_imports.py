"""Modules of the user's that code imports, which are imported to be looked at."""

from __future__ import annotations

import importlib
import sys
import types

from yogadl.recipes._protocol import Walk, is_plain, text


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
    kind = type(error)
    # Whatever its class has by the name.
    arguments = BaseException.args.__get__(error)  # type: ignore[attr-defined]
    told = walk.token(arguments) if is_plain(arguments) else ""
    return f" by {text(kind.__qualname__)}{told}"
