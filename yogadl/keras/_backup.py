"""``BackupAndRestore``: an interrupted ``fit`` goes on at the exact next batch."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from typing import Any

import numpy as np

from yogadl.arguments import as_index, as_path
from yogadl.errors import InvalidArgumentError
from yogadl.extras import require
from yogadl.keras._py_dataset import PyDataset

keras = require("keras", "keras")
_Base: Any = keras.callbacks.BackupAndRestore

_WEIGHTS = "model.weights.h5"
_SEEDS = "seeds.npz"
_PLACE = "place.json"
_UNFINISHED = "unfinished"


class BackupAndRestore(_Base):  # type: ignore[misc] # Keras is untyped
    """Keras's ``BackupAndRestore`` for a :class:`PyDataset`, to the batch. To use it::

        dataset = yogadl.keras.PyDataset(dataref, 32, shuffle=True, shuffle_seed=7)
        backup = yogadl.keras.BackupAndRestore("/checkpoints/run-1", dataset, save_freq=500)
        model.fit(dataset, epochs=10, shuffle=False, callbacks=[backup])

    Run the same program again after an interruption. Keras's own callback begins the epoch anew;
    with this one, ``fit`` goes on with the batch after the last one before the save: the same
    batches as without the interruption, and on a deterministic device the same weights.

    Saved are the weights, the optimizer, the random seeds of layers such as ``Dropout`` (but under
    the PyTorch back end only of those that were given a ``seed=``: others draw from PyTorch's own
    generator), the epoch and the place in the data. All of it becomes the new save at once, by the
    renaming of a folder: whenever the process is killed, the last whole save is found. The metrics
    of an epoch that was resumed are of its remaining batches. A save that falls on an epoch's last
    batch is made after its validation, which is thus not left out.

    The model must be built, and compiled as before. A folder is for one ``fit`` of one process;
    distributed, each rank has its own. For the main thread only.

    Args:
        backup_dir: a folder on this machine, which need not exist.
        dataset: what ``fit`` is given.
        save_freq: ``"epoch"``, or every how many batches to save, counted over epochs.
        delete_checkpoint: remove the folder when training is finished.

    Raises:
        InvalidArgumentError: an argument is out of range; from ``fit``, if it is given other data
            or ``steps_per_epoch``, or a model that is not built.
        StateMismatchError: from ``fit``: what was saved is of another data set or order.
    """

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        dataset: PyDataset,
        save_freq: int | str = "epoch",
        delete_checkpoint: bool = True,
    ) -> None:
        if not isinstance(dataset, PyDataset):
            raise InvalidArgumentError(
                f"dataset must be the PyDataset that fit is given, not {dataset!r:.100}"
            )
        directory = as_path("backup_dir", backup_dir)
        every = None if save_freq == "epoch" else as_index("save_freq", save_freq, 1)
        super().__init__(directory, save_freq=every or "epoch", delete_checkpoint=delete_checkpoint)
        self._save_every = every
        self._folder = pathlib.Path(backup_dir)
        self._dataset = dataset
        self._epoch = 0
        self._data_epoch = 0
        self._steps = 0
        self._done = 0
        self._unsaved = 0

    # What Keras calls

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 # Keras's
        """Restores what was saved."""
        if self.params.get("steps") is not self._dataset.num_batches:
            raise InvalidArgumentError(
                "fit must be given the PyDataset that BackupAndRestore was made with, and no "
                "steps_per_epoch"
            )
        if not self.model.built:
            raise InvalidArgumentError(
                "BackupAndRestore needs a model that is built before fit: give it an input shape, "
                "or call it on a batch"
            )
        self._unsaved = 0
        saves = self._saves()
        if saves:
            self._restore(saves[-1])

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 # Keras's
        """Notes where the epoch begins."""
        self._epoch = epoch
        self._data_epoch = self._dataset.epoch
        self._steps = len(self._dataset)
        self._done = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 # Keras's
        """Saves if it is time, but for an epoch's last batch."""
        # With steps_per_execution, the last execution may have had fewer batches than it says.
        done = min(batch + 1, self._steps)
        self._unsaved += done - self._done
        self._done = done
        if self._is_time() and done < self._steps:
            self._save(self._epoch, self._dataset.state_dict(done))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 # Keras's
        """Saves if it is time."""
        if self._save_every is not None and not self._is_time():
            return
        # An epoch that was broken off has not ended for the data set.
        has_ended = self._dataset.epoch != self._data_epoch
        state = self._dataset.state_dict(0 if has_ended else self._done)
        self._save(epoch + (self._done == self._steps), state)

    def on_train_end(self, logs: Any = None) -> None:
        """Removes what was saved, unless it is to stay."""
        super().on_train_end(logs)
        # Or the model's next `fit` would begin there, too.
        self.model._initial_epoch = None

    def _is_time(self) -> bool:
        return self._save_every is not None and self._unsaved >= self._save_every

    # Saving and restoring

    def _saves(self) -> list[pathlib.Path]:
        """The folders of whole saves, the latest last."""
        if not self._folder.is_dir():
            return []
        found = [path for path in self._folder.iterdir() if path.name.isdecimal()]
        return sorted(found, key=lambda path: int(path.name))

    def _save(self, epoch: int, state: dict[str, Any]) -> None:
        old = self._saves()
        made = self._folder / _UNFINISHED
        if made.exists():
            shutil.rmtree(made)
        made.mkdir(parents=True)
        model = self.model
        model.save_weights(str(made / _WEIGHTS))
        seeds = [keras.ops.convert_to_numpy(variable.value) for variable in _seeds(model)]
        np.savez(made / _SEEDS, *seeds)
        (made / _PLACE).write_text(json.dumps({"epoch": epoch, "data": state}))
        for path in [*made.iterdir(), made]:
            _sync(path)
        # From here on it is the save; before, it was none.
        made.rename(self._folder / str(int(old[-1].name) + 1 if old else 0))
        _sync(self._folder)
        for path in old:
            shutil.rmtree(path)
        self._unsaved = 0

    def _restore(self, save: pathlib.Path) -> None:
        place = json.loads((save / _PLACE).read_text())
        self._dataset.load_state_dict(place["data"])
        model = self.model
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        model.load_weights(str(save / _WEIGHTS))
        variables = _seeds(model)
        with np.load(save / _SEEDS) as seeds:
            if len(seeds.files) != len(variables):
                raise InvalidArgumentError(
                    f"{save} is of a model with {len(seeds.files)} random layers, not "
                    f"{len(variables)}; build the model as it was, or use another backup_dir"
                )
            for variable, name in zip(variables, seeds.files, strict=True):
                variable.assign(seeds[name])
        # How Keras's own callback tells `fit` where to begin.
        model._initial_epoch = place["epoch"]


def _seeds(model: Any) -> list[Any]:
    """The variables that are no weights: the states of random seeds."""
    weights = {id(variable) for variable in model.weights}
    return [variable for variable in model.variables if id(variable) not in weights]


def _sync(path: pathlib.Path) -> None:
    """Waits until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
