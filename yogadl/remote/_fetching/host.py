"""Whom to connect to, and by which proxy."""

from __future__ import annotations

import functools
import http.client
import ssl
import urllib.parse
import urllib.request
from dataclasses import dataclass

from yogadl import backoff
from yogadl.remote._fetching.answer import Answer
from yogadl.remote._fetching.remote_object import Address


@dataclass(frozen=True)
class Host:
    """Whom to connect to.

    Attributes:
        scheme, netloc: of the address.
        cafile: see ``Address``.
        proxy: by which it is reached; empty for none.
    """

    scheme: str
    netloc: str
    cafile: str | None
    proxy: str

    @staticmethod
    def of(address: Address) -> Host:
        return _host(*urllib.parse.urlsplit(address.url)[:2], address.cafile)

    def target(self, url: str) -> str:
        """What to ask the connection for."""
        parts = urllib.parse.urlsplit(url)
        if self.proxy and self.scheme == "http":
            return urllib.parse.urlunsplit((*parts[:4], ""))
        return urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))

    def connect(self, seconds: float | None = None) -> http.client.HTTPConnection:
        """An open connection.

        Args:
            seconds: to wait for an answer, and for more of it; as long as ``backoff.LIMITS`` has it
                if that is less, or ``None``.
        """
        limits = backoff.LIMITS
        host = urllib.parse.urlsplit(self.proxy).netloc.rpartition("@")[2] or self.netloc
        made: http.client.HTTPConnection
        if self.scheme == "https":
            context = _ssl_context(self.cafile)
            made = http.client.HTTPSConnection(host, timeout=limits.connect, context=context)
            if self.proxy:
                made.set_tunnel(self.netloc)
        else:
            made = http.client.HTTPConnection(host, timeout=limits.connect)
        made.response_class = Answer
        made.connect()
        made.sock.settimeout(limits.answer if seconds is None else min(seconds, limits.answer))
        return made


@functools.lru_cache(1024)
def _host(scheme: str, netloc: str, cafile: str | None) -> Host:
    proxy = urllib.request.getproxies().get(scheme, "")
    if proxy and urllib.request.proxy_bypass(netloc.rpartition(":")[0] or netloc):
        proxy = ""
    return Host(scheme, netloc, cafile, proxy)


@functools.lru_cache(16)
def _ssl_context(cafile: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=cafile)
