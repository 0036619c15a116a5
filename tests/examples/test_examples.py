"""The examples run as programs and print what they should."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

from yogadl.storage import LFSStorage

ROOT = pathlib.Path(__file__).parents[2]

BATCHES = [
    "tf.Tensor([5 1 9 6 7], shape=(5,), dtype=int64)",
    "tf.Tensor([1 7 3 9 8], shape=(5,), dtype=int64)",
    "tf.Tensor([2 6 0 4 5], shape=(5,), dtype=int64)",
    "tf.Tensor([9 5 3 0 8], shape=(5,), dtype=int64)",
    "tf.Tensor([6 7 4 1 2], shape=(5,), dtype=int64)",
]

pytest.importorskip("tensorflow")


def run(name: str, *arguments: str) -> list[str]:
    """The lines an example prints."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_walkthrough(tmp_path: pathlib.Path) -> None:
    assert run("walkthrough.py", str(tmp_path)) == ["Building the cache.", *BATCHES]
    assert (tmp_path / "range" / "1.0" / "cache.mdb").is_file()
    assert run("walkthrough.py", str(tmp_path)) == BATCHES


@pytest.mark.long
def test_walkthrough_in_a_temporary_directory() -> None:
    assert run("walkthrough.py") == ["Building the cache.", *BATCHES]


def test_mnist(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("sklearn")
    blocker = tmp_path / "tensorflow_datasets.py"
    blocker.write_text("raise OSError('no network in tests')\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        first = run("mnist.py", str(tmp_path))
        second = run("mnist.py", str(tmp_path))
    assert "MNIST is not to be had (OSError: no network in tests)." in first
    assert "Using scikit-learn's load_digits." in first
    built = [line for line in first if line.startswith("Building the cache of digits/")]
    assert len(built) == 2
    assert not [line for line in second if line.startswith("Building")]
    for lines in (first, second):
        # Half of the 90 batches of an epoch, then four whole ones.
        steps = [line.split(" ")[0] for line in lines if re.match(r"\d+/\d+ - ", line)]
        assert steps == ["45/45", *["90/90"] * 4]
        accuracy = re.fullmatch(r"Accuracy on 360 test digits: (.*)", lines[-2])
        assert accuracy is not None
        assert float(accuracy[1]) > 0.8
        assert lines[-1] == "Asked again: 1,437 records read from the cache."


def test_eight_workers_without_a_directory() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "eight_workers.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.split()[0]) == (1, "Usage:")


def test_eight_workers(tmp_path: pathlib.Path) -> None:
    """Run again, it builds nothing."""
    assert run("eight_workers.py", str(tmp_path), "3") == ["4,000 records."]
    files = {path: path.stat().st_ino for path in tmp_path.rglob("*.mdb")}
    assert len(files) == 17
    assert run("eight_workers.py", str(tmp_path), "3") == ["4,000 records."]
    assert {path: path.stat().st_ino for path in tmp_path.rglob("*.mdb")} == files
    numbers = [
        int(record["number"]) for record in LFSStorage(tmp_path).fetch("squares", "1.0").stream()
    ]
    assert numbers == list(range(4000))


def test_custom_data_ref() -> None:
    assert run("custom_data_ref.py") == [
        "Shard 0, epoch 0: [[[2, 4], [4, 16]], [[6, 36]]]",
        "Shard 0, epoch 1: [[[0, 0], [6, 36]], [[2, 4], [4, 16]]]",
        "Shard 1, epoch 0: [[[3, 9], [5, 25]]]",
        "Shard 1, epoch 1: [[[1, 1], [3, 9]], [[5, 25]]]",
    ]
