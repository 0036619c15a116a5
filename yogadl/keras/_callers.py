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

require("keras", "keras")

from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter  # noqa: E402
from keras.src.trainers.epoch_iterator import EpochIterator  # noqa: E402


def _code(function: Any) -> CodeType:
    code: CodeType = function.__code__
    return code


_RESET = _code(EpochIterator.reset)
_SHAPES = _code(PyDatasetAdapter.get_tf_dataset)


def is_reset() -> bool:
    """Whether Keras begins a run, and nothing of what it read before counts as an epoch."""
    return _is_called_by(_RESET)


def is_learning_shapes() -> bool:
    """Whether TensorFlow's trainer reads the first batches to infer the shapes of all."""
    return _is_called_by(_SHAPES)


def _is_called_by(code: CodeType) -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False
