"""Data sets made of others, in Keras: the order of the keys of a dict changes nothing."""

from __future__ import annotations

import pathlib
import tempfile

import numpy as np
import pytest

pytest.importorskip("keras.utils", reason="needs Keras")

from composed import composed, reordered, row
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import same

import yogadl
from yogadl.keras import PyDataset
from yogadl.spec import TensorSpec

SPEC = {
    "b": TensorSpec("float32", (2,)),
    "a": (TensorSpec("int64"), {"y": TensorSpec("int64"), 3: TensorSpec("int64")}),
}
VARYING = {
    "b": TensorSpec("int64", (None,)),
    "a": {"y": TensorSpec("int64"), "x": TensorSpec("int64", (None,))},
}


@settings(max_examples=40)
@given(data=st.data())
def test_batches_are_the_records(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        made = data.draw(composed(pathlib.Path(name), SPEC))
        assume(made.records)
        dataset = PyDataset(made.dataref, 3, drop_remainder=False)
        batches = [dataset[number] for number in range(len(dataset))]
        rows = [row(SPEC, batches[at // 3], at % 3) for at in range(len(made.records))]
        assert all(map(same, rows, made.records))
        # Batches are taken apart again.
        again = yogadl.from_keras(PyDataset(made.dataref, 3, drop_remainder=False))
        assert all(map(same, again.stream(), made.records))


@settings(max_examples=40)
@given(data=st.data())
def test_padded_batches(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        made = data.draw(composed(pathlib.Path(name), VARYING))
        assume(made.records)
        pad = data.draw(reordered({"b": 7, "a": {"y": None, "x": 9}}))
        dataset = PyDataset(made.dataref, 50, pad=pad, drop_remainder=False)
        for batch in (dataset[number] for number in range(len(dataset))):
            assert batch["a"]["y"].tolist() == [record["a"]["y"] for record in made.records]
            for at, record in enumerate(made.records):
                for found, wanted, value in (
                    (batch["b"][at], record["b"], 7),
                    (batch["a"]["x"][at], record["a"]["x"], 9),
                ):
                    assert same(found[: len(wanted)], wanted)
                    assert np.all(found[len(wanted) :] == value)
