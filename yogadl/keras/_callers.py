"""Which part of Keras calls.

Keras asks a ``PyDataset`` for batches, and tells it of the ends of epochs, also where no epoch is
read: to learn the shapes, to build the model, to begin a run. The calls are the same, so only who
makes them tells them apart. What is looked for is named here, and its absence is an error when this
module is imported, not another order of the data.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

from yogadl.extras import require

# Says how to install Keras where it is missing, so it comes before what is imported of it.
require("keras", "keras")

from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter  # noqa: E402 # see above
from keras.src.trainers.epoch_iterator import EpochIterator  # noqa: E402 # likewise


def _code(function: Any) -> CodeType:
    code: CodeType = function.__code__
    return code


_RESET = _code(EpochIterator.reset)
_SHAPES = _code(PyDatasetAdapter.get_tf_dataset)


def is_reset() -> bool:
    """Whether Keras begins a run, and nothing of what it read before counts as an epoch."""
    return _caller(_RESET) is not None


def shape_learner() -> Any:
    """The adapter with which TensorFlow's trainer reads the first batches to infer the shapes of
    all; ``None`` if somebody else calls. Whether it will shuffle batches is its ``shuffle``."""
    frame = _caller(_SHAPES)
    return None if frame is None else frame.f_locals["self"]


def _caller(code: CodeType) -> FrameType | None:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame
