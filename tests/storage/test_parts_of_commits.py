"""Into which parts commits, reverts and compacting cut what they store."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

from yogadl.storage import LFSStorage

SIZE = 5000


def rows(count: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 255, (count, SIZE), dtype="u1")


def test_small_parts_that_were_put_together_stay_so(tmp_path: pathlib.Path) -> None:
    """However small those are to be that are cut."""
    storage = LFSStorage(tmp_path)
    storage.submit(rows(10, 0), "d", "0")
    storage.tag("d", "main", "0")
    own = []
    for number in range(5):
        with storage.change("d", "main", part_bytes=50_000) as change:
            if number == 0:
                change.append(rows(400, 1))
            else:
                change.delete([12])
        own.append(storage.log("d", "main")[0].own_size)
    wanted = np.delete(rows(400, 1), range(2, 6), axis=0)
    np.testing.assert_array_equal(storage.fetch("d", "main").read(range(10, 406)), wanted)
    # The first one after it puts them together; then there is nothing left to be stored anew.
    assert all(size is not None and size < 400 * SIZE // 4 for size in own[2:]), own


@pytest.mark.parametrize("how", ["change", "compact", "revert"])
def test_they_are_cut_where_submit_cuts(
    tmp_path: pathlib.Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LFSStorage, "_default_part_bytes", 50_000)
    storage = LFSStorage(tmp_path)
    storage.submit(rows(40, 0), "d", "0")
    storage.tag("d", "main", "0")
    with storage.change("d", "main", version="1") as change:
        change.delete(range(40))
        change.append(rows(60, 1))
    name = "1"
    if how == "compact":
        storage.compact("d", name)
    elif how == "revert":
        name = storage.revert("d", "1", on="main")
    ref = storage.fetch("d", name)
    assert len(ref) == (40 if how == "revert" else 60)
    sizes = [path.stat().st_size for path in ref.reader.parts_by_digest().values()]
    assert len(sizes) > 3
    assert max(sizes) < 150_000


@pytest.mark.parametrize("left", [0, 5])
def test_after_compact_all_of_a_version_is_its_own(tmp_path: pathlib.Path, left: int) -> None:
    storage = LFSStorage(tmp_path)
    storage.submit(rows(40, 0), "d", "0")
    with storage.change("d", "0", version="1") as change:
        change.delete(range(40 - left))
    storage.compact("d", "1")
    entry, _ = storage.log("d", "1")
    parts = storage.fetch("d", "1").reader.parts_by_digest()
    paths = {tmp_path / "d" / "1" / "cache.mdb", *parts.values()}
    assert entry.size == entry.own_size == sum(path.stat().st_size for path in paths)
