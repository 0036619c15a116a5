"""Values of frameworks inside records become arrays; what cannot is refused by name."""

from __future__ import annotations

import collections
import datetime
import decimal
import importlib
from typing import Any

import numpy as np
import pytest
from strategies import same

from yogadl import spec as specs
from yogadl.adapters import to_record
from yogadl.errors import UnsupportedTypeError

Pair = collections.namedtuple("Pair", ["first", "second"])


def test_what_is_plain_is_left_alone() -> None:
    array = np.arange(3)
    record = {"a": array, "b": (1, "x", b"y", None, 2.5, True), "c": Pair(array, [1, 2])}
    found = to_record(record)
    assert found["a"] is array
    assert found == record
    assert type(found["c"]) is Pair


def test_mappings_and_memory() -> None:
    assert to_record(collections.OrderedDict(a=1)) == {"a": 1}
    assert to_record(collections.UserDict(a=bytearray(b"x"))) == {"a": b"x"}
    assert to_record(memoryview(b"abc")) == b"abc"


def test_ragged_and_sparse_stay() -> None:
    ragged = specs.Ragged(np.arange(3), (np.array([0, 1, 3]),))
    assert same(to_record({"r": ragged}), {"r": ragged})


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (object(), "builtins.object"),
        ({1}, "builtins.set"),
        (datetime.datetime(2020, 1, 1), "datetime.datetime"),
        (decimal.Decimal(1), "decimal.Decimal"),
        (len, "builtins.builtin_function_or_method"),
    ],
)
def test_what_is_no_array(value: Any, name: str) -> None:
    with pytest.raises(UnsupportedTypeError, match=rf"record\['a'\]\[1\] is a {name}"):
        to_record({"a": (1, value)})


def test_lists() -> None:
    array = np.zeros(2)
    assert to_record([1, [2, 3]], lists_are_tuples=True) == [1, [2, 3]]
    assert to_record(["a", "b"], lists_are_tuples=True) == ["a", "b"]
    assert isinstance(to_record([array, 1], lists_are_tuples=True), tuple)
    assert isinstance(to_record([array, array]), list)


def test_anything_with_an_array() -> None:
    class Image:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.arange(4)

    assert to_record((Image(),))[0].tolist() == [0, 1, 2, 3]


def test_torch_tensors() -> None:
    pytest.importorskip("torch.utils.data")
    torch = importlib.import_module("torch")
    names = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
    names += ["complex64", "uint16"]
    for name in names:
        value = to_record(torch.ones(2, 3).to(getattr(torch, name)))
        assert same(value, np.ones((2, 3), name))
    assert to_record(torch.tensor(3)).shape == ()
    assert to_record(torch.ones(2, requires_grad=True)).tolist() == [1, 1]
    assert to_record(torch.nn.Parameter(torch.ones(2))).tolist() == [1, 1]
    assert to_record(torch.arange(6).reshape(2, 3).T).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert to_record(torch.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]
    with pytest.raises(UnsupportedTypeError, match=r"record\['x'\]: a sparse or nested torch"):
        to_record({"x": torch.eye(2).to_sparse()})


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_torch_dtypes_that_numpy_has_not(name: str) -> None:
    pytest.importorskip("torch.utils.data")
    torch = importlib.import_module("torch")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    tensor = torch.tensor([[1.5, -2.0, 0.25], [0, 4, 8]]).to(getattr(torch, name))
    expected = np.array([[1.5, -2.0, 0.25], [0, 4, 8]]).astype(getattr(ml_dtypes, name))
    assert same(to_record(tensor), expected)
    assert same(to_record(tensor.T), np.ascontiguousarray(expected.T))
    assert same(to_record(tensor[0, 0])[()], expected[0, 0])


def test_images() -> None:
    images = pytest.importorskip("PIL.Image")
    pixels = np.arange(24, dtype="u1").reshape(2, 4, 3)
    assert same(to_record({"i": images.fromarray(pixels)})["i"], pixels)
    mask = images.fromarray(pixels[..., 0])
    assert same(to_record(mask), np.ascontiguousarray(pixels[..., 0]))
    for mode, kind in (("1", "?"), ("LA", "u1"), ("RGBA", "u1"), ("I", "i4"), ("I;16", "u2")):
        assert to_record(images.new(mode, (2, 2))).dtype == np.dtype(kind)


@pytest.mark.parametrize("mode", ["P", "PA", "CMYK", "HSV", "YCbCr", "RGBX"])
def test_images_of_which_an_array_does_not_tell_the_colours(mode: str) -> None:
    images = pytest.importorskip("PIL.Image")
    image = images.new(mode, (2, 2))
    with pytest.raises(UnsupportedTypeError, match=rf"record\['i'\].*'{mode}'.*np\.asarray"):
        to_record({"i": image})
    # As the message advises.
    assert to_record(image.convert("RGB")).shape == (2, 2, 3)
    assert to_record(np.asarray(image)).shape[:2] == (2, 2)


def test_arrow_scalars() -> None:
    pa = pytest.importorskip("pyarrow")
    assert to_record((pa.scalar(3), pa.scalar("x"))) == (3, "x")
    assert to_record(pa.array([1, 2])).tolist() == [1, 2]
    with pytest.raises(UnsupportedTypeError, match="datetime"):
        to_record(pa.scalar(datetime.datetime(2020, 1, 1)))


def test_tensorflow_tensors() -> None:
    tf = pytest.importorskip("tensorflow")
    if not tf.executing_eagerly():
        pytest.skip("needs eager mode")
    assert same(to_record(tf.constant([1, 2])), np.array([1, 2], "i4"))
    assert same(to_record(tf.constant([1.5], tf.bfloat16)).tolist(), [1.5])
    assert to_record(tf.constant("x")) == b"x"
    assert to_record(tf.Variable([1.0])).tolist() == [1.0]
    ragged = to_record(tf.ragged.constant([[1], [2, 3]]))
    assert ragged.flat_values.tolist() == [1, 2, 3]
    assert ragged.nested_row_splits[0].tolist() == [0, 1, 3]
    sparse = to_record(tf.sparse.from_dense([[0, 5]]))
    assert sparse.values.tolist() == [5]
    with tf.Graph().as_default():
        symbol = tf.compat.v1.placeholder(tf.float32, [2])
        with pytest.raises(UnsupportedTypeError, match="graph mode"):
            to_record({"x": symbol})
