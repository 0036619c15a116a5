"""What goes in as a ``tf.data.Dataset`` comes out, as a stream and as a ``tf.data.Dataset``."""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import yogadl.tensorflow
from yogadl import dtypes
from yogadl import spec as specs
from yogadl.adapters import _tf_data, open_source
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef
from yogadl.errors import InfiniteDatasetError, UnsupportedTypeError
from yogadl.format.layout import INLINE_LIMIT, RecordLayout
from yogadl.storage import LFSConfigurations, LFSStorage

COUNT = 23
Point = collections.namedtuple("Point", ["x", "y"])


def plain(value: Any) -> Any:
    """A value of TensorFlow or of a stream as something that ``==`` compares exactly."""
    if value is None:
        return None
    if isinstance(value, tf.experimental.Optional):
        return plain(value.get_value()) if value.has_value() else None
    if isinstance(value, tf.RaggedTensor | specs.Ragged):
        return ("ragged", plain(value.flat_values), [plain(x) for x in value.nested_row_splits])
    if isinstance(value, tf.SparseTensor | specs.Sparse):
        return ("sparse", plain(value.indices), plain(value.values), plain(value.dense_shape))
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    if isinstance(value, tuple):
        name = type(value).__name__ if hasattr(value, "_fields") else "tuple"
        return (name, getattr(value, "_fields", None), [plain(child) for child in value])
    if isinstance(value, tf.Tensor):
        return plain(value.numpy())
    if isinstance(value, bytes):
        return ((), [value])
    array = np.asarray(value)
    if array.dtype == object:
        return (array.shape, [bytes(item) for item in array.reshape(-1)])
    # TensorFlow's quantized integers are a struct of one field.
    kind = str(array.dtype if array.dtype.names is None else array.dtype[0])
    return (array.shape, kind, array.tobytes())


def elements(dataset: Any) -> list[Any]:
    return [plain(element) for element in dataset]


def make_storage(directory: pathlib.Path) -> LFSStorage:
    return LFSStorage(LFSConfigurations(directory))


def _generated(make: Callable[[int], Any], signature: Any, count: int = COUNT) -> Any:
    return tf.data.Dataset.from_generator(
        lambda: (make(number) for number in range(count)), output_signature=signature
    )


def _ragged_row(number: int, inner: int | None = None) -> Any:
    rows = [np.arange(number * k % 4) for k in range(3)]
    if inner is None:
        return tf.ragged.constant([row.tolist() for row in rows], tf.float32, ragged_rank=1)
    flat = tf.reshape(tf.range(sum(map(len, rows)) * inner), [-1, inner])
    return tf.RaggedTensor.from_row_lengths(flat, [len(row) for row in rows])


def _twice_ragged(number: int) -> Any:
    nested = [[list(range(number % 3)), []], [], [[number] * (number % 5)]][: number % 4]
    return tf.ragged.constant(nested, tf.int64, ragged_rank=2)


def _ragged(make: Callable[[int], Any], spec: Any) -> Any:
    return _generated(make, spec)


def _sparse(number: int) -> Any:
    count = number % 4
    indices = np.array([[k, (k + number) % 5] for k in range(count)], np.int64).reshape(-1, 2)
    return tf.SparseTensor(indices, np.full(count, number, np.float32), [4, 5])


def _optional(number: Any) -> Any:
    spec = tf.TensorSpec([2], tf.int64)
    made = tf.cond(
        tf.equal(number % 3, 0),
        lambda: tf.experimental.Optional.empty(spec),
        lambda: tf.experimental.Optional.from_value(tf.fill([2], number)),
    )
    return number, made


def _filled(size: int) -> Callable[[], Any]:
    """Records of which the content has exactly so many bytes."""
    return lambda: tf.data.Dataset.range(COUNT).map(
        lambda n: tf.cast(tf.range(size) * 7 + tf.cast(n, tf.int32), tf.uint8)
    )


def _text(number: int) -> bytes:
    return b"\0" * (number % 2) + b"x\xff" * (number * number % 2500)


_RANGE = tf.data.Dataset.range
KINDS: dict[str, Callable[[], Any]] = {
    "scalar": lambda: _RANGE(COUNT),
    "nested": lambda: _RANGE(COUNT).map(
        lambda n: {
            "image": tf.fill([4, 3], tf.cast(n, tf.float32)),
            "label": (n, tf.cast(tf.stack([n, n + 1]), tf.uint8)),
            "deep": {"b": (tf.cast(n % 2, tf.bool),), "a": tf.complex(0.5, tf.cast(n, tf.float32))},
        }
    ),
    "namedtuple": lambda: _RANGE(COUNT).map(lambda n: Point(n, (tf.fill([3], n), n * n))),
    "unknown dim": lambda: _generated(
        lambda n: np.arange(n % 5, dtype=np.int32), tf.TensorSpec([None], tf.int32)
    ),
    "unknown inner dim": lambda: _generated(
        lambda n: np.full((2, n % 4), n, np.float64), tf.TensorSpec([2, None], tf.float64)
    ),
    "unknown dims": lambda: _generated(
        lambda n: np.full((n % 3, 2, n % 4), n, np.int16), tf.TensorSpec([None, 2, None], tf.int16)
    ),
    "unknown rank": lambda: _generated(
        lambda n: np.full((2,) * (n % 4), n, np.float32), tf.TensorSpec(None, tf.float32)
    ),
    "mixed": lambda: _generated(
        lambda n: {"text": _text(n), "a": np.full(n % 3, n, np.uint16), "b": np.full((2, 2), n)},
        {
            "text": tf.TensorSpec([], tf.string),
            "a": tf.TensorSpec([None], tf.uint16),
            "b": tf.TensorSpec([2, 2], tf.int64),
        },
    ),
    "ragged": lambda: _ragged(_ragged_row, tf.RaggedTensorSpec([3, None], tf.float32)),
    "ragged inner": lambda: _ragged(
        lambda n: _ragged_row(n, 2), tf.RaggedTensorSpec([3, None, 2], tf.int32, ragged_rank=1)
    ),
    "ragged 2": lambda: _ragged(
        _twice_ragged, tf.RaggedTensorSpec([None, None, None], tf.int64, ragged_rank=2)
    ),
    "ragged int32 splits": lambda: _ragged(
        lambda n: _ragged_row(n).with_row_splits_dtype(tf.int32),
        tf.RaggedTensorSpec([None, None], tf.float32, row_splits_dtype=tf.int32),
    ),
    "ragged strings": lambda: _ragged(
        lambda n: tf.strings.as_string(_ragged_row(n)), tf.RaggedTensorSpec([3, None], tf.string)
    ),
    "sparse": lambda: _generated(_sparse, tf.SparseTensorSpec([4, 5], tf.float32)),
    "sparse unknown": lambda: _generated(_sparse, tf.SparseTensorSpec([None, None], tf.float32)),
    "none": lambda: _RANGE(COUNT).map(lambda n: {"a": n, "b": None, "c": (None, n * 2)}),
    "optional": lambda: _RANGE(COUNT).map(_optional),
    "empty dim": lambda: _RANGE(COUNT).map(lambda n: (tf.zeros([0, 3]), n)),
    "all empty": lambda: _RANGE(COUNT).map(lambda n: tf.zeros([2, 0], tf.int64)),
    "large images": lambda: _RANGE(COUNT).map(
        lambda n: (tf.fill([128, 131, 3], tf.cast(n, tf.uint8)), n)
    ),
    "large complex": lambda: _RANGE(5).map(
        lambda n: (tf.fill([61, 67], tf.cast(n, tf.complex128)), tf.fill([5], n % 2 == 0))
    ),
    "string": lambda: _generated(_text, tf.TensorSpec([], tf.string)),
    "strings": lambda: _generated(lambda n: [_text(n), b"", b"\0"], tf.TensorSpec([3], tf.string)),
    "strings unknown": lambda: _generated(
        lambda n: np.array([[_text(n)] * 2] * (n % 3), object).reshape(-1, 2),
        tf.TensorSpec([None, 2], tf.string),
    ),
    "strings any rank": lambda: _generated(
        lambda n: np.full((2,) * (n % 3), _text(n), object), tf.TensorSpec(None, tf.string)
    ),
    "1992 bytes": _filled(INLINE_LIMIT - 8),
    "2000 bytes": _filled(INLINE_LIMIT),
    "2008 bytes": _filled(INLINE_LIMIT + 8),
    "around 2000 bytes": lambda: _generated(
        lambda n: np.full(INLINE_LIMIT - 20 + n, n, np.uint8), tf.TensorSpec([None], tf.uint8)
    ),
    "no records": lambda: _RANGE(0),
    "no records unknown": lambda: _RANGE(0).map(lambda n: (tf.range(n), tf.as_string(n))),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_elements_and_spec_come_back(kind: str, storage_dir: pathlib.Path) -> None:
    original = KINDS[kind]()
    expected = elements(original)
    assert len(expected) == (0 if kind.startswith("no ") else 5 if "complex" in kind else COUNT)
    storage = make_storage(storage_dir)
    storage.submit(original, "a", "1")

    ref = storage.fetch("a", "1")
    ref.verify()
    assert len(ref) == len(expected)
    assert [plain(record) for record in ref.stream()] == expected

    dataset = yogadl.tensorflow.make_tf_dataset(ref.stream())
    assert dataset.element_spec == original.element_spec
    tf.nest.assert_same_structure(dataset.element_spec, original.element_spec)
    assert elements(dataset) == expected


def _known(name: str) -> bool:
    try:
        tf.as_dtype(name)
    except TypeError:
        return False
    return True


def _flows(name: str) -> bool:
    """Whether this TensorFlow gets a tensor of a dtype through tf.data: 2.21 fails float8_e5m2."""
    tensor = _tensor(name, _values(name))
    try:
        return len(list(tf.data.Dataset.from_tensors(tensor))) == 1
    except tf.errors.UnimplementedError:
        return False


def _values(name: str) -> Any:
    """Arrays [5, 2, 3] of a dtype, all bit patterns a byte can have among them if it has one."""
    if name == dtypes.STRING:
        return np.array([b"%d" % n for n in range(30)], object).reshape(5, 2, 3)
    numbers = np.random.RandomState(7).randint(0, 256, 30 * 16).astype("u1")
    dtype = dtypes.to_numpy(name)
    if name == "bool" or "int2" in name or "int4" in name or "float4" in name or "float6" in name:
        return (numbers[:30] % 2).astype(dtype).reshape(5, 2, 3)
    return numbers[: 30 * dtype.itemsize].view(dtype).reshape(5, 2, 3)


def _tensor(name: str, array: Any) -> Any:
    if name.startswith(("qint", "quint")):
        return tf.bitcast(tf.constant(array), tf.as_dtype(name))
    return tf.constant(array, tf.as_dtype(name))


@pytest.mark.parametrize("name", sorted(filter(_known, dtypes.NAMES)))
def test_every_dtype(name: str, storage_dir: pathlib.Path) -> None:
    values = _values(name)
    tensors = [(_tensor(name, value), _tensor(name, value[0, 0])) for value in values]
    # What cannot be sliced can still be put together of whole tensors.
    original = tf.data.Dataset.from_tensors(tensors[0])
    for parts in tensors[1:]:
        original = original.concatenate(tf.data.Dataset.from_tensors(parts))
    storage = make_storage(storage_dir)
    if not _flows(name):
        with pytest.raises((UnsupportedTypeError, tf.errors.UnimplementedError)):
            storage.submit(original, "a", "1")
        return
    storage.submit(original, "a", "1")
    expected = [plain((value, value[0, 0])) for value in values]

    assert [plain(record) for record in storage.fetch("a", "1").stream()] == expected
    dataset = yogadl.tensorflow.make_tf_dataset(storage.fetch("a", "1").stream())
    assert dataset.element_spec == original.element_spec
    assert elements(dataset) == expected
    batches = yogadl.tensorflow.make_tf_dataset(storage.fetch("a", "1").stream(), batch_size=2)
    assert batches.element_spec[0] == tf.TensorSpec([None, 2, 3], tf.as_dtype(name))
    at = [(0, 2), (2, 4), (4, 5)]
    assert elements(batches) == [
        plain((values[start:stop], values[start:stop, 0, 0])) for start, stop in at
    ]


@pytest.mark.parametrize("name", sorted(dtypes.NAMES))
def test_every_dtype_of_numpy_reaches_the_stream(name: str, storage_dir: pathlib.Path) -> None:
    storage = make_storage(storage_dir)
    values = _values(name)
    storage.submit(values, "a", "1", spec=specs.TensorSpec(name, (2, 3)))
    assert [plain(record) for record in storage.fetch("a", "1").stream()] == [
        plain(value) for value in values
    ]


@pytest.mark.parametrize("name", sorted(name for name in dtypes.NAMES if not _known(name)))
def test_a_dtype_that_tensorflow_lacks_is_named(name: str, storage_dir: pathlib.Path) -> None:
    storage = make_storage(storage_dir)
    storage.submit([np.zeros(2, dtypes.to_numpy(name))], "a", "1")
    with pytest.raises(UnsupportedTypeError, match=name):
        yogadl.tensorflow.make_tf_dataset(storage.fetch("a", "1").stream())


@pytest.mark.parametrize("record", [{1: 1, "b": 2}, {"a": ({0: 1, "c": 2}, 3)}])
def test_keys_that_tensorflow_cannot_sort(record: Any, storage_dir: pathlib.Path) -> None:
    storage = make_storage(storage_dir)
    storage.submit([record], "a", "1")
    (read,) = storage.fetch("a", "1").stream()
    assert read == record
    for options in ({}, {"batch_size": 1}):
        with pytest.raises(UnsupportedTypeError, match="sorts the keys of a dict"):
            yogadl.tensorflow.make_tf_dataset(storage.fetch("a", "1").stream(), **options)


def test_an_infinite_data_set_is_refused_before_anything_is_written(
    storage_dir: pathlib.Path,
) -> None:
    storage = make_storage(storage_dir)
    with pytest.raises(InfiniteDatasetError, match="infinite"):
        storage.submit(tf.data.Dataset.range(3).repeat(), "a", "1")
    assert list(storage_dir.iterdir()) == []

    storage.submit(tf.data.Dataset.range(3), "a", "1")
    with pytest.raises(ValueError, match="infinite"):
        storage.submit(tf.data.Dataset.range(3).repeat(), "a", "1")
    assert list(storage.fetch("a", "1").stream()) == [0, 1, 2]
    assert [path.name for path in (storage_dir / "a" / "1").iterdir()] == ["cache.mdb"]


def _array(number: Any) -> Any:
    return tf.TensorArray(tf.int64, 1, element_shape=[]).write(0, number)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (_array, "TensorArraySpec"),
        (tf.data.Dataset.range, "DatasetSpec"),
        (
            lambda number: tf.data.experimental.to_variant(tf.data.Dataset.range(number)),
            "variant",
        ),
    ],
)
def test_a_component_that_cannot_be_stored_is_named_with_its_place(
    make: Any, named: str, storage_dir: pathlib.Path
) -> None:
    dataset = tf.data.Dataset.range(3).map(lambda n: {"good": n, "bad": (n, make(n))})
    with pytest.raises(UnsupportedTypeError, match=rf"\['bad'\]\[1\].*{named}"):
        make_storage(storage_dir).submit(dataset, "a", "1")
    assert list(storage_dir.iterdir()) == []


def _one_by_one(dataset: Any, path: pathlib.Path) -> LMDBDataRef:
    source = open_source(dataset)
    with CacheWriter(path, source.spec) as writer:
        for element in dataset:
            writer.append(_tf_data.to_record(source.spec, element))
        writer.commit()
    return LMDBDataRef(path)


def _lengths(rows: int) -> Any:
    """Rows that are empty at the beginning, at the end and around the borders of bulks."""

    def length(number: int) -> int:
        return 0 if number in (0, 1, 63, 64, 127, 128, rows - 1) else number % 6

    return _generated(
        lambda n: (np.full((length(n), 2), n, np.float32), np.int64(n), b"t" * length(n)),
        (
            tf.TensorSpec([None, 2], tf.float32),
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([], tf.string),
        ),
        rows,
    )


BULKS: dict[str, Callable[[], Any]] = {
    "batch": lambda: _RANGE(2500).map(lambda n: {"b": n, "a": tf.fill([3, 2], n)}),
    "batch of large": lambda: _RANGE(9).map(lambda n: tf.fill([1 << 20], tf.cast(n, tf.uint8))),
    "batch of exactly one bulk": lambda: _RANGE(1024),
    "ragged batch": lambda: _lengths(150),
    "ragged batch of two": lambda: _lengths(128),
    "per element": lambda: _generated(
        lambda n: np.full((n % 3, n % 4), n), tf.TensorSpec([None, None], tf.int64), 150
    ),
}


@pytest.mark.parametrize("bulk", BULKS)
def test_bulks_store_what_single_elements_store(
    bulk: str, storage_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    dataset = BULKS[bulk]()
    storage = make_storage(storage_dir)
    storage.submit(dataset, "a", "1")
    stored, single = storage.fetch("a", "1"), _one_by_one(dataset, tmp_path / "single.mdb")
    assert stored.spec == single.spec
    assert len(stored) == len(single) == sum(1 for _ in dataset)
    for one, other in zip(stored.stream(), single.stream(), strict=True):
        assert plain(one) == plain(other)


def test_the_records_of_known_sizes_have_them() -> None:
    """The kinds named after the border between inline and overflow values stand at it."""
    for size in (1992, 2000, 2008):
        spec = open_source(KINDS[f"{size} bytes"]()).spec
        assert RecordLayout(spec).content_size == size
