"""Holders that die, hang, fork, or vanish with their machine."""

from __future__ import annotations

import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from lock_rig import HOLDER, PLACE, TARGET, RunningServer, Script
from waiting import wait_until

_COUNTER = itertools.count()
FOLDER = pathlib.Path(__file__).parent

# Forks while it holds a write lock. The child does what it is told and says so; the parent waits.
FORKING = """
import os, sys, time
from yogadl.errors import LockLostError
from yogadl.rw_coordinator import RwCoordinatorClient
with RwCoordinatorClient(sys.argv[1]).write_lock(*sys.argv[2:5]) as held:
    child = os.fork()
    if child == 0:
        if sys.argv[5] == "lives on":
            print(os.getpid(), flush=True)
            time.sleep(30)  # or until it is killed
            os._exit(0)
        try:
            held.check()
        except LockLostError:
            pass
        else:
            os._exit(1)
        held.close()
        if sys.argv[5] == "leaves":
            raise SystemExit(0)  # through the context manager and all that runs at exit
        os._exit(0)
    if sys.argv[5] != "lives on":
        print(os.waitpid(child, 0)[1], flush=True)
    sys.stdin.readline()
print("left", flush=True)
sys.stdin.readline()
"""

SILENT = """
import sys
sys.path.insert(0, sys.argv[1])
from lock_rig import SilentClient
client = SilentClient(int(sys.argv[3]), sys.argv[4], host=sys.argv[2])
print(client.granted(), flush=True)
sys.stdin.readline()
"""


def test_killed_holder_gives_its_lock_back_at_once(server: RunningServer) -> None:
    with Script(HOLDER, server.url, *PLACE) as holder:
        assert holder.line() == "held"
        with Script(HOLDER, server.url, *PLACE) as waiter:
            wait_until(lambda: server.counts() == (0, 1, 1))
            began = time.monotonic()
            holder.signal(signal.SIGKILL)
            assert waiter.line() == "held"
            assert time.monotonic() - began < 30
            waiter.signal(signal.SIGKILL)
        wait_until(lambda: server.counts() == (0, 0, 0))


def test_stopped_holder_loses_its_lock_and_finds_out() -> None:
    with (
        RunningServer(client_timeout=1.5) as server,
        Script(HOLDER, server.url, *PLACE) as holder,
    ):
        assert holder.line() == "held"
        holder.signal(signal.SIGSTOP)
        began = time.monotonic()
        with server.client().write_lock(*PLACE):
            assert time.monotonic() - began > 0.9
            holder.signal(signal.SIGCONT)
            holder.tell()
            assert holder.line() == "lost"
            assert holder.line() == "closed"
            assert server.counts() == (0, 1, 0)


def test_holder_that_was_stopped_for_a_moment_keeps_its_lock() -> None:
    with (
        RunningServer(client_timeout=2.4) as server,
        Script(HOLDER, server.url, *PLACE) as holder,
    ):
        assert holder.line() == "held"
        holder.signal(signal.SIGSTOP)
        time.sleep(1.2)  # half of what it may be silent
        holder.signal(signal.SIGCONT)
        # Would the server take that for too long, it would have done so by then.
        time.sleep(1)
        holder.tell()
        assert holder.line() == "still held"


@pytest.mark.parametrize("way", ["exits", "leaves"])
def test_child_that_ends_does_not_end_the_lock(server: RunningServer, way: str) -> None:
    with Script(FORKING, server.url, *PLACE, way) as parent:
        assert parent.line() == "0", "the child's exit status"
        time.sleep(0.1)  # in which the server would hear of an end
        assert server.counts() == (0, 1, 0)
        parent.tell()
        assert parent.line() == "left"
        wait_until(lambda: server.counts() == (0, 0, 0))


@pytest.mark.parametrize("number", [None, signal.SIGKILL], ids=["closes", "is killed"])
def test_child_that_lives_on_does_not_keep_the_lock(
    server: RunningServer, number: signal.Signals | None
) -> None:
    with Script(FORKING, server.url, *PLACE, "lives on") as parent:
        child = int(parent.line())
        try:
            assert server.counts() == (0, 1, 0)
            if number is None:
                parent.tell()
            else:
                parent.signal(number)
            wait_until(lambda: server.counts() == (0, 0, 0))
            os.kill(child, 0)  # it is there
        finally:
            os.kill(child, signal.SIGKILL)


@dataclass(frozen=True)
class Machine:
    """Another machine, as far as the network is concerned."""

    namespace: str
    device: str
    server_address: str
    address: str

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to run a program there with."""
        return "ip", "netns", "exec", self.namespace

    def vanish(self) -> None:
        """It answers nothing any more."""
        _ip("-n", self.namespace, "address", "delete", self.address, "dev", self.device)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=10)


@pytest.fixture
def machine() -> Iterator[Machine]:
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("needs root and iproute2, to make a network namespace")
    # A namespace takes a moment to go, so the next one needs another name.
    number = next(_COUNTER)
    name = f"yg{os.getpid()}x{number}"
    net = f"198.18.{(os.getpid() + 100 * number) % 251}"
    made = Machine(name, f"{name}b", f"{net}.1", f"{net}.2/30")
    try:
        _ip("netns", "add", name)
        _ip("link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b", "netns", name)
        _ip("address", "add", f"{net}.1/30", "dev", f"{name}a")
        _ip("link", "set", f"{name}a", "up")
        _ip("-n", name, "address", "add", made.address, "dev", made.device)
        _ip("-n", name, "link", "set", made.device, "up")
        yield made
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made here: {error.stderr.strip()}")
    finally:
        # A dying connection may keep the namespace for a while, and the namespace its device.
        for thing in (["link", "delete", f"{name}a"], ["netns", "delete", name]):
            subprocess.run(["ip", *thing], check=False, capture_output=True)


@pytest.mark.parametrize("kind", ["yogadl", "silent"])
def test_vanished_machine_loses_its_lock(machine: Machine, kind: str) -> None:
    with RunningServer(hostname=machine.server_address, client_timeout=2) as server:
        url = f"ws://{machine.server_address}:{server.port}"
        if kind == "silent":
            # Only the kernels notice: nothing follows from its not answering pings.
            code: tuple[object, ...] = SILENT, FOLDER, machine.server_address, server.port
            holding = Script(*code, TARGET + "False", prefix=machine.prefix)  # type: ignore[arg-type]
        else:
            holding = Script(HOLDER, url, *PLACE, prefix=machine.prefix)
        with holding as holder:
            assert holder.line() in ("held", "write_lock_granted")
            machine.vanish()
            began = time.monotonic()
            wait_until(lambda: server.server._health()["write_locks"] == 0, 15)
            assert time.monotonic() - began > 1
