"""``LFSStorage`` on file systems that are full of surprises: odd names, odd things under good
names, disks that fail, folders that may not be read."""

from __future__ import annotations

import errno
import logging
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from yogadl.cache import files as cache_files
from yogadl.dataref import LMDBDataRef
from yogadl.errors import (
    CacheNotFoundError,
    FileAccessError,
    FileSystemError,
    ForeignFileError,
    InvalidArgumentError,
    StorageFullError,
    YogadlError,
)
from yogadl.storage import LFSConfigurations, LFSStorage

pytestmark = pytest.mark.once

is_root = os.geteuid() == 0


@pytest.fixture
def storage(storage_dir: pathlib.Path) -> LFSStorage:
    return LFSStorage(LFSConfigurations(storage_dir))


def numbers(storage: LFSStorage, name: str = "a", version: str = "1") -> list[Any]:
    with storage.fetch(name, version) as ref:
        return list(ref.stream())


def versions(storage: LFSStorage) -> list[tuple[str, str]]:
    return [(found.dataset_id, found.dataset_version) for found in storage.list()]


# Names


@pytest.mark.parametrize("name", ["a/1/cache.mdb.x.partial", "cache.mdb.x.partial", "a.partial"])
def test_ids_that_look_like_partial_files(storage: LFSStorage, name: str) -> None:
    for version in ("1", "cache.mdb.x.partial"):
        storage.submit([1, 2], name, version)
    storage.submit([3], "a", "1")
    storage.submit([4], "a", "1")
    assert numbers(storage) == [4]
    assert numbers(storage, name) == numbers(storage, name, "cache.mdb.x.partial") == [1, 2]
    assert versions(storage) == sorted([("a", "1"), (name, "1"), (name, "cache.mdb.x.partial")])


@pytest.mark.parametrize("make", [pathlib.Path.mkdir, os.mkfifo])
def test_what_is_named_as_a_partial_file_and_is_none(
    storage: LFSStorage, storage_dir: pathlib.Path, make: Callable[[pathlib.Path], None]
) -> None:
    storage.submit([1], "a", "1")
    odd = storage_dir / "a" / "1" / "cache.mdb.x.partial"
    make(odd)
    odd.with_name("cache.mdb.y.partial").symlink_to("nowhere")
    storage.submit([2], "a", "1")
    assert numbers(storage) == [2]
    assert odd.exists()


def test_a_path_that_is_no_utf_8(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = pathlib.Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe"))
    directory.mkdir()
    storage = LFSStorage(LFSConfigurations(directory))
    with caplog.at_level(logging.DEBUG, "yogadl"):
        storage.submit([1], "a", "1")
        assert storage.cacheable("b", "1")(lambda: [2])().read([0]).tolist() == [2]
    assert versions(storage) == [("a", "1"), ("b", "1")]
    with storage.fetch("a", "1", check_records=True) as ref:
        ref.verify()
        assert pickle.loads(pickle.dumps(ref))[0] == 1
        texts = [repr(ref)]
    path = directory / "a" / "1" / "cache.mdb"
    path.write_bytes(path.read_bytes()[:9000])
    for use in (
        lambda: storage.fetch("a", "1"),
        lambda: storage.fetch("none", "1"),
        lambda: storage.delete("none", "1"),
        lambda: LMDBDataRef(directory / "none"),
        lambda: LFSStorage(LFSConfigurations(directory / "none" / "none")),
        lambda: ref[0],
    ):
        with pytest.raises(YogadlError) as raised:
            use()
        texts.append(str(raised.value))
    # All of it can be written to a log.
    assert r"\xff\xfe" in "".join(text.encode().decode() for text in texts)
    assert "Stored a:1" in caplog.text.encode().decode()


def test_folders_that_no_id_can_name_are_not_listed(
    storage: LFSStorage, storage_dir: pathlib.Path
) -> None:
    storage.submit([1], "a", "1")
    for name in (b"\xff", b"back\\slash", b"yogadl.lock"):
        odd = pathlib.Path(os.fsdecode(os.fsencode(storage_dir) + b"/" + name))
        shutil.copytree(storage_dir / "a", odd)
    shutil.copy(storage_dir / "a" / "1" / "cache.mdb", storage_dir / "cache.mdb")
    assert versions(storage) == [("a", "1")]


@pytest.mark.parametrize("parts", [30, 2000])
def test_paths_that_are_too_long(storage: LFSStorage, parts: int) -> None:
    name = "/".join(["x" * 250] * parts)
    for use in _uses(storage, name):
        with pytest.raises((InvalidArgumentError, CacheNotFoundError), match=r"long|no data set"):
            use()
    with pytest.raises(InvalidArgumentError):
        storage.submit([1], name, "1")
    assert storage.list() == []


def _uses(storage: LFSStorage, name: str) -> list[Callable[[], Any]]:
    return [
        lambda: storage.submit([1], name, "1"),
        lambda: storage.fetch(name, "1"),
        lambda: storage.delete(name, "1"),
        lambda: storage.cacheable(name, "1")(lambda: [1])(),  # noqa: PLW0108
        lambda: storage.copy(name, "1", storage, new_id="b"),
    ]


# Other things in the way


@pytest.mark.parametrize("make", [pathlib.Path.touch, lambda path: path.symlink_to("nowhere")])
@pytest.mark.parametrize("where", ["a", "a/1"])
def test_a_file_where_a_folder_has_to_be(
    storage: LFSStorage, storage_dir: pathlib.Path, where: str, make: Callable[[Any], None]
) -> None:
    (storage_dir / where).parent.mkdir(exist_ok=True)
    make(storage_dir / where)
    submit, fetch, delete, build, copy = _uses(storage, "a")
    for use in (submit, build):
        with pytest.raises(FileSystemError, match=f"{where} is where a folder has to be"):
            use()
    for use in (fetch, delete, copy):
        with pytest.raises(CacheNotFoundError):
            use()
    assert storage.list() == storage.list("a") == []


def test_a_folder_where_the_cache_has_to_be(storage: LFSStorage, storage_dir: pathlib.Path) -> None:
    (storage_dir / "a" / "1" / "cache.mdb").mkdir(parents=True)
    submit, fetch, delete, build, copy = _uses(storage, "a")
    for use in (submit, build, delete):
        with pytest.raises(FileSystemError, match=r"cache\.mdb"):
            use()
    for use in (fetch, copy):
        with pytest.raises(ForeignFileError):
            use()
    assert storage.list() == []
    assert [path.name for path in storage_dir.rglob("*.partial")] == []


def test_links(storage: LFSStorage, storage_dir: pathlib.Path) -> None:
    storage.submit([1], "a", "1")
    for name, target in (("broken", "nowhere"), ("circle", "cache.mdb")):
        folder = storage_dir / name / "1"
        folder.mkdir(parents=True)
        (folder / "cache.mdb").symlink_to(target)
    (storage_dir / "a" / "2").symlink_to(storage_dir)
    assert versions(storage) == [("a", "1")]
    with pytest.raises(CacheNotFoundError):
        storage.fetch("broken", "1")
    with pytest.raises(FileSystemError, match="symbolic links"):
        storage.fetch("circle", "1")
    for name in ("broken", "circle"):
        storage.submit([2], name, "1")
        assert numbers(storage, name) == [2]


# Folders that may not be read or written

READ_ONLY = """
# What is imported later may lie where only root may read.
import importlib.metadata, os, pathlib, sys
from yogadl.errors import CacheNotFoundError, FileAccessError, YogadlError
from yogadl.storage import LFSConfigurations, LFSStorage

if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
storage = LFSStorage(LFSConfigurations(sys.argv[1]))
assert [found.dataset_id for found in storage.list()] == ["a"]
assert storage.fetch("a", "1")[0] == 1
assert storage.cacheable("a", "1")(lambda: [2])()[0] == 1
for use in (
    lambda: storage.submit([1], "a", "1"),
    lambda: storage.submit([1], "new", "1"),
    lambda: storage.delete("a", "1"),
    lambda: storage.cacheable("new", "1")(lambda: [2])(),
    lambda: storage.fetch("hidden", "1"),
    lambda: storage.delete("hidden", "1"),
    lambda: LFSStorage(LFSConfigurations(sys.argv[1] + "/hidden/1")),
):
    try:
        use()
    except FileAccessError as error:
        assert isinstance(error, PermissionError) and error.errno, error
        print(error)
    else:
        raise AssertionError("it was allowed")
"""


@pytest.fixture
def open_dir() -> Iterator[pathlib.Path]:
    """A folder that every user can get to, as those of tests are not."""
    with tempfile.TemporaryDirectory(prefix="yogadl-test-") as name:
        pathlib.Path(name).chmod(0o755)
        yield pathlib.Path(name)


def test_another_users_folders(open_dir: pathlib.Path) -> None:
    storage = LFSStorage(LFSConfigurations(open_dir))
    storage.submit([1], "a", "1")
    storage.submit([1], "hidden", "1")
    for folder in (open_dir / "a" / "1", open_dir / "a", open_dir):
        folder.chmod(0o555)
    (open_dir / "hidden").chmod(0)
    try:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", READ_ONLY, open_dir],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    finally:
        for folder in (open_dir, open_dir / "hidden", open_dir / "a", open_dir / "a" / "1"):
            folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("cannot") == 7


@pytest.mark.skipif(not is_root or sys.platform != "linux", reason="needs to mount a file system")
def test_a_read_only_file_system(tmp_path: pathlib.Path) -> None:
    directory = tmp_path / "mounted"
    directory.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "none", directory], check=False)
    if mounted.returncode:
        pytest.skip("this user may not mount")
    try:
        storage = LFSStorage(LFSConfigurations(directory))
        storage.submit([1], "a", "1")
        subprocess.run(["mount", "-o", "remount,ro", directory], check=True)
        assert numbers(storage) == [1]
        assert storage.cacheable("a", "1")(lambda: [2])()[0] == 1
        submit, _, delete, _, copy = _uses(storage, "a")
        build = _uses(storage, "new")[3]
        for use in (submit, delete, build, copy):
            with pytest.raises(FileAccessError, match=r"[Rr]ead-only") as raised:
                use()
            assert raised.value.errno == errno.EROFS
    finally:
        subprocess.run(["umount", directory], check=True)


# What is durable


def test_every_new_folder_is_synced_in_the_one_above(
    storage: LFSStorage, storage_dir: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        sync(descriptor)
        done.append(os.path.realpath(f"/proc/self/fd/{descriptor}"))

    def renamed(source: Any, target: Any) -> None:
        replace(source, target)
        done.append("published")

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", renamed)
    storage.submit([1], "a/b", "1")
    real = storage_dir.resolve()
    before = done[: done.index("published")]
    assert before[:3] == [str(real), str(real / "a"), str(real / "a" / "b")]
    assert ".partial" in before[-1]
    after = done[len(before) :]
    assert after[:2] == ["published", str(real / "a" / "b" / "1")]
    # And those of the catalogue.
    catalogue = str(real / "yogadl.catalogue")
    assert (after[2], after[-2:]) == (str(real), ["published", catalogue])
    del done[:]
    storage.submit([1], "a/b", "1")
    assert len(done) == 6


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_fails_after_publication(
    storage: LFSStorage,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage.submit([1], "a", "1")
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(code, os.strerror(code))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    storage.submit([2], "a", "1")
    assert numbers(storage) == [2]
    assert "is stored, but might be lost" in caplog.text
    # Before that, it is an error, and nothing is stored.
    with pytest.raises(StorageFullError if code == errno.ENOSPC else FileSystemError) as raised:
        storage.submit([3], "b", "1")
    assert raised.value.errno == code
    with pytest.raises(CacheNotFoundError):
        storage.fetch("b", "1")


def test_errors_survive_pickling() -> None:
    for error in (
        FileSystemError("cannot", errno.EIO),
        FileAccessError("cannot", errno.EROFS),
        StorageFullError("cannot"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert (str(again), again.errno) == ("cannot", error.errno)


def test_what_users_raise_passes(storage: LFSStorage) -> None:
    def records() -> Iterator[int]:
        yield 1
        raise OSError(errno.ENOSPC, "mine")

    with pytest.raises(OSError, match="mine") as raised:
        storage.submit(records(), "a", "1")
    assert type(raised.value) is OSError
    assert cache_files.shown("a") == "a"


# Races


def test_lists_while_others_submit_and_delete(storage: LFSStorage) -> None:
    stop = threading.Event()
    errors: list[Exception] = []

    def churn(name: str) -> None:
        try:
            while not stop.is_set():
                storage.submit([1], name, "1")
                storage.delete(name, "1")
                shutil.rmtree(storage._version(name, "1").path.parent.parent)
        except Exception as error:
            errors.append(error)

    storage.submit([1], "kept", "1")
    threads = [threading.Thread(target=churn, args=(f"x/{n}",)) for n in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        assert ("kept", "1") in versions(storage)
        storage.list("x/0")
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
