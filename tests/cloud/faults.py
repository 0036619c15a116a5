"""What can go wrong between a client and a store, and when it is to."""

from __future__ import annotations

import enum
import json
import random
import re
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from exchange import Dialect, Request


class Kind(enum.Enum):
    """How a request fails."""

    CUT = "cut before the store sees the request"
    CUT_REQUEST = "cut within the request's body"
    LOSE_ANSWER = "carried out, and cut before the answer"
    CUT_ANSWER = "cut within the answer's body, by a reset"
    TRUNCATE = "the answer's body ends before its Content-Length, and the connection orderly"
    STALL = "it takes a while until the store sees the request"
    SLOW = "the answer's body trickles"
    FLIP_REQUEST = "one bit of the request's body is another"
    FLIP_ANSWER = "one bit of the answer's body is another"
    ERROR = "answered with an error, and not carried out"
    LATE_ERROR = "carried out, and answered with an error"


@dataclass(frozen=True)
class Fault:
    """What happens to a request.

    Attributes:
        kind: how it fails.
        at: where in the body, ``0 … 1``.
        seconds: how long ``STALL`` and ``SLOW`` take.
        status: of the answer of ``ERROR`` and ``LATE_ERROR``.
        code: what S3 or Google calls that error; if empty, what they usually do.
    """

    kind: Kind
    at: float = 0.5
    seconds: float = 0.5
    status: int = 500
    code: str = ""

    def __str__(self) -> str:
        status = f" {self.status} {self.code}".rstrip()
        return self.kind.name + (status if self.kind in (Kind.ERROR, Kind.LATE_ERROR) else "")


CUT = Fault(Kind.CUT)
CUT_REQUEST = Fault(Kind.CUT_REQUEST)
LOSE_ANSWER = Fault(Kind.LOSE_ANSWER)
CUT_ANSWER = Fault(Kind.CUT_ANSWER)
TRUNCATE = Fault(Kind.TRUNCATE)
STALL = Fault(Kind.STALL)
SLOW = Fault(Kind.SLOW)
FLIP_REQUEST = Fault(Kind.FLIP_REQUEST)
FLIP_ANSWER = Fault(Kind.FLIP_ANSWER)
ERROR_500 = Fault(Kind.ERROR, status=500)
SLOW_DOWN = Fault(Kind.ERROR, status=503)
TOO_MANY = Fault(Kind.ERROR, status=429)
FORBIDDEN = Fault(Kind.ERROR, status=403)
LATE_500 = Fault(Kind.LATE_ERROR, status=500)

PASSING = (
    CUT,
    CUT_REQUEST,
    LOSE_ANSWER,
    CUT_ANSWER,
    TRUNCATE,
    replace(STALL, seconds=0.05),
    replace(SLOW, seconds=0.05),
    FLIP_REQUEST,
    FLIP_ANSWER,
    ERROR_500,
    SLOW_DOWN,
    TOO_MANY,
    LATE_500,
)
"""What a client should survive if it only happens now and then."""

# Elsewhere, nothing but the transport's own checksums could tell, and those are not tested here.
_FLIPPED_REQUESTS = {"s3": ("write", "part"), "gcs": ("write", "part", "finish")}
_FLIPPED_ANSWERS = ("read",)

Decide = Callable[[Request], Fault | None]


@dataclass
class Rule:
    """Which requests a fault happens to; see ``Faults.add``."""

    fault: Fault
    operations: Collection[str]
    key: re.Pattern[str]
    where: Callable[[Request], bool]
    skip: int
    times: int | None

    def fires(self, request: Request) -> bool:
        if self.operations and request.operation not in self.operations:
            return False
        if not self.key.search(request.key) or not self.where(request) or self.times == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class Faults:
    """Decides what happens to each request of a proxy. May be changed at any time.

    Attributes:
        decide: asked when no rule fires.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._mutex = threading.Lock()
        self._rules: list[Rule] = []
        self.decide: Decide | None = None

    def add(
        self,
        fault: Fault,
        *operations: str,
        key: str = "",
        where: Callable[[Request], bool] = lambda _: True,
        skip: int = 0,
        times: int | None = 1,
    ) -> None:
        """Has a fault happen.

        Args:
            fault: this.
            operations: to requests of these, see ``Request.operation``; if none, to all.
            key: only if this regular expression is found in the object's key.
            where: only if this is true.
            skip: not to so many first ones.
            times: to no more; ``None`` for all.
        """
        with self._mutex:
            self._rules.append(Rule(fault, operations, re.compile(key), where, skip, times))

    def randomly(
        self,
        seed: float,
        chances: float | Mapping[Fault, float],
        kinds: Collection[Fault] = PASSING,
    ) -> None:
        """Has faults happen by chance; the same to the n-th request of the same proxy and seed.

        Bits are flipped only in objects' contents.

        Args:
            seed: of chance.
            chances: how likely each fault is; if just one, of each of ``kinds``.
            kinds: see ``chances``.
        """
        table = chances if isinstance(chances, Mapping) else dict.fromkeys(kinds, chances)

        def decide(request: Request) -> Fault | None:
            roll = random.Random(f"{seed} {request.number}")
            point, at = roll.random(), roll.random()
            for fault, chance in table.items():
                point -= chance
                if point < 0:
                    return replace(fault, at=at) if self._fits(fault, request) else None
            return None

        self.decide = decide

    def _fits(self, fault: Fault, request: Request) -> bool:
        if fault.kind is Kind.FLIP_REQUEST:
            return request.operation in _FLIPPED_REQUESTS[self._dialect]
        return fault.kind is not Kind.FLIP_ANSWER or request.operation in _FLIPPED_ANSWERS

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        with self._mutex:
            self._rules.clear()
            self.decide = None

    def of(self, request: Request) -> Fault | None:
        """What happens to a request."""
        with self._mutex:
            for rule in self._rules:
                if rule.fires(request):
                    return rule.fault
        return self.decide(request) if self.decide is not None else None


_S3_CODES = {
    400: "BadRequest",
    403: "AccessDenied",
    404: "NoSuchKey",
    409: "ConditionalRequestConflict",
    412: "PreconditionFailed",
    429: "TooManyRequests",
    500: "InternalError",
    501: "NotImplemented",
    503: "SlowDown",
}
_GCS_REASONS = {
    400: "invalid",
    401: "authError",
    403: "forbidden",
    404: "notFound",
    412: "conditionNotMet",
    429: "rateLimitExceeded",
    500: "internalError",
    501: "notImplemented",
    503: "backendError",
}


def error_body(dialect: Dialect, status: int, code: str, path: str) -> tuple[str, bytes]:
    """The content type and body that a store answers an error with."""
    said = "This error was made by a test."
    if dialect == "s3":
        code = code or _S3_CODES.get(status, "InternalError")
        resource = path.partition("?")[0].replace("&", "&amp;").replace("<", "&lt;")
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f"<Error><Code>{code}</Code><Message>{said}</Message>"
            f"<Resource>{resource}</Resource><RequestId>TEST</RequestId></Error>"
        )
        return "application/xml", body.encode()
    reason = code or _GCS_REASONS.get(status, "backendError")
    error = {"message": said, "domain": "global", "reason": reason}
    answer = {"error": {"code": status, "message": said, "errors": [error]}}
    return "application/json; charset=UTF-8", json.dumps(answer).encode()
