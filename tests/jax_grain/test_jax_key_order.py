"""Data sets made of others, in JAX: the order of the keys of a dict changes nothing."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import numpy as np
import pytest
from composed import composed, reordered, row
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import same, structures

from yogadl import spec as specs
from yogadl.spec import TensorSpec

jax = pytest.importorskip("jax")

from yogadl.jax import Batches, GrainSource  # noqa: E402

LEAVES = st.sampled_from([TensorSpec("int32"), TensorSpec("float32", (2,)), TensorSpec("bool")])


def has_keys_of_one_type(spec: Any) -> bool:
    """As JAX needs it, which sorts them."""
    if isinstance(spec, dict):
        if len({type(key) for key in spec}) > 1:
            return False
        return all(map(has_keys_of_one_type, spec.values()))
    return isinstance(spec, specs.LEAVES) or all(map(has_keys_of_one_type, spec))


@settings(max_examples=40)
@given(spec=structures(LEAVES).filter(has_keys_of_one_type), data=st.data())
def test_batches_are_the_records(spec: Any, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        made = data.draw(composed(pathlib.Path(name), spec))
        count = len(made.records)
        batches = [
            jax.tree.map(np.asarray, batch)
            for batch in Batches(made.dataref.stream(), 3, drop_remainder=False)
        ]
        rows = [row(made.dataref.spec, batches[at // 3], at % 3) for at in range(count)]
        assert all(map(same, rows, made.records))
        source = GrainSource(made.dataref)
        assert all(map(same, source._getitems(list(range(count))), made.records))
        assert all(same(source[at], made.records[at]) for at in range(count))


@settings(max_examples=20)
@given(data=st.data())
def test_what_does_not_fit_is_named_rightly(data: st.DataObject) -> None:
    spec = {"b": TensorSpec("int64"), "a": {"y": TensorSpec("int64"), "x": TensorSpec("int64")}}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        made = data.draw(composed(folder, data.draw(reordered(spec)), depth=1))
        for path, value in (
            ("record['b']", lambda r: r["b"]),
            ("record['a']['x']", lambda r: r["a"]["x"]),
        ):
            large = [record for record in made.records if abs(int(value(record))) > 2**31]
            others = [
                record
                for record in made.records
                for leaf in specs.flatten(spec, record)
                if leaf is not value(record) and abs(int(leaf)) > 2**31
            ]
            if large and not others:
                with pytest.raises(ValueError, match=path.replace("[", r"\[").replace("]", r"\]")):
                    list(Batches(made.dataref.stream(), 50, drop_remainder=False))
