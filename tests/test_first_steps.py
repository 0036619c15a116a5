"""What new users tried first, and got a bare error of: it works, or the message says what to do."""

from __future__ import annotations

import importlib
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import yogadl
from yogadl.errors import InvalidArgumentError, UnsupportedTypeError
from yogadl.spec import TensorSpec
from yogadl.storage import LFSConfigurations, LFSStorage


@pytest.fixture
def storage(tmp_path: pathlib.Path) -> LFSStorage:
    return LFSStorage(tmp_path)


@pytest.fixture
def dataref(storage: LFSStorage) -> Any:
    storage.submit({"x": np.zeros((10, 3, 4), np.float32), "y": np.arange(10)}, "a", "1")
    return storage.fetch("a", "1")


@pytest.mark.parametrize("kind", [str, pathlib.Path, LFSConfigurations])
def test_a_storage_in_a_directory_that_is_new(kind: Any, tmp_path: pathlib.Path) -> None:
    for _ in range(2):
        storage = LFSStorage(kind(tmp_path / "new"))
    storage.submit([1, 2, 3], "a", "1")
    assert (tmp_path / "new" / "a" / "1" / "cache.mdb").is_file()


def test_a_storage_that_is_no_directory(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidArgumentError, match="is not a directory; create it"):
        LFSStorage(str(tmp_path / "one" / "two"))
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgumentError, match="is not a directory, but a file"):
        LFSStorage(tmp_path / "file")
    with pytest.raises(InvalidArgumentError, match=r"is empty; the current directory is '\.'"):
        LFSStorage("")
    with pytest.raises(InvalidArgumentError, match=r"not the URL 's3://bucket/x'; .*\.S3Storage"):
        LFSStorage("s3://bucket/x")
    with pytest.raises(InvalidArgumentError, match=r"'gs:/bucket/x'; .*\.GCSStorage"):
        LFSStorage(pathlib.Path("gs://bucket/x"))
    with pytest.raises(InvalidArgumentError, match=r"not the URL 'file:///x'$"):
        LFSStorage("file:///x")
    with pytest.raises(InvalidArgumentError, match="in no known home"):
        LFSStorage("~nobody-of-this-name/x")
    with pytest.raises(InvalidArgumentError, match="takes a directory or LFSConfigurations"):
        LFSStorage(3)  # type: ignore[arg-type]


def test_a_storage_at_home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    LFSStorage("~/data").submit([1], "a", "1")
    assert (tmp_path / "data" / "a" / "1" / "cache.mdb").is_file()


def test_cacheable_without_arguments(storage: LFSStorage) -> None:
    def make() -> list[int]:
        return [1]

    with pytest.raises(InvalidArgumentError, match=re.escape('@storage.cacheable("mnist", "1.0")')):
        storage.cacheable(make)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="dataset_version must be a non-empty"):
        storage.cacheable("mnist", "")


def test_a_function_that_returns_nothing(storage: LFSStorage) -> None:
    with pytest.raises(UnsupportedTypeError, match="lack its return"):
        storage.cacheable("a", "1")(lambda: None)()


def test_a_function_that_was_not_called(storage: LFSStorage) -> None:
    def squares() -> Iterator[int]:
        yield from (0, 1, 4)

    with pytest.raises(UnsupportedTypeError, match=r"a generator function; call it.*squares\(\)"):
        storage.submit(squares, "a", "1")
    with pytest.raises(UnsupportedTypeError, match=r"a function; call it"):
        storage.cacheable("a", "1")(lambda: lambda: [1])()


def test_a_generator_that_was_used_up(storage: LFSStorage) -> None:
    """It does not replace with nothing what was stored of it."""
    numbers = iter(number for number in range(5))
    storage.submit(numbers, "a", "1", spec=TensorSpec("int64"))
    for spec in (TensorSpec("int64"), None):
        with pytest.raises(InvalidArgumentError, match="was read"):
            storage.submit(numbers, "a", "1", spec=spec)
    assert len(storage.fetch("a", "1")) == 5
    with pytest.raises(InvalidArgumentError, match="was read"):
        storage.cacheable("b", "1", spec=TensorSpec("int64"))(lambda: numbers)()
    with pytest.raises(InvalidArgumentError, match="spec="):
        storage.submit(map(int, ()), "b", "1")
    # An iterator over the rest of one does not tell what it is of.
    lines = iter(text for text in ("header", "1", "2"))
    next(lines)
    storage.submit(map(int, lines), "a", "1")
    assert list(storage.fetch("a", "1").stream()) == [1, 2]
    storage.submit((number for number in ()), "a", "1", spec=TensorSpec("int64"))
    assert len(storage.fetch("a", "1")) == 0


def test_metadata_goes_along(storage: LFSStorage) -> None:
    storage.submit([1, 2, 3], "a", "1", metadata={"names": ["x"]})
    stored = storage.fetch("a", "1")
    storage.submit(stored[1:], "a", "2")
    assert storage.fetch("a", "2").metadata == {"names": ["x"]}
    storage.submit(stored, "a", "3", metadata={"names": ["y"], "more": 1})
    assert storage.fetch("a", "3").metadata == {"names": ["y"], "more": 1}
    assert yogadl.from_source([1, 2]).metadata == {}


def test_what_is_no_transform(dataref: Any) -> None:
    stream = dataref.stream()
    for make in (stream.map, lambda function: stream.batches(2, transform=function)):
        with pytest.raises(InvalidArgumentError, match=r"transform= takes a function.*not 3"):
            make(3)
    with pytest.raises(InvalidArgumentError, match="map takes a function of a record, not None"):
        stream.map(None)
    with pytest.raises(
        InvalidArgumentError, match=r"function\(record, rng\).* this takes \(record\)"
    ):
        yogadl.seeded(lambda record: record, seed=1)
    yogadl.seeded(lambda *both: both, seed=1)
    yogadl.seeded(dict, seed=1)
    with pytest.raises(InvalidArgumentError, match="None of a batch; does it lack its return"):
        next(iter(stream.batches(2, transform=lambda batch: None)))
    seeded = yogadl.seeded(lambda batch, rng: None, seed=1)
    with pytest.raises(InvalidArgumentError, match="None of a batch; does it lack its return"):
        next(iter(stream.batches(2, transform=seeded)))


@pytest.mark.parametrize("index", [slice(None, None, 0), slice("a", "b"), slice(0.5)], ids=str)
def test_slices_that_are_none(dataref: Any, index: slice) -> None:
    with pytest.raises(
        InvalidArgumentError, match="a slice of a DataRef takes integers, and a step"
    ):
        dataref[index]


def test_batches_have_no_positions(dataref: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="read in order and have no item 0: iterate"):
        dataref.stream().batches(2)[0]


def test_masks(dataref: Any) -> None:
    mask = np.arange(10) > 4
    for take in (dataref.select, dataref.read):
        for given in (mask, mask.tolist()):
            with pytest.raises(InvalidArgumentError, match=r"give .* np\.flatnonzero\(mask\)"):
                take(given)
        for given in (np.where(mask), np.nonzero(mask)):
            with pytest.raises(InvalidArgumentError, match=r"return a tuple of arrays: .*\[0\]"):
                take(given)
    assert len(dataref.select(np.flatnonzero(mask))) == len(dataref.select(np.where(mask)[0])) == 5


@pytest.mark.parametrize("pad", ["0", "", b"0"], ids=repr)
def test_paddings_that_are_no_number(dataref: Any, pad: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="pad= takes the number to pad with, as 0"):
        dataref.read([0], pad=pad)


def test_paddings_of_strings_and_bools(storage: LFSStorage) -> None:
    spec = {name: TensorSpec(name, (None,)) for name in ("string", "bool", "int64")}
    record = {"string": np.array(["a"]), "bool": np.array([True]), "int64": np.array([1])}
    storage.submit([record], "a", "1", spec=spec)
    dataref = storage.fetch("a", "1")
    assert isinstance(dataref.read([0], pad=0)["string"], list)
    pads = {"string": None, "bool": True, "int64": 0}
    assert dataref.read([0], pad=pads)["bool"].tolist() == [[True]]
    for pad in (True, np.False_, {**pads, "int64": True}):
        with pytest.raises(InvalidArgumentError, match=r"pad=.* is no number that int64"):
            dataref.read([0], pad=pad)


@pytest.mark.parametrize("parts", [[0.8, 0.2], (0.8, 0.2), 0.8])
def test_a_split_without_names(dataref: Any, parts: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r'split\(\{"train": 0.8, "valid": 0.2\}\)'):
        dataref.split(parts)


def test_indices_that_are_no_position(dataref: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape("dataref[0]['y']")):
        dataref["y"]
    for many in ([0, 1], np.array([0, 1])):
        with pytest.raises(InvalidArgumentError, match=re.escape("dataref.read(positions)")):
            dataref[many]


def test_what_things_look_like(dataref: Any, storage: LFSStorage) -> None:
    spec = "{'x': float32[3, 4], 'y': int64}"
    path = str(dataref._path)
    assert repr(storage) == f"LFSStorage({str(pathlib.Path(path).parents[2])!r})"
    assert repr(dataref) == f"LMDBDataRef({path!r}, 10 records of {spec})"
    assert repr(dataref[:3]) == f"DerivedDataRef(of {path!r}, 3 records of {spec})"
    stream = dataref.stream(shuffle=True, shuffle_seed=23, shard_rank=1, num_shards=3)
    words = "3 records an epoch, shuffled by seed 23, shard 1 of 3"
    assert repr(stream) == f"IndexedStream({words} of {dataref!r})"
    assert repr(stream.batches(2)) == f"StreamBatches(2 batches of 2; {words})"
    assert repr(stream.map(len)) == f"{stream!r}.map(<built-in function len>)"
    assert repr(LFSConfigurations("/some/where")) == "LFSConfigurations('/some/where')"
    joined = yogadl.concat([dataref[:1], dataref, dataref, dataref])
    assert repr(joined) == (
        f"DerivedDataRef(of {path!r}, {path!r}, {path!r}, and 1 more, 31 records of {spec})"
    )
    source = yogadl.from_arrays({"a": np.arange(3)})
    assert repr(source) == "SourceDataRef(ColumnsSource, 3 records of {'a': int64})"
    for closed in (stream, source, dataref):
        closed.close()
        assert "closed" in repr(closed)


def test_completion_offers_what_is_meant_to_be_used() -> None:
    assert set(yogadl.__all__) | {"storage", "tensorflow", "torch", "errors"} <= set(dir(yogadl))
    assert not {"ModuleType", "importlib", "closing", "lazy", "extras"} & set(dir(yogadl))
    assert all(hasattr(yogadl, name) for name in yogadl.__all__)
    for name in ("keras", "jax", "ray"):
        module = importlib.import_module(f"yogadl.{name}")
        assert dir(module) == sorted(module.__all__)
