"""The order of the keys of a dict changes nothing, whatever a data set is made of."""

from __future__ import annotations

import json
import pathlib
import tempfile
from typing import Any

import numpy as np
import pytest
from composed import check, composed, memory, reordered, row, stored, submitted
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import data_sets, element_specs, same, static_specs

import yogadl
from yogadl import spec as specs
from yogadl.dataref import Padding
from yogadl.errors import InvalidArgumentError, SpecMismatchError, UnsupportedTypeError
from yogadl.format import spec_json
from yogadl.format.codec import RecordCodec
from yogadl.spec import TensorSpec


@given(data_set=data_sets(max_size=3), data=st.data())
def test_equal_specs_have_equal_leaves_and_bytes(
    data_set: tuple[Any, list[Any]], data: st.DataObject
) -> None:
    spec, found = data_set
    other = data.draw(reordered(spec))
    assert other == spec
    assert list(specs.leaves(other)) == list(specs.leaves(spec))
    assert spec_json.canonical(other) == spec_json.canonical(spec)
    assert same(specs.common(spec, other), spec)
    one, two = RecordCodec(spec), RecordCodec(other)
    for record in found:
        content = one.encode(record)
        assert two.encode(data.draw(reordered(record))) == content
        assert same(two.decode(content), record)


@given(spec=element_specs, data=st.data())
def test_the_order_of_a_spec_is_kept(spec: Any, data: st.DataObject) -> None:
    """It is what records are shown with, and nothing else."""
    other = data.draw(reordered(spec))
    back = spec_json.from_json(json.loads(json.dumps(spec_json.to_json(other))))
    assert repr(back) == repr(other)
    numbered = specs.unflatten(other, range(len(list(specs.leaves(other)))))
    assert repr(
        specs.unflatten(
            spec_json.from_json(spec_json.to_json(other)), specs.flatten(other, numbered)
        )
    ) == repr(numbered)


@pytest.mark.once
@settings(max_examples=100)
@given(spec=element_specs, data=st.data())
def test_a_data_set_made_of_others_has_their_records(spec: Any, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        made = data.draw(composed(folder, spec))
        assert made.dataref.spec == spec
        check(made.dataref, made.records)
        check(submitted(folder, made.dataref), made.records)
        check(submitted(folder, made.dataref.stream(), made.spec), made.records)


@given(spec=static_specs, data=st.data())
def test_given_memory_and_padding_may_have_their_keys_in_any_order(
    spec: Any, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        made = data.draw(composed(pathlib.Path(name), spec))
        out = [data.draw(reordered(memory(spec, 3))) for _ in range(2)]
        found: list[bool] = []
        for batch in made.dataref.stream().batches(3, out=out):
            count = min(3, len(made.records) - len(found))
            found += [
                same(row(made.dataref.spec, batch, at), record)
                for at, record in zip(range(count), made.records[len(found) :], strict=False)
            ]
        assert found == [True] * len(made.records)


@given(spec=element_specs, data=st.data())
def test_what_to_pad_with_may_have_its_keys_in_any_order(spec: Any, data: st.DataObject) -> None:
    numbers = iter(range(1, 100))

    def pad(leaf: Any) -> Any:
        varies = isinstance(leaf, TensorSpec) and not leaf.is_string and leaf.static_shape is None
        known = varies and leaf.shape is not None and leaf.dtype in ("int16", "int32", "float64")
        return next(numbers) if known else None

    nest = specs.map_leaves(pad, spec)
    one = Padding(spec, nest).values
    two = Padding(data.draw(reordered(spec)), data.draw(reordered(nest))).values
    assert [same(a, b) for a, b in zip(one, two, strict=True)] == [True] * len(one)


def test_joined_data_sets_do_not_swap_columns(tmp_path: pathlib.Path) -> None:
    """As it was found."""
    first = stored(
        tmp_path, {"a": TensorSpec("int64"), "b": TensorSpec("int64")}, [{"a": 1, "b": 2}]
    )
    second = stored(
        tmp_path, {"b": TensorSpec("int64"), "a": TensorSpec("int64")}, [{"a": 3, "b": 4}]
    )
    expected = [{"a": np.int64(1), "b": np.int64(2)}, {"a": np.int64(3), "b": np.int64(4)}]
    whole = yogadl.concat([first, second])
    check(whole, expected)
    check(submitted(tmp_path, whole), expected)
    check(yogadl.mix([second, first], [1, 1]), expected[::-1])
    check(yogadl.concat([second, first]), expected[::-1])


def test_records_of_joined_data_sets_are_all_as_of_the_first(tmp_path: pathlib.Path) -> None:
    leaf = TensorSpec("int64")
    pair = specs.namedtuple_class("Pair", ("x", "y"))(leaf, leaf)
    first = stored(tmp_path, {"b": pair, "a": leaf}, [{"b": (1, 2), "a": 3}])
    second = stored(tmp_path, {"a": leaf, "b": (leaf, leaf)}, [{"b": (4, 5), "a": 6}])
    for whole in (yogadl.concat([first, second]), yogadl.mix([first, second], [1, 1])):
        (batch,) = whole.stream().batches(2)
        for record in (whole[0], whole[1], *whole.stream(), whole.read([1]), batch):
            assert list(record) == ["b", "a"]
            assert type(record["b"]) is type(pair)


def test_a_spec_in_another_order_is_the_same_spec(tmp_path: pathlib.Path) -> None:
    spec = {
        "b": TensorSpec("int64"),
        "a": (TensorSpec("int8"), {"d": TensorSpec("bool"), 3: TensorSpec("int8")}),
    }
    record = {"b": np.int64(7), "a": (np.int8(1), {3: np.int8(2), "d": np.True_})}
    dataref = stored(tmp_path, spec, [record])
    other = {
        "a": (TensorSpec("int8"), {3: TensorSpec("int8"), "d": TensorSpec("bool")}),
        "b": TensorSpec("int64"),
    }
    check(submitted(tmp_path, dataref, other), [record])
    assert list(dataref[0]) == ["b", "a"]
    assert list(dataref.read([0])) == ["b", "a"]


def test_named_tuples_whose_fields_differ_are_not_joined(tmp_path: pathlib.Path) -> None:
    leaf = TensorSpec("int64")
    one = stored(tmp_path, specs.namedtuple_class("P", ("x", "y"))(leaf, leaf), [(1, 2)])
    two = stored(tmp_path, specs.namedtuple_class("P", ("y", "x"))(leaf, leaf), [(2, 1)])
    with pytest.raises(SpecMismatchError, match="named tuple"):
        yogadl.concat([one, two])
    with pytest.raises(SpecMismatchError, match="named tuple"):
        submitted(tmp_path, one, two.spec)


@pytest.mark.parametrize("key", [1.5, None, True, (1, 2)])
def test_keys_that_no_record_can_have(tmp_path: pathlib.Path, key: Any) -> None:
    part = stored(tmp_path, TensorSpec("int64"), [1])
    with pytest.raises(UnsupportedTypeError, match="must be a str or an int"):
        yogadl.zip({"a": part, key: part})
    with pytest.raises(UnsupportedTypeError, match="must be a str or an int"):
        yogadl.zip({key: part})


@pytest.mark.parametrize(
    "change",
    [
        {"items": [["b", {"kind": "none"}], ["a", {"kind": "none"}]]},
        {"items": [["a", {"kind": "none"}], [1, {"kind": "none"}]]},
        {"order": ["a"]},
        {"order": ["a", "a"]},
        {"order": ["a", "b", "a"]},
        {"order": ["a", "c"]},
        {"order": None},
        {"order": "ab"},
        {"order": {"a": 1, "b": 2}},
        {"order": [["a"], "b"]},
    ],
)
def test_json_of_dicts_in_no_order(change: dict[str, Any]) -> None:
    node = {"kind": "dict", "items": [["a", {"kind": "none"}], ["b", {"kind": "none"}]]}
    assert list(spec_json.from_json({**node, "order": ["b", "a"]})) == ["b", "a"]
    with pytest.raises(InvalidArgumentError):
        spec_json.from_json({**node, **change})
