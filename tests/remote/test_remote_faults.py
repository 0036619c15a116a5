"""Versions read from a server that misbehaves: what is delivered is right, or an error says why."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from remote_rig import Always, Answer, Asked, Never, Site, random_faults

import yogadl
from yogadl import backoff
from yogadl.errors import (
    AccessDeniedError,
    CacheReplacedError,
    ChecksumError,
    NetworkError,
    StoreUnavailableError,
    YogadlError,
)
from yogadl.remote import _fetcher

FAULTS = 1000 if os.environ.get("YOGADL_OUTAGES") == "full" else 60
"""``make outages`` has all of them."""

SPEC = {
    "x": yogadl.spec.TensorSpec("uint8", (None,)),
    "number": yogadl.spec.TensorSpec("int64", ()),
}


def records(count: int = 300, largest: int = 20_000) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(count)
    for number in range(count):
        size = int(rng.integers(0, largest if number % 3 else 50))
        yield {"x": rng.integers(0, 256, size, dtype="u1"), "number": np.int64(number)}


def everything(found: Any) -> list[tuple[int, bytes]]:
    return [(int(record["number"]), record["x"].tobytes()) for record in found]


@pytest.mark.parametrize("part_bytes", [1 << 30, 400_000], ids=["file", "parts"])
@pytest.mark.parametrize("space", [Always, Never])
def test_random_faults(site: Site, space: type, part_bytes: int) -> None:
    near = site.store(records(), spec=SPEC, part_bytes=part_bytes)
    order = {"shuffle": True, "shuffle_seed": 1}
    wanted = everything(near.stream(**order))
    seed = errors = 0
    while len(site.web.asked) < FAULTS / 0.3:
        seed += 1
        site.folder = site.folder.with_name(f"kept {seed}")
        with site.twisting(random_faults(seed, 0.3)):
            try:
                with site.ref(space()) as ref:
                    found = everything(ref.stream(**order))
            except (ChecksumError, NetworkError, StoreUnavailableError):
                # Four wrong answers in a row.
                errors += 1
                continue
        assert found == wanted
    assert errors <= seed / 2


def test_a_request_that_stalls_is_made_again(site: Site) -> None:
    near = site.store(records(200, 40_000), spec=SPEC)
    stalled: list[Asked] = []

    def twist(asked: Asked, made: Answer) -> Answer:
        # The first that comes for these bytes, with all others that it asks for.
        if asked.start <= 1_500_000 < asked.stop and not stalled:
            stalled.append(asked)
            made.stalls = 20.0
        return made

    with site.twisting(twist), site.ref() as ref:
        started = time.monotonic()
        assert everything(ref.stream()) == everything(near.stream())
        # Not a matter of how fast it is: it did not wait for the answer.
        assert time.monotonic() - started < 20.0
    assert len(stalled) == 1


def test_what_is_asked_for_again_may_fail(site: Site) -> None:
    near = site.store(records(40, 40_000), spec=SPEC)

    def twist(asked: Asked, made: Answer) -> Answer:
        made.stalls = 2.0 if asked.number % 2 else 0.0
        return made if asked.number < 4 or asked.number % 3 else Answer(404, {}, b"")

    def only_first(asked: Asked, made: Answer) -> Answer:
        made.stalls = 2.0
        if asked.start and any(other.start == asked.start for other in site.web.asked[:-1]):
            return Answer(503, {}, b"")
        return made

    del twist
    with site.ref() as ref, site.twisting(only_first):
        assert everything([ref[30]]) == everything([near[30]])


def test_an_address_that_expires(site: Site) -> None:
    near = site.store(records(), spec=SPEC)
    for status in (400, 401, 403):
        site.folder = site.folder.with_name(f"kept {status}")

        def expire(asked: Asked, made: Answer, status: int = status) -> Answer:
            return made if asked.number < 3 else Answer(status, {}, b"<Code>ExpiredToken</Code>")

        with site.ref() as ref, site.twisting(expire), pytest.raises(YogadlError, match="Expired"):
            site.web.asked.clear()
            everything(ref.stream())
    del near


def test_denied_for_good_says_so_at_once(site: Site) -> None:
    site.store(records(), spec=SPEC)
    with site.ref() as ref, site.twisting(lambda *_: Answer(403, {}, b"no")):
        started = time.monotonic()
        with pytest.raises(AccessDeniedError, match="403"):
            everything(ref.stream())
        assert time.monotonic() - started < backoff.LIMITS.patience


def test_an_error_is_of_what_is_waited_for_now(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    near = site.store(records(), spec=SPEC)
    monkeypatch.setattr(backoff, "LIMITS", backoff.Limits(patience=0.1, first_pause=0.01, fewest=1))
    with site.ref() as ref:
        with site.twisting(lambda *_: Answer(500, {}, b"")), pytest.raises(StoreUnavailableError):
            everything(ref.stream(shuffle=True, shuffle_seed=1))
        # The outage is over, and what was fetched ahead during it is no matter.
        order = {"shuffle": True, "shuffle_seed": 1}
        assert everything(ref.stream(**order)) == everything(near.stream(**order))


def test_an_object_that_is_gone_is_not_asked_for_piece_by_piece(site: Site) -> None:
    site.store(records(500, 200_000), spec=SPEC)
    with site.ref() as ref, site.twisting(lambda *_: Answer(404, {}, b"")):
        stream = iter(ref.stream(shuffle=True, shuffle_seed=1))
        with pytest.raises(CacheReplacedError, match="was replaced or deleted while it was read"):
            everything(stream)
        time.sleep(0.3)
        before = len(site.web.asked)
        time.sleep(0.3)
        assert len(site.web.asked) == before


def test_a_server_of_impossible_sizes(site: Site) -> None:
    site.store(records(10), spec=SPEC)
    for size in (2**62, 2**64, int("9" * 19)):

        def huge(asked: Asked, made: Answer, size: int = size) -> Answer:
            made.headers["Content-Range"] = f"bytes {asked.start}-{size - 1}/{size}"
            return made

        with site.twisting(huge), pytest.raises(YogadlError):
            site.ref()
    assert _fetcher.CONNECTIONS < 1000
