"""Element specs in words, as short as can be: what a ``repr`` shows."""

from __future__ import annotations

from yogadl import spec as specs

_LONGEST = 300


def spec_text(spec: specs.Structure) -> str:
    """A spec in a line: ``{'x': float32[28, ?], 'y': int64}``, where a dimension is unknown."""
    text = _text(spec)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _text(spec: specs.Structure) -> str:
    if isinstance(spec, specs.LEAVES):
        return _leaf_text(spec)
    if isinstance(spec, dict):
        return f"{{{', '.join(f'{key!r}: {_text(child)}' for key, child in spec.items())}}}"
    if specs.is_namedtuple(spec):
        fields = zip(spec._fields, spec, strict=True)
        return f"{type(spec).__name__}({', '.join(f'{name}={_text(c)}' for name, c in fields)})"
    return f"({', '.join(map(_text, spec))}{',' if len(spec) == 1 else ''})"


def _leaf_text(leaf: specs.Leaf) -> str:
    if isinstance(leaf, specs.OptionalSpec):
        return f"{_text(leaf.value)} or None"
    if isinstance(leaf, specs.NoneSpec):
        return "None"
    kinds = {specs.RaggedSpec: "ragged ", specs.SparseSpec: "sparse "}
    return f"{kinds.get(type(leaf), '')}{leaf.dtype}{_shape_text(leaf.shape)}"


def _shape_text(shape: tuple[int | None, ...] | None) -> str:
    if shape is None:
        return "[…]"
    return f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]" if shape else ""
