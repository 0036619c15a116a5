"""``make_tf_dataset`` over data sets made of others, in the global order, from saved places."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from stored import write  # noqa: E402

import yogadl  # noqa: E402
from yogadl.cache import mapping  # noqa: E402
from yogadl.dataref import IndexedDataRef, LMDBDataRef  # noqa: E402
from yogadl.errors import InvalidArgumentError  # noqa: E402
from yogadl.orders import Order  # noqa: E402
from yogadl.spec import TensorSpec  # noqa: E402
from yogadl.storage import LFSStorage  # noqa: E402
from yogadl.tensorflow import make_tf_dataset  # noqa: E402

COUNT = 23
VARYING = TensorSpec("int64", (None,))


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> LMDBDataRef:
    path = tmp_path_factory.mktemp("orders") / "fixed.mdb"
    return write(path, TensorSpec("int64", (3,)), (np.full(3, n) for n in range(COUNT)))


@pytest.fixture(scope="module")
def varying(tmp_path_factory: pytest.TempPathFactory) -> LMDBDataRef:
    path = tmp_path_factory.mktemp("orders") / "varying.mdb"
    return write(path, VARYING, (np.full(n % 4, n) for n in range(COUNT)))


@pytest.fixture(params=["fixed", "varying"])
def dataref(request: pytest.FixtureRequest) -> LMDBDataRef:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def lists(records: Any) -> list[Any]:
    return [np.asarray(record).tolist() for record in records]


DERIVED: list[Callable[[LMDBDataRef], IndexedDataRef]] = [
    lambda ref: ref[3:20:2],
    lambda ref: ref[::-1][1:],
    lambda ref: ref.select([5, 5, 1, 22]),
    lambda ref: yogadl.concat([ref[:4], ref]),
    lambda ref: yogadl.mix([ref, ref[::-1]], [2, 1]),
]


@pytest.mark.parametrize("derive", DERIVED)
@pytest.mark.parametrize("batch_size", [None, 4])
def test_derived_data_sets(
    dataref: LMDBDataRef, derive: Callable[[LMDBDataRef], IndexedDataRef], batch_size: int | None
) -> None:
    derived = derive(dataref)
    expected = lists(derived.stream(shuffle=True, shuffle_seed=5))
    stream = derived.stream(shuffle=True, shuffle_seed=5)
    if batch_size is None:
        assert lists(make_tf_dataset(stream)) == expected
        return
    ragged = dataref.spec == VARYING
    batches = make_tf_dataset(stream, batch_size=batch_size, ragged=ragged)
    assert lists(make_tf_dataset(derived.stream())) == lists(derived.stream())
    found = [row for batch in batches for row in (batch.to_list() if ragged else lists(batch))]
    assert found == expected


@pytest.mark.parametrize("batch_size", [None, 4])
def test_concatenations_are_read_where_they_are_mapped(
    tmp_path: pathlib.Path, fixed: LMDBDataRef, batch_size: int | None
) -> None:
    storage = LFSStorage(tmp_path)
    x = np.arange(300, dtype="i8").reshape(100, 3)
    storage.submit(x, "a", "1", part_bytes=500)
    large = np.arange(9000, dtype="i8").reshape(3, 3000)
    storage.submit(large, "a", "2", part_bytes=500)
    storage.submit(large + 1, "a", "3")
    small = [fixed, storage.fetch("a", "1")]
    for parts in (small, [small[0][3:], small[1][::2]], [storage.fetch("a", v) for v in "23"]):
        whole = yogadl.concat(parts)
        assert (whole.reader.mapped_records() is not None) == mapping.can_map_again()
        stream = whole.stream(shuffle=True, shuffle_seed=5)
        expected = lists(whole.stream(shuffle=True, shuffle_seed=5))
        assert sorted(expected) == sorted(row for part in parts for row in lists(part.stream()))
        dataset = make_tf_dataset(stream, batch_size=batch_size)
        found = lists(dataset)
        if batch_size is not None:
            found = [row for batch in found for row in batch]
        assert found == expected


def test_zipped(fixed: LMDBDataRef, varying: LMDBDataRef) -> None:
    pairs = yogadl.zip({"fixed": fixed, "varying": varying})
    dataset = make_tf_dataset(pairs.stream(shuffle=True, shuffle_seed=5))
    for found, expected in zip(dataset, pairs.stream(shuffle=True, shuffle_seed=5), strict=True):
        assert found["fixed"].numpy().tolist() == expected["fixed"].tolist()
        assert found["varying"].numpy().tolist() == expected["varying"].tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("offset", [0, 7, 22, 25])
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.long_for(2, 5, 7, 25)
def test_global_order(dataref: LMDBDataRef, count: int, offset: int, drop: bool) -> None:
    for rank in range(count):
        options: dict[str, Any] = {
            "start_offset": offset,
            "shuffle": True,
            "shuffle_seed": 5,
            "shard_rank": rank,
            "num_shards": count,
            "drop_shard_remainder": drop,
            "shuffle_then_shard": True,
        }
        plain = dataref.stream(**options)
        epochs = [lists(plain) for _ in range(3)]
        dataset = make_tf_dataset(dataref.stream(**options))
        assert [lists(dataset) for _ in range(3)] == epochs
        fixed_epochs = make_tf_dataset(dataref.stream(**options), epochs=3)
        assert lists(fixed_epochs) == [record for epoch in epochs for record in epoch]
        assert int(fixed_epochs.cardinality()) == sum(map(len, epochs))


def test_from_a_saved_place(dataref: LMDBDataRef) -> None:
    original = dataref.stream(shuffle=True, shuffle_seed=5)
    records = iter(original)
    for _ in range(9):
        next(records)
    resumed = make_tf_dataset(dataref.stream(state=original.state_dict()))
    assert lists(resumed) == lists(records)


def test_the_place_of_a_stream_that_tensorflow_reads_is_its_iterators(fixed: LMDBDataRef) -> None:
    stream = fixed.stream()
    dataset = make_tf_dataset(stream)
    next(iter(dataset))
    with pytest.raises(InvalidArgumentError, match=r"tf\.train\.Checkpoint"):
        stream.state_dict()


@pytest.mark.parametrize("batch_size", [None, 512])
def test_iterators_in_turn_have_each_order_made_once(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, batch_size: int | None
) -> None:
    made: list[int] = []
    make = Order.permutation
    monkeypatch.setattr(
        Order, "permutation", lambda order, epoch: (made.append(epoch), make(order, epoch))[1]
    )
    # So many that they are looked up in several calls.
    count = 20_000
    dataref = write(tmp_path / "cache.mdb", TensorSpec("int64"), range(count))
    dataset = make_tf_dataset(dataref.stream(shuffle=True, shuffle_seed=1), batch_size=batch_size)
    iterators = [dataset.as_numpy_iterator() for _ in range(3)]
    found: list[list[int]] = [[] for _ in iterators]
    for items in zip(*iterators, strict=True):
        for one, item in zip(found, items, strict=True):
            one.extend(np.atleast_1d(item).tolist())
    for epoch, one in enumerate(found):
        assert one == np.random.RandomState(1 + epoch).permutation(count).tolist()
    assert sorted(made) == [0, 1, 2]
