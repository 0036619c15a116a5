"""Connections to Google: as many as are needed, of which only one at a standstill times out."""

from __future__ import annotations

from typing import Any

import requests
from requests.adapters import HTTPAdapter

_SMALL_BYTES = 64 << 10
_PIECE_BYTES = 64 << 10
# As many as ever ask at once; what there are more is closed, and warned of.
_CONNECTIONS = 64


def send_in_pieces(session: requests.Session, url: str) -> None:
    """Has a session send its bodies in pieces, each of which has the whole time-out.

    A body that is given as bytes is sent by one call of ``sendall``, and a time-out holds for such
    a call as a whole: 100 MiB would have to leave within it, however slow the network is.

    Args:
        session: of Google's client. One with client certificates is left as it is.
        url: whose requests are meant.
    """
    if type(session.get_adapter(url)) is HTTPAdapter:
        session.mount(url, _InPieces(pool_maxsize=_CONNECTIONS))


class _InPieces(HTTPAdapter):  # type: ignore[misc] # known at run time only
    def send(self, request: requests.PreparedRequest, *arguments: Any, **options: Any) -> Any:
        body = request.body
        if isinstance(body, bytes | memoryview) and len(body) > _SMALL_BYTES:
            request.body = _Body(body)
        return super().send(request, *arguments, **options)


class _Body:
    """Bytes as urllib3 reads a file: a piece at a time, none of which is copied."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._rest = memoryview(data)

    def read(self, _size: int) -> memoryview:
        """A piece of our own size, which not every release of urllib3 can be told."""
        piece, self._rest = self._rest[:_PIECE_BYTES], self._rest[_PIECE_BYTES:]
        return piece
