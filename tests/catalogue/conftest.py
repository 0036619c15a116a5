"""Fixtures of the tests of the catalogue."""

from __future__ import annotations

import pytest

from yogadl import conditional
from yogadl.catalogue import _catalogue


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was overtaken tries again at once."""
    monkeypatch.setattr(conditional, "_LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(_catalogue, "_PAUSE", 0.0)
