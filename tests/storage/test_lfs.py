"""``LFSStorage``: submit and fetch, paths, names that are refused, what failures leave behind."""

from __future__ import annotations

import concurrent.futures
import errno
import fcntl
import functools
import itertools
import logging
import os
import pathlib
import pickle
import pty
import shutil
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from yogadl import DataRef
from yogadl.errors import (
    CacheNotFoundError,
    FileSystemError,
    InvalidArgumentError,
    SpecMismatchError,
    StorageFullError,
    UnsupportedTypeError,
    YogadlError,
)
from yogadl.spec import TensorSpec
from yogadl.storage import LFSConfigurations, LFSStorage


@pytest.fixture
def storage(storage_dir: pathlib.Path) -> LFSStorage:
    return LFSStorage(LFSConfigurations(storage_dir))


def records(ref: DataRef) -> list[Any]:
    return list(ref.stream())


def files(directory: pathlib.Path) -> list[str]:
    """All but those of the catalogue."""
    found = (path for path in directory.rglob("*") if path.is_file())
    return sorted(
        str(path.relative_to(directory)) for path in found if path.parent.name != "yogadl.catalogue"
    )


# Paths and names


@pytest.mark.parametrize(
    ("name", "version", "path"),
    [
        ("mnist", "1.0", "mnist/1.0/cache.mdb"),
        ("team/mnist", "1", "team/mnist/1/cache.mdb"),
        ("a b", "…ü", "a b/…ü/cache.mdb"),
        (".hidden", "..5", ".hidden/..5/cache.mdb"),
        ("x" * 255, "1", "x" * 255 + "/1/cache.mdb"),
    ],
)
def test_paths(
    name: str, version: str, path: str, storage: LFSStorage, storage_dir: pathlib.Path
) -> None:
    storage.submit([1, 2], name, version)
    assert files(storage_dir) == [path]
    assert records(storage.fetch(name, version)) == [1, 2]


def test_cacheable_puts_its_lock_beside_the_cache(
    storage: LFSStorage, storage_dir: pathlib.Path
) -> None:
    @storage.cacheable("team/mnist", "1")
    def make() -> Any:
        return [1]

    make()
    assert set(files(storage_dir)) <= {"team/mnist/1/cache.mdb", "team/mnist/1/yogadl.lock"}
    assert "team/mnist/1/cache.mdb" in files(storage_dir)


def test_a_file_moved_in_by_hand_is_found(storage: LFSStorage, storage_dir: pathlib.Path) -> None:
    storage.submit([1], "a", "1")
    (storage_dir / "b").mkdir()
    (storage_dir / "a" / "1").rename(storage_dir / "b" / "2")
    assert records(storage.fetch("b", "2")) == [1]


BAD_IDS = ["", ".", "..", "/", "/abs", "../a", "a/..", "a/../b", "a//b", "a/", "a/./b", "a\0b"]
BAD_IDS += ["x" * 256, "ü" * 128, "cache.mdb", "a/yogadl.lock", "yogadl.lease", "yogadl.pieces"]
BAD_VERSIONS = [*BAD_IDS, "a/b"]


@pytest.mark.parametrize(
    ("name", "version"),
    [*((bad, "1") for bad in BAD_IDS), *(("a", bad) for bad in BAD_VERSIONS)],
)
def test_names_that_leave_the_storage_are_refused(
    name: str, version: str, storage: LFSStorage, storage_dir: pathlib.Path
) -> None:
    def touched() -> Iterator[int]:
        pytest.fail("the data were read before the name was refused")
        yield 1  # type: ignore[unreachable]

    with pytest.raises(InvalidArgumentError):
        storage.submit(touched(), name, version)
    with pytest.raises(ValueError, match=r"dataset_(id|version)"):
        storage.fetch(name, version)
    with pytest.raises(InvalidArgumentError):
        storage.cacheable(name, version)
    assert files(storage_dir.parent) == []


@pytest.mark.parametrize("bad", [None, 1, b"a", pathlib.Path("a"), ["a"]])
def test_names_that_are_no_strings_are_refused(bad: Any, storage: LFSStorage) -> None:
    for name, version in ((bad, "1"), ("a", bad)):
        with pytest.raises(InvalidArgumentError):
            storage.submit([1], name, version)


PART = st.sampled_from(["a", "..", ".", "/", "\\", "\0", "", " ", "~", "C:", "cache.mdb", "\ud800"])
NAME = st.text(max_size=300) | st.lists(PART, max_size=6).map("".join)


@hypothesis.settings(
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], max_examples=100
)
@hypothesis.given(name=NAME, version=NAME)
@hypothesis.example(name="\ud800", version="1")
@hypothesis.example(name="~", version="~root")
@hypothesis.example(name="C:", version="1")
def test_any_text_is_refused_or_stays_inside(
    name: str, version: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    parent = tmp_path_factory.mktemp("any")
    directory = parent / "storage"
    directory.mkdir()
    storage = LFSStorage(LFSConfigurations(directory))
    try:
        storage.submit([7], name, version)
    except InvalidArgumentError:
        assert files(parent) == []
    else:
        assert files(parent) == [f"storage/{name}/{version}/cache.mdb"]
        assert records(storage.fetch(name, version)) == [7]


def test_ids_that_were_one_cache_in_014_are_told_apart(storage: LFSStorage) -> None:
    storage.submit([1], "a/b", "c")
    with pytest.raises(InvalidArgumentError, match="'/'"):
        storage.submit([2], "a", "b/c")
    assert records(storage.fetch("a/b", "c")) == [1]


def test_the_storage_directory_must_be_one(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidArgumentError, match="missing"):
        LFSStorage(LFSConfigurations(tmp_path / "missing" / "too"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidArgumentError, match="file"):
        LFSStorage(LFSConfigurations(tmp_path / "file"))
    assert LFSStorage(LFSConfigurations(str(tmp_path)))  # a string will do


# Fetching and replacing


@pytest.mark.parametrize("download", [None, True, False])
def test_what_is_on_a_disk_is_fetched_as_from_a_bucket(
    storage: LFSStorage, download: bool | None
) -> None:
    storage.submit(range(10), "a", "1")
    with storage.fetch("a", "1", download=download) as ref:
        plan = ref.plan(num_shards=2, shards_here=1)
        assert (plan.records, plan.requests, plan.nbytes, plan.later_requests) == (5, 0, 0, 0)
        assert str(plan).startswith("5 records: 0 requests")
        with pytest.raises(InvalidArgumentError, match="shards_here"):
            ref.plan(shards_here=2)


def test_fetch_of_nothing(storage: LFSStorage, storage_dir: pathlib.Path) -> None:
    storage.submit([1], "mnist", "1")
    for name, version in (("mnist", "2.5"), ("other", "1")):
        with pytest.raises(CacheNotFoundError, match=f"'{name}'.*'{version}'"):
            storage.fetch(name, version)
        with pytest.raises(FileNotFoundError):
            storage.fetch(name, version)
    assert files(storage_dir) == ["mnist/1/cache.mdb"]


def test_submit_replaces_and_readers_keep_what_they_have(storage: LFSStorage) -> None:
    storage.submit(range(2000), "a", "1")
    old = storage.fetch("a", "1")
    reading = iter(old.stream())
    assert next(reading) == 0
    storage.submit(["x", "y"], "a", "1")
    assert records(storage.fetch("a", "1")) == [b"x", b"y"]
    assert list(reading) == list(range(1, 2000))
    assert records(old) == list(range(2000))
    old.verify()


def test_versions_are_independent(storage: LFSStorage) -> None:
    for number in range(3):
        storage.submit([number], "a", str(number))
    assert [records(storage.fetch("a", str(n))) for n in range(3)] == [[0], [1], [2]]


def test_who_reads_while_others_replace_gets_a_whole_version(storage: LFSStorage) -> None:
    def submit(number: int) -> None:
        storage.submit(np.full((50 + number, 100), number), "a", "1")

    def submit_all(numbers: range) -> None:
        for number in numbers:
            submit(number)

    submit(0)
    stop = threading.Event()

    def read() -> set[int]:
        seen = set()
        for _ in range(10_000):
            stack = np.stack(records(storage.fetch("a", "1")))
            number = int(stack[0, 0])
            assert stack.shape == (50 + number, 100)
            assert (stack == number).all()
            seen.add(number)
            if stop.is_set():
                return seen
        return seen

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        writers = [pool.submit(submit_all, range(first, 20, 2)) for first in (0, 1)]
        for writer in writers:
            writer.result()
        stop.set()
        for reader in readers:
            assert reader.result() <= set(range(20))


def test_a_storage_can_be_pickled(storage: LFSStorage) -> None:
    pickle.loads(pickle.dumps(storage)).submit([1, 2], "a", "1")
    assert records(storage.fetch("a", "1")) == [1, 2]


# What can be submitted


def test_iterables(storage: LFSStorage) -> None:
    cases: list[Any] = [[3, 4], (3, 4), range(3, 5), iter([3, 4]), np.array([3, 4])]
    cases += [(n for n in (3, 4)), itertools.islice(itertools.count(3), 2), map(int, "34")]
    for data in cases:
        storage.submit(data, "a", "1")
        assert records(storage.fetch("a", "1")) == [3, 4]


def test_spec_is_for_what_the_first_record_does_not_tell(storage: LFSStorage) -> None:
    rows = [np.arange(n, dtype=np.int32) for n in (2, 0, 5)]
    with pytest.raises(SpecMismatchError, match="spec="):
        storage.submit(rows, "a", "1")
    storage.submit(rows, "a", "1", spec=TensorSpec("int32", (None,)))
    assert [row.tolist() for row in records(storage.fetch("a", "1"))] == [r.tolist() for r in rows]

    with pytest.raises(InvalidArgumentError, match="spec"):
        storage.submit([], "b", "1")
    storage.submit([], "b", "1", spec=TensorSpec("int32"))
    assert records(storage.fetch("b", "1")) == []
    with pytest.raises(SpecMismatchError, match="record 1"):
        storage.submit([[1, 2], [1, 2, 3]], "b", "2", spec=TensorSpec("int64", (2,)))


def test_metadata(storage: LFSStorage, storage_dir: pathlib.Path) -> None:
    metadata = {"labels": ["cat", "dog"], "scale": 0.5, "nested": {"ü": None}}
    storage.submit([1], "a", "1", metadata=metadata)
    assert storage.fetch("a", "1").metadata == metadata
    storage.submit([1], "a", "1")
    assert storage.fetch("a", "1").metadata == {}
    for bad in ({"f": print}, {1: "int key"}, {"n": float("nan")}, {"b": b"x"}):
        with pytest.raises(InvalidArgumentError, match="metadata"):
            storage.submit([1], "b", "1", metadata=bad)  # type: ignore[arg-type]
    assert files(storage_dir) == ["a/1/cache.mdb"]


class DataFrame:
    """Like those of pandas, polars, …: iterates over the names of its columns."""

    def __dataframe__(self) -> None:
        """The data frame interchange protocol's mark."""

    def __iter__(self) -> Iterator[str]:
        return iter(["column"])


@pytest.mark.parametrize(
    "data", [None, 5, 1.5, "text", b"bytes", {"a": 1}, {1, 2}, object(), len, DataFrame()]
)
def test_what_is_no_iterable_of_records(
    data: Any, storage: LFSStorage, storage_dir: pathlib.Path
) -> None:
    with pytest.raises(UnsupportedTypeError):
        storage.submit(data, "a", "1")
    with pytest.raises(TypeError):
        storage.submit(data, "a", "1")
    assert files(storage_dir) == []


@pytest.mark.parametrize(
    "record", [object(), lambda: 1, np.datetime64("2020-01-01"), {1.5: 1}, (), {}, [1, "a"], {1, 2}]
)
def test_records_that_cannot_be_stored(
    record: Any, storage: LFSStorage, storage_dir: pathlib.Path
) -> None:
    with pytest.raises(UnsupportedTypeError):
        storage.submit([record], "a", "1")
    assert files(storage_dir) == []


def _failing(good: int) -> Iterator[Any]:
    yield from (np.full(5000, number) for number in range(good))
    raise RuntimeError("the source broke")


@pytest.mark.parametrize("good", [0, 1, 300])
def test_a_source_that_fails_leaves_nothing(
    good: int, storage: LFSStorage, storage_dir: pathlib.Path
) -> None:
    with pytest.raises(RuntimeError, match="the source broke"):
        storage.submit(_failing(good), "a", "1")
    assert files(storage_dir) == []
    storage.submit([1, 2], "a", "1", metadata={"is": "old"})
    with pytest.raises(RuntimeError, match="the source broke"):
        storage.submit(_failing(good), "a", "1")
    assert files(storage_dir) == ["a/1/cache.mdb"]
    assert records(storage.fetch("a", "1")) == [1, 2]
    assert storage.fetch("a", "1").metadata == {"is": "old"}


def test_errors_are_of_one_tree(storage: LFSStorage) -> None:
    with pytest.raises(YogadlError):
        storage.fetch("a", "1")
    with pytest.raises(YogadlError):
        storage.submit(5, "a", "1")


# Progress

SUBMIT = """
import logging, sys
from yogadl.storage import LFSConfigurations, LFSStorage
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
storage = LFSStorage(LFSConfigurations(sys.argv[1]))
storage.submit(range(3000), "a", "1")
"""

SLOW = """
import itertools, time
import yogadl.cache.progress
yogadl.cache.progress._BAR_SECONDS = 0.05

def slow(count):
    yield from range(count - 1)
    time.sleep(0.1)
    yield 0

class Sized:
    def __len__(self):
        return 1500
    def __iter__(self):
        return slow(1500)

storage.submit(slow(999), "a", "2")
storage.submit(slow(2500), "a", "3")
storage.submit(Sized(), "a", "4")
"""


def _on_a_terminal(arguments: list[str]) -> bytes:
    """What a program writes to a terminal that is its stderr."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    with subprocess.Popen(arguments, stderr=slave, stdout=subprocess.DEVNULL) as process:
        os.close(slave)
        output = b""
        while True:
            try:
                part = os.read(master, 4096)
            except OSError:  # Linux: nobody has the other side any more
                break
            if not part:
                break
            output += part
    os.close(master)
    assert process.returncode == 0, output
    return output


def test_a_terminal_gets_a_bar_and_a_pipe_does_not(storage_dir: pathlib.Path) -> None:
    arguments = [sys.executable, "-c", SUBMIT, str(storage_dir)]
    # What is done at once needs no bar.
    assert _on_a_terminal(arguments) == b""
    shown = _on_a_terminal([sys.executable, "-c", SUBMIT + SLOW, str(storage_dir)])
    assert b"Writing a:1" not in shown
    assert b"Writing a:2: 999 records [" in shown
    assert b"Writing a:3: 2.50k records [" in shown
    assert b"Writing a:4: 100%|" in shown
    assert b"| 1.50k/1.50k records [" in shown
    piped = subprocess.run(arguments, capture_output=True, check=True, text=True)
    assert piped.stderr == ""
    assert "3,000 records" in piped.stdout


@pytest.mark.parametrize("how", ["submit", "submit parts", "copy", "sync"])
def test_what_fails_leaves_no_folder(
    storage: LFSStorage, storage_dir: pathlib.Path, tmp_path: pathlib.Path, how: str
) -> None:
    other = LFSStorage(tmp_path / "other")
    other.submit([1], "a", "2")
    storage.submit([1], "a", "1")

    def fail(*_: Any) -> Any:
        yield 1
        raise StorageFullError("no space left")

    act: Callable[[], Any] = functools.partial(storage.submit, fail(), "a", "2")
    if how == "submit parts":
        act = functools.partial(act, part_bytes=1)
    elif how in ("copy", "sync"):
        storage._publish = lambda *given: next(itertools.islice(fail(), 1, None))  # type: ignore[method-assign]
        act = functools.partial(other.copy, "a", "2", storage)
        act = functools.partial(other.sync, storage) if how == "sync" else act
    with pytest.raises(StorageFullError):
        act()
    names = {path.name for path in (storage_dir / "a").iterdir()}
    assert names - {"yogadl.parts"} == {"1"}
    # What is there stays, whatever fails.
    with pytest.raises(StorageFullError):
        storage.submit(fail(), "a", "1")
    assert records(storage.fetch("a", "1")) == [1]


def test_whether_to_download_is_told_by_yes_or_no(storage: LFSStorage) -> None:
    storage.submit([1], "a", "1")
    for download in (None, True, False, np.True_, 0):
        assert len(storage.fetch("a", "1", download=download)) == 1  # type: ignore[arg-type]
    for wrong in ("no", 2, [], 0.5):
        with pytest.raises(InvalidArgumentError, match="download must be True or False"):
            storage.fetch("a", "1", download=wrong)  # type: ignore[arg-type]


def test_the_log_says_what_was_stored(
    storage: LFSStorage, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, logger="yogadl"):
        storage.submit(range(1234), "team/a", "7")
    said = [record.getMessage() for record in caplog.records]
    assert any("team/a:7" in line for line in said)
    assert any("done" in line and "1,234 records" in line for line in said)
    assert {record.levelno for record in caplog.records} == {logging.INFO}
    assert capfd.readouterr() == ("", "")


def test_a_folder_that_is_removed_while_records_are_made(storage_dir: pathlib.Path) -> None:
    def records() -> Iterator[int]:
        yield 1
        shutil.rmtree(storage_dir / "a" / "1")
        yield 2

    storage = LFSStorage(storage_dir)
    with pytest.raises(FileSystemError, match="removed or renamed") as error:
        storage.submit(records(), "a", "1")
    assert error.value.errno == errno.ENOENT
    storage.submit([3], "a", "1")
    assert [int(record) for record in storage.fetch("a", "1").stream()] == [3]
