"""The JAX example, killed and started again, sees the batches of an uninterrupted run."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess
import sys

import pytest

pytest.importorskip("jax")
pytest.importorskip("sklearn")

ROOT = pathlib.Path(__file__).parents[2]
STEPS = 70  # 2 epochs of 28 batches, and half of one


EXAMPLE = str(ROOT / "examples" / "jax_digits.py")
# From inside, so that no later step is made before the kill arrives.
KILLED = """
import builtins, os, runpy, signal, sys

_, example, last, *arguments = sys.argv
plain_print = print


def print_and_die(text, **options):
    plain_print(text, **options)
    if text.startswith(f"Step {last}:"):
        os.kill(os.getpid(), signal.SIGKILL)


builtins.print = print_and_die
sys.argv = [example, *arguments]
runpy.run_path(example, run_name="__main__")
"""


def run(*arguments: str) -> tuple[int, list[str]]:
    """The return code of a Python program and the lines that it printed."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def finished(directory: pathlib.Path) -> list[str]:
    code, lines = run(EXAMPLE, str(directory), str(STEPS))
    assert code == 0, lines
    return lines


def killed_at(directory: pathlib.Path, step: int) -> list[str]:
    code, lines = run("-c", KILLED, EXAMPLE, str(step), str(directory), str(STEPS))
    assert code == -signal.SIGKILL, lines
    return lines


def steps_of(lines: list[str]) -> dict[int, str]:
    """The fingerprint of each step's batch."""
    steps = [line.removeprefix("Step ").split(": batch ") for line in lines if "batch" in line]
    return {int(number): fingerprint for number, fingerprint in steps}


@pytest.mark.long
def test_killed_and_resumed(tmp_path: pathlib.Path) -> None:
    uninterrupted = finished(tmp_path / "whole")
    expected = steps_of(uninterrupted)
    assert sorted(expected) == list(range(1, STEPS + 1))
    assert float(uninterrupted[-1].split(": ")[1]) > 0.5

    kill = random.randint(6, STEPS)
    before = steps_of(killed_at(tmp_path / "killed", kill))
    assert sorted(before) == list(range(1, kill + 1))
    last = finished(tmp_path / "killed")
    after = steps_of(last)
    # It went on from the last checkpoint before the kill, which came before that of its step.
    checkpoint = (kill - 1) // 5 * 5
    assert last[0] == f"Going on after step {checkpoint}."
    assert sorted(after) == list(range(checkpoint + 1, STEPS + 1))
    assert expected == {**before, **after}
    assert expected == {**after, **before}
    # The weights, too, are those of the uninterrupted run.
    assert last[-1] == uninterrupted[-1]
