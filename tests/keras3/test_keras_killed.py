"""Runs that are killed with SIGKILL go on at the exact next batch, with the exact weights."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("keras.utils", reason="needs Keras")

import keras_rig as rig

import yogadl

# Of Keras's own conversions to NumPy.
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)

HERE = pathlib.Path(__file__).parent


def killed(
    folder: pathlib.Path,
    name: str,
    save_freq: int | str,
    kill_at: int,
    workers: int = 1,
    function: str = "",
) -> None:
    """A run in a process of its own, which kills itself."""
    paths = [HERE, pathlib.Path(yogadl.__file__).parents[1]]
    done = subprocess.run(
        [
            sys.executable,
            str(HERE / "keras_killed.py"),
            *[str(folder), name, str(save_freq), str(kill_at), str(workers), function],
        ],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "KERAS_BACKEND": rig.keras.backend.backend(),
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def steps(folder: pathlib.Path, name: str) -> list[Any]:
    return [json.loads(line) for line in (folder / f"{name}.steps").read_text().splitlines()]


def check(folder: pathlib.Path, name: str, killed_at: int, resumed_at: int) -> None:
    """A run went on at a step of an uninterrupted one, to the same end."""
    whole, seen = steps(folder, "whole"), steps(folder, name)
    assert seen[:killed_at] == whole[:killed_at]
    assert seen[killed_at:] == whole[resumed_at:]
    ends = [json.loads((folder / f"{run}.weights").read_text()) for run in ("whole", name)]
    assert ends[0] == ends[1]
    assert not (folder / f"{name}.backup").exists()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with a data set and with what a run that nothing interrupts does."""
    path = tmp_path_factory.mktemp("killed")
    dataref = rig.write(path / "cache.mdb")
    rig.train(path, "whole", 5)
    stream = dataref.stream(shuffle=True, shuffle_seed=4)
    assert steps(path, "whole") == [
        rig.numbers(batch) for _ in range(3) for batch in stream.batches(4)
    ]
    return path


# At which step it is killed, and from which it must go on.
@pytest.mark.long
@pytest.mark.parametrize(
    ("save_freq", "kill_at", "workers", "resumed_at"),
    [
        (5, 11, 3, 10),
        # Step 6 is the last of its epoch, and saved when that is over.
        (6, 6, 1, 0),
        ("epoch", 14, 1, 12),
    ],
)
def test_killed_between_saves(
    folder: pathlib.Path, save_freq: int | str, kill_at: int, workers: int, resumed_at: int
) -> None:
    name = f"{save_freq}-{kill_at}"
    killed(folder, name, save_freq, kill_at, workers)
    rig.train(folder, name, save_freq, workers)
    check(folder, name, kill_at, resumed_at)


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "times", "killed_at", "resumed_at"),
    [
        # Saves are made after steps 4, 8, 12 (when the epoch is over) and 16.
        ("Model.save_weights", 2, 8, 4),
        ("os.fsync", 9, 8, 4),
        ("Path.rename", 2, 8, 4),
        # The fifth call is for the folder that the save is in: it is there by then.
        ("os.fsync", 15, 12, 12),
    ],
)
def test_killed_in_the_middle_of_a_save(
    folder: pathlib.Path, function: str, times: int, killed_at: int, resumed_at: int
) -> None:
    name = f"{function}-{times}"
    killed(folder, name, 4, times, 1, function)
    rig.train(folder, name, 4)
    check(folder, name, killed_at, resumed_at)
