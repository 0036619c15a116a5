"""What values of NumPy are."""

from __future__ import annotations

import sys
import types
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any

import numpy as np

from yogadl.recipes._arrays import array_rule, dtype_of, scalar_rule
from yogadl.recipes._objects import kept
from yogadl.recipes._owners import is_library_module
from yogadl.recipes._protocol import Rule, Walk, pairs

_BIT_GENERATORS = np.random.BitGenerator
_RandomState = np.random.RandomState


def _generator(walk: Walk, value: np.random.Generator) -> str:
    return walk.again(value) or f"generator({walk.token(value.bit_generator)})"


def _bit_generator(walk: Walk, value: Any) -> str:
    if again := walk.again(value):
        return again
    # What is spawned from it depends on more than its state.
    seeds = value.seed_seq if hasattr(value, "seed_seq") else None
    return f"{type(value).__name__}({walk.token(value.state)},{walk.token(seeds)})"


def _random_state(walk: Walk, value: Any) -> str:
    return walk.again(value) or f"random_state({walk.token(value.get_state(legacy=False))})"


def _seeds(walk: Walk, value: np.random.SeedSequence) -> str:
    return walk.again(value) or f"seeds({walk.token(value.state)})"


def _ufunc(walk: Walk, value: np.ufunc) -> str:
    if value.__name__.endswith("(vectorized)"):
        walk.refuse("a function that np.frompyfunc has made of one that cannot be seen")
    name = value.__name__
    if vars(np).get(name) is value:
        return walk.library("numpy", name)
    # It does not say of what module it is.
    homes = _homes(name, value)
    if not homes:
        walk.refuse(f"the ufunc {name}, of which it cannot be told what module it is of")
    return walk.library(homes[0], name)


def _homes(name: str, value: Any) -> list[str]:
    """The modules of libraries that have a value, of which the first is the same whatever else is
    imported: the one where it is public, or was made."""
    found = [
        (name not in getattr(module, "__all__", ()), not _is_compiled(module), it.count("."), it)
        for it, module in list(sys.modules.items())
        if type(module) is types.ModuleType
        and vars(module).get(name) is value
        and is_library_module(module)
    ]
    return [it for *_, it in sorted(found)]


def _is_compiled(module: types.ModuleType) -> bool:
    return str(vars(module).get("__file__")).endswith(tuple(EXTENSION_SUFFIXES))


def _vectorized(walk: Walk, value: np.vectorize) -> str:
    """Without the ufunc that it keeps once it has been called."""
    if again := walk.again(value):
        return again
    parts = {name: it for name, it in kept(value) if name != "_ufunc"}
    if parts.get("__doc__") is getattr(value.pyfunc, "__doc__", None):
        # It is copied from the function, with which it counts if code asks for it.
        parts.pop("__doc__", None)
    return f"vectorized({walk.token(type(value))},{pairs(walk, parts.items())})"


_NUMPY: tuple[tuple[Any, Rule], ...] = (
    (np.dtype, lambda walk, value: f"dtype({dtype_of(walk, value)})"),
    (np.random.Generator, _generator),
    (_BIT_GENERATORS, _bit_generator),
    (_RandomState, _random_state),
    (np.random.SeedSequence, _seeds),
    (np.ufunc, _ufunc),
    (np.vectorize, _vectorized),
)


def numpy_rule(value: Any) -> Rule | None:
    """The rule of a value of NumPy that is known here."""
    if isinstance(value, np.ndarray):
        return array_rule
    if isinstance(value, np.generic):
        return scalar_rule
    return next((rule for kind, rule in _NUMPY if isinstance(value, kind)), None)
