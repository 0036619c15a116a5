"""Files that are no caches of yogadl 0.1.4, or were, before somebody changed them."""

from __future__ import annotations

import os
import pathlib
import pickle
import tempfile
from typing import Any

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yogadl.cache.mapping import Descriptor, MappedFile
from yogadl.cache.opening import open_cache
from yogadl.errors import (
    CacheFormatError,
    ChecksumError,
    ForeignFileError,
    TruncatedCacheError,
    UnsafePickleError,
    YogadlError,
)
from yogadl.legacy.reader import LegacyCacheFile

pytestmark = pytest.mark.once

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4"
COUNTS = {
    "dimensions": 5,
    "dtypes": 4,
    "empty": 0,
    "features": 12,
    "images": 4,
    "none": 4,
    "range": 1000,
    "unknown": 12,
}


def check_message(error: YogadlError) -> None:
    assert len(str(error)) > 10


def write(path: pathlib.Path, entries: dict[bytes, bytes]) -> pathlib.Path:
    with (
        lmdb.open(str(path), subdir=False, lock=False, map_size=1 << 28, sync=False) as env,
        env.begin(write=True) as txn,
    ):
        for key, value in entries.items():
            txn.put(key, value)
    return path


def extra(name: str = "range") -> dict[bytes, bytes]:
    """The entries of a golden file that are no records."""
    with (
        lmdb.open(str(GOLDEN / f"{name}.mdb"), subdir=False, lock=False, readonly=True) as env,
        env.begin() as txn,
    ):
        return {
            key: bytes(txn.get(key) or b"") for key in (b"__keys__", b"__shapes__", b"__types__")
        }


def int64(number: int) -> bytes:
    return pickle.dumps(np.int64(number), -1)


def test_unfinished() -> None:
    with pytest.raises(ForeignFileError, match=r"nor a finished|a finished one of yogadl 0\.1\.4"):
        open_cache(GOLDEN / "killed.mdb")


def test_empty_and_foreign(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    path.write_bytes(b"")
    with pytest.raises(TruncatedCacheError, match="empty"):
        open_cache(path)
    path.write_bytes(b"some text that is no cache")
    with pytest.raises(ForeignFileError, match="not a yogadl cache"):
        open_cache(path)
    path.write_bytes(bytes(100_000))
    with pytest.raises(ForeignFileError, match="not a yogadl cache"):
        open_cache(path)


@pytest.mark.parametrize("size", [1, 100, 5000, 9000, 100_000, 184_000])
def test_truncated(tmp_path: pathlib.Path, size: int) -> None:
    path = tmp_path / "cache.mdb"
    path.write_bytes((GOLDEN / "range.mdb").read_bytes()[:size])
    with pytest.raises(CacheFormatError):
        open_cache(path)


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ([b"00000001"], ChecksumError),
        ([b"00000000", b"00000002"], ChecksumError),
        ([b"00000000", b"000000001"], ForeignFileError),
        ([b"00000000", b"0000001"], ForeignFileError),
        ([b"00000000", b"other"], ForeignFileError),
        ([b"00000000", b"x" * 500], ForeignFileError),
        ([b"99999999"], ChecksumError),
        ([b"999999999999999999"], ChecksumError),
        ([b"9" * 400], ForeignFileError),
        ([b"0000000\xb2"], ForeignFileError),
        ([b"0000000:"], ForeignFileError),
        ([b"0000000/"], ForeignFileError),
    ],
)
def test_wrong_keys(tmp_path: pathlib.Path, keys: list[bytes], error: type[Exception]) -> None:
    path = write(tmp_path / "cache.mdb", {**extra(), **dict.fromkeys(keys, int64(0))})
    with pytest.raises(error):
        open_cache(path)


def test_empty_value(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ChecksumError):
        open_cache(write(tmp_path / "cache.mdb", {**extra(), b"00000000": b""}))


def test_keys_of_many_digits() -> None:
    """From 100,000,000 records on keys are longer, and sort between the shorter."""
    reader = object.__new__(LegacyCacheFile)
    reader._name = "file"
    keys = [b"00000001", b"10000000", b"100000000", b"10000001", b"__keys__"]
    buffer = np.frombuffer(b"".join(keys), "u1")
    sizes = np.array([len(key) for key in keys])
    from yogadl.format.tree import Entries

    class Keys:
        def key(self, offset: int, size: int) -> bytes:
            return buffer[offset : offset + size].tobytes()

    entries = Entries(np.cumsum(sizes) - sizes, sizes, sizes, sizes)
    positions, chosen = reader._positions(Keys(), buffer, entries)  # type: ignore[arg-type]
    assert dict(zip(chosen.tolist(), positions.tolist(), strict=True)) == {
        number: int(key) for number, key in enumerate(keys[:4])
    }


class _Evil:
    def __reduce__(self) -> Any:
        return (pathlib.Path.touch, (pathlib.Path("evil"),))


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (pickle.dumps(_Evil(), 4), UnsafePickleError),
        (pickle.dumps(np.array([_Evil()], object), 4), UnsafePickleError),
        (pickle.dumps(np.int32(1)), ChecksumError),
        (pickle.dumps(1), ChecksumError),
        (pickle.dumps(np.zeros(2, np.int64)), ChecksumError),
        (pickle.dumps((np.int64(0),)), ChecksumError),
        (pickle.dumps({"a": np.int64(0)}), ChecksumError),
        (pickle.dumps(None), ChecksumError),
        (b"no pickle", CacheFormatError),
    ],
)
def test_wrong_records(tmp_path: pathlib.Path, value: bytes, error: type[Exception]) -> None:
    entries = {**extra(), b"00000000": int64(0), b"00000001": value}
    with open_cache(write(tmp_path / "cache.mdb", entries)) as reader:
        assert reader.read_record(0) == 0
        for use in (
            lambda: reader.read_record(1),
            lambda: reader.read_columns(np.array([0, 1])),
            reader.verify,
        ):
            with pytest.raises(error, match="record 1"):
                use()


def test_records_that_are_nearly_alike(tmp_path: pathlib.Path) -> None:
    """Records are copied without running their pickles only where these are the same program."""
    numbers = [np.int64(n) for n in range(4)]
    values = [pickle.dumps(number, -1) for number in numbers]
    other = [*values, pickle.dumps(np.int64(4), 4), pickle.dumps(np.int64(5), 3)]
    big = [*values, pickle.dumps(np.int64(4), -1).replace(b"i8", b"u8")]
    for stored, bad in ((values, False), (other, False), (big, True)):
        path = tmp_path / f"{len(stored)}{bad}.mdb"
        entries = {b"%08d" % n: value for n, value in enumerate(stored)}
        with open_cache(write(path, {**extra(), **entries})) as reader:
            assert isinstance(reader, LegacyCacheFile)
            positions = np.arange(len(stored))[::-1]
            assert reader.read_columns(positions[-4:])[0].tolist() == [3, 2, 1, 0]
            assert reader._mold is not None
            if bad:
                with pytest.raises(ChecksumError, match="record 4"):
                    reader.read_columns(positions)
                with pytest.raises(ChecksumError, match="record 4"):
                    reader.verify()
            else:
                assert reader.read_columns(positions)[0].tolist() == positions.tolist()
                reader.verify()


def test_bools_are_0_or_1(tmp_path: pathlib.Path) -> None:
    data = pickle.dumps(np.ones((2, 2), bool), -1)
    data = data.replace(b"\x01\x01\x01\x01", b"\x01\0\xff\x02")
    module = b"\x8c\x28tensorflow.python.framework.tensor_shape"
    shapes = b"\x80\x04" + module + b"\x8c\x0bTensorShape\x93](K\x02K\x02e\x85R."
    types = extra()[b"__types__"].replace(b"\x8c\x05int64", b"\x8c\x04bool\x94")
    entries = {b"__keys__": b"", b"__shapes__": shapes, b"__types__": types, b"00000000": data}
    path = write(tmp_path / "cache.mdb", entries)
    with open_cache(path) as reader:
        for got in (reader.read_record(0), reader.read_columns(np.array([0]))[0][0]):
            assert got.view("u1").tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize("key", [b"__shapes__", b"__types__"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (pickle.dumps(_Evil(), 4), UnsafePickleError),
        (pickle.dumps(1), ChecksumError),
        (pickle.dumps({1.5: 1}), UnsafePickleError),
        (b"", ChecksumError),
    ],
)
def test_wrong_specs(
    tmp_path: pathlib.Path, key: bytes, value: bytes, error: type[Exception]
) -> None:
    entries = {**extra(), b"00000000": int64(0), key: value}
    with pytest.raises(error):
        open_cache(write(tmp_path / "cache.mdb", entries))


def mapped(data: np.ndarray[Any, Any]) -> MappedFile:
    with tempfile.NamedTemporaryFile() as file:
        data.tofile(file)
        file.flush()
        return MappedFile(Descriptor(os.dup(file.fileno())), pathlib.Path(file.name))


FLIPS = st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=6)


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(COUNTS)), flips=FLIPS, structural=st.booleans())
def test_flipped_bytes(name: str, flips: list[tuple[int, int]], structural: bool) -> None:
    """Without checksums wrong numbers can come out, but nothing of another form."""
    data = np.fromfile(GOLDEN / f"{name}.mdb", "u1")
    for at, byte in flips:
        place = at // 64 % (len(data) // 4096) * 4096 + at % 64 if structural else at
        data[place % len(data)] = byte
    try:
        reader = LegacyCacheFile(pathlib.Path("cache.mdb"), mapped(data))
    except YogadlError as error:
        check_message(error)
        return
    with open_cache(GOLDEN / f"{name}.mdb") as untouched:
        for position in range(min(COUNTS[name], len(reader), 40)):
            try:
                got = reader.read_record(position)
                reader.read_columns(np.array([position, 0]))
            except YogadlError as error:
                check_message(error)
            else:
                assert type(got) is type(untouched.read_record(position))
    try:
        reader.verify()
    except YogadlError as error:
        check_message(error)
