"""A site to read from, for tests."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from remote_rig import Site, make_site

from yogadl import backoff


@pytest.fixture
def site(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """See ``Site``; failures are put up with for some seconds."""
    quick = backoff.Limits(patience=10.0, answer=30.0, first_pause=0.01, longest_pause=0.1)
    monkeypatch.setattr(backoff, "LIMITS", quick)
    made = make_site(tmp_path)
    try:
        yield made
    finally:
        made.web.close()
