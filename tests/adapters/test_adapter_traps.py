"""What would be stored otherwise than it was meant is refused, and what is wrong is named."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from adapter_rig import stored

from yogadl.dataref import from_arrays, from_source
from yogadl.errors import (
    InvalidArgumentError,
    SpecMismatchError,
    UnsupportedTypeError,
    YogadlError,
)
from yogadl.spec import OptionalSpec, Ragged, RaggedSpec, TensorSpec
from yogadl.storage import LFSConfigurations, LFSStorage

INT = TensorSpec("int64")


def numbers() -> Iterator[int]:
    yield from range(5)


def test_a_generator_that_was_read_before(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(LFSConfigurations(tmp_path))
    generator = numbers()
    storage.submit(generator, "g", "1", spec=INT)
    for spec in (INT, None):
        with pytest.raises(InvalidArgumentError, match="'numbers' was read before, to its end"):
            storage.submit(generator, "g", "1", spec=spec)
    assert list(storage.fetch("g", "1").stream()) == [0, 1, 2, 3, 4]
    begun = numbers()
    next(begun)
    with pytest.raises(InvalidArgumentError, match="in part"):
        storage.submit(begun, "g", "2")
    with pytest.raises(InvalidArgumentError, match="perhaps as it was read before"):
        storage.submit(iter([]), "g", "2")
    storage.submit((i for i in ()), "g", "2", spec=INT)
    assert len(storage.fetch("g", "2")) == 0


def test_a_generator_whose_submit_failed_is_not_taken_for_whole(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(LFSConfigurations(tmp_path))
    generator = (value for value in (1, 2, 1.5, 3))
    with pytest.raises(SpecMismatchError, match=r"record 2.*float64"):
        storage.submit(generator, "g", "1")
    with pytest.raises(InvalidArgumentError, match="read before"):
        storage.submit(generator, "g", "1", spec=TensorSpec("float64"))


def columns_with_gaps() -> list[Any]:
    """Two integers, of which the second is missing, as each framework has them."""
    found = []
    for name, make in (
        ("pandas", lambda pd: pd.Series([1, None], dtype="Int64")),
        ("pandas", lambda pd: pd.array([1, None], dtype="Int64")),
        ("pandas", lambda pd: pd.Index([1, None], dtype="Int64")),
        ("polars", lambda pl: pl.Series([1, None])),
        ("pyarrow", lambda pa: pa.array([1, None])),
        ("pyarrow", lambda pa: pa.chunked_array([[1], [None]])),
    ):
        try:
            found.append(make(__import__(name)))
        except ImportError:
            continue
    return found


@pytest.mark.parametrize("column", columns_with_gaps(), ids=lambda column: type(column).__name__)
def test_missing_values_of_columns_in_a_dict(column: Any, tmp_path: pathlib.Path) -> None:
    for nest in ({"x": column}, {"y": np.arange(2), "x": column}):
        with pytest.raises(UnsupportedTypeError, match=r"column 'x'.* 1 .*OptionalSpec"):
            stored(tmp_path, nest)
    with pytest.raises(UnsupportedTypeError, match=r"column 'a'\['x'\].* 1 "):
        from_arrays({"a": {"x": column}})[1]
    with pytest.raises(UnsupportedTypeError, match=r"the array.* 1 "):
        from_arrays(column)[1]
    with pytest.raises(UnsupportedTypeError, match=r"record\['x'\].*missing"):
        stored(tmp_path, [{"x": column}])
    spec = {"y": INT, "x": OptionalSpec(INT)}
    expected = [{"y": 0, "x": 1}, {"y": 1, "x": None}]
    assert list(stored(tmp_path, {"y": np.arange(2), "x": column}, spec).stream()) == expected
    with pytest.raises(SpecMismatchError, match="nested otherwise"):
        from_arrays({"x": column}, spec=spec)


def test_columns_of_tables_beside_arrays(tmp_path: pathlib.Path) -> None:
    pa = pytest.importorskip("pyarrow")
    nest = {"x": pa.array([1, 2]), "t": (np.arange(2.0), pa.array([{"q": "a"}, {"q": "b"}]))}
    expected = [{"x": 1, "t": (0.0, {"q": b"a"})}, {"x": 2, "t": (1.0, {"q": b"b"})}]
    for dataref in (from_arrays(nest), stored(tmp_path, nest)):
        assert list(dataref.stream()) == expected
        assert dataref.read([1])["t"][1]["q"].tolist() == [b"b"]
    plain = from_arrays({"x": pa.array([5, 6, 7]), "y": np.arange(3)})
    memory = {"x": np.empty(2, "i8"), "y": np.empty(2, "i8")}
    batch = next(iter(plain.stream().batches(2, out=[memory])))
    assert batch["x"].tolist() == [5, 6]
    assert np.shares_memory(batch["x"], memory["x"])
    with pytest.raises(InvalidArgumentError, match=r"\[2, 3\] rows"):
        from_arrays({"x": pa.array([1, 2]), "y": np.arange(3)})


def test_tables_are_no_arrays() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": ["x"], "b": [1]})
    with pytest.raises(UnsupportedTypeError, match="from_pandas"):
        from_arrays(frame)
    with pytest.raises(UnsupportedTypeError, match="give its columns"):
        from_arrays({"x": frame})
    for groups in (frame.groupby("a"), frame.groupby("a")["b"]):
        with pytest.raises(UnsupportedTypeError, match="several tables"):
            from_source(groups)
    pa = pytest.importorskip("pyarrow")
    with pytest.raises(UnsupportedTypeError, match="from_arrow"):
        from_arrays(pa.table({"a": [1]}))


def test_columns_that_polars_cannot_hand_over(tmp_path: pathlib.Path) -> None:
    pl = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    objects = pl.Series("o", [object()], dtype=pl.Object)
    wide = pl.Series("w", [1], dtype=pl.Int128)
    for column, message in ((objects, "column 'o'.*Object"), (wide, "column 'w'.*pyarrow")):
        for data in (column, pl.DataFrame({"a": [1], column.name: column}), {column.name: column}):
            with pytest.raises(UnsupportedTypeError, match=message):
                stored(tmp_path, data)
            with pytest.raises(UnsupportedTypeError, match=message):
                from_source(data)


def test_pandas_columns_of_objects_that_are_no_arrays() -> None:
    pd = pytest.importorskip("pandas")
    for values in ([{"a": 1}], pd.Categorical([(1, 2)]), pd.period_range("2020", periods=1)):
        with pytest.raises(UnsupportedTypeError, match="column 'd'"):
            from_source(pd.DataFrame({"ok": [1], "d": values}))


def test_rows_of_a_frame_one_by_one(tmp_path: pathlib.Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": ["x", None], "b": [1, 2]})
    with pytest.raises(UnsupportedTypeError, match="submit the data frame itself"):
        stored(tmp_path, frame[:1].iterrows())
    with pytest.raises(SpecMismatchError, match=r"record 1: record\['a'\].*OptionalSpec"):
        stored(tmp_path, frame.to_dict("records"))


A = np.zeros((2, 2))
CASES = [
    # The values of a field, and what to say of the second, or of the first if there is one.
    ([A, np.zeros((3, 2))], r"shape=\(None, 2\)\) for it"),
    ([A, np.zeros(3)], r"shape=None\) for it"),
    ([A, A.astype("f4")], r"float32 does not fit .*astype\('float64'\)"),
    ([1, None], r"OptionalSpec\(value=TensorSpec\(dtype='int64', shape=\(\)\)\) for it"),
    ([None, 1], r"OptionalSpec\(value=TensorSpec\(dtype='int64', shape=\(\)\)\) for it"),
    ([1, 1.5], r"spec= with TensorSpec\(dtype='float64', shape=\(\)\) for it"),
    ([1, 2**63], r"spec= with TensorSpec\(dtype='uint64', shape=\(\)\) for it"),
    ([[1], [1.5]], r"spec= with TensorSpec\(dtype='float64', shape=\(1,\)\) for it"),
    ([1, True], "all of them bools, or all of them numbers"),
    ([1, "x"], "all of them strings, or all of them numbers"),
    (["x", 1], "all of them strings, or all of them numbers"),
    (["x", float("nan")], r"OptionalSpec\(value=TensorSpec\(dtype='string'"),
    (["x", "\ud800"], "give bytes"),
    ([1, {"b": 1}], "nested alike"),
    ([{"b": 1}, {}], r"must be a dict of \['b'\], not \[\]; .*the same keys"),
    ([[1, 2], [1, None]], "None in it"),
    ([["x", "y"], ["x", None]], "None in it"),
    ([[[1, 2], [3, 4]], [[1, 2], [3]]], "differ in shape.*Ragged"),
    ([[{"x": 1}]], "is a list of dicts.*list of each of their fields"),
    ([[1, None]], "is a list with None in it"),
    ([["x", 1]], "mixes int, str.*tuple"),
    ([[[1, 2], [3]]], "differ in shape.*Ragged"),
    ([[2**70]], "64 bits"),
    ([2**70], "64 bits"),
    ([np.array(["x", 2], dtype=object)], "an object array may hold only str and bytes, not int"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "message"), CASES, ids=[str(n) for n in range(len(CASES))])
def test_what_does_not_fit_is_named_and_told_what_to_do(
    values: list[Any], message: str, tmp_path: pathlib.Path
) -> None:
    records = [{"ok": 1, "a": ({"field": value},)} for value in values]
    with pytest.raises(YogadlError, match=message) as caught:
        stored(tmp_path, records)
    assert "record['a'][0]['field']" in str(caught.value)
    # It is said of those alone that None in a shape helps.
    assert ("shape=(None" in str(caught.value)) == ("shape=\\(None" in message)
    if len(values) == 2:
        assert isinstance(caught.value, SpecMismatchError)
        assert str(caught.value).startswith("record 1: ")
        assert str(caught.value).endswith("The spec was inferred from the first record")


@pytest.mark.parametrize(
    ("values", "spec"),
    [
        ([np.zeros((2, 2)), np.zeros((3, 2))], TensorSpec("float64", (None, 2))),
        ([np.zeros((2, 2)), np.zeros(3)], TensorSpec("float64", None)),
        ([None, 1], OptionalSpec(INT)),
        ([1, 1.5], TensorSpec("float64")),
        ([1, 2**63], TensorSpec("uint64")),
        (["x", None], OptionalSpec(TensorSpec("string"))),
        ([Ragged(np.array([1, 2, 3]), (np.array([0, 2, 3]),))], RaggedSpec("int64", (2, None), 1)),
    ],
)
def test_the_advice_helps(values: list[Any], spec: Any, tmp_path: pathlib.Path) -> None:
    records = [{"field": value} for value in values]
    assert len(stored(tmp_path, records, {"field": spec})) == len(values)


def test_components_of_optional_records_are_named(tmp_path: pathlib.Path) -> None:
    spec = {"a": OptionalSpec({"b": INT})}
    for value, message in (({"b": "x"}, r"\['b'\]: 'x' does"), ({"c": 1}, " must be a dict")):
        with pytest.raises(SpecMismatchError, match=r"^record 1: record\['a'\]" + message):
            stored(tmp_path, [{"a": None}, {"a": value}], spec)


def test_arrays_that_do_not_fit_their_spec_are_named() -> None:
    data = {"x": np.zeros(3), "y": np.zeros(3)}
    with pytest.raises(SpecMismatchError, match=r"column 'y': .*astype\('float32'\)"):
        from_source(data, spec={"x": TensorSpec("float64"), "y": TensorSpec("float32")})
    with pytest.raises(SpecMismatchError, match=r"column 1: .*shape=\(None,\)"):
        from_source(
            (np.zeros(3), np.zeros((3, 2))),
            spec=(TensorSpec("float64"), TensorSpec("float64", (3,))),
        )


def test_batches_that_do_not_fit_are_named(tmp_path: pathlib.Path) -> None:
    data = pytest.importorskip("torch.utils.data")
    items = [{"a": np.zeros(2), "b": np.zeros(2 if at < 4 else 3)} for at in range(8)]
    with pytest.raises(SpecMismatchError, match=r"record\['b'\]: .*shape=\(None,\)"):
        stored(tmp_path, data.DataLoader(items, batch_size=4))


def test_palettes_of_hugging_face_images(tmp_path: pathlib.Path) -> None:
    images = pytest.importorskip("PIL.Image")
    hf = pytest.importorskip("datasets")
    colours = images.new("RGB", (2, 2), (1, 2, 3))
    for files in ([colours.quantize(4)], [colours, colours.quantize(4)]):
        data = hf.Dataset.from_dict({"i": files}, features=hf.Features({"i": hf.Image()}))
        with pytest.raises(UnsupportedTypeError, match=r"'i'.*palette.*Image\(mode='RGB'\)"):
            stored(tmp_path, data)
        converted = data.cast_column("i", hf.Image(mode="RGB"))
        assert stored(tmp_path, converted)[-1]["i"].tolist() == [[[1, 2, 3]] * 2] * 2
