"""Element specs: nesting, inference, and what is refused."""

from __future__ import annotations

import collections
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

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.errors import InvalidArgumentError, SpecMismatchError, UnsupportedTypeError
from yogadl.format.codec import RecordCodec


class Point(NamedTuple):
    x: Any
    y: Any


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


def test_dict_leaves_are_in_the_order_of_their_keys() -> None:
    spec = {
        "b": specs.TensorSpec("int8"),
        "a": (specs.TensorSpec("bool"), specs.NoneSpec()),
        -3: specs.TensorSpec("int16"),
    }
    record = {"a": (True, None), "b": 1, -3: 5}
    assert specs.flatten(spec, record) == [5, True, None, 1]
    assert list(specs.unflatten(spec, [5, True, None, 1])) == ["b", "a", -3]


def test_named_tuples_of_other_fields_do_not_fit() -> None:
    """By their places, ``x`` would be taken for ``y``."""
    spec = Point(specs.TensorSpec("int8"), specs.TensorSpec("int8"))
    other = collections.namedtuple("other", "y x")
    with pytest.raises(SpecMismatchError, match=r"named tuple of \('x', 'y'\), not of \('y', 'x'"):
        specs.flatten(spec, other(1, 2))
    with pytest.raises(SpecMismatchError, match="named tuple"):
        specs.common(spec, other(*spec))
    assert specs.flatten(spec, (1, 2)) == [1, 2]


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
        2**70,
        specs.Ragged(np.zeros(0), ()),
        specs.Sparse(np.zeros((0, 1), "i8"), np.zeros(0), np.int64(3)),
    ],
)
def test_infer_refuses_what_cannot_be_stored(value: Any) -> None:
    with pytest.raises((UnsupportedTypeError, InvalidArgumentError)):
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
        lambda: specs.RaggedSpec("int8", None, 1.5),  # type: ignore[arg-type]
        lambda: specs.TensorSpec("int8", (1.5,)),  # type: ignore[arg-type]
        lambda: specs.TensorSpec("int8", ("a",)),  # type: ignore[arg-type]
        lambda: specs.TensorSpec("int8", 3),  # type: ignore[arg-type]
        lambda: specs.TensorSpec("nonsense"),
    ],
)
def test_impossible_leaves(make: Any) -> None:
    with pytest.raises((InvalidArgumentError, UnsupportedTypeError)):
        make()


@pytest.mark.parametrize("dtype", ["datetime64[s]", "m8[s]", "V3", "float128", "i4,i4"])
def test_dtypes_that_cannot_be_stored(dtype: str) -> None:
    with pytest.raises(UnsupportedTypeError):
        specs.TensorSpec(np.dtype(dtype))


@pytest.mark.parametrize(
    "dtype", ["\n", "\0", "\ud800", "(1,", None, ("i4", (-1,)), {"a": ("i4", 10**30)}]
)
def test_what_is_no_dtype(dtype: Any) -> None:
    with pytest.raises(UnsupportedTypeError, match="is no dtype; a cache can hold"):
        specs.TensorSpec(dtype)


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
