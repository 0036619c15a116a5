"""Tables and data sets of other libraries: the order of columns and keys changes nothing."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import numpy as np
import pytest
from composed import check, reordered, stored, submitted
from hypothesis import given, settings
from hypothesis import strategies as st

import yogadl
from yogadl.dataref import IndexedDataRef
from yogadl.spec import OptionalSpec, Ragged, TensorSpec

SPEC = {
    "n": TensorSpec("int64"),
    "s": TensorSpec("string"),
    "inner": {"z": TensorSpec("float64"), "a": TensorSpec("int64"), "t": TensorSpec("string")},
    "list": TensorSpec("int64", (None,)),
}


def record(number: int) -> dict[str, Any]:
    return {
        "n": np.int64(number),
        "s": b"s%d" % number,
        "inner": {"z": np.float64(number / 2), "a": np.int64(-number), "t": b"t%d" % number},
        "list": np.arange(number % 3),
    }


def as_python(row: dict[str, Any]) -> dict[str, Any]:
    inner = {
        "z": float(row["inner"]["z"]),
        "a": int(row["inner"]["a"]),
        "t": row["inner"]["t"].decode(),
    }
    # Keys in the order of the record.
    values = {"n": int(row["n"]), "s": row["s"].decode(), "list": row["list"].tolist()}
    return {
        key: {name: inner[name] for name in row["inner"]} if key == "inner" else values[key]
        for key in row
    }


def check_all(dataref: IndexedDataRef, spec: Any, data: Any, folder: pathlib.Path) -> None:
    expected = [record(number) for number in range(5)]
    check(dataref, expected)
    again = submitted(folder, data, spec)
    check(again, expected)
    assert again.reader.content_id == stored(folder, SPEC, expected).reader.content_id


@settings(max_examples=30)
@given(data=st.data())
def test_arrow(data: st.DataObject) -> None:
    pa = pytest.importorskip("pyarrow")
    first = data.draw(reordered(record(0)))
    rows = [{key: row[key] for key in first} for row in map(record, range(5))]
    table = pa.Table.from_pylist([as_python(row) for row in rows])
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for spec in (None, data.draw(reordered(SPEC))):
            dataref = yogadl.from_arrow(table, spec=spec)
            check_all(dataref, spec, table, folder)
            # It is that of the records as they are stored.
            plain = stored(folder, SPEC, [record(number) for number in range(5)])
            assert dataref.reader.content_id == plain.reader.content_id


@settings(max_examples=15)
@given(data=st.data())
def test_hugging_face(data: st.DataObject) -> None:
    datasets = pytest.importorskip("datasets")
    first = data.draw(reordered(record(0)))
    rows = [{key: row[key] for key in first} for row in map(record, range(5))]
    dataset = datasets.Dataset.from_list([as_python(row) for row in rows])
    spec = data.draw(st.none() | reordered(SPEC))
    with tempfile.TemporaryDirectory() as name:
        check_all(yogadl.from_huggingface(dataset, spec=spec), spec, dataset, pathlib.Path(name))


@settings(max_examples=15)
@given(data=st.data())
def test_pandas(data: st.DataObject) -> None:
    pd = pytest.importorskip("pandas")
    columns = {"b": np.arange(4), "a": np.arange(4) * 2.5, 3: np.array(list("wxyz"), object)}
    spec = {"b": TensorSpec("int64"), "a": TensorSpec("float64"), 3: TensorSpec("string")}
    frame = pd.DataFrame(data.draw(reordered(columns)))
    expected = [
        {"b": np.int64(n), "a": n * np.float64(2.5), 3: b"wxyz"[n : n + 1]} for n in range(4)
    ]
    for given_spec in (None, data.draw(reordered(spec))):
        dataref = yogadl.from_pandas(frame, spec=given_spec)
        check(dataref, expected)
        with tempfile.TemporaryDirectory() as name:
            again = submitted(pathlib.Path(name), frame, given_spec)
            check(again, expected)
            assert again.reader.content_id == dataref.reader.content_id


@given(data=st.data())
def test_records_that_are_missing(data: st.DataObject) -> None:
    """In what an optional leaf holds, too."""
    spec = {
        "b": OptionalSpec({"y": TensorSpec("int64"), "x": TensorSpec("int64")}),
        "a": TensorSpec("int64"),
    }
    rows = [
        {"b": None, "a": np.int64(1)},
        {"b": {"y": np.int64(2), "x": np.int64(3)}, "a": np.int64(4)},
    ]
    given_rows = [data.draw(reordered(row)) for row in rows]
    dataref = yogadl.from_source(given_rows, spec=data.draw(reordered(spec)))
    check(dataref, rows)
    with tempfile.TemporaryDirectory() as name:
        check(submitted(pathlib.Path(name), given_rows, data.draw(reordered(spec))), rows)


@settings(max_examples=15)
@given(data=st.data())
def test_arrow_with_optional_and_ragged_columns(data: st.DataObject) -> None:
    pa = pytest.importorskip("pyarrow")
    columns = {"r": [[[1, 2], []], [[3]]], "o": [{"y": 1, "x": 2}, None]}
    table = pa.table({name: columns[name] for name in data.draw(st.permutations(["r", "o"]))})
    found = yogadl.from_arrow(pa.table({"r": columns["r"]})).spec["r"]
    inner = {"y": TensorSpec("int64"), "x": TensorSpec("int64")}
    spec = data.draw(reordered({"r": found, "o": OptionalSpec(inner)}))
    expected = [
        {
            "r": Ragged(np.array([1, 2]), (np.array([0, 2, 2]),)),
            "o": {"y": np.int64(1), "x": np.int64(2)},
        },
        {"r": Ragged(np.array([3]), (np.array([0, 1]),)), "o": None},
    ]
    check(yogadl.from_arrow(table, spec=spec), expected)
