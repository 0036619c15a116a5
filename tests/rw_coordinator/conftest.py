"""A lock server for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lock_rig import SOCKETS, RunningServer


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("YOGADL_COORDINATOR_SECRET", raising=False)
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture(autouse=True)
def _no_sockets_stay() -> Iterator[None]:
    yield
    while SOCKETS:
        SOCKETS.pop().close()


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with RunningServer() as running:
        yield running
