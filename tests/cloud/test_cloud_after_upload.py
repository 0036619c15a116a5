"""What fails once a version is published, and those who may only read."""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from copies import KEY, folder, folders, load_note, records
from faults import FORBIDDEN

from yogadl.cache.writer import CacheWriter
from yogadl.errors import AccessDeniedError, StorageFullError, TooManyFilesError
from yogadl.spec import TensorSpec

# It is about the copies here, and all buckets are alike to them.
pytestmark = pytest.mark.long_for("s3")

WRITES = ("write", "begin", "part", "finish", "delete")


@contextlib.contextmanager
def nothing_can_be_written() -> Iterator[None]:
    """No file of this process grows, not even by a byte."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def after_upload(storage: Any, then: Callable[[], Any]) -> None:
    """Has something happen just after the next upload of a cache."""
    upload = storage._store.upload

    def uploading(path: pathlib.Path, key: str, *args: Any, **options: Any) -> Any:
        tag = upload(path, key, *args, **options)
        if key.endswith("/cache.mdb"):
            storage._store.upload = upload
            then()
        return tag

    storage._store.upload = uploading


def submit(storage: Any) -> None:
    storage.submit(range(5), "a", "1")


def made() -> Any:
    return range(5)


def cacheable(storage: Any) -> None:
    assert records(storage.cacheable("a", "1")(made)()) == list(range(5))


def copy(storage: Any) -> None:
    storage.submit(range(5), "b", "1")
    storage.copy("b", "1", storage, new_id="a")


@pytest.mark.parametrize("way", [submit, cacheable])
def test_the_note_cannot_be_written(
    way: Callable[[Any], None], rig: Any, local: pathlib.Path
) -> None:
    storage = rig.make_storage(local)
    storage._version("a", "1").claim()
    with contextlib.ExitStack() as stack:
        after_upload(storage, lambda: stack.enter_context(nothing_can_be_written()))
        way(storage)
        for _ in range(2):
            with rig.counting() as requests:
                assert records(storage.fetch("a", "1")) == list(range(5))
                assert records(storage.cacheable("a", "1")(made)()) == list(range(5))
            assert not {"read", *WRITES} & {request.operation for request in requests}
    assert "tag" not in load_note(folder(local))
    storage.fetch("a", "1").close()
    assert load_note(folder(local))["tag"] == rig.raw.tag(KEY)
    assert not list(local.rglob("local_metadata.json.*"))


@pytest.fixture
def small_disk(local: pathlib.Path) -> Iterator[pathlib.Path]:
    """A local cache directory that has 4 MiB."""
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root can mount a file system that is soon full")
    command = [mount, "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(local)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mount failed: {done.stderr}")
    try:
        yield local
    finally:
        subprocess.run(["umount", "--lazy", str(local)], check=True)


def fill(directory: pathlib.Path) -> None:
    with open(directory / "ballast", "wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 16, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


@pytest.mark.parametrize("way", [submit, cacheable, copy])
@pytest.mark.long_for("cacheable", "copy")
def test_a_disk_that_is_full_after_the_upload(
    way: Callable[[Any], None], rig: Any, small_disk: pathlib.Path
) -> None:
    storage = rig.make_storage(small_disk)
    upload = storage._store.upload
    if way is copy:
        after_upload(storage, lambda: after_upload(storage, lambda: fill(small_disk)))
    else:
        after_upload(storage, lambda: fill(small_disk))
    way(storage)
    assert storage._store.upload == upload
    for _ in range(2):
        with rig.counting() as requests:
            assert records(storage.fetch("a", "1")) == list(range(5))
        assert "read" not in [request.operation for request in requests]
    # What is not there yet says that there is no room.
    rig.make_storage(small_disk.parent).submit(np.arange(10_000), "big", "1")
    with pytest.raises(StorageFullError):
        storage.fetch("big", "1", download=True)
    # Left to itself, it passes through memory.
    with storage.fetch("big", "1") as ref:
        assert records(ref) == list(range(10_000))
    (small_disk / "ballast").unlink()
    assert len(storage.fetch("big", "1")) == 10_000


@pytest.mark.parametrize("times", [1, 3])
def test_deleted_just_after_it_was_published(times: int, rig: Any, local: pathlib.Path) -> None:
    """It was built, and is what was asked for."""
    storage = rig.make_storage(local)
    built = []

    def make() -> list[int]:
        built.append(1)
        return [1, 2, 3]

    for _ in range(times):
        after_upload(storage, lambda: rig.raw.delete(KEY))
        assert records(storage.cacheable("a", "1")(make)()) == [1, 2, 3]
    assert len(built) == times
    assert KEY not in rig.raw.list()


def test_deleted_before_who_waited_for_it_could_fetch_it(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    """Then it is built again."""
    storage = rig.make_storage(local)
    built = []

    def make() -> list[int]:
        built.append(1)
        return [1, 2, 3]

    def lose() -> None:
        # Somebody else publishes, so that this one's upload is refused; and deletes it.
        storage._store.upload = publish_first

    upload = storage._store.upload

    def publish_first(path: pathlib.Path, key: str, *args: Any, **options: Any) -> Any:
        if key != KEY:
            return upload(path, key, *args, **options)
        storage._store.upload = upload
        rig.make_storage(elsewhere).submit([4], "a", "1")
        try:
            return upload(path, key, *args, **options)
        finally:
            fetch, storage._fetch = storage._fetch, gone

            def restore() -> None:
                storage._fetch = fetch

            restores.append(restore)

    restores: list[Callable[[], None]] = []

    def gone(*args: Any, **options: Any) -> Any:
        restores.pop()()
        rig.raw.delete(KEY)
        return storage._fetch(*args, **options)

    lose()
    assert records(storage.cacheable("a", "1")(make)()) == [1, 2, 3]
    assert len(built) == 2


def test_a_read_only_user(rig: Any, local: pathlib.Path, elsewhere: pathlib.Path) -> None:
    rig.make_storage(elsewhere).submit([1, 2], "a", "1")
    with rig.failing(FORBIDDEN, *WRITES):
        storage = rig.make_storage(local)
        with rig.counting() as requests:
            ref = storage.cacheable("a", "1")(lambda: pytest.fail("it was built"))()
            assert records(ref) == [1, 2]
        assert not [request for request in requests if request.operation in WRITES]
        with pytest.raises(AccessDeniedError, match=r"'b' of version '1'.*may not build.*writing"):
            storage.cacheable("b", "1")(lambda: pytest.fail("it was built"))()
        with pytest.raises(AccessDeniedError) as caught:
            storage.cacheable("b", "1")(lambda: pytest.fail("it was built"))()
        assert "deleting" not in str(caught.value)
        with pytest.raises(AccessDeniedError, match="uploading"):
            storage.submit([1], "b", "1")
    assert len(folders(local)) == 1


def test_no_descriptor_to_spare(tmp_path: pathlib.Path) -> None:
    """LMDB's check of a file that was written needs one."""
    path = tmp_path / "cache.mdb"
    free = os.dup(0)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with CacheWriter(path, TensorSpec("int64")) as writer:
        writer.append(1)
        # The lowest number that is free is now what the writer has left.
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            with pytest.raises(TooManyFilesError, match="ulimit"):
                writer.finish()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
