"""Batches of records as Ray's tables, and back."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from ray.data.extensions import ArrowTensorArray, ArrowVariableShapedTensorArray

import yogadl
from yogadl.errors import UnsupportedTypeError
from yogadl.ray._tables import check_columns, table_of
from yogadl.spec import OptionalSpec, Ragged, RaggedSpec, SparseSpec, TensorSpec
from yogadl.storage import LFSStorage


def tensor(dtype: str, *shape: int | None) -> TensorSpec:
    return TensorSpec(dtype, shape)


SAME = {
    "int": (tensor("int32"), [3, -4, 0]),
    "bool": (tensor("bool"), [True, False, True]),
    "half": (tensor("float16", 2), [[1, 2], [3, 4], [5, 6]]),
    "bits": (tensor("bool", 3, 1), [[[True], [False], [True]]] * 3),
    "empty": (tensor("uint8", 0, 2), [np.zeros((0, 2), "u1")] * 3),
    "varying": (tensor("int64", None), [[1], [], [2, 3]]),
    "images": (tensor("float64", None, None), [np.ones((2, 1)), np.zeros((0, 3)), np.ones((1, 1))]),
    "flags": (tensor("bool", None), [[True], [], [False, True]]),
    "text": (tensor("string"), [b"a", b"", "ß"]),
    "texts": (tensor("string", None), [[b"a"], [], [b"b", b"c"]]),
    "nest": ({"a": tensor("int8"), "b": tensor("float32", 2)}, [{"a": 1, "b": [1, 2]}] * 3),
}


def stored(folder: pathlib.Path, records: Any, spec: Any) -> Any:
    storage = LFSStorage(folder)
    storage.submit(records, "a", "1", spec=spec)
    return storage.fetch("a", "1")


def told(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: told(child) for name, child in value.items()}
    return np.shape(value), np.asarray(value).dtype.kind, np.asarray(value).tolist()


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("part", [slice(0, 3), slice(1, 3), slice(2, 2)])
def test_there_and_back(tmp_path: pathlib.Path, name: str, part: slice) -> None:
    spec, values = SAME[name]
    ref = stored(tmp_path, [{name: value} for value in values], {name: spec})
    check_columns(ref.spec)
    table = table_of(ref.spec, ref.read([0, 1, 2]))
    assert table.num_rows == 3
    again = stored(tmp_path / "again", table[part], None) if part.stop > part.start else None
    if again is not None:
        assert again.spec == ref.spec
        assert [told(it) for it in again.stream()] == [told(it) for it in ref[part].stream()]
    # The types do not depend on the records.
    assert table_of(ref.spec, ref.read([])).schema == table.schema


def test_what_becomes_lists(tmp_path: pathlib.Path) -> None:
    spec = (
        RaggedSpec("int32", (None, None, 2), 1),
        OptionalSpec(tensor("float64", None)),
        OptionalSpec(tensor("int64")),
    )
    ragged = Ragged(np.arange(6, dtype="i4").reshape(3, 2), (np.array([0, 1, 1, 3]),))
    ref = stored(tmp_path, [(ragged, None, 4), (ragged, np.array([1.5]), None)], spec)
    table = table_of(ref.spec, ref.read([0, 1]))
    assert table.to_pydict() == {
        "0": [[[[0, 1]], [], [[2, 3], [4, 5]]]] * 2,
        "1": [None, [1.5]],
        "2": [4, None],
    }
    again = stored(tmp_path / "again", table, dict(zip("012", spec, strict=True)))
    assert [(it["1"], it["2"]) for it in again.stream()] == [(None, 4), ([1.5], None)]
    assert again[0]["0"].flat_values.tolist() == ragged.flat_values.tolist()
    assert again[0]["0"].nested_row_splits[0].tolist() == [0, 1, 1, 3]


def test_values_that_are_no_nests(tmp_path: pathlib.Path) -> None:
    ref = stored(tmp_path, [5, 6], tensor("int64"))
    assert table_of(ref.spec, ref.read([0, 1])).to_pydict() == {"item": [5, 6]}


@pytest.mark.parametrize(
    "spec",
    [
        tensor("complex64"),
        TensorSpec("int64", None),
        SparseSpec("int64", (2,)),
        OptionalSpec({"a": tensor("int64")}),
        {"a": {"b": tensor("complex128", 2)}},
        {1: tensor("int64"), "1": tensor("int64")},
        {"a": {}},
        {},
    ],
)
def test_what_has_no_type(spec: Any) -> None:
    with pytest.raises(UnsupportedTypeError):
        check_columns(spec)


def test_tensors_of_rays_own_making(tmp_path: pathlib.Path) -> None:
    varying = np.empty(2, object)
    varying[:] = [np.arange(2), np.arange(3)]
    table = pa.table(
        {
            "words": ArrowTensorArray.from_numpy(np.array([["a", "bcd"], ["é", ""]])),
            "varying": ArrowVariableShapedTensorArray.from_numpy(varying),
        }
    )
    ref = stored(tmp_path, table, None)
    assert ref.spec == {"words": tensor("string", 2), "varying": tensor("int64", None)}
    assert ref[0]["words"].tolist() == [b"a", b"bcd"]
    assert ref[1]["words"].tolist() == ["é".encode(), b""]
    # By position, too, and to a spec that says less.
    source = yogadl.from_arrow(table)
    assert source.read([1, 0, 1])["words"].tolist()[1] == [b"a", b"bcd"]
    assert [it.tolist() for it in source.read([1, 0])["varying"]] == [[0, 1, 2], [0, 1]]
    fixed = pa.table({"x": ArrowTensorArray.from_numpy(np.arange(12).reshape(2, 3, 2))})
    loose = stored(tmp_path / "loose", fixed, {"x": tensor("int64", None, 2)})
    assert loose[1]["x"].tolist() == [[6, 7], [8, 9], [10, 11]]


def test_missing_tensors(tmp_path: pathlib.Path) -> None:
    kind = ArrowTensorArray.from_numpy(np.zeros((1, 2))).type
    lacks_one = kind.wrap_array(pa.array([[1.0, 2.0], None], kind.storage_type))
    with pytest.raises(UnsupportedTypeError, match="record 1 is None"):
        stored(tmp_path, pa.table({"x": lacks_one}), None)
    lacks_item = kind.wrap_array(pa.array([[1.0, None]], kind.storage_type))
    with pytest.raises(UnsupportedTypeError, match="None inside a tensor"):
        stored(tmp_path, pa.table({"x": lacks_item}), None)
    ref = stored(tmp_path, pa.table({"x": lacks_one}), {"x": OptionalSpec(tensor("float64", 2))})
    assert ref[1]["x"] is None
    assert ref[0]["x"].tolist() == [1.0, 2.0]
