"""Data sets and streams for PyTorch's ``DataLoader``. Importing this package imports torch.

The same records in the same order as from the plain stream, as tensors that share memory with what
was read.
"""

from yogadl.torch._batch_sampler import BatchSampler
from yogadl.torch._collate import Batch, collate
from yogadl.torch._iterable import IterableDataset
from yogadl.torch._map import MapDataset
from yogadl.torch._runs import Position
from yogadl.torch._sampler import DistributedSampler, Sampler

__all__ = [
    "Batch",
    "BatchSampler",
    "DistributedSampler",
    "IterableDataset",
    "MapDataset",
    "Position",
    "Sampler",
    "collate",
]
