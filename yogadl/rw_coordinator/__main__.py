"""Runs a lock server until it is told to stop, by SIGTERM or Ctrl-C.

python -m yogadl.rw_coordinator --host 0.0.0.0 --port 10245
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import pathlib
import resource
import signal
import ssl
import sys
from collections.abc import Callable

from yogadl.errors import InvalidArgumentError, MissingExtraError
from yogadl.rw_coordinator._request import SECRET_VARIABLE
from yogadl.rw_coordinator._server import DEFAULT_CLIENT_TIMEOUT, RwCoordinatorServer

DEFAULT_PORT = 10245

_log = logging.getLogger("yogadl.rw_coordinator")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m yogadl.rw_coordinator",
        description="A server of read and write locks. It answers GET /health.",
    )
    parser.add_argument("--host", help="the interface to listen on (default: all)")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help=f"default: {DEFAULT_PORT}; 0 for any"
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="serve TLS, with this certificate")
    parser.add_argument("--tls-key", metavar="FILE", help="its key, if it is not in the same file")
    parser.add_argument(
        "--tls-client-ca", metavar="FILE", help="let in only clients with a certificate of these"
    )
    parser.add_argument(
        "--secret-file",
        metavar="FILE",
        help=f"holds the secret that clients must know (default: what {SECRET_VARIABLE} says)",
    )
    parser.add_argument(
        "--client-timeout",
        type=float,
        metavar="SECONDS",
        default=DEFAULT_CLIENT_TIMEOUT,
        help="after which a client that vanished loses its lock (default: %(default)g)",
    )
    parser.add_argument(
        "--log-level", choices=["debug", "info", "warning", "error"], default="info"
    )
    return parser


def _ssl_context(options: argparse.Namespace) -> ssl.SSLContext | None:
    if options.tls_cert is None:
        if options.tls_key is not None or options.tls_client_ca is not None:
            raise InvalidArgumentError("--tls-key and --tls-client-ca need --tls-cert")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load("--tls-cert or --tls-key", context.load_cert_chain, options.tls_cert, options.tls_key)
    if options.tls_client_ca is not None:
        _load("--tls-client-ca", context.load_verify_locations, options.tls_client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load(option: str, load: Callable[..., None], *paths: str | None) -> None:
    try:
        load(*paths)
    except OSError as error:
        raise InvalidArgumentError(f"{option} cannot be used: {error}") from error


def _secret(options: argparse.Namespace) -> str | None:
    if options.secret_file is None:
        return None
    try:
        return pathlib.Path(options.secret_file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"--secret-file cannot be read: {error}") from error


def _allow_many_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        _log.warning("no more than %d connections are possible: %s", soft, error)


async def _run(server: RwCoordinatorServer) -> None:
    stop = asyncio.Event()
    received: list[str] = []

    def end(number: signal.Signals) -> None:
        received.append(number.name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        await server.run_server()
    except OSError as error:
        raise InvalidArgumentError(f"cannot listen on {server.url}: {error}") from error
    await stop.wait()
    _log.info("%s: stopping; all locks are given up", received[0])
    await server.close()


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns 0, or exits with 2 where it cannot start."""
    parser = _parser()
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        if not 0 <= options.port <= 65535:
            raise InvalidArgumentError(f"--port must be in [0, 65535], not {options.port}")
        server = RwCoordinatorServer(
            options.host,
            options.port,
            _ssl_context(options),
            secret=_secret(options),
            client_timeout=options.client_timeout,
        )
        _allow_many_connections()
        asyncio.run(_run(server))
    except (InvalidArgumentError, MissingExtraError) as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
