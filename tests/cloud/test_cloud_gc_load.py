"""Collecting in buckets while everything else goes on; see ``gc_load``."""

from __future__ import annotations

import pathlib
from typing import Any

import gc_load
import pytest

from yogadl.storage import _kept_versions
from yogadl.storage._buckets import part_collector
from yogadl.storage._disk import scratch


@pytest.mark.long
@pytest.mark.timeout(300 + 2 * gc_load.SECONDS)
def test_nothing_is_lost_and_nothing_left(
    rig: Any,
    local: pathlib.Path,
    elsewhere: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Conditional writes are tried out elsewhere.
    storage = rig.make_storage(local, conditional_writes=True)
    other = rig.make_storage(elsewhere, "other", conditional_writes=True)
    gc_load.run(storage, other, tmp_path / "notes")
    monkeypatch.setattr(_kept_versions, "GRACE", gc_load.AT_ONCE)
    monkeypatch.setattr(part_collector, "GRACE", gc_load.AT_ONCE)
    monkeypatch.setattr(part_collector, "DEAD_SECONDS", 0.0)
    monkeypatch.setattr(scratch, "_YOUNG_SECONDS", -1.0)
    gc_load.check_end(storage, other, tmp_path / "notes")
    needed = set()
    for folder, one in (("data", storage), ("other", other)):
        for entry in one.list():
            with one.fetch(entry.dataset_id, entry.dataset_version) as ref:
                digests = ref.reader.parts_by_digest()
            needed |= {f"{folder}/data/yogadl.parts/{digest.hex()}.mdb" for digest in digests}
    found = {key for key in rig.raw.list() if "/yogadl.parts/" in key and key.endswith(".mdb")}
    assert found == needed
