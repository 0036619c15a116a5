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


def test_metadata_are_set_without_a_download(
    rig: Any, local: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    storage = rig.make_storage(local)
    rows = np.arange(100_000)
    storage.submit(rows, "a", "1", part_bytes=300_000)
    storage.submit(rows, "plain", "1")
    (tmp_path / "there").mkdir()
    there = rig.make_storage(tmp_path / "there")
    # It is found out once whether the bucket can be trusted.
    there.tag("a", "main", "1")
    there.tag("plain", "main", "1")
    for name, most in (("a", 20), ("plain", 30)):
        with rig.counting() as requests:
            made = there.set_metadata(name, "main", {"license": "CC0"})
        assert len(requests) <= most
        assert sum(request.received for request in requests) < 100_000
        assert sum(request.sent for request in requests) < 100_000
        with storage.fetch(name, "main") as ref:
            assert ref.metadata == {"license": "CC0"}
            assert np.array_equal(ref.read(range(0, 100_000, 1000)), rows[::1000])
        assert storage.tags(name) == {"main": made}
