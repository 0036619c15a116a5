"""What is noted beside copies on a machine, whenever who writes it is killed."""

from __future__ import annotations

import os
import pathlib

import pytest
from killing import file_events, killed_amid

from yogadl.storage._disk.note import load_note, save_note
from yogadl.storage._disk.scratch import remove_partial_files
from yogadl.storage._paths import METADATA_FILE

pytestmark = pytest.mark.once

BEFORE, AFTER = {"source": "before"}, {"source": "after"}


def test_nothing_is_left_of_a_writer_that_was_killed(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "1"
    folder.mkdir()
    left = 0
    for event in range(1, file_events(lambda: save_note(folder, AFTER)) + 1):
        save_note(folder, BEFORE)
        assert killed_amid(lambda: save_note(folder, AFTER), event)
        assert load_note(folder) in (BEFORE, AFTER)
        is_left = len(list(folder.iterdir())) > 1
        left += is_left
        if event % 2:
            save_note(folder, AFTER)
        else:
            remove_partial_files(tmp_path)
        assert [path.name for path in folder.iterdir()] == [METADATA_FILE]
    assert left >= 3


def test_others_may_not_write_to_a_note(tmp_path: pathlib.Path) -> None:
    umask = os.umask(0)
    try:
        save_note(tmp_path, BEFORE)
    finally:
        os.umask(umask)
    assert (tmp_path / METADATA_FILE).stat().st_mode & 0o777 == 0o664
