"""Series, categories and missing values of polars, Arrow and pandas."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from adapter_rig import assert_same, check, stored
from hypothesis import given
from hypothesis import strategies as st

import yogadl
from yogadl.adapters import open_source
from yogadl.errors import InvalidArgumentError, UnsupportedTypeError
from yogadl.spec import OptionalSpec, TensorSpec

pl: Any = pytest.importorskip("polars")
pa: Any = pytest.importorskip("pyarrow")
pd: Any = pytest.importorskip("pandas")

WORDS = ["b", "a", "b", "long enough to lie outside of its view"]
READ = [word.encode() for word in WORDS]


def labelled(kind: str) -> list[Any]:
    """The same words as a column of a table, and by themselves, of each library."""
    if kind == "polars":
        made = [pl.Series("x", WORDS, dtype=pl.Categorical)]
        made += [pl.Series("x", WORDS, dtype=pl.Enum(sorted(set(WORDS)))), pl.Series("x", WORDS)]
        return [*made, *[pl.DataFrame({"x": series}) for series in made]]
    if kind == "pandas":
        series = pd.Series(pd.Categorical(WORDS))
        return [series, pd.DataFrame({"x": series})]
    whole = pa.array(WORDS).dictionary_encode()
    chunked = pa.chunked_array([WORDS[:1], WORDS[1:]]).dictionary_encode()
    return [whole, chunked, pa.table({"x": whole}), pa.table({"x": chunked})]


@pytest.mark.parametrize("kind", ["polars", "pandas", "arrow"])
def test_words(kind: str, tmp_path: pathlib.Path) -> None:
    for data in labelled(kind):
        expected = [{"x": word} for word in READ] if hasattr(data, "columns") else READ
        assert_same(stored(tmp_path, data).stream(), expected)
        check(yogadl.from_source(data), expected, pickles=False)


@pytest.mark.parametrize(
    "make", [pl.Series, pa.array, pd.Series], ids=["polars", "arrow", "pandas"]
)
@given(values=st.lists(st.integers(-5, 5), min_size=1, max_size=40))
def test_numbers(make: Any, values: list[int]) -> None:
    dataref = yogadl.from_source(make(values))
    assert dataref.spec == TensorSpec("int64")
    assert dataref.read(np.arange(len(values))).tolist() == values


def test_structs_are_dicts(tmp_path: pathlib.Path) -> None:
    rows = [{"a": 1, "b": b"x"}, {"a": 2, "b": b"y"}]
    for data in (pl.Series("s", rows), pa.array(rows), pa.chunked_array([rows])):
        assert_same(
            stored(tmp_path, data).stream(), [{"a": np.int64(r["a"]), "b": r["b"]} for r in rows]
        )


def test_names_that_cannot_be_told_apart() -> None:
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    for data in (pa.table({"s": twice}), pa.table([[1], [2]], names=["a", "a"])):
        with pytest.raises(InvalidArgumentError, match="same name, which cannot be told apart"):
            open_source(data)


def test_a_table_that_is_yet_to_be_computed() -> None:
    with pytest.raises(UnsupportedTypeError, match=r"LazyFrame, but perhaps what its collect\(\)"):
        open_source(pl.LazyFrame({"x": [1]}))


OPTIONAL = [
    (pd.array([1, None, 3], dtype="Int64"), "int64", [np.int64(1), None, np.int64(3)]),
    (pd.array([1, None, 3], dtype="Int8"), "int8", [np.int8(1), None, np.int8(3)]),
    ([1.0, None, 3.0], "float64", [np.float64(1), None, np.float64(3)]),
    (["a", None, "b"], "string", [b"a", None, b"b"]),
    (pd.Categorical(["a", None, "b"]), "string", [b"a", None, b"b"]),
    (pd.array([True, None, False], dtype="boolean"), "bool", [np.True_, None, np.False_]),
]


@pytest.mark.parametrize(("column", "dtype", "expected"), OPTIONAL)
def test_frames_with_missing_values(
    column: Any, dtype: str, expected: list[Any], tmp_path: pathlib.Path
) -> None:
    leaf = OptionalSpec(TensorSpec(dtype))
    frame = pd.DataFrame({"x": column, "y": [1, 2, 3]})
    read = stored(tmp_path, frame, {"x": leaf, "y": TensorSpec("int64")})
    assert_same(read.stream(), [{"x": x, "y": np.int64(y + 1)} for y, x in enumerate(expected)])
    assert_same(stored(tmp_path, pd.Series(column), leaf).stream(), expected)
    if dtype != "float64":
        with pytest.raises(UnsupportedTypeError, match=r"1 missing values.*OptionalSpec"):
            open_source(frame)
    assert frame["x"].isna().sum() == 1  # It is as it was.


def test_polars_with_missing_values(tmp_path: pathlib.Path) -> None:
    for values, dtype in (([1, None], "int64"), (["a", None], "string")):
        leaf = OptionalSpec(TensorSpec(dtype))
        first = b"a" if dtype == "string" else np.int64(1)
        assert_same(stored(tmp_path, pl.Series("x", values), leaf).stream(), [first, None])
        frame = pl.DataFrame({"x": values})
        assert_same(stored(tmp_path, frame, {"x": leaf}).stream(), [{"x": first}, {"x": None}])
        with pytest.raises(UnsupportedTypeError, match=r"record 1 is None.*OptionalSpec"):
            stored(tmp_path, frame)
