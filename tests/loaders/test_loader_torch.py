"""The conformance suite of loaders, over ``yogadl.torch``."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch.utils.data")
pytest.importorskip("torchdata")

from stateful_loader import StatefulLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import yogadl.torch
from yogadl.dataref import LMDBDataRef
from yogadl.testing import LoaderConformance

# torchdata 0.11 tells torch of itself in a way that torch 2.13 deprecates.
pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    # Three are more than the processors of some machines, which is meant.
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
]


class TestIterableDataset(LoaderConformance):
    worker_counts = (0, 1, 3)
    start_methods = ("fork", "spawn")

    def open(
        self,
        dataref: LMDBDataRef,
        batch_size: int,
        workers: int = 0,
        start_method: str | None = None,
        state: Any = None,
        **order: Any,
    ) -> StatefulLoader:
        dataset = self.passed(yogadl.torch.IterableDataset(dataref.stream(**order), batch_size))
        method = start_method if workers else None
        loader = StatefulDataLoader(
            dataset, batch_size=None, num_workers=workers, multiprocessing_context=method
        )
        return StatefulLoader(loader, state)


class TestMapDataset(LoaderConformance):
    worker_counts = (0, 1, 3)
    start_methods = ("fork", "spawn")

    def batches(self, sampler: yogadl.torch.Sampler, batch_size: int) -> dict[str, Any]:
        """What tells the loader which records make a batch."""
        return {"sampler": self.passed(sampler), "batch_size": batch_size}

    def open(
        self,
        dataref: LMDBDataRef,
        batch_size: int,
        workers: int = 0,
        start_method: str | None = None,
        state: Any = None,
        **order: Any,
    ) -> StatefulLoader:
        offset = order.pop("start_offset", 0)
        sampler = yogadl.torch.Sampler(dataref, **order)
        if offset:
            sampler.load_state_dict(dataref.stream(offset, **order).state_dict())
        loader = StatefulDataLoader(
            self.passed(yogadl.torch.MapDataset(dataref)),
            collate_fn=yogadl.torch.collate,
            num_workers=workers,
            multiprocessing_context=start_method if workers else None,
            **self.batches(sampler, batch_size),
        )
        return StatefulLoader(loader, state)


class TestBatchSampler(TestMapDataset):
    # Workers get plain lists of positions, as of the class above, however they are started.
    start_methods = ("fork",)

    def batches(self, sampler: yogadl.torch.Sampler, batch_size: int) -> dict[str, Any]:
        return {"batch_sampler": self.passed(yogadl.torch.BatchSampler(sampler, batch_size))}
