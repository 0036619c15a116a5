"""Building and reading data sets with Ray: see ``docs/ray.md``. What needs Ray imports it when it
is first asked for."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from yogadl.completion import public_names
from yogadl.extras import require

if TYPE_CHECKING:
    from yogadl.ray._build import build
    from yogadl.ray._datasource import DataRefDatasource, read
    from yogadl.ray._sink import Datasink, write

__all__ = ["DataRefDatasource", "Datasink", "build", "read", "write"]
__dir__ = functools.partial(public_names, globals())


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("ray", "ray")
    if name == "build":
        from yogadl.ray import _build as module
    elif name in ("DataRefDatasource", "read"):
        from yogadl.ray import _datasource as module  # type: ignore[no-redef] # one of them
    else:
        from yogadl.ray import _sink as module  # type: ignore[no-redef] # one of them
    value = globals()[name] = getattr(module, name)
    return value
