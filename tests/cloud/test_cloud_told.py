"""Cards of what is in buckets, by few requests."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np


def test_a_card_downloads_no_records(rig: Any, local: pathlib.Path, tmp_path: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    given = {"license": "CC0"}
    storage.submit(np.zeros((1000, 3000), "u1"), "a", "1", part_bytes=300_000, metadata=given)
    storage.submit(np.ones((1000, 3000), "u1"), "plain", "1", metadata=given)
    storage.tag("a", "main", "1")
    for version in ("2", "3"):
        with storage.change("a", "main", version=version, message="more") as change:
            change.append(np.zeros((10, 3000), "u1"))
    (tmp_path / "there").mkdir()
    there = rig.make_storage(tmp_path / "there")
    for name in ("a", "plain"):
        with rig.counting() as requests:
            card = there.card(name)
        assert card.metadata == given
        assert len(requests) <= 7
        assert sum(request.received for request in requests) < 100_000
        assert not list((tmp_path / "there").rglob("*.mdb"))
    card = there.card("a", "main", sample=4)
    assert [entry.dataset_version for entry in card.log] == ["3", "2", "1"]
    assert (card.sample[0].least, card.sample[0].greatest) == (0, 0)
