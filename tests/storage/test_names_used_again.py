"""A name that a version had which was replaced and deleted may be that of a commit."""

from __future__ import annotations

import datetime
import multiprocessing
import os
import pathlib
import shutil
import signal

import numpy as np
import pytest

from yogadl.catalogue import Catalogue
from yogadl.errors import CacheNotFoundError
from yogadl.storage import LFSStorage

FORK = multiprocessing.get_context("fork")
MANY = 100
"""Of so many newer versions, older entries are put into a segment."""


def commit_and_die(folder: pathlib.Path) -> None:
    """Stores a commit, and is killed before it is on its branch."""
    Catalogue.commit = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment, method-assign]
    with LFSStorage(folder).change("d", "main", version="v") as change:
        change.append(np.arange(5))


@pytest.mark.parametrize("replaced_by", ["submit", "compact"])
def test_what_was_never_committed_is_not_there(tmp_path: pathlib.Path, replaced_by: str) -> None:
    storage = LFSStorage(tmp_path)
    storage.submit(np.arange(10), "d", "base")
    storage.tag("d", "main", "base")
    storage.submit(np.arange(10), "d", "v")
    for number in range(MANY):
        storage.submit(np.arange(3), "other", str(number))
    if replaced_by == "submit":
        storage.submit(np.arange(11), "d", "v")
    else:
        storage.compact("d", "v")
    storage.delete("d", "v")
    killed = FORK.Process(target=commit_and_die, args=(tmp_path,))
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    storage = LFSStorage(tmp_path)
    assert [entry.dataset_version for entry in storage.list("d")] == ["base"]
    assert storage.latest("d") == "base"
    assert len(storage.fetch("d")) == 10
    with pytest.raises(CacheNotFoundError):
        storage.tag("d", "another", "v")
    # And who comes later makes it.
    storage.delete("d", "v")
    with storage.change("d", "main", version="v") as change:
        change.append(np.arange(5))
    assert len(storage.fetch("d", "main")) == 15


def test_versions_keep_their_order_when_a_program_copies_the_folder(tmp_path: pathlib.Path) -> None:
    """Which gives all files new times, in another order."""
    storage = LFSStorage(tmp_path / "here")
    for name in ("c", "a", "b"):
        storage.submit([1, 2], "d", name)
    storage.compact("d", "c")
    shutil.copytree(tmp_path / "here", tmp_path / "there", copy_function=shutil.copyfile)
    for at, name in enumerate("abc"):
        os.utime(tmp_path / "there" / "d" / name / "cache.mdb", (at + 2e9, at + 2e9))
    copied = LFSStorage(tmp_path / "there")
    assert copied.latest("d") == storage.latest("d") == "b"
    would_go = copied.gc("d", keep_last=1, older_than=datetime.timedelta(0), dry_run=True).versions
    assert [it.dataset_version for it in would_go] == ["c", "a"]
