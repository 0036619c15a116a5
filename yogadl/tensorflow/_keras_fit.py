"""Keras's ``fit`` over a data set of which the first iteration is shorter than the others.

Where the cardinality is unknown, Keras counts the batches of the first epoch, adds one, and stops
all later epochs there: what comes after is never trained on. It is the only one to do so, a loop of
one's own reads every epoch to its end, and neither says in advance what it will do. Nor is there a
cardinality to state that would be true. So who is reading is looked up when it matters, once an
epoch, in the call stacks of this process.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from yogadl.errors import InvalidArgumentError

_READERS = ("fit", "evaluate", "predict")


def check_keras(dataset: Any, whole: int) -> None:
    """Checks that Keras does not stop an epoch that it is about to read before its end.

    Args:
        dataset: what the epoch is of; Keras may read what was made of it.
        whole: elements of the epoch.

    Raises:
        InvalidArgumentError: it would.
    """
    stop = _stop(dataset)
    if stop is not None and stop < whole:
        raise InvalidArgumentError(
            f"Keras would stop this epoch and all later ones after {stop} batches, since the first "
            "began at an offset and was shorter; fit what was left of that epoch by itself, "
            "epochs=1, and the others by another fit; or give make_tf_dataset epochs=None, and fit "
            "steps_per_epoch=; yogadl.keras.PyDataset needs neither"
        )


def _stop(dataset: Any) -> int | None:
    """After how many batches Keras stops; ``None`` where it does not, or where others read."""
    if dataset is None:
        return None
    for frame in sys._current_frames().values():
        epochs = _epochs_of(frame, dataset)
        if epochs is not None and epochs.steps_per_epoch is None:
            return None if epochs._num_batches is None else int(epochs._num_batches)
    return None


def _epochs_of(frame: FrameType | None, dataset: Any) -> Any:
    """The ``EpochIterator`` of Keras over a data set, in the calls that lead to a frame.

    That of the innermost call: what ``fit`` trains on may be validated on, too.
    """
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if frame.f_code.co_name in _READERS and module.startswith("keras.src."):
            found = frame.f_locals.get("epoch_iterator")
            read = getattr(getattr(found, "data_adapter", None), "_dataset", None)
            if _is_made_of(read, dataset):
                return found
        frame = frame.f_back
    return None


def _is_made_of(made: Any, dataset: Any) -> bool:
    if made is dataset:
        return True
    inputs = getattr(made, "_inputs", None)
    return inputs is not None and any(_is_made_of(one, dataset) for one in inputs())
