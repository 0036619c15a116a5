"""Reading a little of a source costs a little: rows of tables, records that are kept."""

from __future__ import annotations

import gc
import itertools
import pickle
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import yogadl
from yogadl import spec as specs
from yogadl.dataref import IndexedDataRef

pa: Any = pytest.importorskip("pyarrow")

from yogadl.adapters._arrow_rows import Rows  # noqa: E402 # it imports pyarrow

# Tables


def _strings(count: int) -> Any:
    return pa.array([f"the text of record {number} " * 4 for number in range(count)])


def _numbers(count: int, each: int) -> Any:
    return pa.array(np.arange(count * each, dtype="i4"))


def _offsets(count: int, each: int) -> Any:
    return pa.array(np.arange(0, count * each + 1, each, dtype="i4"))


def _lists(count: int, each: int = 8) -> Any:
    return pa.ListArray.from_arrays(_offsets(count, each), _numbers(count, each))


def _fixed(count: int, each: int = 8) -> Any:
    return pa.FixedSizeListArray.from_arrays(_numbers(count, each), each)


COLUMNS: dict[str, Callable[[int], Any]] = {
    "string": _strings,
    "large_string": lambda count: _strings(count).cast(pa.large_string()),
    "binary": lambda count: _strings(count).cast(pa.binary()),
    "string_view": lambda count: _strings(count).cast(pa.string_view()),
    "dictionary": lambda count: pa.DictionaryArray.from_arrays(
        pa.array(np.arange(count, dtype="i4")), _strings(count)
    ),
    "numbers": lambda count: _numbers(count, 1),
    "bools": lambda count: pa.array(np.arange(count) % 3 == 0),
    "lists": _lists,
    "lists of strings": lambda count: pa.ListArray.from_arrays(_offsets(count, 1), _strings(count)),
    "large lists": lambda count: _lists(count).cast(pa.large_list(pa.int32())),
    "lists of views": lambda count: pa.ListArray.from_arrays(
        _offsets(count, 1), _strings(count).cast(pa.string_view())
    ),
    "fixed lists": _fixed,
    "lists of fixed lists": lambda count: pa.ListArray.from_arrays(
        _offsets(count, 1), _fixed(count)
    ),
    "structs": lambda count: pa.StructArray.from_arrays(
        [_strings(count), _fixed(count)], ["text", "numbers"]
    ),
    "tensors": lambda count: pa.FixedShapeTensorArray.from_storage(
        pa.fixed_shape_tensor(pa.int32(), (2, 4)), _fixed(count)
    ),
}


def chunked(array: Any, cuts: list[int]) -> Any:
    """The array in several chunks, some of them empty."""
    places = [0, *sorted(cut % (len(array) + 1) for cut in cuts), len(array)]
    parts = [array.slice(start, stop - start) for start, stop in itertools.pairwise(places)]
    return pa.chunked_array(parts, array.type)


@given(
    kind=st.sampled_from(sorted(COLUMNS)),
    count=st.integers(0, 12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
    window=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    places=st.lists(st.integers(0, 100), max_size=20),
)
def test_rows_of_chunks_of_slices(
    kind: str, count: int, cuts: list[int], window: tuple[int, int], places: list[int]
) -> None:
    column = chunked(COLUMNS[kind](count), cuts).slice(*window)
    values = column.to_pylist()
    positions = np.array([place % len(values) for place in places if values], np.int64)
    for rows in (Rows(column), pickle.loads(pickle.dumps(Rows(column)))):
        found = rows.at(positions)
        assert len(found) == len(positions)
        assert found.to_pylist() == [values[position] for position in positions.tolist()]


@given(st.sampled_from(sorted(COLUMNS)), st.permutations(range(9)))
def test_tables_in_chunks_have_the_records_of_tables_in_one(kind: str, order: list[int]) -> None:
    array = COLUMNS[kind](9)
    one = yogadl.from_arrow(pa.table({"x": array}))
    many = yogadl.from_arrow(pa.table({"x": chunked(array, [2, 2, 5])}))
    np.testing.assert_equal(many.read(order), one.read(order))
    np.testing.assert_equal(list(many.stream()), list(one.stream()))


@pytest.mark.parametrize("kind", sorted(COLUMNS))
@pytest.mark.parametrize("chunks", [1, 20])
def test_a_batch_takes_only_what_it_has(kind: str, chunks: int) -> None:
    count = 100_000
    array = COLUMNS[kind](count)
    table = pa.table({"x": chunked(array, list(range(0, count, count // chunks)))})
    dataref = yogadl.from_arrow(table.slice(10, count - 20))
    positions = np.random.RandomState(1).randint(0, len(dataref), 32)
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        dataref.read(positions)
    finally:
        pa.set_memory_pool(before)
    # A copy of bools would be of 12,500 bytes, of any other column of much more than this.
    assert pool.max_memory() < 50_000


# Records that are kept


def owned(value: Any) -> int:
    """Bytes of memory that a value keeps."""
    while isinstance(value.base, np.ndarray):
        value = value.base
    return int(value.nbytes)


def arrays_in(record: Any) -> Iterator[Any]:
    """Its arrays, also those of sparse and optional values."""
    if isinstance(record, np.ndarray):
        yield record
    elif isinstance(record, dict | tuple):
        for child in record.values() if isinstance(record, dict) else record:
            yield from arrays_in(child)


def sources() -> dict[str, IndexedDataRef]:
    images = np.zeros((500, 28, 28), "f4")
    words = np.full((500, 3), b"word", object)
    arrays = yogadl.from_source({"x": images, "words": words, "y": np.arange(500)})
    varying = {"x": specs.TensorSpec("float32", (None, 28)), "y": specs.TensorSpec("int64")}
    items = [{"x": image, "y": number} for number, image in enumerate(images)]
    nested = specs.OptionalSpec((specs.TensorSpec("float32", (28, 28)), specs.TensorSpec("int64")))
    optional = [(image, number) if number % 3 else None for number, image in enumerate(images)]
    table = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(images.reshape(-1)), 784)})
    return {
        "arrays": arrays,
        "arrays of varying shape": yogadl.from_source(
            {"x": images, "y": np.arange(500)}, spec=varying
        ),
        "items": yogadl.from_source(items),
        "items of varying shape": yogadl.from_source(items, spec=varying),
        "items that may lack": yogadl.from_source(optional, spec=nested),
        "items that are sparse": yogadl.from_source(
            [specs.Sparse(np.zeros((1, 1), "i8"), np.zeros(1), np.array([5]))] * 500
        ),
        "a table": yogadl.from_source(table),
        "a choice": arrays[10:400],
        "several": yogadl.concat([arrays, arrays]),
        "pairs": yogadl.zip((arrays, yogadl.from_source(items))),
    }


@pytest.mark.parametrize("name", sorted(sources()))
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_record_keeps_no_others(name: str, shuffle: bool) -> None:
    dataref = sources()[name]
    stream = dataref.stream(shuffle=shuffle, shuffle_seed=1)
    positions = stream.epochs.positions(0, 0, len(stream)).tolist()
    for position, record in zip(positions, stream, strict=True):
        np.testing.assert_equal(record, dataref[position])
        for value in arrays_in(record):
            assert owned(value) == value.nbytes


def test_kept_records_take_their_own_memory() -> None:
    dataref = yogadl.from_source(np.zeros((20_000, 784), "f4"))
    tracemalloc.start()
    kept = [record for number, record in enumerate(dataref.stream()) if number % 300 == 0]
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 2 * sum(record.nbytes for record in kept) + (1 << 20)


def test_a_small_first_record_does_not_have_many_large_ones_read_at_once() -> None:
    largest = 0

    class Items:
        def __len__(self) -> int:
            return 3000

        def __getitem__(self, index: int) -> Any:
            return {"x": np.zeros(0 if index == 0 else 100_000, "u1")}

        def __getitems__(self, indices: list[int]) -> list[Any]:
            nonlocal largest
            largest = max(largest, len(indices))
            return [self[index] for index in indices]

    spec = {"x": specs.TensorSpec("uint8", (None,))}
    for items in (lambda stream: stream, lambda stream: stream.batches(4, read_ahead=0)):
        next(iter(items(yogadl.from_source(Items(), spec=spec).stream())))
    assert 1 <= largest <= 12
