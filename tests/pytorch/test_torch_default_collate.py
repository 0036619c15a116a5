"""``default_collate`` makes of a batch, whatever was done to it, what it makes of a plain list."""

from __future__ import annotations

import collections
import contextlib
import copy
import pathlib
import pickle
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("torch.utils.data", reason="needs PyTorch")

from strategies import data_sets, structures, tensor_specs  # noqa: E402
from torch.utils.data import (  # noqa: E402
    ConcatDataset,
    DataLoader,
    Dataset,
    Subset,
    default_collate,
)
from torch_helpers import MANY_WORKERS, write, write_numbered  # noqa: E402

from yogadl import spec as specs  # noqa: E402
from yogadl.errors import UnsupportedTypeError  # noqa: E402
from yogadl.spec import NoneSpec, TensorSpec  # noqa: E402
from yogadl.torch import Batch, MapDataset, collate  # noqa: E402
from yogadl.torch._collate import LeafBatch  # noqa: E402

pytestmark = MANY_WORKERS

# Those that only ml_dtypes has are where it is installed.
DTYPES = ["bool", "int8", "int64", "uint8", "float16", "float32", "float64", "complex64", "string"]
SPECS = structures(tensor_specs(st.sampled_from(DTYPES)))
Pair = collections.namedtuple("Pair", ["left", "right"])
FUNCTIONS = torch.utils.data._utils.collate.default_collate_fn_map


def same(one: Any, two: Any) -> bool:
    """Whether two batches are equal, in their classes, too.

    Of strings, torch gives the very list back that it was given, which may be a ``LeafBatch``.
    """
    one, two = (list(nest) if isinstance(nest, LeafBatch) else nest for nest in (one, two))
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, torch.Tensor):
        alike = one.dtype == two.dtype and one.shape == two.shape
        return alike and one.numpy().tobytes() == two.numpy().tobytes()
    return bool(one == two)


def outcome(function: Callable[[Any], Any], given: Any) -> Any:
    """What a function returns, or the class of what it raises."""
    try:
        return function(given)
    except (AttributeError, RuntimeError, LookupError, TypeError, ValueError) as error:
        return type(error)


# What others do to a list of records, in place or by making another one.


def _with_each_value(record: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(record, dict):
        for key in list(record):
            record[key] = _with_each_value(record[key], change)
        return record
    if isinstance(record, tuple):
        values = [_with_each_value(value, change) for value in record]
        return type(record)(*values) if hasattr(record, "_fields") else tuple(values)
    return change(record)


def _doubled(value: Any) -> Any:
    return torch.stack([value, value]) if isinstance(value, torch.Tensor) else value


def _zeroed_in_place(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value.zero_()
    return value


def _reshaped_in_place(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value.unsqueeze_(0)
    return value


def each(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def change_all(batch: Any) -> Any:
        for place, record in enumerate(batch):
            batch[place] = _with_each_value(record, change)
        return batch

    return change_all


def only(place: int, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def change_one(batch: Any) -> Any:
        batch[place] = _with_each_value(batch[place], change)
        return batch

    return change_one


def on_dicts(function: Callable[[dict[Any, Any]], Any]) -> Callable[[Any], Any]:
    """In records that are dicts, and in all dicts inside of records."""

    def visit(value: Any) -> None:
        for child in list(value.values() if isinstance(value, dict) else value):
            if isinstance(child, dict | tuple):
                visit(child)
        if isinstance(value, dict):
            function(value)

    def change_all(batch: Any) -> Any:
        for record in reversed(batch):
            if isinstance(record, dict | tuple):
                visit(record)
        return batch

    return change_all


def last_deleted(record: dict[Any, Any]) -> None:
    if record:
        del record[list(record)[-1]]


def in_place(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def changed(batch: Any) -> Any:
        function(batch)
        return batch

    return changed


def put(place: Any, value: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return in_place(lambda batch: batch.__setitem__(place, value(batch)))


def added_in_place(batch: Any) -> Any:
    batch += [batch[1]]
    return batch


def repeated_in_place(batch: Any) -> Any:
    batch *= 2
    return batch


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a value of each": each(_doubled),
    "a value of each in place": each(_zeroed_in_place),
    "a shape of each in place": each(_reshaped_in_place),
    "a value of the first": only(0, _zeroed_in_place),
    "a value of the last": only(-1, _doubled),
    "a key deleted": on_dicts(last_deleted),
    "a key added": on_dicts(lambda record: record.update(added=np.int64(len(record)))),
    "keys in another order": on_dicts(lambda r: r.update({k: r.pop(k) for k in list(r)[:1]})),
    "a record replaced": put(0, lambda batch: copy.deepcopy(batch[-1])),
    "records replaced": put(slice(0, 1), lambda batch: [batch[-1], batch[-1]]),
    "a record deleted": in_place(lambda batch: batch.__delitem__(0)),
    "popped": in_place(lambda batch: batch.pop()),
    "appended": in_place(lambda batch: batch.append(batch[0])),
    "extended": in_place(lambda batch: batch.extend(list(batch))),
    "inserted": in_place(lambda batch: batch.insert(1, batch[-1])),
    "cleared": in_place(lambda batch: batch.clear()),
    "sorted in place": in_place(lambda batch: batch.sort(key=repr)),
    "sorted": lambda batch: sorted(batch, key=repr),
    "reversed in place": in_place(lambda batch: batch.reverse()),
    "reversed": lambda batch: list(reversed(batch)),
    "sliced": lambda batch: batch[:2],
    "sliced backwards": lambda batch: batch[::-1],
    "as a list": list,
    "as a tuple": tuple,
    "twice": lambda batch: batch + batch,
    "after others": lambda batch: [batch[-1]] + batch,
    "multiplied": lambda batch: 2 * batch,
    "added in place": added_in_place,
    "multiplied in place": repeated_in_place,
    "copied": copy.copy,
    "copied by its method": lambda batch: batch.copy(),
    "copied with all in it": copy.deepcopy,
    "pickled": lambda batch: pickle.loads(pickle.dumps(batch)),
    "looked at": in_place(lambda batch: (len(batch), repr(batch), bool(batch))),
    "looked at from the front": in_place(lambda batch: batch[0]),
    "looked at from the back": in_place(lambda batch: batch[-1]),
    "collated": in_place(lambda batch: _scribble(default_collate(batch))),
}


def _scribble(batch: Any) -> None:
    """Overwrites what was made of a batch, which leaves the records as they are."""
    _with_each_value(batch, _zeroed_in_place)
    if isinstance(batch, list):
        batch.clear()


NESTED = {
    "a": (TensorSpec("int64"), {"b": TensorSpec("string")}),
    "p": Pair(*[TensorSpec("int8")] * 2),
}
RECORD = {"a": (np.int64(1), {"b": b"x"}), "p": Pair(np.int8(2), np.int8(3))}
PAIRS = (Pair(TensorSpec("int64"), TensorSpec("string")), [Pair(np.int64(1), b"")])


def both(spec: Any, records: list[Any], function: Callable[[Any, list[Any]], None]) -> None:
    """Calls a function with a batch of yogadl's and with a plain list of the same records."""
    with tempfile.TemporaryDirectory() as directory:
        dataset = MapDataset(write(pathlib.Path(directory) / "cache.mdb", records, spec))
        positions = [*range(len(records)), *range(len(records))]
        function(dataset.__getitems__(positions), [dataset[position] for position in positions])
        dataset.dataref.close()


@given(data_sets(SPECS), st.lists(st.sampled_from(sorted(CHANGES)), max_size=4))
@example((NESTED, [RECORD] * 2), [])
@example((NESTED, [RECORD] * 2), ["a key deleted"])
@example((NESTED, [RECORD] * 2), ["collated", "looked at from the front"])
@example(((TensorSpec("string"), (TensorSpec("string"),)), [(b"x", (b"y",))] * 2), [])
@example(PAIRS, [])
@example(PAIRS, ["a value of the first", "sorted in place"])
@example((TensorSpec("int64"), [np.int64(n) for n in range(3)]), ["a value of each"])
@example((TensorSpec("string"), [b"x", b""]), [])
@example(((TensorSpec("bool"), TensorSpec("int64", (1,))), [(True, np.ones(1, "i8"))]), ["popped"])
@example((TensorSpec("string", None), [b"x", b""]), [])
@example((TensorSpec("string", (2,)), [np.array([b"x", b""], object)] * 2), [])
@example((TensorSpec("int64", (None,)), [np.arange(2)] * 2), [])
@example(({"a": TensorSpec("int8"), "none": NoneSpec()}, [{"a": np.int8(1), "none": None}]), [])
def test_whatever_was_done_to_it(data_set: tuple[Any, list[Any]], changes: list[str]) -> None:
    def compare(batch: Any, plain: Any) -> None:
        for name in changes:
            batch, expected = outcome(CHANGES[name], batch), outcome(CHANGES[name], plain)
            if isinstance(expected, type):
                assert batch is expected
                return
            plain = expected
        whole, expected = outcome(default_collate, batch), outcome(default_collate, plain)
        if whole is batch and isinstance(whole, LeafBatch):
            # What begins with a string, torch gives back as it is; of no known rank, others may
            # follow.
            whole = list(whole)
        assert same(whole, expected)
        assert same(list(batch), list(plain))

    both(*data_set, compare)


def listed(nest: Any) -> Any:
    """A batch with lists for all tuples but named ones."""
    if isinstance(nest, dict):
        return {key: listed(value) for key, value in nest.items()}
    if isinstance(nest, tuple | list):
        values = [listed(value) for value in nest]
        return type(nest)(*values) if hasattr(nest, "_fields") else values
    return nest


def is_stackable(leaf: TensorSpec) -> bool:
    return leaf.static_shape is not None and (leaf.shape == () or not leaf.is_string)


@given(data_sets(SPECS), st.sampled_from(sorted(CHANGES)))
@example((NESTED, [RECORD] * 2), "a key added")
def test_yogadls_own_collating_takes_the_records_as_they_are(
    data_set: tuple[Any, list[Any]], change: str
) -> None:
    def compare(batch: Any, plain: Any) -> None:
        batch, plain = outcome(CHANGES[change], batch), outcome(CHANGES[change], plain)
        if isinstance(plain, type):
            assert batch is plain
            return
        # Where torch would go by the values, it goes by the spec.
        if all(map(is_stackable, specs.leaves(data_set[0]))) and isinstance(batch, Batch) and batch:
            assert same(listed(outcome(collate, batch)), listed(outcome(default_collate, plain)))

    both(*data_set, compare)


@given(data_sets(), st.sampled_from(sorted(name for name in CHANGES if "looked" in name)))
def test_looking_changes_nothing(data_set: tuple[Any, list[Any]], look: str) -> None:
    def compare(batch: Any, plain: Any) -> None:
        expected = copy.deepcopy(collate(batch))
        if plain:
            CHANGES[look](batch)
        # NaN and Sparse are no more equal to themselves than in the records.
        assert repr(collate(batch)) == repr(expected)

    with contextlib.suppress(UnsupportedTypeError):  # of dtypes that torch lacks
        both(*data_set, compare)


# Data sets around a MapDataset


class Plain(Dataset):  # type: ignore[misc] # known at run time only
    """Records by position, without anything of yogadl's."""

    def __init__(self, dataset: MapDataset) -> None:
        self.records = [dataset[position] for position in range(len(dataset))]

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Any:
        return copy.deepcopy(self.records[index])


class OneByOne(Dataset):  # type: ignore[misc]
    """A wrapper that knows nothing of ``__getitems__``."""

    def __init__(self, base: Any, change: Callable[[Any], Any]) -> None:
        self.base, self.change = base, change

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> Any:
        return self.change([self.base[index]])[0]


class AtOnce(OneByOne):
    """A wrapper that changes the list that it gets."""

    def __getitems__(self, indices: list[int]) -> Any:
        many = getattr(self.base, "__getitems__", None)
        found = many(indices) if many else [self.base[index] for index in indices]
        return self.change(found)


IN_RECORDS = sorted(name for name in CHANGES if name.startswith("a ") and "record" not in name)


@given(
    data_sets(SPECS),
    st.sampled_from([OneByOne, AtOnce]),
    st.sampled_from([name for name in IN_RECORDS if "first" not in name and "last" not in name]),
    st.booleans(),
    st.sampled_from([None, *sorted(CHANGES)]),
)
def test_data_sets_and_functions_around_it(
    data_set: tuple[Any, list[Any]], wrapper: Any, change: str, joins: bool, then: str | None
) -> None:
    def batches(dataset: Any) -> list[Any]:
        wrapped = wrapper(Subset(dataset, range(len(dataset))), CHANGES[change])
        if joins:
            wrapped = ConcatDataset([wrapped, Subset(wrapped, range(len(dataset)))])
        function = None
        if then is not None:

            def function(batch: Any) -> Any:
                return default_collate(CHANGES[then](batch))

        return list(DataLoader(wrapped, batch_size=2, collate_fn=function))

    spec, records = data_set
    if not records:
        return
    with tempfile.TemporaryDirectory() as directory:
        dataset = MapDataset(write(pathlib.Path(directory) / "cache.mdb", records, spec))
        assert same(outcome(batches, dataset), outcome(batches, Plain(dataset)))
        dataset.dataref.close()


def test_the_cases_of_the_report(tmp_path: pathlib.Path) -> None:
    records = [{"n": np.int64(n), "x": np.ones(2, "f4")} for n in range(4)]
    dataset = MapDataset(write(tmp_path / "cache.mdb", records))

    def function(batch: Any) -> Any:
        for record in batch:
            record["n"] *= 10
            record["m"] = record["n"] + 1
            del record["x"]
        return default_collate(batch)

    class Tens(Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return len(dataset)

        def __getitems__(self, indices: list[int]) -> Any:
            found = dataset.__getitems__(indices)
            for record in found:
                record["n"] = record["n"] * 10
            return found

    (batch,) = DataLoader(dataset, batch_size=4, collate_fn=function)
    assert {key: value.tolist() for key, value in batch.items()} == {
        "n": [0, 10, 20, 30],
        "m": [1, 11, 21, 31],
    }
    for collate_fn in (None, collate):
        (batch,) = DataLoader(Tens(), batch_size=4, collate_fn=collate_fn)
        assert batch["n"].tolist() == [0, 10, 20, 30]


# What a batch is


@pytest.mark.parametrize("nest", [dict, tuple, Pair])
def test_its_records_are_plain(tmp_path: pathlib.Path, nest: Any) -> None:
    record = {"left": np.ones(3, "f4"), "right": np.int64(1)}
    made = {dict: dict(record), tuple: tuple(record.values()), Pair: Pair(**record)}
    records = [made[nest]] * 4
    dataset = MapDataset(write(tmp_path / "cache.mdb", records))
    batch: Any = dataset.__getitems__([1, 2])
    first = batch[0]
    assert same(first, dataset[1])
    assert first is batch[0] is next(iter(batch)) is batch.data[0] is batch[-2]
    assert same(default_collate(batch), default_collate([dataset[1], dataset[2]]))


def test_torch_reads_no_record_of_a_batch_that_nobody_touched(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = MapDataset(write_numbered(tmp_path / "cache.mdb", 4))
    batch = dataset.__getitems__([3, 1])
    split = []
    monkeypatch.setattr("yogadl.torch._tensors.split", lambda *_: split.append(1))
    made = default_collate(batch)
    assert made["y"].tolist() == [3, 1]
    assert not split
    # And what it makes has memory of its own.
    monkeypatch.undo()
    made["y"].zero_()
    assert batch[0]["y"] == 3
    assert default_collate(batch)["y"].tolist() == [3, 1]


def test_what_collate_hands_over_has_dicts_and_lists_of_its_own(tmp_path: pathlib.Path) -> None:
    records = [{"n": np.int64(n), "s": b"%d" % n} for n in range(2)]
    batch = MapDataset(write(tmp_path / "cache.mdb", records)).__getitems__([0, 1])
    whole = collate(batch)
    whole["n"] = whole["n"] * 10
    whole["s"][0] = b"changed"
    assert default_collate(batch)["n"].tolist() == [0, 1]
    assert [record["s"] for record in batch] == [b"0", b"1"]


def test_extensions_of_torchs_collating_are_asked(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = MapDataset(write_numbered(tmp_path / "cache.mdb", 4))

    def total(values: Any, *, collate_fn_map: Any = None) -> Any:
        return sum(value.sum().item() for value in values)

    monkeypatch.setitem(FUNCTIONS, torch.Tensor, total)
    assert default_collate(dataset.__getitems__([1, 2])) == {"x": 9.0, "y": 3}


Nest = st.recursive(
    st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner).map(collections.OrderedDict)
        | st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.tuples(inner, inner).map(Pair._make)
    ),
    max_leaves=8,
)


@given(st.lists(Nest, max_size=4) | Nest.map(lambda nest: [nest, nest]))
def test_records_of_others_are_collated_as_ever(records: list[Any]) -> None:
    plain = {kind: made for kind, made in FUNCTIONS.items() if kind not in (dict, tuple)}
    assert len(plain) == len(FUNCTIONS) - 2

    def as_ever(given: Any) -> Any:
        return torch.utils.data._utils.collate.collate(given, collate_fn_map=plain)

    assert same(outcome(default_collate, records), outcome(as_ever, records))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_knows_nothing_of_it(tmp_path: pathlib.Path, workers: int) -> None:
    dataset = MapDataset(write_numbered(tmp_path / "cache.mdb", 7))
    assert isinstance(dataset.__getitems__([0]), Batch)
    for part in (dataset, Subset(dataset, range(7))):
        found = list(DataLoader(part, batch_size=3, num_workers=workers))
        assert [batch["y"].tolist() for batch in found] == [[0, 1, 2], [3, 4, 5], [6]]
        assert [tuple(batch["x"].shape) for batch in found] == [(3, 3), (3, 3), (1, 3)]
