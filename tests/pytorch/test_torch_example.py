"""The PyTorch example, killed and started again, sees the batches of an uninterrupted run."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("torch.utils.data", reason="needs PyTorch")
pytest.importorskip("sklearn", reason="needs scikit-learn, for its digits")

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "torch_digits.py")
STEPS = 40  # 2 epochs of 15 batches, and two thirds of one
IN_A_SAVE = "in a save"
# From inside, so that no later step is made before the kill arrives. The workers go with it: they
# would hold the pipe until they notice.
KILLED = """
import os, runpy, signal, sys

_, last, example, *arguments = sys.argv
write, replace = sys.stdout.write, os.replace


def write_and_die(text):
    write(text)
    if text.startswith(last):
        sys.stdout.flush()
        os.kill(0, signal.SIGKILL)


def replace_or_die(source, target):
    if last == "in a save" and str(target).endswith("checkpoint.pt"):
        os.kill(0, signal.SIGKILL)
    replace(source, target)


sys.stdout.write, os.replace = write_and_die, replace_or_die
sys.argv = [example, *arguments]
sys.path.insert(0, os.path.dirname(example))
runpy.run_path(example, run_name="__main__")
"""


def run(workers: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, *arguments, str(STEPS), "--workers", str(workers), "--print-batches"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        start_new_session=True,
    )


def finished(directory: pathlib.Path, workers: int) -> list[str]:
    done = run(workers, EXAMPLE, str(directory))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def killed_at(directory: pathlib.Path, workers: int, line: str) -> list[str]:
    done = run(workers, "-c", KILLED, line, EXAMPLE, str(directory))
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.splitlines()


def steps_of(lines: list[str]) -> list[tuple[int, str]]:
    """Number and fingerprint of each step's batch."""
    steps = [line.removeprefix("Step ").split(": batch ") for line in lines if "batch" in line]
    return [(int(number), fingerprint) for number, fingerprint in steps]


def checkpoint(directory: pathlib.Path) -> Any:
    """What was saved last, with lists for tensors."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(part) for key, part in value.items()}
        return value.tolist() if isinstance(value, torch.Tensor) else value

    return plain(torch.load(directory / "checkpoint.pt", weights_only=True))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, list[str]]:
    """The folder of an uninterrupted run, and what it printed."""
    directory = tmp_path_factory.mktemp("whole")
    lines = finished(directory, 0)
    assert [step for step, _ in steps_of(lines)] == list(range(1, STEPS + 1))
    assert float(lines[-1].split(": ")[1]) > 0.7
    return directory, lines


# The number of workers of each run: always the same, or another after each kill.
@pytest.mark.parametrize("workers", [[0, 0, 0, 0, 0], [2, 2, 2, 0, 2]], ids=str)
@pytest.mark.long_for([0, 0, 0, 0, 0])
def test_killed_and_resumed(
    whole: tuple[pathlib.Path, list[str]], workers: list[int], tmp_path: pathlib.Path
) -> None:
    uninterrupted = whole[1]
    expected = steps_of(uninterrupted)
    first = random.randint(6, 15)
    saved = 0
    # At which line, after how many steps, and how many of them were saved.
    for count, line, seen, now_saved in [
        (workers[0], f"Step {first}:", first, (first - 1) // 5 * 5),
        # The last of an epoch, before it is saved; the first of the next one, after that.
        (workers[1], "Step 30:", 30, 25),
        (workers[2], "Step 31:", 31, 30),
        (workers[3], IN_A_SAVE, 35, 30),
    ]:
        lines = killed_at(tmp_path, count, line)
        assert steps_of(lines) == expected[saved:seen]
        saved = now_saved
    last = finished(tmp_path, workers[4])
    assert last[0] == f"Going on after step {saved}."
    assert steps_of(last) == expected[saved:]
    assert last[-1] == uninterrupted[-1]
    assert checkpoint(tmp_path) == checkpoint(whole[0])
