"""A training run that kills itself.

Run as ``python keras_killed.py folder name save_freq kill_at workers function``: after ``kill_at``
steps, or in that call of a function that a save makes.
"""

from __future__ import annotations

import os
import pathlib
import signal
import sys
from typing import Any

import keras
import keras_rig as rig


class Killer(keras.callbacks.Callback):  # type: ignore[misc]
    """Ends the process without any warning after some steps of this run."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)


def kill_in_save(function: str, times: int) -> None:
    """Kills the process in the middle of a save: when it calls a function for the nth time."""
    module, _, name = function.partition(".")
    owner = {"os": os, "Path": pathlib.Path, "Model": keras.Model}[module]
    original = getattr(owner, name)
    left = times

    def killing(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(owner, name, killing)


def main() -> None:
    folder, name, freq, kill_at, workers, function = sys.argv[1:7]
    if function:
        kill_in_save(function, int(kill_at))
    killers = [] if function else [Killer(int(kill_at))]
    save_freq = "epoch" if freq == "epoch" else int(freq)
    rig.train(pathlib.Path(folder), name, save_freq, int(workers), *killers)


if __name__ == "__main__":
    main()
