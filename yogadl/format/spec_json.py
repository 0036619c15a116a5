"""Element specs as JSON, as docs/format.md describes it."""

from __future__ import annotations

import json
from typing import Any

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.errors import InvalidArgumentError


def to_json(spec: specs.Structure) -> Any:
    """A spec as plain JSON values; the format is in docs/format.md."""
    if isinstance(spec, specs.TensorSpec):
        return {"kind": "tensor", "dtype": spec.dtype, "shape": _shape_json(spec.shape)}
    if isinstance(spec, specs.RaggedSpec):
        return {
            "kind": "ragged",
            "dtype": spec.dtype,
            "shape": _shape_json(spec.shape),
            "ragged_rank": spec.ragged_rank,
            "row_splits_dtype": spec.row_splits_dtype,
        }
    if isinstance(spec, specs.SparseSpec):
        return {"kind": "sparse", "dtype": spec.dtype, "shape": _shape_json(spec.shape)}
    if isinstance(spec, specs.NoneSpec):
        return {"kind": "none"}
    if isinstance(spec, specs.OptionalSpec):
        return {"kind": "optional", "value": to_json(spec.value)}
    if isinstance(spec, dict):
        keys, order = specs.sorted_keys(spec), list(spec)
        node = {"kind": "dict", "items": [[key, to_json(spec[key])] for key in keys]}
        return node if keys == order else {**node, "order": order}
    items = [to_json(child) for child in spec]
    if specs.is_namedtuple(spec):
        name = type(spec).__name__
        return {"kind": "namedtuple", "name": name, "fields": list(spec._fields), "items": items}
    return {"kind": "tuple", "items": items}


def _shape_json(shape: specs.Shape) -> list[int | None] | None:
    return None if shape is None else list(shape)


def canonical(spec: specs.Structure) -> str:
    """A text that is the same for specs that differ in nothing but the order of dict keys."""

    def without_order(node: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in node.items() if name != "order"}

    text = json.dumps(to_json(spec))
    return json.dumps(json.loads(text, object_hook=without_order))


def from_json(node: Any) -> specs.Structure:
    """The inverse of :func:`to_json`, strict about everything it is given.

    Raises:
        InvalidArgumentError, UnsupportedTypeError: ``node`` is not what :func:`to_json` returns.
    """
    try:
        return specs.normalize(_from_json(node))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"not an element spec: {error!r}") from error


def _from_json(node: Any) -> specs.Structure:
    kind = node["kind"]
    if kind == "tensor":
        return specs.TensorSpec(_json_dtype(node["dtype"]), _json_shape(node["shape"]))
    if kind == "ragged":
        return specs.RaggedSpec(
            _json_dtype(node["dtype"]),
            _json_shape(node["shape"]),
            node["ragged_rank"],
            node["row_splits_dtype"],
        )
    if kind == "sparse":
        return specs.SparseSpec(_json_dtype(node["dtype"]), _json_shape(node["shape"]))
    if kind == "none":
        return specs.NoneSpec()
    if kind == "optional":
        return specs.OptionalSpec(_from_json(node["value"]))
    if not isinstance(node["items"], list):
        raise TypeError(f"items {node['items']!r}")
    if kind == "dict":
        return _dict_from_json(node)
    items = [_from_json(child) for child in node["items"]]
    if kind == "tuple":
        return tuple(items)
    if kind == "namedtuple":
        if not isinstance(node["name"], str) or not isinstance(node["fields"], list):
            raise TypeError(f"named tuple {node['name']!r} of {node['fields']!r}")
        return specs.namedtuple_class(node["name"], tuple(node["fields"]))(*items)
    raise ValueError(f"unknown kind {kind!r}")


def _dict_from_json(node: Any) -> dict[Any, specs.Structure]:
    children = {key: _from_json(child) for key, child in node["items"]}
    keys = [key for key, _ in node["items"]]
    if keys != specs.sorted_keys(children):
        raise ValueError(f"keys {keys!r}, which are not sorted")
    order = node.get("order", keys)
    if not isinstance(order, list) or set(order) != set(keys) or len(order) != len(keys):
        raise ValueError(f"order {order!r} of keys {keys!r}")
    return {key: children[key] for key in order}


def _json_dtype(dtype: Any) -> str:
    if not isinstance(dtype, str) or dtype not in dtypes.NAMES:
        raise ValueError(f"unknown dtype {dtype!r}")
    return dtype


def _json_shape(shape: Any) -> specs.Shape:
    if shape is not None and not isinstance(shape, list):
        raise TypeError(f"shape {shape!r}")
    return specs.checked_shape(shape)
