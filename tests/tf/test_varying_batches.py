"""``make_tf_dataset`` with ``pad=`` or ``ragged=True``: what TensorFlow's own batching gives."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from stored import write
from strategies import data_sets
from test_round_trip import elements, plain

import yogadl
from yogadl import chunk_sizes, dtypes
from yogadl import spec as specs
from yogadl.cache.reader import CacheFile
from yogadl.dataref import LMDBDataRef
from yogadl.errors import ChecksumError, InvalidArgumentError, UnsupportedTypeError
from yogadl.spec import NoneSpec, OptionalSpec, RaggedSpec, TensorSpec
from yogadl.tensorflow import make_tf_dataset

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4"
COUNT = 23

Make = Callable[[int], Any]


def sequence(number: int, dtype: str = "int32", inner: tuple[int, ...] = ()) -> Any:
    """Of differing length, also empty."""
    length = number * number % 7
    values = np.arange(length * int(np.prod(inner))) % 2 + number % 3
    return (
        (values % 2 if dtype == "bool" else values)
        .astype(dtypes.to_numpy(dtype))
        .reshape(length, *inner)
    )


FAST: dict[str, tuple[Any, Make]] = {
    "tokens": (TensorSpec("int32", (None,)), sequence),
    "two dimensions": (
        TensorSpec("float32", (None, 3)),
        lambda n: sequence(n, "float32", (3,)),
    ),
    "three dimensions": (
        TensorSpec("float64", (None, 2, 2)),
        lambda n: sequence(n, "float64", (2, 2)),
    ),
    "tokens beside others": (
        {
            "tokens": TensorSpec("int64", (None,)),
            "label": TensorSpec("int64"),
            "text": TensorSpec("string"),
            "words": TensorSpec("string", (2,)),
            "box": TensorSpec("float32", (2, 2)),
            "more": (TensorSpec("uint8", (None,)), TensorSpec("bool")),
        },
        lambda n: {
            "tokens": sequence(n, "int64"),
            "label": np.int64(n),
            "text": b"x\0" * n,
            "words": np.array([b"a", b"b" * n], object),
            "box": np.full((2, 2), n, "f4"),
            "more": (sequence(n + 1, "uint8"), np.bool_(n % 2)),
        },
    ),
    "bool": (TensorSpec("bool", (None,)), lambda n: sequence(n, "bool")),
    "float16": (TensorSpec("float16", (None,)), lambda n: sequence(n, "float16")),
    "bfloat16": (TensorSpec("bfloat16", (None, 2)), lambda n: sequence(n, "bfloat16", (2,))),
    "complex128": (TensorSpec("complex128", (None,)), lambda n: sequence(n, "complex128")),
    "uint16": (TensorSpec("uint16", (None,)), lambda n: sequence(n, "uint16")),
    "nothing but empty ones": (TensorSpec("int8", (None,)), lambda n: np.zeros(0, "i1")),
    "no records": (TensorSpec("int8", (None,)), sequence),
}
GENERIC: dict[str, tuple[Any, Make]] = {
    "unknown inner dimension": (
        TensorSpec("float32", (2, None)),
        lambda n: np.full((2, n % 4), n, "f4"),
    ),
    "unknown dimensions": (
        (TensorSpec("int16", (None, 2, None)), TensorSpec("int64")),
        lambda n: (np.full((n % 3, 2, n % 4), n, "i2"), np.int64(n)),
    ),
    "an empty dimension": (
        (TensorSpec("float32", (None, 0)), TensorSpec("int32", (None,))),
        lambda n: (np.zeros((n % 3, 0), "f4"), sequence(n)),
    ),
}
STATIC: dict[str, tuple[Any, Make]] = {
    "static": (
        {"x": TensorSpec("float32", (3,)), "y": TensorSpec("int64")},
        lambda n: {"x": np.full(3, n, "f4"), "y": np.int64(n)},
    ),
    "static with strings": (
        {"x": TensorSpec("float32", (3,)), "y": TensorSpec("string")},
        lambda n: {"x": np.full(3, n, "f4"), "y": b"%d" % n},
    ),
}
WAYS: dict[str, dict[str, Any]] = {"pad": {"pad": 1}, "ragged": {"ragged": True}}
KINDS = {**FAST, **GENERIC, **STATIC}


def made(kind: str, folder: pathlib.Path) -> LMDBDataRef:
    spec, make = KINDS[kind]
    return write(folder / "cache.mdb", spec, map(make, range(0 if kind == "no records" else COUNT)))


def varies(leaf: Any) -> bool:
    return isinstance(leaf, TensorSpec) and leaf.static_shape is None and not leaf.is_string


def padding_of(spec: Any, value: Any) -> Any:
    """The number for what varies, as ``padded_batch`` wants it."""

    def constant(leaf: Any) -> Any:
        return tf.constant(value, tf.as_dtype(leaf.dtype)) if varies(leaf) else None

    return specs.map_leaves(constant, spec)


def same_batches(found: Any, expected: Any) -> None:
    """Two epochs of each, and what TensorFlow promises of them to who uses the data set."""
    assert found.element_spec == expected.element_spec
    first = list(found)
    assert [plain(element) for element in first] == elements(expected)
    for element in first:
        tf.nest.map_structure(check_compatible, found.element_spec, element)
    assert elements(found) == elements(expected), "second epoch"


def check_compatible(spec: Any, value: Any) -> None:
    assert spec.is_compatible_with(value), (spec, value)


CASES: list[tuple[dict[str, Any], bool]] = [
    ({"start_offset": 5}, False),
    ({"start_offset": 2, "shuffle": True, "shuffle_seed": 9, "num_shards": 2}, True),
]


@pytest.mark.parametrize("kind", KINDS)
def test_padded_batches_are_those_of_padded_batch(kind: str, tmp_path: pathlib.Path) -> None:
    ref = made(kind, tmp_path)
    value: Any = True if kind == "bool" else 1
    for options, drop in CASES:
        single = make_tf_dataset(ref.stream(**options))
        values = padding_of(ref.spec, value)
        expected = single.padded_batch(4, padding_values=values, drop_remainder=drop)
        stream = ref.stream(**options)
        found = make_tf_dataset(stream, batch_size=4, pad=value, drop_remainder=drop)
        same_batches(found, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_ragged_batches_are_those_of_ragged_batch(kind: str, tmp_path: pathlib.Path) -> None:
    ref = made(kind, tmp_path)
    for options, drop in CASES:
        expected = make_tf_dataset(ref.stream(**options)).ragged_batch(4, drop)
        stream = ref.stream(**options)
        found = make_tf_dataset(stream, batch_size=4, ragged=True, drop_remainder=drop)
        same_batches(found, expected)


@pytest.mark.parametrize("kind", FAST)
def test_batches_are_those_of_the_stream(kind: str, tmp_path: pathlib.Path) -> None:
    """Read by other code, which knows no TensorFlow."""
    ref = made(kind, tmp_path)
    options: dict[str, Any] = {"start_offset": 4, "shuffle": True, "shuffle_seed": 3}
    value: Any = True if kind == "bool" else 1
    padded = make_tf_dataset(ref.stream(**options), batch_size=5, pad=value)
    expected = [plain(batch) for batch in ref.stream(**options).batches(5, pad=value)]
    assert elements(padded) == expected


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize(
    "kind", ["tokens beside others", "bfloat16", "unknown dimensions", "static with strings"]
)
def test_what_is_read_at_once_makes_no_difference(
    kind: str, rows: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = made(kind, tmp_path)
    records = [plain(record) for record in ref.stream()]
    monkeypatch.setattr(chunk_sizes, "TF_NUMPY_ROW", chunk_sizes.ChunkSize(8 << 20, rows))
    assert elements(make_tf_dataset(ref.stream())) == records
    if kind in FAST:
        value: Any = True if kind == "bool" else 1
        padded = make_tf_dataset(ref.stream(), batch_size=3, pad=value)
        assert elements(padded) == [plain(batch) for batch in ref.stream().batches(3, pad=value)]
    ragged = make_tf_dataset(ref.stream(), batch_size=3, ragged=True, drop_remainder=True)
    same_batches(ragged, make_tf_dataset(ref.stream()).ragged_batch(3, drop_remainder=True))


sequences = st.builds(
    TensorSpec,
    st.sampled_from(["int32", "uint8", "float32", "float64", "bool", "bfloat16", "complex64"]),
    st.sampled_from([(None,), (None, 2), (None, 1, 3), (), (3,)]),
)


element_specs = st.lists(sequences | st.just(TensorSpec("string")), min_size=1, max_size=4).map(
    tuple
)


# A second for each: TensorFlow compiles four data sets.
@settings(max_examples=8, phases=[Phase.explicit, Phase.generate])
@given(
    data_set=data_sets(element_specs, max_size=9),
    size=st.integers(1, 4),
    drop=st.booleans(),
)
def test_batches_of_any_records(data_set: Any, size: int, drop: bool) -> None:
    spec, records = data_set
    with (
        tempfile.TemporaryDirectory() as name,
        write(pathlib.Path(name, "any.mdb"), spec, records) as ref,
    ):
        padded = make_tf_dataset(ref.stream(), batch_size=size, drop_remainder=drop, pad=1)
        expected = ref.stream().batches(size, drop_remainder=drop, pad=1)
        assert elements(padded) == [plain(batch) for batch in expected]
        ragged = make_tf_dataset(ref.stream(), batch_size=size, drop_remainder=drop, ragged=True)
        same_batches(ragged, make_tf_dataset(ref.stream()).ragged_batch(size, drop))


@pytest.mark.parametrize("value", [-1, 0, float("nan"), 0.1])
def test_pad_values(value: float, tmp_path: pathlib.Path) -> None:
    for number, shape in enumerate([(None,), (2, None)]):
        records = [np.ones([n if dim is None else dim for dim in shape], "f4") for n in (2, 0, 3)]
        path = tmp_path / str(number)
        with write(path, TensorSpec("float32", shape), records) as ref:
            found = make_tf_dataset(ref.stream(), batch_size=2, pad=value)
            expected = make_tf_dataset(ref.stream()).padded_batch(2, padding_values=float(value))
            same_batches(found, expected)


def test_a_nest_of_pads(tmp_path: pathlib.Path) -> None:
    ref = made("tokens beside others", tmp_path)
    none: dict[str, Any] = dict.fromkeys(ref.spec)
    pad = {**none, "tokens": -1, "more": (255, None)}
    values = {
        **none,
        "tokens": tf.constant(-1, tf.int64),
        "more": (tf.constant(255, tf.uint8), None),
    }
    found = make_tf_dataset(ref.stream(), batch_size=4, pad=pad)
    expected = make_tf_dataset(ref.stream()).padded_batch(4, padding_values=values)
    same_batches(found, expected)


def test_a_varying_leaf_cannot_be_left_alone(tmp_path: pathlib.Path) -> None:
    cases: list[tuple[Any, Any]] = [
        (
            {"a": TensorSpec("int32", (None,)), "b": TensorSpec("int32", (None,))},
            {"a": 0, "b": None},
        ),
        ({"a": TensorSpec("int32", (None,)), "b": TensorSpec("string", (None,))}, 0),
    ]
    for number, (spec, pad) in enumerate(cases):
        with (
            write(tmp_path / str(number), spec, []) as ref,
            pytest.raises(InvalidArgumentError, match="alone"),
        ):
            make_tf_dataset(ref.stream(), batch_size=3, pad=pad)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn"])
def test_small_floats(name: str, tmp_path: pathlib.Path) -> None:
    spec = (TensorSpec(name, (None,)), TensorSpec("int64"))
    records = [(np.ones(n, dtypes.to_numpy(name)), np.int64(n)) for n in (2, 0, 3, 1)]
    with write(tmp_path / "cache.mdb", spec, records) as ref:
        expected = [plain(batch) for batch in ref.stream().batches(3, pad=2)]
        found = make_tf_dataset(ref.stream(), batch_size=3, pad=2)
        assert found.element_spec[0] == tf.TensorSpec([None, None], tf.as_dtype(name))
        assert elements(found) == expected
    # TensorFlow has no ragged tensors of float8 in data sets.


def test_caches_of_yogadl_014(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"start_offset": 1, "shuffle": True, "shuffle_seed": 4}
    with LMDBDataRef(GOLDEN / "range.mdb") as ref:
        for way in WAYS.values():
            found = make_tf_dataset(ref.stream(**options), batch_size=300, **way)
            same_batches(found, make_tf_dataset(ref.stream(**options)).batch(300))
    # Theirs of varying shape are read one by one. Those we have leave TensorFlow no rank, so this
    # reads others in that way.
    ref = made("tokens beside others", tmp_path)
    fast = [make_tf_dataset(ref.stream(), batch_size=4, epochs=1, **way) for way in WAYS.values()]
    expected = [elements(dataset) for dataset in fast]
    plain_read = CacheFile.read_columns
    monkeypatch.setattr(
        CacheFile, "read_columns", lambda self, positions, spans: plain_read(self, positions)
    )
    assert [elements(dataset) for dataset in fast] == expected


# Epochs


@pytest.mark.parametrize("kind", ["tokens", "unknown inner dimension"])
@pytest.mark.parametrize("way", WAYS)
def test_an_iterator_is_restored_to_the_next_batch(
    way: str, kind: str, tmp_path: pathlib.Path
) -> None:
    ref = made(kind, tmp_path)

    def make() -> Any:
        stream = ref.stream(start_offset=3, shuffle=True, shuffle_seed=6)
        return make_tf_dataset(stream, batch_size=4, epochs=2, **WAYS[way])

    expected = elements(make())
    assert len(expected) == 5 + 6
    for taken in (1, 5, 8):
        iterator = iter(make())
        for _ in range(taken):
            next(iterator)
        saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / f"run{taken}"))
        assert elements(iterator) == expected[taken:]
        iterator = iter(make())
        tf.train.Checkpoint(iterator=iterator).restore(saved)
        assert elements(iterator) == expected[taken:]


@pytest.mark.parametrize(("way", "kind"), [("pad", "tokens"), ("ragged", "tokens"),
    ("pad", "unknown inner dimension"), ("ragged", "no records")])  # fmt: skip
def test_cardinality_is_the_number_of_batches(way: str, kind: str, tmp_path: pathlib.Path) -> None:
    ref = made(kind, tmp_path)
    cases: list[tuple[int, bool, int]] = [(0, False, 1), (5, False, 3), (5, True, 2), (0, True, 0)]
    for offset, drop, epochs in cases:
        stream = ref.stream(start_offset=offset)
        dataset = make_tf_dataset(
            stream, batch_size=4, drop_remainder=drop, epochs=epochs, **WAYS[way]
        )
        # With a wrong cardinality TensorFlow itself raises here.
        assert int(dataset.cardinality()) == len(list(dataset))
    each = make_tf_dataset(ref.stream(), batch_size=4, **WAYS[way])
    assert int(each.cardinality()) == len(list(each))
    endless = make_tf_dataset(ref.stream(), batch_size=4, epochs=None, **WAYS[way])
    infinite = int(tf.data.INFINITE_CARDINALITY)
    assert int(endless.cardinality()) == (0 if kind == "no records" else infinite)


@pytest.mark.parametrize("way", WAYS)
def test_iterations_are_the_next_epochs_of_the_stream(way: str, tmp_path: pathlib.Path) -> None:
    ref = made("two dimensions", tmp_path)
    order: dict[str, Any] = {"shuffle": True, "shuffle_seed": 2, "start_offset": 20}
    plain_stream, stream = ref.stream(**order), ref.stream(**order)
    dataset = make_tf_dataset(stream, batch_size=4, **WAYS[way])
    for _epoch in range(3):
        rows = [row for batch in dataset for row in batch.numpy()]
        for row, record in zip(rows, plain_stream, strict=True):
            assert np.asarray(row)[: len(record)].tolist() == record.tolist()


# Damage and arguments


@pytest.mark.parametrize("way", WAYS)
def test_check_records_finds_damage(way: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    with made("tokens", tmp_path) as ref:
        value = bytes(ref.reader.read_value(10))  # type: ignore[attr-defined]
    content = bytearray(path.read_bytes())
    content[content.index(value) + 9] ^= 4
    path.write_bytes(content)
    with LMDBDataRef(path, check_records=True) as ref:
        dataset = make_tf_dataset(ref.stream(), batch_size=4, **WAYS[way])
        with pytest.raises((tf.errors.OpError, ChecksumError), match="record 10 is not what was"):
            list(dataset)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"pad": 0}, "batch_size"),
        ({"ragged": True}, "batch_size"),
        ({"batch_size": 2, "pad": 0, "ragged": True}, "exclude"),
        ({"batch_size": 2, "pad": 2**40}, "2\\*\\*40|1099511627776"),
        ({"batch_size": 2, "pad": 0.5}, "0.5"),
        ({"batch_size": 2, "pad": "a"}, "a"),
        ({"batch_size": 2, "pad": (0, 0)}, "pad|tuple|number"),
        ({"batch_size": 2, "pad": {"tokens": 0}}, "pad|dict|number"),
    ],
)
def test_bad_combinations(options: dict[str, Any], named: str, tmp_path: pathlib.Path) -> None:
    ref = made("tokens", tmp_path)
    with pytest.raises(InvalidArgumentError, match=named):
        make_tf_dataset(ref.stream(), **options)


def test_what_cannot_be_padded(tmp_path: pathlib.Path) -> None:
    cases: list[tuple[Any, Any, Any]] = [
        (TensorSpec("int32", None), np.zeros(2, "i4"), 0),
        ((TensorSpec("string", (None,)),), (np.array([b"a"], object),), (0,)),
        ((TensorSpec("int32", (2,)),), (np.zeros(2, "i4"),), (0,)),
    ]
    for number, (spec, record, pad) in enumerate(cases):
        with write(tmp_path / str(number), spec, [record]) as ref:
            stream = ref.stream()
            with pytest.raises(InvalidArgumentError):
                make_tf_dataset(stream, batch_size=2, pad=pad)
    spec = (OptionalSpec(TensorSpec("int32")), TensorSpec("int32", (None,)))
    with write(tmp_path / "optional", spec, [(None, np.zeros(2, "i4"))]) as ref:
        for options in WAYS.values():
            with pytest.raises(UnsupportedTypeError, match="optional"):
                make_tf_dataset(ref.stream(), batch_size=2, **options)
    others: list[Any] = [RaggedSpec("int32", (2, None), 1), NoneSpec()]
    for number, other in enumerate(others):
        spec = (other, TensorSpec("int32", (None,)))
        ref = write(tmp_path / f"other {number}", spec, [])
        with ref, pytest.raises(UnsupportedTypeError, match="cannot pad"):
            make_tf_dataset(ref.stream(), batch_size=2, pad=0)


def test_a_stream_of_ones_own() -> None:
    stream = yogadl.Stream(lambda: iter([1, 2]), 2, tf.int32, tf.TensorShape([]))
    for options in WAYS.values():
        with pytest.raises(InvalidArgumentError, match="padded_batch"):
            make_tf_dataset(stream, batch_size=2, **options)
