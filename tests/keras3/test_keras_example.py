"""The Keras example, killed and started again, sees the batches of an uninterrupted run."""

from __future__ import annotations

import importlib.util
import io
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import zipfile
from typing import Any

import pytest

h5py = pytest.importorskip("h5py", reason="needs Keras, which brings h5py")

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "keras_digits.py")
EPOCHS = 3
BATCHES = 15  # in an epoch
BATCH = re.compile(r"Epoch (\d+), batch (\d+): (\w+)")
# From inside, so that no later batch is trained on before the kill arrives. What is printed may be
# from the example or from Keras.
KILLED = """
import os, runpy, signal, sys

_, last, example, *arguments = sys.argv
write = sys.stdout.write


def write_and_die(text):
    write(text)
    if text.startswith(last):
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGKILL)


sys.stdout.write = write_and_die
sys.argv = [example, *arguments]
sys.path.insert(0, os.path.dirname(example))
runpy.run_path(example, run_name="__main__")
"""


def run(backend: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments, str(EPOCHS), "--print-batches"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environ},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def finished(backend: str, directory: pathlib.Path) -> list[str]:
    done = run(backend, EXAMPLE, str(directory))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def killed_at(backend: str, directory: pathlib.Path, line: str) -> list[str]:
    done = run(backend, "-c", KILLED, line, EXAMPLE, str(directory))
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.splitlines()


def batches(lines: list[str]) -> list[tuple[int, str]]:
    """Number, from 1 on over all epochs, and fingerprint of each batch that was trained on."""
    found = [match.groups() for match in map(BATCH.fullmatch, lines) if match]
    return [((int(epoch) - 1) * BATCHES + int(batch), mark) for epoch, batch, mark in found]


def weights(directory: pathlib.Path) -> dict[str, Any]:
    """Those of the trained model and its optimizer, by name."""
    found: dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item[()].tolist()

    with (
        zipfile.ZipFile(directory / "model.keras") as model,
        h5py.File(io.BytesIO(model.read("model.weights.h5"))) as file,
    ):
        file.visititems(visit)
    return found


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
@pytest.mark.long
def test_killed_and_resumed(backend: str, tmp_path: pathlib.Path) -> None:
    # They are imported by the example only, which takes long enough.
    for module in ("keras", "sklearn", backend):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")
    uninterrupted = finished(backend, tmp_path / "whole")
    expected = batches(uninterrupted)
    assert [number for number, _ in expected] == list(range(1, EPOCHS * BATCHES + 1))
    assert float(uninterrupted[-1].split(": ")[1]) > 0.7

    directory = tmp_path / "killed"
    inside = random.randint(1, BATCHES - 1)
    saved = 0
    # At which line, after how many batches, and how many of them were saved.
    for line, seen, now_saved in [
        (f"Epoch 1, batch {inside}:", inside, inside // 5 * 5),
        # Keras announces an epoch when the one before is over, and saved.
        ("Epoch 3/", 30, 30),
    ]:
        assert batches(killed_at(backend, directory, line)) == expected[saved:seen]
        saved = now_saved
    last = finished(backend, directory)
    assert batches(last) == expected[saved:]
    assert last[-1] == uninterrupted[-1]
    assert weights(directory) == weights(tmp_path / "whole")
