"""What a change needs beside its version for a while, on disks that are full or fail."""

from __future__ import annotations

import datetime
import errno
import os
import pathlib
import tempfile
from typing import Any

import numpy as np
import pytest

from yogadl.errors import FileAccessError, StorageFullError
from yogadl.storage import LFSStorage
from yogadl.storage._disk import scratch

AT_ONCE = datetime.timedelta()


@pytest.fixture
def storage(storage_dir: pathlib.Path) -> LFSStorage:
    found = LFSStorage(storage_dir)
    found.submit(np.arange(6), "a", "1")
    found.tag("a", "main", "1")
    return found


def left_in(folder: pathlib.Path) -> list[pathlib.Path]:
    return list(folder.rglob("yogadl.scratch.*"))


def numbers(storage: LFSStorage) -> list[int]:
    with storage.fetch("a", "main") as ref:
        return [int(record) for record in ref.stream()]


def test_what_cannot_be_removed_is_no_error_of_what_was_committed(
    storage: LFSStorage, storage_dir: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    unlink = os.unlink

    def fail(path: Any, **options: Any) -> None:
        if str(path).endswith("yogadl.lock"):
            raise OSError(errno.EIO, "Input/output error", str(path))
        unlink(path, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "unlink", fail)
        with storage.change("a", "main") as change:
            change.append([6])
    assert numbers(storage) == [*range(7)]
    (folder,) = left_in(storage_dir)
    assert f"Cannot remove {folder}; storage.gc() does" in caplog.text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scratch, "_YOUNG_SECONDS", -1.0)
        assert storage.gc(older_than=AT_ONCE).scratch == (folder,)
    assert left_in(storage_dir) == []


@pytest.mark.parametrize(
    ("code", "expected"), [(errno.ENOSPC, StorageFullError), (errno.EACCES, FileAccessError)]
)
def test_what_cannot_be_made_is_told(
    storage: LFSStorage, monkeypatch: pytest.MonkeyPatch, code: int, expected: type[Exception]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(code, "no")

    monkeypatch.setattr(tempfile, "mkdtemp", fail)
    with pytest.raises(expected, match="make a folder in"):
        storage.change("a", "main").__enter__()


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("last", [".mdb", "yogadl.lock"])
@pytest.mark.parametrize("who", ["change", "gc"])
def test_who_is_killed_removing_it_leaves_what_is_found(
    storage: LFSStorage,
    storage_dir: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    last: str,
    who: str,
) -> None:
    unlink = os.unlink

    def removed(path: Any, **options: Any) -> None:
        unlink(path, **options)
        if str(path).endswith(last):
            raise _Killed

    monkeypatch.setattr(scratch, "_YOUNG_SECONDS", -1.0)
    change = storage.change("a", "main").__enter__()
    change.submit(np.arange(7))
    (folder,) = left_in(storage_dir)
    with pytest.MonkeyPatch.context() as patch:
        if who == "gc":
            # As if its process had ended.
            patch.setattr(scratch, "_is_removed", lambda _: True)
            change.__exit__(None, None, None)
            patch.undo()
        patch.setattr(os, "unlink", removed)
        with pytest.raises(_Killed):
            storage.gc(older_than=AT_ONCE) if who == "gc" else change.__exit__(None, None, None)
    assert folder.is_dir()
    assert storage.gc(older_than=AT_ONCE).scratch == (folder,)
    assert left_in(storage_dir) == []
    assert numbers(storage) == [*range(7)]
