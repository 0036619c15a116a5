"""Arrays and nests of arrays, whose rows are records; iterables and objects with positions."""

from __future__ import annotations

import collections
import itertools
import pathlib
from typing import Any

import numpy as np
import pytest
from adapter_rig import assert_same, check, stored
from hypothesis import given
from hypothesis import strategies as st
from strategies import data_sets, same, static_specs

from yogadl import spec as specs
from yogadl.adapters import ColumnsSource, open_source
from yogadl.dataref._sources import SourceDataRef, from_arrays, from_grain, from_source
from yogadl.errors import (
    ClosedError,
    InvalidArgumentError,
    SpecMismatchError,
    StateMismatchError,
    UnsupportedTypeError,
)
from yogadl.spec import OptionalSpec, TensorSpec

Pair = collections.namedtuple("Pair", ["first", "second"])


def columns_of(spec: Any, records: list[Any]) -> Any:
    """Records of static shape as a nest of arrays."""
    flat = [specs.flatten(spec, record) for record in records]
    return specs.unflatten(spec, [np.stack(column) for column in zip(*flat, strict=True)])


static_sets = data_sets(static_specs).filter(lambda drawn: bool(drawn[1]))


@given(drawn=static_sets)
def test_columns_round_trip(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[Any, list[Any]]
) -> None:
    spec, records = drawn
    source = open_source(columns_of(spec, records), spec)
    assert isinstance(source, ColumnsSource)
    assert source.count == len(records)
    dataref = stored(tmp_path_factory.mktemp("columns"), columns_of(spec, records), spec)
    assert same(dataref.spec, spec)
    assert_same(dataref.stream(), records)
    dataref.close()


@given(drawn=static_sets)
def test_columns_without_being_stored(drawn: tuple[Any, list[Any]]) -> None:
    spec, records = drawn
    check(from_arrays(columns_of(spec, records), spec=spec), records)


@given(drawn=data_sets())
def test_iterables_round_trip(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[Any, list[Any]]
) -> None:
    spec, records = drawn
    dataref = stored(tmp_path_factory.mktemp("iterable"), iter(records), spec)
    assert_same(dataref.stream(), records)
    dataref.close()


@given(drawn=data_sets())
def test_lists_without_being_stored(drawn: tuple[Any, list[Any]]) -> None:
    spec, records = drawn
    check(from_source(records, spec=spec), records)


def test_inferred_specs() -> None:
    assert open_source(np.arange(3)).spec == TensorSpec("int64")
    assert open_source(np.zeros((3, 2), "f4")).spec == TensorSpec("float32", (2,))
    assert open_source({"a": np.array(["x", "yy"])}).spec == {"a": TensorSpec("string")}
    nest = Pair(np.zeros(2), {"b": (np.zeros((2, 0)),)})
    spec = open_source(nest).spec
    assert type(spec).__name__ == "Pair"
    assert spec == Pair(TensorSpec("float64"), {"b": (TensorSpec("float64", (0,)),)})


def test_strings_and_objects(tmp_path: pathlib.Path) -> None:
    lists = np.empty(2, object)
    lists[:] = [np.arange(2), np.arange(3)]
    data = {
        "text": np.array(["a", "bé"]),
        "bytes": np.array([b"a", b""], object),
        "grid": np.array([["a", "b"], ["c", "d"]]),
        "lists": lists,
    }
    spec = {
        "text": TensorSpec("string"),
        "bytes": TensorSpec("string"),
        "grid": TensorSpec("string", (2,)),
        "lists": TensorSpec("int64", (None,)),
    }
    expected = [
        {
            "text": data["text"][i].encode(),
            "bytes": data["bytes"][i],
            "grid": np.array([c.encode() for c in data["grid"][i]], object),
            "lists": lists[i],
        }
        for i in range(2)
    ]
    assert_same(stored(tmp_path, data, spec).stream(), expected)
    check(from_source(data, spec=spec), expected)
    with pytest.raises(SpecMismatchError, match="does not fit"):
        from_source(data)[1]


def test_big_endian_strided_and_varying_specs(tmp_path: pathlib.Path) -> None:
    data = {"big": np.arange(5, dtype=">i4"), "every": np.arange(10, dtype="i2")[::2]}
    expected = [{"big": np.int32(i), "every": np.int16(2 * i)} for i in range(5)]
    assert_same(stored(tmp_path, data).stream(), expected)
    check(from_arrays(data), expected)
    array = np.arange(6).reshape(3, 2)
    check(from_arrays(array, spec=TensorSpec("int64", (None,))), list(array))
    optional = from_arrays(array, spec=OptionalSpec(TensorSpec("int64", (2,))))
    check(optional, list(array))


def test_reading_into_memory() -> None:
    data = {"a": np.arange(10), "b": np.arange(20, dtype=">f4").reshape(10, 2)}
    memory = [{"a": np.empty(4, "i8"), "b": np.empty((4, 2), "f4")} for _ in range(2)]
    seen = []
    for batch in from_arrays(data).stream(shuffle=True, shuffle_seed=1).batches(4, out=memory):
        assert any(np.shares_memory(batch["a"], nest["a"]) for nest in memory)
        assert (batch["b"][:, 0] == 2 * batch["a"]).all()
        seen += batch["a"].tolist()
    assert sorted(seen) == list(range(10))


def test_many_rows_are_written_in_pieces(tmp_path: pathlib.Path) -> None:
    data = (np.arange(5000), np.arange(5000, dtype="f4")[:, None])
    dataref = stored(tmp_path, data)
    batch = dataref.read(np.arange(5000))
    assert (batch[0] == data[0]).all()
    assert (batch[1] == data[1]).all()


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ({"a": np.zeros(3), "b": np.zeros(2)}, InvalidArgumentError, r"these have \[2, 3\] rows"),
        ((np.zeros(3), np.zeros(2)), InvalidArgumentError, r"these have \[2, 3\] rows"),
        ({"a": [1, 2]}, UnsupportedTypeError, "np.asarray"),
        ({"a": np.zeros(2), "b": 3}, UnsupportedTypeError, "np.asarray"),
        (np.zeros(()), UnsupportedTypeError, "first axis"),
        (np.ma.masked_array([1, 2]), UnsupportedTypeError, "mask"),
        ({"a": np.array(["2020-01-01"], "M8[s]")}, UnsupportedTypeError, "datetime64"),
        (np.array([object()]), UnsupportedTypeError, "builtins.object"),
    ],
)
def test_what_cannot_be_columns(data: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        open_source(data)


def test_columns_that_do_not_fit_their_spec() -> None:
    with pytest.raises(SpecMismatchError, match="does not fit"):
        open_source(np.zeros(3), TensorSpec("int64"))
    with pytest.raises(SpecMismatchError, match="does not fit"):
        open_source(np.zeros((3, 2)), TensorSpec("float64", (3,)))
    with pytest.raises(SpecMismatchError, match="dict"):
        open_source({"a": np.zeros(3)}, {"b": TensorSpec("float64")})
    with pytest.raises(SpecMismatchError, match="spec of column 'a', a dict"):
        open_source({"a": {"b": np.zeros(3)}}, {"a": TensorSpec("float64")})


def test_lists_and_other_tuples_are_iterables(tmp_path: pathlib.Path) -> None:
    rows = [np.arange(2), np.arange(2)]
    assert_same(stored(tmp_path, rows).stream(), rows)
    assert_same(stored(tmp_path, (1, 2)).stream(), [np.int64(1), np.int64(2)])
    assert_same(stored(tmp_path, range(3)).stream(), list(map(np.int64, range(3))))


class Squares:
    """Has positions, and no iterator."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < 5:
            raise RuntimeError("out of range")
        return {"x": index * index, "name": str(index)}


SQUARES = [{"x": np.int64(i * i), "name": str(i).encode()} for i in range(5)]


def test_objects_with_positions(tmp_path: pathlib.Path) -> None:
    assert_same(stored(tmp_path, Squares()).stream(), SQUARES)
    check(from_source(Squares()), SQUARES)
    check(from_grain(Squares()), SQUARES)


def test_infinite_and_unknown_lengths() -> None:
    assert open_source(itertools.repeat(1)).count is None
    assert open_source([1, 2]).count == 2

    class Wrapper(list):  # type: ignore[type-arg]
        def __len__(self) -> int:
            raise TypeError("no length")

    assert open_source(Wrapper([1, 2])).count is None
    with pytest.raises(UnsupportedTypeError, match="has no length"):
        open_source(Wrapper([1, 2])).by_position()


def test_a_data_set_of_a_data_set(tmp_path: pathlib.Path) -> None:
    varying = [np.arange(n) for n in range(4)]
    first = from_source(varying, spec=TensorSpec("int64", (None,)))
    assert from_source(first) is first
    assert_same(stored(tmp_path, first[::-1]).stream(), varying[::-1])
    fixed = stored(tmp_path, np.arange(6).reshape(3, 2))
    assert_same(stored(tmp_path, fixed.select([2, 0])).stream(), [np.arange(4, 6), np.arange(2)])
    known = stored(tmp_path, first, spec=TensorSpec("int64", None))
    assert known.spec == TensorSpec("int64", None)
    assert_same(known.stream(), varying)
    with pytest.raises(InvalidArgumentError, match="its own spec"):
        from_source(first, identity="mine")


# Of SourceDataRef


def test_errors_of_a_source_pass_through() -> None:
    class Failing(Squares):
        def __getitem__(self, index: int) -> Any:
            if index == 3:
                raise ZeroDivisionError("mine")
            return super().__getitem__(index)

    dataref = from_source(Failing())
    with pytest.raises(ZeroDivisionError, match="mine"):
        list(dataref.stream())
    with pytest.raises(ZeroDivisionError, match="mine"):
        dataref[3]
    assert dataref[2]["x"] == 4


def test_a_record_that_does_not_fit() -> None:
    dataref = from_source([1, 2, "three"])
    with pytest.raises(SpecMismatchError, match=r"record 2: .* inferred from the first record"):
        list(dataref.stream())
    with pytest.raises(UnsupportedTypeError, match=r"record 1: record\['a'\] is a builtins.object"):
        from_source([{"a": 1}, {"a": object()}])[1]


@pytest.mark.parametrize("data", [iter([1]), (n for n in range(3))])
def test_what_has_no_positions(data: Any) -> None:
    with pytest.raises(UnsupportedTypeError, match="one record after the other"):
        from_source(data)


def test_without_records() -> None:
    with pytest.raises(InvalidArgumentError, match="give spec="):
        from_source([])
    check(from_source([], spec=TensorSpec("int64")), [])
    check(from_arrays(np.zeros((0, 3))), [])


def test_closing() -> None:
    with from_arrays(np.arange(4)) as dataref:
        stream = dataref.stream()
        assert "4 records" in repr(dataref)
    assert "closed" in repr(dataref)
    with pytest.raises(ClosedError):
        list(stream)
    with pytest.raises(ClosedError):
        dataref[0]
    dataref.close()


def test_identities() -> None:
    made = [
        from_arrays(np.arange(4)),
        from_arrays(np.arange(5)),
        from_arrays(np.arange(4)[::-1]),
        from_arrays(np.arange(4, dtype="i4")),
        from_arrays({"a": np.arange(4)}),
        from_arrays({"a": np.array(["a", "b"])}),
        from_arrays({"a": np.array(["ab", ""])}),
        from_arrays(np.arange(4), identity="mine"),
        from_source([1, 2, 3]),
        from_source([1, 2]),
    ]
    assert len({dataref.reader.content_id for dataref in made}) == len(made)
    assert made[7].reader.content_id == "mine"
    assert made[0].reader.content_id == from_arrays(np.arange(4)).reader.content_id
    with pytest.raises(StateMismatchError):
        made[2].stream(state=made[0].stream().state_dict())
    for wrong in ("", 3):
        with pytest.raises(InvalidArgumentError, match="identity"):
            from_arrays(np.arange(4), identity=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("nest", [[1, 2], {"a": [1]}, 3, "abc", (), {}, (np.zeros(2), 1)])
def test_what_is_no_arrays(nest: Any) -> None:
    with pytest.raises(UnsupportedTypeError, match="from_arrays takes"):
        from_arrays(nest)


@given(count=st.integers(0, 30), size=st.integers(1, 9))
def test_batches_of_any_size(count: int, size: int) -> None:
    dataref = from_arrays(np.arange(count))
    assert isinstance(dataref, SourceDataRef)
    batches = [batch.tolist() for batch in dataref.stream().batches(size)]
    assert batches == [list(range(count))[at : at + size] for at in range(0, count, size)]


def test_arrays_and_lists_in_a_tuple_may_be_columns_or_records() -> None:
    array = np.arange(3.0)
    for columns in ((array, [1.0, 2.0, 3.0]), ([1, 2, 3], array), ((array, array), [1, 2, 3])):
        with pytest.raises(UnsupportedTypeError, match="may be columns or records"):
            open_source(columns)
    assert open_source((array, array)).count == 3
    assert open_source([array, array]).count == 2
    assert open_source(([1, 2], [3, 4])).count == 2
