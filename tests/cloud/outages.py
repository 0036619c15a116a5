"""A store that is out for a while, in whatever way, and clocks that make the while short."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from faults import (
    CUT_ANSWER,
    ERROR_500,
    FLIP_ANSWER,
    SLOW,
    SLOW_DOWN,
    STALL,
    TOO_MANY,
    TRUNCATE,
    Fault,
)
from rig import Rig

from yogadl import backoff

IS_FULL_LENGTH = os.environ.get("YOGADL_OUTAGES") == "full"
"""Whether outages last as long as they say: ``make outages``."""

SCALE = 1.0 if IS_FULL_LENGTH else 0.05
"""What all clocks are shortened by: those of outages, pauses and time-outs."""

MOMENTS = [
    (moment, seconds)
    for moment in ("at the start", "in the middle")
    for seconds in (1, 30)
    # Short of full length, the shorter one at the start and the longer one in the middle.
    if IS_FULL_LENGTH or (moment == "at the start") == (seconds == 1)
]
"""When an outage begins, and how many seconds it lasts."""

KINDS = ("refused", "reset", "black hole", "no name", "500", "429", "broken body")

READING_KINDS = (*KINDS, "503", "cut body", "slow body", "stalls", "damage")
"""Those, and what only answers with many bytes have."""

_STALL_SECONDS = 20.0

# Not shorter than a busy machine may take for what is done after the outage.
LEASE_SECONDS = max(60.0 * SCALE, 20.0)
_PATIENCE = max(120.0, 20.0 / SCALE)


def scaled_limits(**changed: float) -> backoff.Limits:
    """Those of yogadl, as short as the outages are; what is given is in seconds unscaled."""
    usual = {**vars(backoff.Limits(patience=_PATIENCE)), **changed}
    fewest = int(usual.pop("fewest"))
    scaled = {name: seconds * SCALE for name, seconds in usual.items()}
    return backoff.Limits(fewest=fewest, **scaled)


@contextlib.contextmanager
def outage(rig: Rig, kind: str) -> Iterator[None]:
    """Meanwhile, the store is out; see ``READING_KINDS``. For clients in this process."""
    faults: dict[str, Fault] = {
        "500": ERROR_500,
        "429": TOO_MANY,
        "503": SLOW_DOWN,
        "broken body": TRUNCATE,
        "cut body": CUT_ANSWER,
        "slow body": dataclasses.replace(SLOW, seconds=_STALL_SECONDS * SCALE),
        "stalls": dataclasses.replace(STALL, seconds=_STALL_SECONDS * SCALE),
    }
    if kind == "damage":
        # What is damaged whenever it is fetched is damaged where it is; so it is none in any order.
        roll = random.Random(1)
        with rig.failing(FLIP_ANSWER, "read", where=lambda _: roll.random() < 1 / 3):
            yield
    elif kind in faults:
        with rig.failing(faults[kind]):
            yield
    elif kind == "no name":
        with rig.proxy.refusing(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket, "getaddrinfo", _nameless(rig.proxy.port))
            yield
    else:
        ways = {
            "refused": rig.proxy.refusing,
            "reset": rig.proxy.cut_off,
            "black hole": rig.proxy.swallowing,
        }
        with ways[kind]():
            yield


def _nameless(port: int) -> Any:
    """A resolver that finds all addresses but those of one port."""
    resolve = socket.getaddrinfo

    def getaddrinfo(host: Any, asked: Any, *arguments: Any, **options: Any) -> Any:
        if asked == port:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return resolve(host, asked, *arguments, **options)

    return getaddrinfo
