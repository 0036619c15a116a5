"""Bodies that do not arrive as they were sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from faults import Fault, Kind
from wire import Piece

_CUTS = frozenset((Kind.CUT_REQUEST, Kind.CUT_ANSWER, Kind.TRUNCATE))
_FLIPS = frozenset((Kind.FLIP_REQUEST, Kind.FLIP_ANSWER))
_DRIPS = 20
_DRIP_BYTES = 16 << 10


class CutError(Exception):
    """Here the connection is to end."""


def tampered(
    pieces: Iterator[Piece],
    length: int | None,
    fault: Fault,
    content_type: str,
    wait: Callable[[float], object],
) -> Iterator[bytes | bytearray | memoryview]:
    """A body's bytes as a fault leaves them.

    Args:
        pieces: of it.
        length: of it, if it is known.
        fault: one that is about bodies.
        content_type: of a message of several parts, bits are flipped only in the last.
        wait: called with seconds.

    Raises:
        CutError: this is where the connection is to be cut.
    """
    point = None
    passed = 0
    for piece in pieces:
        data = piece.data
        if piece.is_framing:
            yield data
            continue
        if fault.kind is Kind.SLOW:
            yield from _dripping(data, length, fault.seconds, wait)
            continue
        if point is None:
            point = _point(data, length or len(data), fault, content_type)
        inside = point - passed
        passed += len(data)
        if not 0 <= inside < len(data):
            yield data
        elif fault.kind in _CUTS:
            yield data[:inside]
            raise CutError
        else:
            assert fault.kind in _FLIPS
            changed = bytearray(data)
            changed[inside] ^= 1
            yield changed


def _point(data: memoryview, length: int, fault: Fault, content_type: str) -> int:
    """Which byte of the body it is about; -1 if of none."""
    start, stop = 0, length
    if fault.kind in _FLIPS and content_type.startswith("multipart/"):
        beginning = bytes(data[: 64 << 10])
        boundary = beginning.partition(b"\r\n")[0]
        start = beginning.find(b"\r\n\r\n", beginning.find(b"\r\n\r\n") + 4) + 4
        stop = length - len(b"\r\n" + boundary + b"--")
    return min(start + int((stop - start) * fault.at), stop - 1) if start < stop else -1


def _dripping(
    data: memoryview, length: int | None, seconds: float, wait: Callable[[float], object]
) -> Iterator[memoryview]:
    step = max(1, (length or _DRIPS * _DRIP_BYTES) // _DRIPS)
    for at in range(0, len(data), step):
        drip = data[at : at + step]
        wait(seconds / _DRIPS * len(drip) / step)
        yield drip
