"""Data for JAX: batches of ``jax.Array``, and sources and samplers for Grain.

``Batches`` needs JAX, ``GrainSource`` nothing, and ``FrozenSampler`` Grain: each is imported when
it is first asked for.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from yogadl.completion import public_names

if TYPE_CHECKING:
    from yogadl.jax._batches import Batches
    from yogadl.jax._grain import FrozenSampler, GrainSource

__all__ = ["Batches", "FrozenSampler", "GrainSource"]
__dir__ = functools.partial(public_names, globals())


def __getattr__(name: str) -> Any:
    if name == "Batches":
        from yogadl.jax import _batches as module
    elif name in ("FrozenSampler", "GrainSource"):
        from yogadl.jax import _grain as module  # type: ignore[no-redef] # one of them
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(module, name)
    return value
