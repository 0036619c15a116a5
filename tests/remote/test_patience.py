"""How long a server that gives nothing is put up with."""

from __future__ import annotations

import dataclasses
import time

import pytest
from remote_rig import Answer, Site
from test_remote_faults import SPEC, everything, records

from yogadl import backoff
from yogadl.errors import StoreUnavailableError, ThrottledError

ORDER = {"shuffle": True, "shuffle_seed": 1}


@pytest.mark.parametrize("part_bytes", [1 << 30, 400_000], ids=["file", "parts"])
@pytest.mark.parametrize("status", [503, 500])
def test_patience_is_spent_once(
    site: Site, monkeypatch: pytest.MonkeyPatch, status: int, part_bytes: int
) -> None:
    """What bulk was to bring is not asked for by itself for as long again."""
    near = site.store(records(), spec=SPEC, part_bytes=part_bytes)
    patience = 5.0
    monkeypatch.setattr(backoff, "LIMITS", dataclasses.replace(backoff.LIMITS, patience=patience))
    with site.ref() as ref:
        began = time.monotonic()
        with (
            site.twisting(lambda *_: Answer(status, {}, b"")),
            pytest.raises((StoreUnavailableError, ThrottledError)),
        ):
            everything(ref.stream(**ORDER))
        assert patience <= time.monotonic() - began < 1.8 * patience
        # The outage is over.
        assert everything(ref.stream(**ORDER)) == everything(near.stream(**ORDER))
