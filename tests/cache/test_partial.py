"""Files that appear whole or not at all, whatever happens to their writer."""

from __future__ import annotations

import collections
import contextlib
import errno
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from yogadl.cache import partial
from yogadl.cache.files import make_folders
from yogadl.cache.opening import open_cache
from yogadl.cache.partial import PartialFile, check_room, claimed, remove_leftovers
from yogadl.cache.writer import CacheWriter
from yogadl.errors import FileSystemError, InvalidArgumentError, StorageFullError
from yogadl.spec import TensorSpec

Usage = collections.namedtuple("Usage", "total used free")


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Of a file that is there already."""
    path = tmp_path / "cache.mdb"
    path.write_bytes(b"old")
    return path


def names(path: pathlib.Path) -> list[str]:
    return sorted(entry.name for entry in path.parent.iterdir())


def test_commit_replaces(path: pathlib.Path) -> None:
    with PartialFile(path) as file:
        file.append(b"head")
        file.append(np.arange(3, dtype="u1"))
        file.append(b"")
        file.overwrite(b"HE", 0)
        assert file.size == 7
        assert path.read_bytes() == b"old"
        assert len(names(path)) == 2
        file.commit()
        assert path.read_bytes() == b"HEad\0\1\2"
        assert names(path) == ["cache.mdb"]
    assert names(path) == ["cache.mdb"]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_cannot_be_removed_hides_no_error(
    path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = descriptors()
    file = PartialFile(path)
    shutil.rmtree(path.parent)
    path.parent.write_text("a file where the folder was")
    with pytest.raises(KeyError, match="a user's own"), file:
        raise KeyError("a user's own")
    assert descriptors() == before
    assert f"Cannot remove {file.path}" in caplog.text


def test_a_file_system_without_locks(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(partial.fcntl, "flock", refuse)
    before = descriptors()
    with pytest.raises(FileSystemError, match="No locks available"):
        PartialFile(path)
    assert descriptors() == before
    assert names(path) == ["cache.mdb"]


def test_a_leftover_that_became_another_file_stays(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While somebody waited to lock it, another removed it, and its writer made it once more."""
    leftover = path.with_name("cache.mdb.1.partial")
    leftover.write_bytes(b"left")
    lock = partial.fcntl.flock

    def lock_late(descriptor: int, operation: int) -> None:
        leftover.unlink()
        leftover.write_bytes(b"new")
        lock(descriptor, operation)

    monkeypatch.setattr(partial.fcntl, "flock", lock_late)
    assert remove_leftovers(path) == 0
    assert leftover.read_bytes() == b"new"


def test_who_has_the_old_file_open_keeps_it(path: pathlib.Path) -> None:
    with path.open("rb") as reader, PartialFile(path) as file:
        file.append(b"new")
        file.commit()
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"


def test_leaving_without_commit_leaves_the_old_file(path: pathlib.Path) -> None:
    with PartialFile(path) as file:
        file.append(b"new")
    assert (path.read_bytes(), names(path)) == (b"old", ["cache.mdb"])


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, MemoryError])
def test_an_error_leaves_the_old_file(path: pathlib.Path, error: type[BaseException]) -> None:
    def write() -> None:
        with PartialFile(path) as file:
            file.append(b"new")
            raise error

    with pytest.raises(error):
        write()
    assert (path.read_bytes(), names(path)) == (b"old", ["cache.mdb"])


def test_the_last_to_commit_wins(path: pathlib.Path) -> None:
    with PartialFile(path) as one, PartialFile(path) as two:
        one.append(b"one")
        two.append(b"two")
        two.commit()
        assert path.read_bytes() == b"two"
        one.commit()
    assert (path.read_bytes(), names(path)) == (b"one", ["cache.mdb"])


def test_no_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"none does not exist; create it"):
        PartialFile(tmp_path / "none" / "cache.mdb")
    assert list(tmp_path.iterdir()) == []


def test_no_descriptor_is_left_open(path: pathlib.Path) -> None:
    with PartialFile(path) as file, PartialFile(path) as other:
        descriptors = [file.fileno(), other.fileno()]
        file.append(b"x")
        file.commit()
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="only Linux writes when it is told to")
def test_writing_to_the_disk_begins_at_once(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    plain = os.posix_fadvise

    def fadvise(descriptor: int, offset: int, length: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        told.append((offset, length))
        plain(descriptor, offset, length, advice)

    monkeypatch.setattr(partial.os, "posix_fadvise", fadvise)
    content = np.random.RandomState(1).bytes(30_000_001)
    with PartialFile(path) as file:
        for at in range(0, len(content), 700_000):
            file.append(content[at : at + 700_000])
            # Never more than a few megabytes are kept back.
            assert file.size - sum(length for _, length in told) < 5 << 20
        file.overwrite(content[:100], 0)
        file.commit()
    assert path.read_bytes() == content
    at = 0
    for offset, length in told:
        assert offset == at
        at += length


# Leftovers

WRITER = """
import pathlib, sys, time
from yogadl.cache.partial import PartialFile
with PartialFile(pathlib.Path(sys.argv[1])) as file:
    file.append(b"half")
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def writer_process(path: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that is writing ``path`` until its input is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def test_leftovers_of_the_killed_are_removed_and_no_others(path: pathlib.Path) -> None:
    with writer_process(path) as killed, writer_process(path) as alive:
        with PartialFile(path) as mine:
            assert len(names(path)) == 4
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            assert remove_leftovers(path) == 1
            assert len(names(path)) == 3
            assert remove_leftovers(path) == 0
            mine.append(b"mine")
            mine.commit()
        alive.communicate()
        assert alive.returncode == 0
    assert (path.read_bytes(), names(path)) == (b"mine", ["cache.mdb"])


def test_leftovers_of_other_files_are_left(path: pathlib.Path) -> None:
    for name in ("other.mdb.1.partial", "cache.mdb.partially", "cache.mdb.partial", "x.partial"):
        path.with_name(name).touch()
    before = names(path)
    assert remove_leftovers(path) == 0
    assert names(path) == before
    path.with_name("cache.mdb.0123.partial").touch()
    assert remove_leftovers(path) == 1
    assert names(path) == before


def test_no_leftovers_where_nothing_is(tmp_path: pathlib.Path) -> None:
    assert remove_leftovers(tmp_path / "cache.mdb") == 0
    assert remove_leftovers(tmp_path / "none" / "cache.mdb") == 0


def test_writers_and_removers_do_not_disturb_each_other(path: pathlib.Path) -> None:
    stop = threading.Event()

    def remove() -> None:
        while not stop.is_set():
            remove_leftovers(path)

    removers = [threading.Thread(target=remove) for _ in range(2)]
    for thread in removers:
        thread.start()
    try:
        for number in range(200):
            with PartialFile(path) as file:
                file.append(b"%d" % number)
                file.commit()
            assert path.read_bytes() == b"%d" % number
    finally:
        stop.set()
        for thread in removers:
            thread.join()
    assert names(path) == ["cache.mdb"]


# Full disks


def pretend(monkeypatch: pytest.MonkeyPatch, total: int, free: int) -> None:
    monkeypatch.setattr(partial.shutil, "disk_usage", lambda path: Usage(total, total - free, free))


def test_too_little_room(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 1000 << 30, 1 << 30)
    check_room(path, 0)
    with pytest.raises(StorageFullError, match=r"1,073,741,824 bytes free.* 1 more"):
        check_room(path, 1)
    # Of a small disk, less is left to others.
    pretend(monkeypatch, 50 << 20, 3 << 20)
    check_room(path, 2 << 20)
    with pytest.raises(StorageFullError) as caught:
        check_room(path, (2 << 20) + 1)
    assert caught.value.errno == errno.ENOSPC
    assert str(path.parent) in str(caught.value)


def test_room_is_looked_at_while_writing(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 1 << 40

    def usage(folder: Any) -> Usage:
        return Usage(2 << 40, 1 << 40, free)

    monkeypatch.setattr(partial.shutil, "disk_usage", usage)
    block = np.zeros(16 << 20, "u1")

    def write() -> None:
        nonlocal free
        with PartialFile(path) as file:
            file.append(block)
            # Others fill the disk up.
            free = 0
            while file.size < 1 << 30:
                file.append(block)

    with pytest.raises(StorageFullError):
        write()
    assert (path.read_bytes(), names(path)) == (b"old", ["cache.mdb"])


def test_a_data_set_that_will_not_fit_is_refused_at_once(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, 100 << 30, 10 << 30)
    with pytest.raises(StorageFullError):
        CacheWriter(path, TensorSpec("float32", (1 << 20,)), total=10_000)
    assert names(path) == ["cache.mdb"]


def test_a_writer_that_cannot_begin_leaves_nothing(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, 100 << 30, 0)
    with pytest.raises(StorageFullError):
        CacheWriter(path, TensorSpec("int64"))
    assert names(path) == ["cache.mdb"]


@pytest.mark.parametrize("call", ["pwrite", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_storage_full_whoever_tells(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(number, os.strerror(number))

    def write() -> None:
        with PartialFile(path) as file:
            monkeypatch.setattr(partial.os, call, fail)
            file.append(b"new")
            file.commit()

    with pytest.raises(StorageFullError):
        write()
    monkeypatch.undo()
    assert (path.read_bytes(), names(path)) == (b"old", ["cache.mdb"])


def test_other_errors_of_the_disk_are_what_they_are(
    path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.EIO, "broken")

    def write() -> None:
        with PartialFile(path) as file:
            monkeypatch.setattr(partial.os, "pwrite", fail)
            file.append(b"new")

    with pytest.raises(OSError, match="broken") as caught:
        write()
    assert not isinstance(caught.value, StorageFullError)
    monkeypatch.undo()
    assert (path.read_bytes(), names(path)) == (b"old", ["cache.mdb"])


def test_a_folder_that_several_are_about_to_write_to(tmp_path: pathlib.Path) -> None:
    """Who gives up does not remove it under the others, and the last one does."""
    path = tmp_path / "id" / "version" / "cache.mdb"
    failures: list[BaseException] = []

    def claim() -> pathlib.Path:
        make_folders(path.parent)
        return path

    def work() -> None:
        try:
            for _ in range(300):
                with claimed(claim) as found:
                    remove_leftovers(found)
                    PartialFile(found).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert os.listdir(tmp_path / "id") == []
    with claimed(claim) as found:
        found.write_bytes(b"data")
    assert names(path) == ["cache.mdb"]


def test_who_was_killed_with_a_folder_leaves_nothing_for_long(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache.mdb"
    code = (
        "import os, pathlib, signal, sys\n"
        "from yogadl.cache.partial import claimed\n"
        "with claimed(lambda: pathlib.Path(sys.argv[1])):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert remove_leftovers(path) == 1
    assert names(path) == []


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """The folder of a file system of 1 MiB."""
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root can mount a file system that is soon full")
    folder = tmp_path / "small"
    folder.mkdir()
    command = [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mount failed: {done.stderr}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("spec", [TensorSpec("uint8", (30_000,)), TensorSpec("uint8", (None,))])
def test_a_disk_that_is_full(small_disk: pathlib.Path, spec: TensorSpec) -> None:
    path = small_disk / "cache.mdb"
    record = np.arange(30_000).astype("u1")
    with CacheWriter(path, spec) as writer:
        for _ in range(3):
            writer.append(record)
        writer.commit()

    def write() -> None:
        with CacheWriter(path, spec) as writer:
            for _ in range(60):
                writer.append(record)
            writer.commit()

    with pytest.raises(StorageFullError):
        write()
    assert names(path) == ["cache.mdb"]
    with open_cache(path) as reader:
        assert len(reader) == 3
        reader.verify()


def test_a_full_disk_leaves_room_again(small_disk: pathlib.Path) -> None:
    path = small_disk / "file"

    def fill() -> None:
        with PartialFile(path) as file:
            while True:
                file.append(bytes(10_000))

    for _ in range(3):
        with pytest.raises(StorageFullError, match=r"no space left|bytes free"):
            fill()
    assert list(small_disk.iterdir()) == []
    with PartialFile(path) as file:
        file.append(bytes(800_000))
        file.commit()
    assert path.stat().st_size == 800_000
