"""A store that is out for a while, in whatever way, and clocks that make the while short."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from faults import ERROR_500, TOO_MANY, TRUNCATE
from rig import Rig

from yogadl import backoff

IS_FULL_LENGTH = os.environ.get("YOGADL_OUTAGES") == "full"
"""Whether outages last as long as they say: ``make outages``."""

SCALE = 1.0 if IS_FULL_LENGTH else 0.05
"""What all clocks are shortened by: those of outages, pauses and time-outs."""

KINDS = ("refused", "reset", "black hole", "no name", "500", "429", "broken body")

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
    """Meanwhile, the store is out; see ``KINDS``. For clients in this process."""
    faults = {"500": ERROR_500, "429": TOO_MANY, "broken body": TRUNCATE}
    if kind in faults:
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
