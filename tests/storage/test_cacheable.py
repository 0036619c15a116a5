"""``LFSStorage.cacheable``: one of many builds, whatever becomes of it, and the others read."""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import functools
import inspect
import logging
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from processes_ready import READY

import yogadl
from yogadl import DataRef
from yogadl.errors import (
    CacheNotFoundError,
    FileSystemError,
    InvalidArgumentError,
    StaleCacheWarning,
    UnsupportedFormatError,
    YogadlError,
)
from yogadl.format import header as headers
from yogadl.format.pages import PAGE_HEADER
from yogadl.storage import LFSConfigurations, LFSStorage
from yogadl.storage._disk import lock

KILLED_014 = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4" / "killed.mdb"
PATIENCE = 60


@pytest.fixture
def storage(storage_dir: pathlib.Path) -> LFSStorage:
    return LFSStorage(LFSConfigurations(storage_dir))


def records(ref: DataRef) -> list[Any]:
    return list(ref.stream())


def names(directory: pathlib.Path) -> set[str]:
    return {path.name for path in directory.iterdir()} - {"yogadl.lock"}


def count_build(log: pathlib.Path) -> None:
    """Writes a line that other processes' lines cannot mix with."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, b"%d\n" % os.getpid())
    os.close(descriptor)


def builds(log: pathlib.Path) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


# The decorated function


def test_the_function_keeps_what_it_is(storage: LFSStorage) -> None:
    def make(count: int, *, first: int = 0) -> Any:
        """Makes records."""
        return range(first, first + count)

    made = storage.cacheable("a", "1")(make)
    assert (made.__name__, made.__doc__) == ("make", "Makes records.")
    assert inspect.signature(made) == inspect.signature(make)


def test_arguments_are_passed_and_are_no_part_of_the_key(storage: LFSStorage) -> None:
    calls = []

    @storage.cacheable("a", "1", metadata={"k": 1})
    def make(*args: int, **kwargs: int) -> Any:
        calls.append((args, kwargs))
        return [*args, *kwargs.values()]

    ref = make(1, 2, x=3)
    assert records(ref) == [1, 2, 3]
    assert ref.metadata == {"k": 1}
    with pytest.warns(StaleCacheWarning, match=r"make\(1, 2, x=3\), .*make\(7\) is called"):
        assert records(make(7)) == [1, 2, 3]
    assert calls == [((1, 2), {"x": 3})]


def test_methods(storage: LFSStorage) -> None:
    class Loader:
        def __init__(self, number: int) -> None:
            self.number = number

        @storage.cacheable("a", "1")
        def load(self, more: int) -> Any:
            """Loads."""
            return [self.number, more]

    assert records(Loader(3).load(4)) == [3, 4]
    with pytest.warns(StaleCacheWarning, match=r"load\(.*, 4\), .*load\(.*, 6\) is called"):
        assert records(Loader(5).load(6)) == [3, 4]
    assert Loader.load.__doc__ == "Loads."


def test_names_are_checked_when_decorating(storage: LFSStorage) -> None:
    for name, version in (("..", "1"), ("a", "b/c"), ("", "1")):
        with pytest.raises(InvalidArgumentError):
            storage.cacheable(name, version)


def test_what_is_there_is_used(storage: LFSStorage) -> None:
    storage.submit([5], "a", "1")
    never: Callable[[], DataRef] = storage.cacheable("a", "1")(lambda: pytest.fail("was built"))
    assert records(never()) == [5]


def test_an_error_of_the_function_reaches_the_caller(
    storage: LFSStorage, storage_dir: pathlib.Path
) -> None:
    def failing() -> Iterator[Any]:
        yield np.zeros(5000)
        raise KeyError("broken source")

    results: Iterator[Any] = iter([KeyError("at once"), failing(), 5, [1, 2]])

    @storage.cacheable("a", "1")
    def make() -> Any:
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    for error in ((KeyError, "at once"), (KeyError, "broken source"), (TypeError, "int")):
        with pytest.raises(error[0], match=error[1]):
            make()
        assert names(storage_dir / "a" / "1") == set()
    assert records(make()) == [1, 2]


def test_a_function_that_calls_itself_is_told(storage: LFSStorage) -> None:
    @storage.cacheable("a", "1")
    def make() -> Any:
        return list(make().stream())

    with pytest.raises(YogadlError, match=r"'a'.*'1'"):
        make()
    nested = storage.cacheable("b", "1")(
        lambda: [*storage.cacheable("c", "1")(lambda: [3])().stream(), 4]
    )
    assert records(nested()) == [3, 4]
    storage.submit([1], "a", "1")
    assert records(make()) == [1]


def test_nor_by_another_path(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    """It would wait for itself for ever."""
    (tmp_path / "link").symlink_to(storage._configurations.storage_dir_path)
    linked = LFSStorage(tmp_path / "link")

    def make() -> Any:
        return list(linked.cacheable("a", "1")(make)().stream())

    with pytest.raises(YogadlError, match="would wait for itself for ever"):
        storage.cacheable("a", "1")(make)()
    assert records(storage.cacheable("a", "1")(lambda: [1])()) == [1]


# Deleted meanwhile


@pytest.mark.parametrize("on_change", ["warn", "rebuild"])
def test_what_is_deleted_right_after_it_was_built_is_built_again(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch, on_change: str
) -> None:
    if on_change == "rebuild":
        storage.cacheable("a", "1")(lambda: [1])()
    publish, left = LFSStorage._publish, 3

    def deleted(self: LFSStorage, *arguments: Any, **options: Any) -> None:
        nonlocal left
        publish(self, *arguments, **options)
        left -= 1
        if left:
            storage.delete("a", "1")

    monkeypatch.setattr(LFSStorage, "_publish", deleted)
    made = storage.cacheable("a", "1", on_change=on_change)(lambda: [4, 5])
    assert records(made()) == [4, 5]
    assert left == 0


def test_what_is_deleted_again_and_again_is_an_error(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = LFSStorage._publish

    def deleted(self: LFSStorage, *arguments: Any, **options: Any) -> None:
        publish(self, *arguments, **options)
        storage.delete("a", "1")

    monkeypatch.setattr(LFSStorage, "_publish", deleted)
    with pytest.raises(CacheNotFoundError):
        storage.cacheable("a", "1")(lambda: [4, 5])()


def test_a_folder_that_goes_before_its_lock_is_there_is_made_again(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A submit of the same version that fails removes it, if it is empty."""
    wait, left = lock._wait, 3

    def removed(*arguments: Any) -> None:
        nonlocal left
        left -= 1
        if left > 0:
            raise FileNotFoundError(errno.ENOENT, "gone")
        wait(*arguments)

    monkeypatch.setattr(lock, "_wait", removed)
    assert records(storage.cacheable("a", "1")(lambda: [1])()) == [1]
    assert left == 0
    left = 1000
    with pytest.raises(FileSystemError, match="again and again"):
        storage.cacheable("b", "1")(lambda: [1])()


# Many at once


def test_an_empty_data_set_is_built_once(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    """It is false, as other empty things are, but it is there."""
    log, barrier = tmp_path / "builds", threading.Barrier(4)
    waiting = threading.Event()

    @storage.cacheable("a", "1", spec=yogadl.spec.TensorSpec("int64", ()))
    def make() -> Any:
        count_build(log)
        waiting.wait(0.5)
        return []

    def call() -> list[Any]:
        barrier.wait(PATIENCE)
        return records(make())

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = [future.result() for future in [pool.submit(call) for _ in range(4)]]
    assert (len(builds(log)), results) == (1, [[]] * 4)


def test_threads_build_once(storage: LFSStorage, tmp_path: pathlib.Path) -> None:
    log, barrier = tmp_path / "builds", threading.Barrier(8)

    @storage.cacheable("a", "1")
    def make() -> Any:
        count_build(log)
        return range(200)

    def call() -> list[Any]:
        barrier.wait(PATIENCE)
        return records(make())

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = [future.result() for future in [pool.submit(call) for _ in range(8)]]
    assert (len(builds(log)), results) == (1, [list(range(200))] * 8)


def _build(log: pathlib.Path) -> Any:
    count_build(log)
    return ((np.full(1000, n), n) for n in range(200))


def _call(directory: pathlib.Path, log: pathlib.Path, barrier: Any, results: Any) -> None:
    storage = LFSStorage(LFSConfigurations(directory))
    make = storage.cacheable("a", "1")(_build)
    barrier.wait(PATIENCE)
    results.put([(int(array[999]), int(n)) for array, n in make(log).stream()])


def test_processes_build_once(storage_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    barrier, results = READY.Barrier(8), READY.Queue()
    log = tmp_path / "builds"
    arguments = (storage_dir, log, barrier, results)
    processes = [READY.Process(target=_call, args=arguments) for _ in range(8)]
    for process in processes:
        process.start()
    found = [results.get(timeout=PATIENCE) for _ in processes]
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0
    assert found == [[(n, n) for n in range(200)]] * 8
    assert len(builds(log)) == 1


def _stuck(log: pathlib.Path, pipe: Any) -> Any:
    """Writes some records, says so, and hangs; only the first builder does."""
    first = not builds(log)
    count_build(log)
    for number in range(50):
        yield np.full(20_000, number)
        if first and number == 40:
            pipe.send(os.getpid())
            signal.pause()


def _wait_for_records(directory: pathlib.Path, log: pathlib.Path, pipe: Any, out: Any) -> None:
    logging.getLogger("yogadl").setLevel(logging.INFO)
    logging.getLogger("yogadl").addHandler(_Told(out))
    make = LFSStorage(LFSConfigurations(directory)).cacheable("a", "1")(_stuck)
    out.put(("records", [int(record[-1]) for record in make(log, pipe).stream()]))


class _Told(logging.Handler):
    def __init__(self, out: Any) -> None:
        super().__init__()
        self._out = out

    def emit(self, record: logging.LogRecord) -> None:
        if "Waiting" in record.getMessage():
            self._out.put(("waits", os.getpid()))


def test_when_the_builder_is_killed_one_other_builds(
    storage_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    here, there = READY.Pipe()
    out = READY.Queue()
    log = tmp_path / "builds"
    arguments = (storage_dir, log, there, out)
    victim = READY.Process(target=_wait_for_records, args=arguments)
    victim.start()
    assert here.poll(PATIENCE)
    assert here.recv() == victim.pid
    others = [READY.Process(target=_wait_for_records, args=arguments) for _ in range(3)]
    for other in others:
        other.start()
    assert sorted(out.get(timeout=PATIENCE) for _ in others) == sorted(
        ("waits", other.pid) for other in others
    )
    victim.kill()
    assert [out.get(timeout=PATIENCE) for _ in others] == [("records", list(range(50)))] * 3
    for process in (victim, *others):
        process.join(PATIENCE)
    assert [other.exitcode for other in others] == [0, 0, 0]
    assert victim.exitcode == -signal.SIGKILL
    assert len(builds(log)) == 2
    assert builds(log)[0] == victim.pid
    assert names(storage_dir / "a" / "1") == {"cache.mdb"}


CHILD_OUTLIVES = """
import os, subprocess, sys
from yogadl.storage import LFSConfigurations, LFSStorage
how, read_end = sys.argv[2], int(sys.argv[3])

def make():
    # A helper that goes on until its input ends, which is when the test is over.
    if how == "fork":
        if os.fork() == 0:
            os.read(read_end, 1)
            os._exit(0)
    else:
        subprocess.Popen(["cat"], stdin=read_end, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, close_fds=how == "closing")
    if sys.argv[4] == "die":
        os.kill(os.getpid(), 9)
    return [1, 2, 3]

LFSStorage(LFSConfigurations(sys.argv[1])).cacheable("a", "1")(make)()
"""


@pytest.mark.parametrize("end", ["return", "die"])
@pytest.mark.parametrize("how", ["fork", "closing", "inheriting"])
def test_a_child_that_outlives_its_builder_keeps_no_lock(
    how: str, end: str, storage: LFSStorage, storage_dir: pathlib.Path
) -> None:
    read_end, write_end = os.pipe()
    try:
        arguments = [sys.executable, "-c", CHILD_OUTLIVES, str(storage_dir), how, str(read_end)]
        done = subprocess.run(
            [*arguments, end], pass_fds=[read_end], timeout=PATIENCE, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == (0 if end == "return" else -signal.SIGKILL)
        if end == "return":
            (storage_dir / "a" / "1" / "cache.mdb").unlink()
        # In a thread, so that a lock that is kept fails this test and does not hang it.
        with _result_of(lambda: records(storage.cacheable("a", "1")(lambda: [4, 5])())) as result:
            assert result == [4, 5]
    finally:
        os.close(read_end)
        os.close(write_end)


@contextlib.contextmanager
def _result_of(function: Callable[[], Any]) -> Iterator[Any]:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(5)
    yield results[0] if results else "it still waits"


# What is there already


@contextlib.contextmanager
def _read_only(directory: pathlib.Path) -> Iterator[None]:
    """Makes a directory read-only, for root too, who does not heed permissions."""
    if os.geteuid():
        folders = [directory, *(path for path in directory.rglob("*") if path.is_dir())]
        for folder in folders:
            folder.chmod(0o555)
        try:
            yield
        finally:
            for folder in folders:
                folder.chmod(0o755)
        return
    mount = shutil.which("mount")
    run = functools.partial(subprocess.run, check=True, capture_output=True)
    try:
        run([str(mount), "--bind", str(directory), str(directory)])
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"root heeds no permissions, and there is no bind mount: {error}")
    try:
        try:
            run([str(mount), "-o", "remount,bind,ro", str(directory)])
        except subprocess.CalledProcessError as error:
            pytest.skip(f"a bind mount cannot be made read-only here: {error.stderr!r}")
        yield
    finally:
        run(["umount", "--lazy", str(directory)])


def test_on_a_read_only_file_system_what_is_there_is_used(
    storage: LFSStorage, storage_dir: pathlib.Path
) -> None:
    storage.submit([1, 2], "a", "1")
    never: Callable[[], DataRef] = storage.cacheable("a", "1")(lambda: pytest.fail("was built"))
    with _read_only(storage_dir):
        with pytest.raises(OSError, match=r"[Rr]ead-only|denied"):
            (storage_dir / "x").touch()
        assert records(never()) == [1, 2]
        missing = storage.cacheable("a", "2")(lambda: [1])
        with pytest.raises(OSError, match=r"[Rr]ead-only|denied"):
            missing()


def _break(path: pathlib.Path, how: str) -> None:
    whole = path.read_bytes()
    if how == "killed by 0.1.4":
        shutil.copy(KILLED_014, path)
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "foreign":
        path.write_bytes(b"Not a cache. " * 1000)
    else:
        path.write_bytes(whole[: int(len(whole) * float(how))])


@pytest.mark.parametrize("how", ["killed by 0.1.4", "empty", "foreign", "0.01", "0.5", "0.999"])
def test_a_broken_file_is_built_again_with_a_warning(
    how: str, storage: LFSStorage, storage_dir: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage.submit(np.arange(5000), "a", "1")
    _break(storage_dir / "a" / "1" / "cache.mdb", how)
    make = storage.cacheable("a", "1")(lambda: [8, 9])
    with caplog.at_level(logging.WARNING, logger="yogadl"):
        assert records(make()) == [8, 9]
    assert any("a:1" in r.getMessage() and r.levelname == "WARNING" for r in caplog.records)
    caplog.clear()
    assert (records(make()), caplog.records) == ([8, 9], [])
    storage.fetch("a", "1").verify()


def test_a_file_of_a_newer_format_is_left_alone(
    storage: LFSStorage, storage_dir: pathlib.Path
) -> None:
    storage.submit([1, 2], "a", "1")
    path = storage_dir / "a" / "1" / "cache.mdb"
    before = bytearray(path.read_bytes())
    at = headers.HEADER_OFFSET + PAGE_HEADER + len(headers.MAGIC)
    assert before[at : at + 4] == struct.pack("<I", headers.FORMAT_VERSION)
    before[at : at + 4] = struct.pack("<I", headers.FORMAT_VERSION + 1)
    path.write_bytes(before)
    never: Callable[[], DataRef] = storage.cacheable("a", "1")(lambda: pytest.fail("was built"))
    for _ in range(2):
        with pytest.raises(UnsupportedFormatError, match=r"format 2.*[Uu]pgrade"):
            never()
    assert path.read_bytes() == before
    assert names(path.parent) == {"cache.mdb"}
