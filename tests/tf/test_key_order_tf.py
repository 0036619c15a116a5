"""``make_tf_dataset`` of data sets made of others, and data sets of TensorFlow: the order of the
keys of a dict changes nothing."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from composed import Composed, composed, reordered, row, submitted
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import is_named, structures

import yogadl.tensorflow
from yogadl import spec as specs
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef
from yogadl.errors import ChecksumError
from yogadl.format.contents import whole
from yogadl.spec import RaggedSpec, SparseSpec, TensorSpec

LEAVES = st.sampled_from(
    [
        TensorSpec("int64"),
        TensorSpec("float32", (2,)),
        TensorSpec("uint8", (70,)),
        TensorSpec("string"),
        TensorSpec("int32", (None,)),
        RaggedSpec("int32", (None, None), 1),
        SparseSpec("float32", (None,)),
    ]
)


def has_keys_of_one_type(spec: Any) -> bool:
    """As TensorFlow needs it, which sorts them."""
    if isinstance(spec, dict):
        if len({type(key) for key in spec}) > 1:
            return False
        return all(map(has_keys_of_one_type, spec.values()))
    return isinstance(spec, specs.LEAVES) or all(map(has_keys_of_one_type, spec))


def plain(value: Any) -> Any:
    """A value of TensorFlow or of NumPy as something that ``==`` compares."""
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    if isinstance(value, tf.RaggedTensor | specs.Ragged):
        return plain(value.flat_values), [plain(part) for part in value.nested_row_splits]
    if isinstance(value, tf.SparseTensor | specs.Sparse):
        return plain(value.indices), plain(value.values), plain(value.dense_shape)
    if isinstance(value, tuple):
        return type(value).__name__ if is_named(value) else "", [plain(child) for child in value]
    array = np.asarray(value.numpy() if isinstance(value, tf.Tensor) else value)
    return array.shape, array.tobytes() if array.dtype != object else array.tolist()


@settings(max_examples=12)
@given(spec=structures(LEAVES).filter(has_keys_of_one_type), data=st.data())
def test_elements_are_the_records(spec: Any, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        made: Composed = data.draw(composed(folder, spec))
        assume(made.records)
        expected = [plain(record) for record in made.records]
        dataset = yogadl.tensorflow.make_tf_dataset(made.dataref.stream())
        assert [plain(element) for element in dataset] == expected
        again = submitted(folder, dataset)
        assert [plain(record) for record in again.stream()] == expected
        if all(
            isinstance(leaf, TensorSpec) and leaf.static_shape is not None
            for leaf in specs.leaves(spec)
        ):
            batches = yogadl.tensorflow.make_tf_dataset(made.dataref.stream(), batch_size=3)
            found = [tf.nest.map_structure(lambda part: part.numpy(), batch) for batch in batches]
            rows = [
                plain(row(made.dataref.spec, found[at // 3], at % 3)) for at in range(len(expected))
            ]
            assert rows == expected


@settings(max_examples=6)
@given(data=st.data())
def test_padded_and_ragged_batches(data: st.DataObject) -> None:
    spec = {
        "b": TensorSpec("int32", (None,)),
        "a": {"y": TensorSpec("int64"), "x": TensorSpec("int32", (None,))},
    }
    with tempfile.TemporaryDirectory() as name:
        made = data.draw(composed(pathlib.Path(name), spec))
        assume(made.records)
        pad = data.draw(reordered({"b": -1, "a": {"y": None, "x": -2}}))
        stream = made.dataref.stream()
        padded = yogadl.tensorflow.make_tf_dataset(stream, batch_size=50, pad=pad)
        ragged = yogadl.tensorflow.make_tf_dataset(
            made.dataref.stream(), batch_size=50, ragged=True
        )
        (one,), (two,) = padded, ragged
        for at, record in enumerate(made.records):
            for found in (one, two):
                assert found["a"]["y"].numpy()[at] == record["a"]["y"]
            for path, value in ((("b",), -1), (("a", "x"), -2)):
                column, rows, wanted = one, two, record
                for key in path:
                    column, rows, wanted = column[key], rows[key], wanted[key]
                count = len(wanted)
                assert column.numpy()[at, :count].tolist() == wanted.tolist()
                assert (column.numpy()[at, count:] == value).all()
                assert rows[at].numpy().tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("spec", "components"),
    [
        (RaggedSpec("int8", (None, None), 1), [np.zeros(2, "i1"), np.array([0, 3])]),
        (
            SparseSpec("int8", (None,)),
            [np.array([[5]]), np.zeros(1, "i1"), np.array([5])],
        ),
    ],
)
def test_row_splits_and_indices_that_no_value_has(
    tmp_path: pathlib.Path, spec: Any, components: list[Any]
) -> None:
    path = tmp_path / "cache.mdb"
    with CacheWriter(path, {"a": spec}) as writer:
        writer._append_contents(whole([writer._codec.encode_components(components)]))
        writer.commit()
    dataset = yogadl.tensorflow.make_tf_dataset(LMDBDataRef(path).stream())
    with pytest.raises((tf.errors.OpError, ChecksumError), match="rebuild it"):
        list(dataset)
