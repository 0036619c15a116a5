"""Spawned workers whose epoch is left early, while they copy batches to shared memory."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("torch.utils.data", reason="needs PyTorch")

from torch.utils.data import DataLoader, Dataset

import yogadl.torch
from yogadl.dataref import LMDBDataRef
from yogadl.storage import LFSConfigurations, LFSStorage

# Copying that much takes milliseconds, in which the worker is told to end.
RECORD_BYTES = 30_000_000


@pytest.fixture(scope="module")
def dataref(tmp_path_factory: pytest.TempPathFactory) -> LMDBDataRef:
    storage = LFSStorage(LFSConfigurations(str(tmp_path_factory.mktemp("large"))))
    storage.submit({"x": np.zeros((8, RECORD_BYTES), np.uint8)}, "large", "1")
    return storage.fetch("large", "1")


def records(dataref: LMDBDataRef) -> Dataset[Any]:
    made: Dataset[Any] = yogadl.torch.IterableDataset(dataref.stream())
    return made


def batches(dataref: LMDBDataRef) -> Dataset[Any]:
    made: Dataset[Any] = yogadl.torch.IterableDataset(dataref.stream(), 2)
    return made


def by_position(dataref: LMDBDataRef) -> Dataset[Any]:
    made: Dataset[Any] = yogadl.torch.MapDataset(dataref)
    return made


@pytest.mark.parametrize("make", [records, batches, by_position])
@pytest.mark.long_for("by_position", "records")
def test_workers_end_in_order(dataref: LMDBDataRef, make: Any) -> None:
    for _ in range(2):
        loader = DataLoader(
            make(dataref), batch_size=None, num_workers=2, multiprocessing_context="spawn"
        )
        items: Any = iter(loader)
        next(items)
        workers = items._workers
        del items, loader
        gc.collect()
        for worker in workers:
            worker.join()
        assert [worker.exitcode for worker in workers] == [0, 0]
