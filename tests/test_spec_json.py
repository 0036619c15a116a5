"""Element specs as JSON: what is written is read, and nothing else is."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import element_specs, same

from yogadl.errors import InvalidArgumentError, UnsupportedTypeError
from yogadl.format import spec_json


@given(spec=element_specs)
def test_json_round_trip(spec: Any) -> None:
    text = json.dumps(spec_json.to_json(spec))
    back = spec_json.from_json(json.loads(text))
    assert same(back, spec)
    # The order of dict keys is part of a spec.
    assert json.dumps(spec_json.to_json(back)) == text


@given(spec=element_specs)
def test_json_members_that_are_not_known_are_ignored(spec: Any) -> None:
    def extend(node: Any) -> Any:
        if isinstance(node, dict):
            return {**{key: extend(value) for key, value in node.items()}, "later": [1, "x"]}
        return [extend(item) for item in node] if isinstance(node, list) else node

    assert same(spec_json.from_json(extend(spec_json.to_json(spec))), spec)


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["f4", "V8", "M8", "i4,i4", "tensor", "dict", "namedtuple", "<i8", "(2,)u1"]),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "items"]), children)
    ),
    max_leaves=6,
)


def _places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(node, dict | list):
        keys = list(node) if isinstance(node, dict) else range(len(node))
        for key in keys:
            found.extend(_places(node[key], (*path, key)))
    return found


def _replaced(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.copy(node)
    changed[path[0]] = _replaced(node[path[0]], path[1:], value)
    return changed


def _without(node: Any, path: tuple[Any, ...]) -> Any:
    changed = copy.copy(node)
    if len(path) == 1:
        del changed[path[0]]
    else:
        changed[path[0]] = _without(node[path[0]], path[1:])
    return changed


def _says(node: Any, understood: Any) -> bool:
    """Whether all that was understood is there, of the same types, and but for members no more."""
    if type(node) is not type(understood):
        return False
    if isinstance(node, dict):
        return all(key in node and _says(node[key], value) for key, value in understood.items())
    if isinstance(node, list):
        return len(node) == len(understood) and all(map(_says, node, understood))
    return bool(node == understood)


@given(node=junk)
def test_json_that_is_none_of_ours(node: Any) -> None:
    try:
        spec_json.from_json(node)
    except (InvalidArgumentError, UnsupportedTypeError):
        return
    # What else is accepted must be a spec.
    assert node["kind"] in ("tensor", "none", "optional", "dict", "tuple", "namedtuple")


@given(spec=element_specs, data=st.data())
def test_json_with_one_thing_wrong(spec: Any, data: st.DataObject) -> None:
    node = spec_json.to_json(spec)
    path = data.draw(st.sampled_from(_places(node)))
    if path and data.draw(st.booleans()):
        changed = _without(node, path)
    else:
        changed = _replaced(node, path, data.draw(junk))
    try:
        found = spec_json.from_json(changed)
    except (InvalidArgumentError, UnsupportedTypeError):
        return
    # "Strict about everything": it is read as what it says, or not at all.
    assert _says(changed, json.loads(json.dumps(spec_json.to_json(found))))


@pytest.mark.parametrize("dtype", [None, "f4", "<i8", "float", "int", "object", "S", "datetime64"])
def test_json_dtypes_are_those_of_the_format_only(dtype: Any) -> None:
    node = {"kind": "sparse", "dtype": "float32", "shape": [1, None]}
    assert spec_json.from_json(node)
    with pytest.raises((InvalidArgumentError, UnsupportedTypeError)):
        spec_json.from_json({**node, "dtype": dtype})


NONE = {"kind": "none"}


@pytest.mark.parametrize(
    "node",
    [
        {"kind": "tensor", "dtype": "int8", "shape": ""},
        {"kind": "tensor", "dtype": "int8", "shape": {}},
        {"kind": "tensor", "dtype": "int8", "shape": [True]},
        {"kind": "tensor", "dtype": "int8", "shape": [1.0]},
        {"kind": "tensor", "dtype": "int8", "shape": [-1]},
        {"kind": "tensor", "dtype": "int8"},
        {"kind": "ragged", "dtype": "int8", "shape": None, "ragged_rank": 1.0},
        {"kind": "ragged", "dtype": "int8", "shape": None, "ragged_rank": True},
        {"kind": "namedtuple", "name": "P", "fields": "a", "items": [NONE]},
        {"kind": "tuple", "items": [NONE, {"kind": "tuple", "items": ""}]},
        {"kind": "tuple", "items": {"a": NONE}},
        {"kind": "dict", "items": ["ab", NONE]},
        {"kind": "dict", "items": [["a", NONE], ["a", NONE]]},
        {"kind": "dict", "items": [[1.5, NONE]]},
        {"kind": "dict", "items": [[True, NONE]]},
        {"kind": "optional"},
        {"kind": "list", "items": [NONE]},
    ],
)
def test_json_that_is_nearly_right(node: Any) -> None:
    if node["kind"] == "ragged":
        node = {**node, "row_splits_dtype": "int64"}
    with pytest.raises((InvalidArgumentError, UnsupportedTypeError)):
        spec_json.from_json(node)


def test_json_nested_too_deep() -> None:
    node: Any = {"kind": "none"}
    for _ in range(100_000):
        node = {"kind": "tuple", "items": [node]}
    with pytest.raises(InvalidArgumentError):
        spec_json.from_json(node)
    # Taken apart here: freeing such a nest recursively is hard on the interpreter.
    while "items" in node:
        node = node["items"].pop()


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("not a name", ["a"]),
        ("class", ["a"]),
        ("P", ["a", "a"]),
        ("P", ["_a"]),
        ("P", ["def"]),
        ("P", []),
        ("P", ["a", "b"]),
        (3, ["a"]),
        ("P", [["a"]]),
        ("P): import os\nclass Q(", ["a"]),
        ("P", ["a=__import__('os')"]),
    ],
)
def test_json_named_tuples_with_impossible_names(name: Any, fields: Any) -> None:
    items = [{"kind": "none"}]
    with pytest.raises((InvalidArgumentError, UnsupportedTypeError)):
        spec_json.from_json({"kind": "namedtuple", "name": name, "fields": fields, "items": items})
