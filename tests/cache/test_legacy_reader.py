"""Caches that yogadl 0.1.4 wrote; see ``tests/golden/make_legacy.py``."""

from __future__ import annotations

import concurrent.futures
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from yogadl.cache.opening import open_cache
from yogadl.errors import ClosedError
from yogadl.legacy.reader import LegacyCacheFile
from yogadl.spec import NoneSpec, Structure, TensorSpec

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4"
FINISHED = ("dimensions", "dtypes", "empty", "features", "images", "none", "range", "unknown")


def _feature(n: int) -> Any:
    return {
        "image": np.full((4, 3), n, np.uint8),
        "name": f"näme {n}".encode(),
        "tags": np.array([b"a" * n, b"\0", b""], object),
        "nested": (np.float32(n / 2), np.bool_(n % 2 == 0)),
    }


def _dtypes(n: int) -> Any:
    return {
        "bfloat16": np.full(3, n, ml_dtypes.bfloat16),
        "bfloat16_scalar": ml_dtypes.bfloat16(n),
        "float16": np.float16(n),
        "bool": np.full((2, 2), n % 2 == 0),
        "complex64": np.complex64(n + 1j),
        "complex128": np.full(2, n, np.complex128),
        "uint64": np.uint64(n),
        "quint8": np.full(2, n, np.uint8),
    }


RECORDS: dict[str, tuple[int, Callable[[int], Any], Structure]] = {
    "range": (1000, np.int64, TensorSpec("int64", ())),
    "images": (
        4,
        lambda n: (np.full((16, 16, 3), n, np.float32), np.int64(n)),
        (TensorSpec("float32", (16, 16, 3)), TensorSpec("int64", ())),
    ),
    "features": (
        12,
        _feature,
        {
            "image": TensorSpec("uint8", (4, 3)),
            "name": TensorSpec("string", ()),
            "tags": TensorSpec("string", (3,)),
            "nested": (TensorSpec("float32", ()), TensorSpec("bool", ())),
        },
    ),
    "unknown": (
        12,
        lambda n: (np.arange(n, dtype=np.int32), np.full((2, n), n, np.float32)),
        (TensorSpec("int32", (None,)), TensorSpec("float32", None)),
    ),
    "dtypes": (
        4,
        _dtypes,
        {
            "bfloat16": TensorSpec("bfloat16", (3,)),
            "bfloat16_scalar": TensorSpec("bfloat16", ()),
            "float16": TensorSpec("float16", ()),
            "bool": TensorSpec("bool", (2, 2)),
            "complex64": TensorSpec("complex64", ()),
            "complex128": TensorSpec("complex128", (2,)),
            "uint64": TensorSpec("uint64", ()),
            "quint8": TensorSpec("quint8", (2,)),
        },
    ),
    "empty": (0, np.int64, TensorSpec("int64", ())),
    "none": (4, lambda n: (np.int64(n), None), (TensorSpec("int64", ()), NoneSpec())),
    "dimensions": (
        5,
        lambda n: (np.full((n, 2), n, np.float32), np.int64(n), b"%d" % n),
        (TensorSpec("float32", (None, 2)), TensorSpec("int64", ()), TensorSpec("string", None)),
    ),
}


def same(got: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return got.keys() == wanted.keys() and all(same(got[key], wanted[key]) for key in wanted)
    if isinstance(wanted, tuple):
        return isinstance(got, tuple) and all(map(same, got, wanted)) and len(got) == len(wanted)
    if isinstance(wanted, np.ndarray):
        return (
            isinstance(got, np.ndarray)
            and got.dtype == wanted.dtype
            and got.shape == wanted.shape
            and bool((got == wanted).all())
        )
    return type(got) is type(wanted) and bool(got == wanted)


def test_every_golden_file_is_tested() -> None:
    assert {path.stem for path in GOLDEN.glob("*.mdb")} == {*RECORDS, "killed"}
    assert set(RECORDS) == set(FINISHED)
    assert sum(path.stat().st_size for path in GOLDEN.iterdir()) < 400_000


@pytest.mark.parametrize("name", FINISHED)
def test_records(name: str) -> None:
    count, record, spec = RECORDS[name]
    with open_cache(GOLDEN / f"{name}.mdb") as reader:
        assert isinstance(reader, LegacyCacheFile)
        assert reader.spec == spec
        assert len(reader) == reader.info.record_count == count
        for position in range(count):
            assert same(reader.read_record(position), record(position))
        reader.verify()


@pytest.mark.parametrize("name", FINISHED)
def test_columns(name: str) -> None:
    count = RECORDS[name][0]
    positions = np.random.default_rng(0).integers(0, max(count, 1), 50 if count else 0)
    with open_cache(GOLDEN / f"{name}.mdb") as reader:
        assert isinstance(reader, LegacyCacheFile)
        columns = reader.read_columns(positions)
        flat = [reader._load(position)[1] for position in positions.tolist()]
    for number, column in enumerate(columns):
        assert len(column) == len(positions)
        for value, values in zip(column, flat, strict=True):
            assert same(value, values[number])


def test_columns_are_stacked() -> None:
    with open_cache(GOLDEN / "features.mdb") as reader:
        image, name, number, _, tags = reader.read_columns(np.array([3, 1]))
    assert image.shape == (2, 4, 3)
    assert image.dtype == np.uint8
    assert image[0, 0, 0] == 3
    assert name.dtype == object
    assert name.tolist() == ["näme 3".encode(), "näme 1".encode()]
    assert tags.shape == (2, 3)
    assert tags[1].tolist() == [b"a", b"\0", b""]
    assert number.tolist() == [1.5, 0.5]
    with open_cache(GOLDEN / "unknown.mdb") as reader:
        assert [len(row) for row in reader.read_columns(np.array([3, 1]))[0]] == [3, 1]


def test_info() -> None:
    path = GOLDEN / "range.mdb"
    with open_cache(path) as reader:
        info = reader.info
        assert reader.path == path
        assert (info.format_version, info.library_version) == (0, "0.1.4")
        assert (info.created, info.metadata) == (None, {})
        assert info.file_size == path.stat().st_size
        assert 100 < reader.record_bytes < 300


def test_identity(tmp_path: pathlib.Path) -> None:
    found = set()
    for name in FINISHED:
        copy = tmp_path / "cache.mdb"
        shutil.copyfile(GOLDEN / f"{name}.mdb", copy)
        with open_cache(copy) as one, open_cache(GOLDEN / f"{name}.mdb") as two:
            assert one.info.digest == two.info.digest
            found.add(one.info.digest)
    assert len(found) == len(FINISHED)


def test_records_are_writable_and_fresh() -> None:
    with open_cache(GOLDEN / "images.mdb") as reader:
        reader.read_record(1)[0][:] = 7
        assert same(reader.read_record(1), RECORDS["images"][1](1))


def test_close() -> None:
    reader = open_cache(GOLDEN / "range.mdb")
    reader.close()
    reader.close()
    for use in (
        lambda: reader.read_record(0),
        lambda: reader.read_columns(np.array([0])),
        lambda: reader.read_columns(np.array([], "i8")),
        reader.verify,
    ):
        with pytest.raises(ClosedError):
            use()


def test_threads() -> None:
    with (
        open_cache(GOLDEN / "range.mdb") as reader,
        concurrent.futures.ThreadPoolExecutor(4) as pool,
    ):
        assert list(pool.map(reader.read_record, range(1000))) == list(range(1000))
