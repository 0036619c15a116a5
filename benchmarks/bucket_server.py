"""A folder served as buckets for reading: as fast as nginx, as slow as a bucket far away.

Every request waits for a given time, and every answer comes at a given rate, which is what one
connection to a bucket is like. What was asked is counted. Credentials are not looked at.

Needs nginx with its Lua module; on Debian, ``apt-get install nginx-light libnginx-mod-http-lua``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import getpass
import http.client
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator

LATENCY_SECONDS = 0.03
BYTES_PER_SECOND = 85_000_000

_MODULES = ("ndk_http_module.so", "ngx_http_lua_module.so")
_FOLDERS = ("/usr/lib/nginx/modules", "/usr/lib64/nginx/modules", "/usr/local/nginx/modules")
_START_SECONDS = 10.0
# The log is complete when it has not grown for so long.
_QUIET_SECONDS = 0.15
_LONGEST_SECONDS = 10.0

# A request for a bucket itself only asks whether it is there.
_CONFIGURATION = """\
{modules}
worker_processes 1; pid {work}/pid; error_log {work}/errors warn; daemon off; {user}
events {{ worker_connections 4096; }}
http {{
  sendfile on; tcp_nodelay on; keepalive_requests 1000000000; keepalive_timeout 300s;
  client_body_temp_path {work}; proxy_temp_path {work}; fastcgi_temp_path {work};
  uwsgi_temp_path {work}; scgi_temp_path {work};
  log_format counted '$msec $request_time $status $body_bytes_sent $request_method $uri';
  access_log {work}/requests counted;
  server {{
    listen 127.0.0.1:{port} backlog=4096; root {folder};
    default_type application/octet-stream;
    location ~ ^/[^/]+/?$ {{ return 200; }}
    location / {{
      limit_rate {rate};
      access_by_lua_block {{ ngx.sleep({latency}) }}
    }}
  }}
}}
"""


class ServerUnavailableError(Exception):
    """There is no such server on this machine, in words."""


@dataclasses.dataclass(frozen=True)
class Request:
    """One request that was answered, or given up by who had sent it.

    Attributes:
        started, ended: seconds since 1970, to the millisecond.
        nbytes: of the answer's body, as far as it was sent.
    """

    started: float
    ended: float
    status: int
    nbytes: int
    method: str
    path: str


class BucketServer:
    """Buckets that are the folders of a folder; running while the context is entered.

    Args:
        folder: what is at ``folder/bucket/key`` is the object ``key`` of ``bucket``.
        latency: seconds before every answer.
        rate: bytes a second of every connection; 0 for no limit.

    Raises:
        ServerUnavailableError: nginx or its Lua module is not installed.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        latency: float = LATENCY_SECONDS,
        rate: int = BYTES_PER_SECOND,
    ) -> None:
        self.folder = folder.resolve()
        self._latency, self._rate = latency, rate
        self._command, self._modules = _installed()
        self._stack = contextlib.ExitStack()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> BucketServer:
        with contextlib.ExitStack() as stack:
            work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nginx-")))
            self._log = work / "requests"
            self.port = _free_port()
            configuration = work / "nginx.conf"
            configuration.write_text(
                _CONFIGURATION.format(
                    modules="\n".join(f"load_module {path};" for path in self._modules),
                    user=f"user {getpass.getuser()};" if getpass.getuser() == "root" else "",
                    work=work,
                    port=self.port,
                    folder=self.folder,
                    rate=self._rate,
                    latency=self._latency,
                )
            )
            command = [self._command, "-c", str(configuration), "-p", str(work)]
            command += ["-e", str(work / "errors")]
            process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            stack.callback(_end, process)
            self._wait_for(process)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _wait_for(self, process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)
            try:
                connection.request("HEAD", "/bucket")
                connection.getresponse()
                return
            except OSError as error:
                if process.poll() is not None:
                    said = process.stderr.read() if process.stderr else ""
                    raise ServerUnavailableError(f"nginx does not start: {said[-500:]}") from error
                if time.monotonic() > deadline:
                    raise ServerUnavailableError("nginx does not answer") from error
                time.sleep(0.02)
            finally:
                connection.close()

    def mark(self) -> int:
        """The present, for :meth:`requests`."""
        self._settle()
        return self._log.stat().st_size

    def requests(self, since: int = 0) -> list[Request]:
        """What was asked since a mark, in the order of the ends."""
        self._settle()
        with self._log.open() as file:
            file.seek(since)
            return [_parsed(line) for line in file]

    def _settle(self) -> None:
        """Waits until the last answers are in the log."""
        deadline = time.monotonic() + _LONGEST_SECONDS
        size = -1
        while size != (size := self._log.stat().st_size) and time.monotonic() < deadline:
            time.sleep(_QUIET_SECONDS)


def _installed() -> tuple[str, list[pathlib.Path]]:
    """nginx, and the modules to load."""
    advice = "on Debian: apt-get install nginx-light libnginx-mod-http-lua"
    command = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if command is None:
        raise ServerUnavailableError(f"nginx is not installed; {advice}")
    told = subprocess.run([command, "-V"], capture_output=True, text=True, check=False).stderr
    if re.search(r"--add-module=\S*lua", told):  # it is built in
        return command, []
    folders = [*re.findall(r"--modules-path=(\S+)", told), *_FOLDERS]
    for folder in folders:
        paths = [pathlib.Path(folder) / name for name in _MODULES]
        if all(path.exists() for path in paths):
            return command, paths
    raise ServerUnavailableError(f"nginx has no Lua module; {advice}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait()
    if process.stderr:
        process.stderr.close()


def _parsed(line: str) -> Request:
    ended, seconds, status, nbytes, method, path = line.rstrip("\n").split(" ", 5)
    return Request(
        float(ended) - float(seconds), float(ended), int(status), int(nbytes), method, path
    )


@contextlib.contextmanager
def counted(server: BucketServer) -> Iterator[list[Request]]:
    """What is asked meanwhile; filled in at the end."""
    mark = server.mark()
    found: list[Request] = []
    yield found
    found += server.requests(mark)
