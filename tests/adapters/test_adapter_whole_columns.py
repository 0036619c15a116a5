"""Arrays, tables and tensors are stored as whole columns, and so that nobody can tell it."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from adapter_rig import assert_same, stored
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yogadl import spec as specs
from yogadl.cache.writer import CacheWriter
from yogadl.errors import SpecMismatchError, UnsupportedTypeError, YogadlError
from yogadl.spec import TensorSpec

SPEC = {
    "image": TensorSpec("uint8", (4, 2)),
    "text": TensorSpec("string"),
    "tokens": TensorSpec("int32", (None,)),
}
COUNT = 300
NOW = 1_790_000_000_000_000_000


def record(at: int) -> dict[str, Any]:
    return {
        "image": np.full((4, 2), at % 251, "u1"),
        "text": b"x" * (at * 37 % 3000),
        "tokens": np.arange(at * 11 % 900, dtype="i4"),
    }


RECORDS = [record(at) for at in range(COUNT)]


def objects(values: list[Any]) -> Any:
    column = np.empty(len(values), object)
    column[:] = values
    return column


def numpy_columns() -> Any:
    return {
        "image": np.stack([one["image"] for one in RECORDS]),
        "text": objects([one["text"] for one in RECORDS]),
        "tokens": objects([one["tokens"] for one in RECORDS]),
    }


def arrow_table(chunks: int = 1) -> Any:
    pa = pytest.importorskip("pyarrow")
    images = np.stack([one["image"] for one in RECORDS])
    table = pa.table(
        {
            "image": pa.FixedShapeTensorArray.from_numpy_ndarray(images),
            "text": pa.array([one["text"] for one in RECORDS], pa.binary()),
            "tokens": pa.array([one["tokens"] for one in RECORDS], pa.list_(pa.int32())),
        }
    )
    if chunks == 1:
        return table
    size = COUNT // chunks
    return pa.concat_tables([table.slice(at, size) for at in range(0, COUNT, size)])


def large_arrow_table() -> Any:
    """Offsets of 64 bits, and rows that begin in the middle of their buffers."""
    pa = pytest.importorskip("pyarrow")
    texts = [b"before", *[one["text"] for one in RECORDS], b"behind"]
    tokens = [[1, 2], *[one["tokens"] for one in RECORDS], [3]]
    images = [np.zeros((4, 2), "u1"), *[one["image"] for one in RECORDS], np.ones((4, 2), "u1")]
    columns = {
        "image": [image.tolist() for image in images],
        "text": pa.array(texts, pa.large_binary()),
        "tokens": pa.array(tokens, pa.large_list(pa.int32())),
    }
    columns["image"] = pa.array(columns["image"], pa.list_(pa.list_(pa.uint8(), 2), 4))
    return pa.table(columns).slice(1, COUNT)


def column_nest() -> Any:
    table, arrays = arrow_table(), numpy_columns()
    return {**arrays, "tokens": table.column("tokens")}


def torch_tensors() -> Any:
    torch = pytest.importorskip("torch")
    return {**numpy_columns(), "image": torch.from_numpy(numpy_columns()["image"])}


def hugging_face() -> Any:
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset(datasets.table.InMemoryTable(large_arrow_table()))


SOURCES: list[Callable[[], Any]] = [
    numpy_columns,
    arrow_table,
    lambda: arrow_table(chunks=6),
    large_arrow_table,
    column_nest,
    torch_tensors,
    hugging_face,
]


@pytest.fixture
def plain(tmp_path: pathlib.Path) -> Any:
    """The same records, stored one by one."""
    return stored(tmp_path / "plain", iter(RECORDS), SPEC)


@pytest.mark.parametrize("source", SOURCES)
def test_whole_columns_are_stored(source: Any, tmp_path: pathlib.Path, plain: Any) -> None:
    data = source()
    singly = AssertionError("a record was written by itself")
    with (
        mock.patch.object(CacheWriter, "append", side_effect=singly),
        mock.patch.object(CacheWriter, "append_plain", side_effect=singly),
    ):
        dataref = stored(tmp_path / "columns", data, SPEC)
    assert_same(dataref.stream(), RECORDS)
    assert dataref.reader.content_id == plain.reader.content_id


def file_of(path: pathlib.Path, data: Any, spec: Any) -> bytes:
    # It says when it was made, and how long that took.
    with mock.patch("time.time_ns", return_value=NOW), mock.patch("time.monotonic", return_value=1):
        stored(path, data, spec).close()
    (file,) = path.rglob("cache.mdb")
    return file.read_bytes()


@pytest.mark.parametrize("source", SOURCES)
def test_their_files_are_those_of_the_records(source: Any, tmp_path: pathlib.Path) -> None:
    data = source()
    plain = file_of(tmp_path / "plain", iter(RECORDS), SPEC)
    assert file_of(tmp_path / "columns", data, SPEC) == plain


WORDS = st.lists(st.text(max_size=5), max_size=9)
LISTS = st.lists(st.lists(st.integers(-9, 9), max_size=5), max_size=9)


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(words=WORDS, lists=LISTS, start=st.integers(0, 4), large=st.booleans())
def test_any_slice_of_a_table(
    tmp_path_factory: pytest.TempPathFactory,
    words: list[str],
    lists: list[list[int]],
    start: int,
    large: bool,
) -> None:
    pa = pytest.importorskip("pyarrow")
    count = min(len(words), len(lists))
    text = pa.large_string() if large else pa.string()
    rows = pa.large_list(pa.int8()) if large else pa.list_(pa.int8())
    table = pa.table({"t": pa.array(words[:count], text), "r": pa.array(lists[:count], rows)})
    table = table.slice(start)
    expected = [
        {"t": word.encode(), "r": np.array(row, "i1")}
        for word, row in zip(words[start:count], lists[start:count], strict=True)
    ]
    dataref = stored(tmp_path_factory.mktemp("slice"), table)
    assert_same(dataref.stream(), expected)


def test_rows_of_one_length_where_the_spec_has_none(tmp_path: pathlib.Path) -> None:
    spec = TensorSpec("float32", (None, 2))
    data = np.arange(60, dtype="f4").reshape(10, 3, 2)
    assert_same(stored(tmp_path / "rows", data, spec).stream(), list(data))
    # Neither in one piece, nor in this byte order.
    other = np.asfortranarray(data.astype(">f4"))
    assert_same(stored(tmp_path / "other", other, spec).stream(), list(data))
    empty = np.zeros((4, 0, 2), "f4")
    assert_same(stored(tmp_path / "empty", empty, spec).stream(), list(empty))


def spoilt(name: str, value: Any) -> Any:
    columns = numpy_columns()
    columns[name][200] = value
    return columns


@pytest.mark.parametrize(
    ("name", "value"),
    [("text", 5), ("text", None), ("tokens", np.zeros(3)), ("tokens", np.zeros((1, 1), "i4"))],
)
def test_errors_name_the_record_and_the_column(
    name: str, value: Any, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(YogadlError, match=rf"record 200: .*{name}") as caught:
        stored(tmp_path, spoilt(name, value), SPEC)
    assert isinstance(caught.value, SpecMismatchError | UnsupportedTypeError)


def test_a_null_in_a_list_is_refused(tmp_path: pathlib.Path) -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"r": pa.array([[1, 2], [3, None]], pa.list_(pa.int8()))})
    with pytest.raises(UnsupportedTypeError, match="column 'r' has None inside a list"):
        stored(tmp_path, table)


def test_a_spec_of_other_leaves_is_stored_all_the_same(tmp_path: pathlib.Path) -> None:
    pa = pytest.importorskip("pyarrow")
    spec = {"t": specs.OptionalSpec(TensorSpec("string")), "n": TensorSpec("int8")}
    table = pa.table({"t": pa.array(["a", None]), "n": pa.array([1, 2], pa.int8())})
    expected = [{"t": b"a", "n": np.int8(1)}, {"t": None, "n": np.int8(2)}]
    assert_same(stored(tmp_path, table, spec).stream(), expected)
