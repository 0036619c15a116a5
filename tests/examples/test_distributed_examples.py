"""The examples of distributed training, each with several real processes over loopback."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest

pytest.importorskip("sklearn")

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
PATIENCE = 240
DIGITS = 1797
BATCH_SIZE = 32
EPOCHS = 3
SEED = 23
REPORT = re.compile(
    r"rank (\d+) of (\d+): (\d+) steps, loss ([\d.]+), (\d+) records, sum (\d+), weights ([\d.]+)"
)


class Report(NamedTuple):
    """What one process says at its end."""

    rank: int
    size: int
    steps: int
    loss: float
    records: int
    sum: int
    weights: float


def start(command: Sequence[str], **environ: str) -> subprocess.Popen[str]:
    paths = [str(EXAMPLES.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def reports(processes: Sequence[subprocess.Popen[str]]) -> list[Report]:
    """Waits for all, and returns what they report, by rank."""
    try:
        printed = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), printed
    found = [match.groups() for text in printed for match in REPORT.finditer(text)]
    numbers = [[float(value) for value in groups] for groups in found]
    return sorted(
        Report(int(r), int(n), int(steps), loss, int(records), int(total), weights)
        for r, n, steps, loss, records, total, weights in numbers
    )


def check(found: Sequence[Report], size: int, devices: int = 1) -> None:
    """Every rank read its own shard, made as many steps, and has the same weights at the end."""
    assert [(report.rank, report.size) for report in found] == [(r, size) for r in range(size)]
    steps = DIGITS // size // BATCH_SIZE // devices
    for report in found:
        numbers: set[int] = set()
        for epoch in range(EPOCHS):
            shard = np.arange(DIGITS - DIGITS % size)[report.rank :: size]
            np.random.RandomState(SEED + epoch).shuffle(shard)
            numbers.update(shard[: steps * devices * BATCH_SIZE].tolist())
        assert (report.records, report.sum) == (len(numbers), sum(numbers))
        assert report.steps == steps * EPOCHS
        assert report.loss < 1.2, "it has learnt something"
    assert {report.weights for report in found} == {found[0].weights}


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


@pytest.mark.long
def test_mirrored_strategy(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("tensorflow")
    program = [sys.executable, str(EXAMPLES / "tf_distribute.py"), str(tmp_path)]
    check(reports([start(program)]), size=1, devices=2)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.long_for(3)
def test_multi_worker_mirrored_strategy(size: int, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("tensorflow")
    program = [sys.executable, str(EXAMPLES / "tf_distribute.py"), str(tmp_path)]
    hosts = [f"127.0.0.1:{port}" for port in free_ports(size)]
    processes = []
    for rank in range(size):
        config = {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": rank}}
        processes.append(start(program, TF_CONFIG=json.dumps(config), CUDA_VISIBLE_DEVICES="-1"))
    check(reports(processes), size)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.long_for(3)
def test_distributed_data_parallel(size: int, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("torch")
    (port,) = free_ports(1)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(size)]
    place = ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    program = [str(EXAMPLES / "torch_ddp.py"), str(tmp_path)]
    check(reports([start([*launcher, *place, *program], OMP_NUM_THREADS="1")]), size)


@pytest.mark.parametrize("framework", ["tensorflow", "torch"])
@pytest.mark.parametrize("size", [2, 3])
def test_horovod(framework: str, size: int, tmp_path: pathlib.Path) -> None:
    if importlib.util.find_spec("horovod") is None:
        pytest.skip("Horovod is not installed; it has to be built for each framework")
    # Without the framework, Horovod's part for it can be imported, and fails when it is used.
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"needs {framework}")
    pytest.importorskip(
        f"horovod.{framework}",
        reason="Horovod was built for another framework",
        exc_type=ImportError,
    )
    launcher = shutil.which("horovodrun", path=str(pathlib.Path(sys.executable).parent))
    assert launcher is not None
    program = [sys.executable, str(EXAMPLES / f"horovod_{framework}.py"), str(tmp_path)]
    check(reports([start([launcher, "--gloo", "-np", str(size), *program])]), size)
