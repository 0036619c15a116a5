"""Element specs: JSON, nesting, inference, and what is refused."""

from __future__ import annotations

import collections
import copy
import json
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import (
    data_sets,
    element_specs,
    is_named,
    records,
    same,
    static_specs,
    tensor_specs,
)

from yogadl import spec as specs
from yogadl.errors import InvalidArgumentError, SpecMismatchError, UnsupportedTypeError
from yogadl.format import dtypes
from yogadl.format.codec import RecordCodec


class Point(NamedTuple):
    x: Any
    y: Any


# JSON


@given(spec=element_specs)
def test_json_round_trip(spec: Any) -> None:
    text = json.dumps(specs.to_json(spec))
    back = specs.from_json(json.loads(text))
    assert same(back, spec)
    # The order of dict keys is part of a spec.
    assert json.dumps(specs.to_json(back)) == text


@given(spec=element_specs)
def test_json_members_that_are_not_known_are_ignored(spec: Any) -> None:
    def extend(node: Any) -> Any:
        if isinstance(node, dict):
            return {**{key: extend(value) for key, value in node.items()}, "later": [1, "x"]}
        return [extend(item) for item in node] if isinstance(node, list) else node

    assert same(specs.from_json(extend(specs.to_json(spec))), spec)


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


@given(node=junk)
def test_json_that_is_none_of_ours(node: Any) -> None:
    try:
        specs.from_json(node)
    except (InvalidArgumentError, UnsupportedTypeError):
        return
    # What else is accepted must be a spec.
    assert node["kind"] in ("tensor", "none", "optional", "dict", "tuple", "namedtuple")


@given(spec=element_specs, data=st.data())
def test_json_with_one_thing_wrong(spec: Any, data: st.DataObject) -> None:
    node = specs.to_json(spec)
    path = data.draw(st.sampled_from(_places(node)))
    if path and data.draw(st.booleans()):
        changed = _without(node, path)
    else:
        changed = _replaced(node, path, data.draw(junk))
    try:
        found = specs.from_json(changed)
    except (InvalidArgumentError, UnsupportedTypeError):
        return
    # "Strict about everything": it is read as what it says, or not at all.
    assert json.loads(json.dumps(specs.to_json(found))) == changed


@pytest.mark.parametrize("dtype", [None, "f4", "<i8", "float", "int", "object", "S", "datetime64"])
def test_json_dtypes_are_those_of_the_format_only(dtype: Any) -> None:
    node = {"kind": "sparse", "dtype": "float32", "shape": [1, None]}
    assert specs.from_json(node)
    with pytest.raises((InvalidArgumentError, UnsupportedTypeError)):
        specs.from_json({**node, "dtype": dtype})


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
        specs.from_json(node)


def test_json_nested_too_deep() -> None:
    node: Any = {"kind": "none"}
    for _ in range(100_000):
        node = {"kind": "tuple", "items": [node]}
    with pytest.raises(InvalidArgumentError):
        specs.from_json(node)
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
        specs.from_json({"kind": "namedtuple", "name": name, "fields": fields, "items": items})


# Nesting


@given(data_set=data_sets(max_size=2))
def test_flatten_and_unflatten_are_inverse(data_set: tuple[Any, list[Any]]) -> None:
    spec, found = data_set
    count = len(list(specs.leaves(spec)))
    for record in found:
        flat = specs.flatten(spec, record)
        assert len(flat) == count
        assert same(specs.unflatten(spec, flat), record)
    numbered = list(range(count))
    assert specs.flatten(spec, specs.unflatten(spec, numbered)) == numbered


@given(spec=element_specs)
def test_map_leaves_visits_them_in_order(spec: Any) -> None:
    seen: list[Any] = []

    def visit(leaf: Any) -> Any:
        seen.append(leaf)
        return leaf

    assert same(specs.map_leaves(visit, spec), spec)
    assert seen == list(specs.leaves(spec))


def test_dict_leaves_are_in_the_order_of_the_spec() -> None:
    spec = {"b": specs.TensorSpec("int8"), "a": (specs.TensorSpec("bool"), specs.NoneSpec())}
    assert specs.flatten(spec, {"a": (True, None), "b": 1}) == [1, True, None]


@pytest.mark.parametrize(
    ("record", "where"),
    [
        ({"a": 1}, "record must be a dict of"),
        ({"a": 1, "b": (1, 2), "c": 3}, "record must be a dict of"),
        ((1, (1, 2)), "not tuple"),
        ({"a": 1, "b": (1,)}, "record['b'] must be a tuple of 2, not 1"),
        ({"a": 1, "b": 7}, "record['b'] must be a tuple of 2, not int"),
        ({"a": 1, "b": np.zeros(2)}, "record['b'] must be a tuple of 2, not ndarray"),
        (None, "not NoneType"),
    ],
)
def test_flatten_says_where_the_nesting_differs(record: Any, where: str) -> None:
    leaf = specs.TensorSpec("int64")
    with pytest.raises(SpecMismatchError) as caught:
        specs.flatten({"a": leaf, "b": (leaf, leaf)}, record)
    assert where in str(caught.value)


# Inference


@given(data=st.data(), spec=static_specs | tensor_specs(unknown=False))
def test_infer_of_static_records(data: st.DataObject, spec: Any) -> None:
    record = data.draw(records(spec))
    inferred = specs.infer(record)

    def plain(leaf: Any) -> Any:
        # NumPy does not tell quantized integers from others.
        return specs.TensorSpec(dtypes.to_numpy(leaf.dtype), leaf.shape)

    expected = specs.map_leaves(plain, spec)
    assert inferred == expected
    codec = RecordCodec(inferred)
    assert same(codec.decode(codec.encode(record)), record)


@given(data_set=data_sets(max_size=1))
def test_a_record_fits_the_spec_inferred_from_it(data_set: tuple[Any, list[Any]]) -> None:
    for record in data_set[1]:
        codec = RecordCodec(specs.infer(record))
        assert same(codec.decode(codec.encode(record)), record)


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (1, "int64", ()),
        (True, "bool", ()),
        (1.5, "float64", ()),
        (1j, "complex128", ()),
        (np.float32(2), "float32", ()),
        ("text", "string", ()),
        (b"bytes", "string", ()),
        ([1, 2, 3], "int64", (3,)),
        ([[1.0], [2.0]], "float64", (2, 1)),
        (["a", "bc"], "string", (2,)),
        ([b"a", b"bc"], "string", (2,)),
        (np.array(["a", "bc"]), "string", (2,)),
        (np.zeros((2, 0), ">i2"), "int16", (2, 0)),
    ],
)
def test_infer_of_python_values(value: Any, dtype: str, shape: tuple[int, ...]) -> None:
    assert specs.infer(value) == specs.TensorSpec(dtype, shape)


def test_infer_of_nests() -> None:
    record = {"p": Point(1, None), 3: (True, [1.0, 2.0])}
    spec = specs.infer(record)
    assert is_named(spec["p"])
    assert spec["p"]._fields == ("x", "y")
    assert spec == {
        "p": (specs.TensorSpec("int64"), specs.NoneSpec()),
        3: (specs.TensorSpec("bool"), specs.TensorSpec("float64", (2,))),
    }


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        np.array("2020-01-01", "M8[D]"),
        np.zeros(2, [("a", "i4")]),
        [[1], [1, 2]],
        ["a", 1],
        {"a": lambda: None},
        {1.5: 1},
        (),
        {"a": {}},
        iter([1]),
    ],
)
def test_infer_refuses_what_cannot_be_stored(value: Any) -> None:
    with pytest.raises(UnsupportedTypeError):
        specs.infer(value)


# Standard form


@given(spec=element_specs)
def test_normalize_leaves_the_standard_form_alone(spec: Any) -> None:
    assert same(specs.normalize(spec), spec)


@given(spec=element_specs)
def test_normalize_takes_lists_for_tuples(spec: Any) -> None:
    def loosen(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: loosen(child) for key, child in node.items()}
        if isinstance(node, tuple) and not is_named(node):
            return [loosen(child) for child in node]
        return node

    assert same(specs.normalize(loosen(spec)), spec)


def test_normalize_of_a_users_named_tuple() -> None:
    normal = specs.normalize(Point(specs.TensorSpec("int8"), [specs.NoneSpec()]))
    assert (type(normal).__name__, normal._fields) == ("Point", ("x", "y"))
    assert normal.y == (specs.NoneSpec(),)


@pytest.mark.parametrize(
    "wrong",
    [(), {}, [], {"a": ()}, "float32", 3, {"a": "float32"}, {None: specs.NoneSpec()}, np.float32],
)
def test_normalize_refuses_what_is_no_spec(wrong: Any) -> None:
    with pytest.raises(UnsupportedTypeError):
        specs.normalize(wrong)
    with pytest.raises(UnsupportedTypeError):
        specs.normalize(specs.OptionalSpec(wrong))


# The leaves themselves


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype(">f4"), np.dtype("<f4")])
def test_dtypes_may_be_numpys(dtype: Any) -> None:
    assert specs.TensorSpec(dtype) == specs.TensorSpec("float32", ())


@pytest.mark.parametrize(
    "make",
    [
        lambda: specs.TensorSpec("int8", (-1,)),
        lambda: specs.SparseSpec("int8", (None, -3)),
        lambda: specs.RaggedSpec("int8", (None, None), 0),
        lambda: specs.RaggedSpec("int8", (None, None), 2),
        lambda: specs.RaggedSpec("int8", None, 0),
        lambda: specs.RaggedSpec("int8", None, 1, "int16"),
    ],
)
def test_impossible_leaves(make: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        make()


@pytest.mark.parametrize("dtype", ["datetime64[s]", "m8[s]", "V3", "float128", "i4,i4"])
def test_dtypes_that_cannot_be_stored(dtype: str) -> None:
    with pytest.raises(UnsupportedTypeError):
        specs.TensorSpec(np.dtype(dtype))


def test_leaves_compare_by_value_and_cannot_be_changed() -> None:
    one, two = specs.TensorSpec("int8", [2, None]), specs.TensorSpec(np.int8, (2, None))  # type: ignore[arg-type]
    assert one == two
    assert hash(one) == hash(two)
    assert one != specs.TensorSpec("int8", (2, 3))
    with pytest.raises(AttributeError):
        one.dtype = "int16"  # type: ignore[misc]


@given(data_set=data_sets(max_size=1))
def test_specs_and_records_can_be_pickled(data_set: tuple[Any, list[Any]]) -> None:
    spec, found = data_set
    assert same(pickle.loads(pickle.dumps(spec)), spec)
    # As data loaders send them between processes.
    for record in found:
        assert same(pickle.loads(pickle.dumps(record)), record)


def test_named_tuples_of_the_same_fields_are_of_one_class() -> None:
    made = collections.namedtuple("made", "a b")
    one, two = (specs.normalize(made(*[specs.NoneSpec()] * 2)) for _ in range(2))
    assert type(one) is type(two)
