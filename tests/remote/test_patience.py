"""How long a server that gives nothing is put up with."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterator

import numpy as np
import pytest
from remote_rig import Answer, Site
from test_remote_faults import SPEC, everything, records

from yogadl import backoff
from yogadl.errors import NetworkError, StoreUnavailableError, ThrottledError
from yogadl.remote._fetching.connections import Connections, OnData
from yogadl.remote._fetching.remote_object import RemoteObject
from yogadl.remote._fetching.transfer import Transfer
from yogadl.remote._fetching.work import Work
from yogadl.remote._local.sparse_file import CELL

# Bytes of a cell after which answers break off.
ENDS = (300, 700, 200, 650)
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


def test_the_same_bytes_again_and_again_are_no_progress(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patience would never end, as each second answer gets further than the one before it."""
    site.store([{"x": np.zeros(100_000, "u1"), "number": np.int64(1)}], spec=SPEC)
    monkeypatch.setattr(backoff, "LIMITS", dataclasses.replace(backoff.LIMITS, patience=2.0))
    with site.ref() as ref:
        file = ref.reader.files.file(0)
        breaking = Breaking(itertools.cycle(ENDS))
        transfer = Transfer(Work(file, 0, 9 * CELL), is_kept=False, arrived=lambda: None)
        with pytest.raises(NetworkError):
            transfer.run(breaking, lambda _seconds: None, lambda *_: False)


def test_each_new_cell_is_progress(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.store([{"x": np.zeros(100_000, "u1"), "number": np.int64(1)}], spec=SPEC)
    hasty = dataclasses.replace(backoff.LIMITS, patience=0.0, fewest=2)
    monkeypatch.setattr(backoff, "LIMITS", hasty)
    with site.ref() as ref:
        file = ref.reader.files.file(0)
        breaking = Breaking(itertools.repeat(CELL + 100))
        work = Work(file, 0, 9 * CELL)
        Transfer(work, is_kept=False, arrived=lambda: None).run(
            breaking, lambda _seconds: None, lambda *_: False
        )
    assert work.requests == 9


class Breaking(Connections):
    """Answers that break off after so many bytes."""

    def __init__(self, ends: Iterator[int]) -> None:
        super().__init__()
        self._ends = ends
        self.asked = 0

    def read(
        self,
        asked: RemoteObject,
        size: int,
        start: int,
        stop: int,
        take: OnData,
        into: memoryview | None = None,
    ) -> None:
        self.asked += 1
        assert self.asked < 2000
        came = min(next(self._ends), stop - start)
        take(start, memoryview(bytes(came)))
        if start + came < stop:
            raise NetworkError("it broke off")
