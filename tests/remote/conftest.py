"""A site to read from, for tests."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from remote_rig import Site, make_site

from yogadl import backoff
from yogadl.remote._fetching import desk, passing, planner, work_queue


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


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 MB pass through memory, 2 MB of them fetched ahead."""
    monkeypatch.setattr(passing, "_PASSING_BYTES", 4_000_000)
    for module in (passing, work_queue, desk):
        monkeypatch.setattr(module, "AHEAD_BYTES", 2_000_000)
    monkeypatch.setattr(planner, "_LARGEST_RANGE", 200_000)
