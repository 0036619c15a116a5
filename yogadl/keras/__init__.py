"""Data sets for Keras 3, under any of its back ends.

Keras is the sequential layer only: which batch comes when is decided here, and a run that was
interrupted goes on with the batch that would have been next.

Keras is imported when a name is first asked for. Worker processes, which only read, do without it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from yogadl.completion import public_names

if TYPE_CHECKING:
    from yogadl.keras._backup import BackupAndRestore
    from yogadl.keras._py_dataset import PyDataset

__all__ = ["BackupAndRestore", "PyDataset"]
__dir__ = functools.partial(public_names, globals())


def __getattr__(name: str) -> Any:
    if name == "PyDataset":
        from yogadl.keras import _py_dataset as module
    elif name == "BackupAndRestore":
        from yogadl.keras import _backup as module  # type: ignore[no-redef] # one of them
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(module, name)
    return value
