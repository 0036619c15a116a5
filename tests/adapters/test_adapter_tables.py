"""pandas data frames and Arrow tables: rows are dicts."""

from __future__ import annotations

import itertools
import pathlib
from typing import Any

import numpy as np
import pytest
from adapter_rig import assert_same, check, stored
from hypothesis import given
from hypothesis import strategies as st

from yogadl import spec as specs
from yogadl.adapters import open_source
from yogadl.dataref._sources import from_arrow, from_pandas, from_source
from yogadl.errors import InvalidArgumentError, UnsupportedTypeError
from yogadl.spec import OptionalSpec, Ragged, RaggedSpec, TensorSpec


@pytest.fixture
def pd() -> Any:
    return pytest.importorskip("pandas")


@pytest.fixture
def pa() -> Any:
    return pytest.importorskip("pyarrow")


# pandas


def test_frames(pd: Any, tmp_path: pathlib.Path) -> None:
    frame = pd.DataFrame(
        {
            "z": [1, 2, 3],
            "text": ["a", "bé", ""],
            "half": np.array([1, 2, 3], "f2"),
            "flag": [True, False, True],
            "nullable": pd.array([1, 2, 3], dtype="UInt8"),
            "category": pd.Categorical(["x", "y", "x"]),
            "size": pd.Categorical([30, 10, 30]),
            "array": [np.zeros(2), np.ones(2), np.ones(2)],
        },
        index=[7, 8, 9],
    )
    expected = [
        {
            "z": np.int64(i + 1),
            "text": ["a", "bé", ""][i].encode(),
            "half": np.float16(i + 1),
            "flag": np.bool_(i != 1),
            "nullable": np.uint8(i + 1),
            "category": [b"x", b"y", b"x"][i],
            "size": np.int64([30, 10, 30][i]),
            "array": np.full(2, i > 0, "f8"),
        }
        for i in range(3)
    ]
    dataref = stored(tmp_path, frame)
    assert list(dataref.spec) == list(frame)
    assert_same(dataref.stream(), expected)
    check(from_pandas(frame), expected)
    assert from_pandas(frame[:2]).reader.content_id != from_pandas(frame[1:]).reader.content_id


@pytest.mark.parametrize(
    ("column", "dtype", "count"),
    [
        (["a", None], None, 1),
        ([None, None], object, 2),
        ([1, None], "Int64", 1),
        ([1.5, None], "Float32", 1),
        (["a", None], "category", 1),
        ([True, None], "boolean", 1),
    ],
)
def test_missing_values(pd: Any, column: Any, dtype: Any, count: int) -> None:
    frame = pd.DataFrame({"good": [1, 2], "bad": pd.Series(column, dtype=dtype)})
    with pytest.raises(UnsupportedTypeError, match=f"column 'bad' has {count} missing .*fillna"):
        open_source(frame)


def test_nan_is_a_number(pd: Any, tmp_path: pathlib.Path) -> None:
    frame = pd.DataFrame({"a": [1.0, None], "b": np.array([np.nan, np.inf], "f4")})
    found = list(stored(tmp_path, frame).stream())
    assert found[0]["a"] == 1
    assert np.isnan(found[1]["a"])
    assert np.isnan(found[0]["b"])
    assert found[1]["b"] == np.inf


def test_arrow_types_of_pandas(pd: Any, pa: Any, tmp_path: pathlib.Path) -> None:
    frame = pd.DataFrame(
        {
            "n": pd.array([1, 2], dtype=pd.ArrowDtype(pa.int16())),
            "s": pd.array(["a", "b"], dtype=pd.ArrowDtype(pa.string())),
        }
    )
    expected = [{"n": np.int16(1), "s": b"a"}, {"n": np.int16(2), "s": b"b"}]
    assert_same(stored(tmp_path, frame).stream(), expected)
    check(from_pandas(frame), expected)


def test_series(pd: Any, tmp_path: pathlib.Path) -> None:
    series = pd.Series([3, 4, 5], index=[2, 1, 0], dtype="int16")
    expected = [np.int16(3), np.int16(4), np.int16(5)]
    assert_same(stored(tmp_path, series).stream(), expected)
    check(from_pandas(series), expected)
    with pytest.raises(UnsupportedTypeError, match="column 'ages' has 1 missing"):
        open_source(pd.Series(["a", None], name="ages"))


def test_frames_that_cannot_be_stored(pd: Any) -> None:
    with pytest.raises(UnsupportedTypeError, match=r"column 'when' is of datetime64"):
        open_source(pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}))
    with pytest.raises(UnsupportedTypeError, match=r"column 'when' is of datetime64"):
        open_source(pd.DataFrame({"when": pd.to_datetime(["2020-01-01"], utc=True)}))
    with pytest.raises(InvalidArgumentError, match="different names"):
        open_source(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(InvalidArgumentError, match="different names"):
        open_source(pd.DataFrame())
    with pytest.raises(UnsupportedTypeError, match=r"a pandas.DataFrame or Series, not a builtins"):
        from_pandas({"a": np.zeros(2)})


def test_frames_with_numbers_for_names(pd: Any) -> None:
    frame = pd.DataFrame(np.arange(6).reshape(3, 2))
    check(from_pandas(frame), [{0: np.int64(2 * i), 1: np.int64(2 * i + 1)} for i in range(3)])


# Arrow


def types(pa: Any) -> dict[str, tuple[Any, list[Any], Any, list[Any]]]:
    """By name: an Arrow type, values, their spec, and what they are read as."""
    int8, string = pa.int8(), pa.string()
    tensors = pa.fixed_shape_tensor(pa.float32(), (2, 2))
    grid = np.arange(8, dtype="f4").reshape(2, 2, 2)
    int_array = lambda *values: np.array(values, "i1")  # noqa: E731
    strings = lambda *values: np.array(values, object)  # noqa: E731
    scalar = TensorSpec("string")
    return {
        "uint16": (pa.uint16(), [1, 65535], TensorSpec("uint16"), [np.uint16(1), np.uint16(65535)]),
        "half": (
            pa.float16(),
            [np.float16(1), np.float16(2)],
            TensorSpec("float16"),
            [np.float16(1), np.float16(2)],
        ),
        "double": (pa.float64(), [0.5, np.nan], TensorSpec("float64"), [np.float64(0.5), np.nan]),
        "bool": (pa.bool_(), [True, False], TensorSpec("bool"), [np.True_, np.False_]),
        "string": (string, ["a", "é"], scalar, [b"a", "é".encode()]),
        "large string": (pa.large_string(), ["a", ""], scalar, [b"a", b""]),
        "binary": (pa.binary(), [b"\x00", b""], scalar, [b"\x00", b""]),
        "fixed binary": (pa.binary(2), [b"ab", b"\x00\x00"], scalar, [b"ab", b"\x00\x00"]),
        "dictionary": (pa.dictionary(pa.int8(), string), ["a", "b"], scalar, [b"a", b"b"]),
        "struct": (
            pa.struct([("x", int8), ("y", pa.list_(string))]),
            [{"x": 1, "y": []}, {"x": 2, "y": ["a"]}],
            {"x": TensorSpec("int8"), "y": TensorSpec("string", (None,))},
            [{"x": np.int8(1), "y": strings()}, {"x": np.int8(2), "y": strings(b"a")}],
        ),
        "list": (
            pa.list_(int8),
            [[1, 2], []],
            TensorSpec("int8", (None,)),
            [int_array(1, 2), int_array()],
        ),
        "large list": (
            pa.large_list(int8),
            [[], [3]],
            TensorSpec("int8", (None,)),
            [int_array(), int_array(3)],
        ),
        "bools": (
            pa.list_(pa.bool_()),
            [[True], [False, True]],
            TensorSpec("bool", (None,)),
            [np.array([True]), np.array([False, True])],
        ),
        "fixed list": (
            pa.list_(int8, 2),
            [[1, 2], [3, 4]],
            TensorSpec("int8", (2,)),
            [int_array(1, 2), int_array(3, 4)],
        ),
        "fixed strings": (
            pa.list_(string, 2),
            [["a", "b"], ["c", "d"]],
            TensorSpec("string", (2,)),
            [strings(b"a", b"b"), strings(b"c", b"d")],
        ),
        "fixed lists": (
            pa.list_(pa.list_(int8, 2), 2),
            [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
            TensorSpec("int8", (2, 2)),
            [int_array(1, 2, 3, 4).reshape(2, 2), int_array(5, 6, 7, 8).reshape(2, 2)],
        ),
        "list of fixed": (
            pa.list_(pa.list_(int8, 2)),
            [[], [[1, 2]]],
            TensorSpec("int8", (None, 2)),
            [int_array().reshape(0, 2), int_array(1, 2).reshape(1, 2)],
        ),
        "lists": (
            pa.list_(pa.list_(int8)),
            [[[1], [2, 3]], []],
            RaggedSpec("int8", (None, None), 1),
            [
                Ragged(int_array(1, 2, 3), (np.array([0, 1, 3]),)),
                Ragged(int_array(), (np.array([0]),)),
            ],
        ),
        "lists of strings": (
            pa.list_(pa.list_(string)),
            [[["a"]], [[], ["b", "c"]]],
            RaggedSpec("string", (None, None), 1),
            [
                Ragged(strings(b"a"), (np.array([0, 1]),)),
                Ragged(strings(b"b", b"c"), (np.array([0, 0, 2]),)),
            ],
        ),
        "fixed of lists": (
            pa.list_(pa.list_(int8), 2),
            [[[1], []], [[], [2]]],
            RaggedSpec("int8", (2, None), 1),
            [
                Ragged(int_array(1), (np.array([0, 1, 1]),)),
                Ragged(int_array(2), (np.array([0, 0, 1]),)),
            ],
        ),
        "tensor": (tensors, grid, TensorSpec("float32", (2, 2)), list(grid)),
    }


def array_of(pa: Any, kind: Any, values: Any) -> Any:
    if isinstance(kind, pa.FixedShapeTensorType):
        return pa.FixedShapeTensorArray.from_numpy_ndarray(values)
    return pa.array(values, kind)


@pytest.mark.parametrize("number", range(21))
def test_types(pa: Any, number: int, tmp_path: pathlib.Path) -> None:
    known = types(pa)
    assert len(known) == 21
    name = list(known)[number]
    kind, values, spec, expected = known[name]
    one = pa.table({"v": array_of(pa, kind, values)})
    expected = [{"v": np.float64(v) if isinstance(v, float) else v} for v in expected]
    # In one chunk, in several, and as a slice in the middle of a chunk.
    for table, wanted in (
        (one, expected),
        (pa.concat_tables([one, one]), expected * 2),
        (pa.concat_tables([one, one]).combine_chunks().slice(1, 2), expected[::-1]),
    ):
        assert open_source(table).spec == {"v": spec}
        assert_same(stored(tmp_path, table).stream(), wanted)
        check(from_arrow(table), wanted)


def test_tables(pa: Any, tmp_path: pathlib.Path) -> None:
    batch = pa.RecordBatch.from_pydict({"b": [1, 2, 3], "a": ["x", "y", "z"]})
    expected = [{"b": np.int64(i + 1), "a": b"xyz"[i : i + 1]} for i in range(3)]
    for data in (batch, pa.Table.from_batches([batch])):
        dataref = stored(tmp_path, data)
        assert list(dataref.spec) == ["b", "a"]
        assert_same(dataref.stream(), expected)
        check(from_source(data), expected)
    memory = [{"a": np.empty(2, "i8")}]
    dataref = from_arrow(pa.table({"a": [1, 2, 3, 4]}))
    assert [b["a"].tolist() for b in dataref.stream().batches(2, out=memory)] == [[1, 2], [3, 4]]
    one = from_arrow(pa.table({"a": [1, 2]})).reader.content_id
    assert one != from_arrow(pa.table({"a": [1, 3]})).reader.content_id
    chunked = pa.concat_tables([pa.table({"a": [1]}), pa.table({"a": [2]})])
    assert one == from_arrow(chunked).reader.content_id


def test_what_speaks_arrow(pa: Any, tmp_path: pathlib.Path) -> None:
    """As other libraries' tables do, and here a reader of pieces."""

    class Foreign:
        def __init__(self) -> None:
            self.table = pa.table({"a": [1, 2]})

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return self.table.__arrow_c_stream__(requested_schema)

    expected = [{"a": np.int64(1)}, {"a": np.int64(2)}]
    assert_same(stored(tmp_path, pa.table({"a": [1, 2]}).to_reader(1)).stream(), expected)
    assert_same(stored(tmp_path, Foreign()).stream(), expected)
    check(from_arrow(Foreign()), expected)


def test_nulls(pa: Any, tmp_path: pathlib.Path) -> None:
    for values in ([1, None], ["a", None], [[1], None], [{"x": 1}, None]):
        with pytest.raises(UnsupportedTypeError, match=r"column 'v'.* of record 1 is None"):
            stored(tmp_path, pa.table({"v": values}))
    for values in ([[1], [2, None]], [["a"], [None]], [[[1]], [[None]]]):
        with pytest.raises(UnsupportedTypeError, match=r"column 'v'.* None"):
            stored(tmp_path, pa.table({"v": values}))
    fixed = pa.array([[1, 2], [3, None]], pa.list_(pa.int8(), 2))
    with pytest.raises(UnsupportedTypeError, match=r"column 'v' of record 1 is None"):
        stored(tmp_path, pa.table({"v": fixed}))
    inner = pa.table({"v": [{"x": 1}, {"x": None}]})
    with pytest.raises(UnsupportedTypeError, match=r"column 'v'\['x'\] of record 1 is None"):
        stored(tmp_path, inner)


def test_nulls_where_the_spec_allows_them(pa: Any, tmp_path: pathlib.Path) -> None:
    table = pa.table({"n": [1, None], "l": [None, [1, 2]]})
    spec = {
        "n": OptionalSpec(TensorSpec("int64")),
        "l": OptionalSpec(TensorSpec("int64", (None,))),
    }
    expected = [{"n": np.int64(1), "l": None}, {"n": None, "l": np.array([1, 2])}]
    assert_same(stored(tmp_path, table, spec).stream(), expected)
    check(from_arrow(table, spec=spec), expected)


def test_tables_that_cannot_be_stored(pa: Any) -> None:
    cases = {
        "timestamp": pa.array([0], pa.timestamp("s")),
        "nulls": pa.nulls(1),
        "make one list": pa.array([[{"a": 1}]]),
        "decimal": pa.array([None], pa.decimal128(5, 2)),
    }
    for message, array in cases.items():
        with pytest.raises(UnsupportedTypeError, match=f"column 'v'.*{message}"):
            open_source(pa.table({"v": array}))
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(InvalidArgumentError, match="same name"):
        open_source(twice)
    with pytest.raises(InvalidArgumentError, match="dict of its columns"):
        open_source(pa.table({"a": [1]}), TensorSpec("int64"))
    with pytest.raises(UnsupportedTypeError, match=r"pyarrow.Table, not a builtins.list"):
        from_arrow([1])


@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "n": st.integers(-(2**63), 2**63 - 1),
                "s": st.text(max_size=5),
                "l": st.lists(st.floats(width=64), max_size=4),
                "r": st.lists(st.lists(st.integers(0, 9), max_size=3), max_size=3),
            }
        ),
        min_size=1,
        max_size=8,
    ),
    chunks=st.integers(1, 3),
)
def test_tables_round_trip(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], chunks: int
) -> None:
    pa = pytest.importorskip("pyarrow")
    schema = pa.schema(
        [
            ("n", pa.int64()),
            ("s", pa.string()),
            ("l", pa.list_(pa.float64())),
            ("r", pa.list_(pa.list_(pa.int64()))),
        ]
    )
    step = -(-len(rows) // chunks)
    parts = [pa.Table.from_pylist(rows[at : at + step], schema) for at in range(0, len(rows), step)]
    expected = [
        {
            "n": np.int64(row["n"]),
            "s": row["s"].encode(),
            "l": np.array(row["l"], "f8"),
            "r": specs.Ragged(
                np.array(list(itertools.chain.from_iterable(row["r"])), "i8"),
                (np.cumsum([0, *map(len, row["r"])]).astype("i8"),),
            ),
        }
        for row in rows
    ]
    table = pa.concat_tables(parts)
    dataref = stored(tmp_path_factory.mktemp("arrow"), table)
    assert_same(dataref.stream(), expected)
    dataref.close()
    check(from_arrow(table), expected)


@pytest.mark.parametrize("inside", [False, True])
def test_a_table_is_no_record(pd: Any, pa: Any, inside: bool, tmp_path: pathlib.Path) -> None:
    """One array of it would have one dtype: of large integers and fractions, float64."""
    polars = pytest.importorskip("polars")
    columns = {"id": [2**53 + 1, 2**53 + 3], "half": [0.5, 1.5]}
    table = pa.table(columns)
    for record in (pd.DataFrame(columns), table, table.to_batches()[0], polars.DataFrame(columns)):
        with pytest.raises(UnsupportedTypeError, match=r"is a table; a record is a row of it"):
            open_source([{"x": record}] if inside else iter([record]))
    rows = iter([*pd.DataFrame(columns).to_dict("records"), *table.to_pylist()])
    found = stored(tmp_path, rows)
    assert [int(record["id"]) for record in found.stream()] == columns["id"] * 2
