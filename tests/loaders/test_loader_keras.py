"""The conformance suite of loaders, over ``yogadl.keras``, read as ``fit`` reads it."""

from __future__ import annotations

import importlib
import multiprocessing
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("keras.utils", reason="needs Keras")

with warnings.catch_warnings():
    # Back ends warn of themselves when they are imported.
    warnings.simplefilter("ignore")
    import keras

import yogadl.keras
from yogadl.dataref import LMDBDataRef
from yogadl.testing import LoaderConformance

BACKEND = keras.backend.backend()
if BACKEND == "tensorflow":
    # Its processes take long to start, and make test-others runs the same with JAX.
    pytestmark = pytest.mark.long


def keras_epochs(dataset: Any) -> Any:
    """What the back end's ``fit`` makes of a data set."""
    trainer = importlib.import_module(f"keras.src.backend.{BACKEND}.trainer")
    if BACKEND == "tensorflow":
        strategy = importlib.import_module("tensorflow").distribute.get_strategy()
        return trainer.TFEpochIterator(x=dataset, shuffle=False, distribute_strategy=strategy)
    name = {"jax": "JAXEpochIterator", "torch": "TorchEpochIterator"}[BACKEND]
    return getattr(trainer, name)(x=dataset, shuffle=False)


class KerasLoader:
    """Goes through the steps of ``fit``, but for the training."""

    def __init__(self, dataset: yogadl.keras.PyDataset) -> None:
        self._dataset = dataset
        self._epochs = keras_epochs(dataset)
        # `fit` looks at a batch to build the model, and starts anew.
        next(self._batches())
        self._epochs.reset()
        self._taken = 0

    def _batches(self) -> Iterator[Any]:
        for _, _, step in self._epochs:
            # For PyTorch, a list of batches; else what gives them.
            yield step[0] if isinstance(step, list) else next(step)

    def epoch(self) -> Iterator[Any]:
        for batch in self._batches():
            self._taken += 1
            yield batch
        self._taken = 0

    def state(self) -> Any:
        return self._dataset.state_dict(self._taken)

    def close(self) -> None:
        self._dataset.close()


class TestPyDataset(LoaderConformance):
    worker_counts = (0, 1, 3)
    # Threads, then processes. JAX warns of forks.
    start_methods = (None, "spawn", "forkserver") if BACKEND == "jax" else (None, "fork", "spawn")
    # TensorFlow's trainer keeps hold of a data set that was broken off, which has to be closed.
    ends_when_dropped = BACKEND != "tensorflow"

    def open(
        self,
        dataref: LMDBDataRef,
        batch_size: int,
        workers: int = 0,
        start_method: str | None = None,
        state: Any = None,
        **order: Any,
    ) -> KerasLoader:
        if start_method is not None:
            multiprocessing.set_start_method(start_method, force=True)
        if state is not None:
            order.pop("start_offset", None)
        dataset = yogadl.keras.PyDataset(
            dataref,
            batch_size,
            state=state,
            workers=workers,
            use_multiprocessing=start_method is not None,
            **order,
        )
        return KerasLoader(self.passed(dataset))
