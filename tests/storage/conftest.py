"""What several modules of tests of storages use."""

from __future__ import annotations

import pytest

from yogadl import conditional
from yogadl.storage._buckets import part_control


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was overtaken tries again at once."""
    monkeypatch.setattr(part_control, "_LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(conditional, "_LONGEST_PAUSE", 0.0)
