"""What a function makes of records is stored where it is another record."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from yogadl.storage import LFSStorage


def size_of(folder: pathlib.Path) -> int:
    """Bytes of all files; of one with several names, once."""
    files = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return sum({status.st_ino: status.st_size for status in files}.values())


def test_what_an_update_leaves_as_it_is_is_not_stored(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    big = np.random.default_rng(0).random((200, 1000))
    storage.submit({"x": np.arange(200), "big": big}, "data", "1")
    storage.tag("data", "main", "1")

    def in_place(record: Any) -> Any:
        if record["x"] % 50 == 7:
            record["x"] = -record["x"]
        return record

    before = size_of(tmp_path)
    with storage.change("data", "main", version="2") as change:
        change.update(in_place)
        with storage.change("data", "main", version="1.5") as other:
            other.replace([8], {"x": np.array([88]), "big": big[:1]})
    # Each record has 8 KB, and each of the two commits some tens of KB of its own.
    assert size_of(tmp_path) - before < 300_000
    diff = storage.diff("data", "1.5", "2")
    counts = len(diff.added), len(diff.deleted), diff.changed.shape[1]
    assert counts == (0, 0, 4)
    with storage.fetch("data", "2") as ref:
        expected = np.where(np.arange(200) % 50 == 7, -np.arange(200), np.arange(200))
        expected[8] = 88
        assert [record["x"] for record in ref.stream()] == expected.tolist()


def test_an_update_that_changes_nothing_makes_no_version(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    storage.submit({"x": np.arange(5), "name": np.array([b"a"] * 5)}, "data", "1")
    storage.tag("data", "main", "1")
    with storage.change("data", "main") as change:
        change.update(lambda record: {"x": int(record["x"]), "name": bytes(record["name"])})
    assert storage.latest("data") == "1"
    with storage.change("data", "main", version="2") as change:
        change.update(lambda record: record, [1, 3])
        change.delete([0])
    with storage.fetch("data", "2") as ref:
        assert [record["x"] for record in ref.stream()] == [1, 2, 3, 4]
