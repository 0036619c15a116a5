"""Keras's ``fit`` over a data set of which the first iteration is shorter than the others, and what
it reads of a data set but does not train on.

Where the cardinality is unknown, Keras counts the batches of the first epoch, adds one, and stops
all later epochs there: what comes after is never trained on. It is the only one to do so, a loop of
one's own reads every epoch to its end, and neither says in advance what it will do. Nor is there a
cardinality to state that would be true. With a strategy of ``tf.distribute``, or JAX or PyTorch as
its backend, it takes a batch to build the model by, at the beginning of a ``fit`` or ``evaluate``
and with JAX a ``predict``, of an iteration that it ends there. So who is reading is looked up when
it matters, once an epoch, in the call stacks of this process.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

from yogadl.errors import InvalidArgumentError

_READERS = ("fit", "evaluate", "predict")
_BUILDERS = ("_maybe_symbolic_build", "_symbolic_build")


class ShortEpoch:
    """The first epoch of a data set, and who of Keras counted its batches.

    Args:
        first: elements of that epoch.
        whole: elements of all others, more than ``first``.
    """

    def __init__(self, first: int, whole: int) -> None:
        self._first = first
        self._whole = whole
        self._counting: weakref.ref[Any] | None = None

    def begins(self, dataset: Any) -> None:
        """Notes who is about to read it.

        Args:
            dataset: what the epoch is of; Keras may read what was made of it.
        """
        epochs = _epochs(dataset)
        self._counting = None if epochs is None else weakref.ref(epochs)

    def check(self, dataset: Any) -> None:
        """Checks that Keras does not stop an epoch that it is about to read before its end.

        Args:
            dataset: see :meth:`begins`.

        Raises:
            InvalidArgumentError: it would.
        """
        counting = None if self._counting is None else self._counting()
        if counting is None:
            return
        epochs = _epochs(dataset)
        if epochs is not counting or counting._num_batches is None:
            return
        stop = int(counting._num_batches)
        # It counts whole executions, and one more. If those are more than there were, an element
        # became several.
        steps = int(counting.steps_per_execution)
        becomes_more = stop - steps >= self._first + steps
        if stop < self._whole or becomes_more:
            raise InvalidArgumentError(
                f"Keras would stop this epoch and all later ones after {stop} batches, since the "
                "first began at an offset and was shorter; fit what was left of that epoch by "
                "itself, epochs=1, and the others by another fit; or give make_tf_dataset "
                "epochs=None, and fit steps_per_epoch=; yogadl.keras.PyDataset needs neither"
            )


def is_only_looked_at(dataset: Any) -> bool:
    """Whether Keras is about to read a batch only to build a model by it.

    Args:
        dataset: see :meth:`ShortEpoch.begins`.
    """
    if dataset is None or "keras" not in sys.modules:
        return False
    return any(_is_building(frame, dataset) for frame in sys._current_frames().values())


def _is_building(frame: FrameType | None, dataset: Any) -> bool:
    called = ""
    for call in _calls_to(frame):
        name = call.f_code.co_name
        if name in _BUILDERS and _is_keras(call) and _is_read(call, "iterator", dataset):
            return True
        # With JAX, it does so by itself, before it has anything to put what it predicts into.
        if (
            name == "predict"
            and _is_keras(call)
            and called != "on_predict_begin"
            and "outputs" not in call.f_locals
            and _is_read(call, "epoch_iterator", dataset)
        ):
            return True
        called = name
    return False


def _epochs(dataset: Any) -> Any:
    """The ``EpochIterator`` of Keras that reads a data set; ``None`` where others read."""
    if dataset is None:
        return None
    for frame in sys._current_frames().values():
        epochs = _epochs_of(frame, dataset)
        if epochs is not None:
            return epochs
    return None


def _epochs_of(frame: FrameType | None, dataset: Any) -> Any:
    """The ``EpochIterator`` of Keras over a data set, in the calls that lead to a frame.

    That of the innermost call: what ``fit`` trains on may be validated on, too.
    """
    for call in _calls_to(frame):
        is_reader = call.f_code.co_name in _READERS and _is_keras(call)
        if is_reader and _is_read(call, "epoch_iterator", dataset):
            return call.f_locals["epoch_iterator"]
    return None


def _calls_to(frame: FrameType | None) -> Iterator[FrameType]:
    """The calls that lead to a frame, from the innermost on."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_keras(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("keras.src.")


def _is_read(frame: FrameType, name: str, dataset: Any) -> bool:
    """Whether a local variable of Keras is an ``EpochIterator`` over a data set."""
    adapter = getattr(frame.f_locals.get(name), "data_adapter", None)
    return _is_made_of(getattr(adapter, "_dataset", None), dataset)


def _is_made_of(made: Any, dataset: Any) -> bool:
    # What a strategy has distributed, it keeps under a name of its own.
    made = getattr(made, "_original_dataset", made)
    if made is dataset:
        return True
    # So it does what it got from functions, one for each worker.
    datasets = getattr(made, "_datasets", None)
    inputs = getattr(made, "_inputs", None)
    if inputs is not None:
        datasets = inputs()
    return datasets is not None and any(_is_made_of(one, dataset) for one in datasets)
