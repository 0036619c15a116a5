"""Collecting on a disk while everything else goes on; see ``gc_load``."""

from __future__ import annotations

import pathlib

import gc_load
import pytest

from yogadl.storage import LFSStorage, _kept_versions
from yogadl.storage._buckets import part_collector
from yogadl.storage._disk import scratch


@pytest.mark.long
@pytest.mark.timeout(300 + 2 * gc_load.SECONDS)
def test_nothing_is_lost_and_nothing_left(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, other = LFSStorage(tmp_path / "here"), LFSStorage(tmp_path / "there")
    gc_load.run(storage, other, tmp_path / "notes")
    monkeypatch.setattr(_kept_versions, "GRACE", gc_load.AT_ONCE)
    monkeypatch.setattr(part_collector, "GRACE", gc_load.AT_ONCE)
    monkeypatch.setattr(scratch, "_YOUNG_SECONDS", -1.0)
    gc_load.check_end(storage, other, tmp_path / "notes")
    for directory in (tmp_path / "here", tmp_path / "there"):
        needed = set()
        for entry in LFSStorage(directory).list():
            with LFSStorage(directory).fetch(entry.dataset_id, entry.dataset_version) as ref:
                needed |= {digest.hex() for digest in ref.reader.parts_by_digest()}
        assert {path.stem for path in directory.glob("*/yogadl.parts/*.mdb")} == needed
        left = [path.name for path in directory.rglob("*") if path.name.endswith(".partial")]
        left += [path.name for path in directory.rglob("yogadl.scratch.*")]
        assert left == []
