"""The components of an element spec, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yogadl import spec as specs
from yogadl.format.spec_text import spec_text

WHOLE = "(the record)"
"""What a component is called that is all of the record."""


def components(spec: specs.Structure) -> Iterator[tuple[str, str, str]]:
    """The name, dtype and shape of each leaf, in the order of ``yogadl.spec.leaves``."""
    for name, leaf in _leaves(spec, ""):
        yield (name or WHOLE, *_kind(leaf))


def _leaves(spec: specs.Structure, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(spec, specs.LEAVES):
        yield name, spec
    elif isinstance(spec, dict):
        for key in specs.sorted_keys(spec):
            yield from _leaves(spec[key], f"{name}.{key}" if name else str(key))
    elif specs.is_namedtuple(spec):
        for field, child in zip(spec._fields, spec, strict=True):
            yield from _leaves(child, f"{name}.{field}" if name else field)
    else:
        for number, child in enumerate(spec):
            yield from _leaves(child, f"{name}[{number}]")


def _kind(leaf: Any) -> tuple[str, str]:
    if isinstance(leaf, specs.OptionalSpec):
        inner = leaf.value
        if not isinstance(inner, specs.LEAVES):
            return f"{spec_text(inner)} or None", ""
        dtype, shape = _kind(inner)
        return f"{dtype} or None", shape
    if isinstance(leaf, specs.NoneSpec):
        return "None", ""
    kinds = {specs.RaggedSpec: "ragged ", specs.SparseSpec: "sparse "}
    return f"{kinds.get(type(leaf), '')}{leaf.dtype}", _shape(leaf.shape)


def _shape(shape: specs.Shape) -> str:
    if shape is None:
        return "unknown"
    return " × ".join("?" if dim is None else str(dim) for dim in shape) or "scalar"
