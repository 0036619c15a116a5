"""A map-style dataset over a DataRef."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from yogadl.dataref import IndexedDataRef
from yogadl.dataref._padding import Padding
from yogadl.errors import InvalidArgumentError
from yogadl.extras import require
from yogadl.seeding import SeededTransform, Transform, called, check_transform
from yogadl.torch import _tensors
from yogadl.torch._collate import batch_of, collate
from yogadl.torch._runs import BatchPositions, Position
from yogadl.torch._workers import end_in_order

torch = require("torch", "torch")

Array = np.ndarray[Any, Any]
_Dataset: Any = torch.utils.data.Dataset


class MapDataset(_Dataset):  # type: ignore[misc] # known at run time only
    """The records of a data set, by position, with tensors for arrays.

    A ``DataLoader`` of it reads each batch into memory in one copy, which the tensors share if it
    has ``collate_fn=yogadl.torch.collate``; or give it ``batch_size=None`` and a torch
    ``BatchSampler`` as ``sampler``. What others do to the records before is in the batch.

    Strings are ``bytes``, arrays of them (nested) lists. ``None``, ``Ragged`` and ``Sparse`` values
    are left as they are.

    Safe for threads. Survives a fork, and can be pickled, if the data set and the transform do; so
    any start method of workers will do.

    Args:
        dataref: the data set.
        transform: called with every record, tensors and all; what it returns takes the record's
            place. Batches are then put together by torch's ``default_collate``. May be seeded,
            ``yogadl.seeded``; the epoch then comes with the positions, from a ``Sampler`` made of
            this dataset, a ``BatchSampler`` of this package, or whatever yields a ``Position``.
        pad: fills up the records of a batch to the largest of them, so that torch can stack them;
            see ``IndexedStream.batches``. A record that is read by itself is as it is.

    Raises:
        InvalidArgumentError: it is no data set whose records can be read by position, cannot be
            padded like that, or is to be both padded and transformed.
        UnsupportedTypeError: torch lacks one of its dtypes.
    """

    def __init__(
        self, dataref: IndexedDataRef, transform: Transform | None = None, *, pad: Any = None
    ) -> None:
        if not isinstance(dataref, IndexedDataRef):
            raise InvalidArgumentError(
                f"MapDataset takes a DataRef, as Storage.fetch returns it, not a "
                f"{type(dataref).__name__}: {dataref!r:.100}"
            )
        _tensors.check_spec(dataref.spec)
        if pad is not None and transform is not None:
            raise InvalidArgumentError(
                "pad= fills up what is read, which transform= would change: pad in a collate_fn, "
                "or have yogadl.torch.IterableDataset(stream, batch_size, pad=…, transform=…) "
                "transform whole batches"
            )
        if pad is not None:
            Padding(dataref.spec, pad)  # refuses what cannot be padded
        self.dataref = dataref
        self.transform = check_transform(transform)
        self.pad = pad
        self._spec = dataref.spec

    def __len__(self) -> int:
        return len(self.dataref)

    def __repr__(self) -> str:
        pad = "" if self.pad is None else f", pad={self.pad!r:.100}"
        return f"{type(self).__name__}({self.dataref!r}{pad})"

    def __getitem__(self, index: Any) -> Any:
        """One record for an integer; a batch for a list or a 1-D tensor or array of integers.

        Negative positions count from the end. A batch is what ``collate`` returns.

        Raises:
            RecordIndexError: there is no such record.
            InvalidArgumentError: it is none of these, or has no epoch for a seeded transform.
        """
        end_in_order()
        if isinstance(index, torch.Tensor):
            index = index.cpu().numpy()
        if isinstance(index, np.ndarray) and index.ndim == 0:
            index = index[()]
        if isinstance(index, int | np.integer):
            found = self.dataref[index]  # type: ignore[index] # it takes NumPy integers, too
            record = _tensors.record_tensors(self._spec, found)
            return record if self.transform is None else self._transformed([record], [index])[0]
        if not isinstance(index, list | np.ndarray):
            raise InvalidArgumentError(
                "a MapDataset takes an integer, or a list, tensor or array of integers, not "
                f"{index!r:.100}; for a part of the data set, use MapDataset(dataref[start:stop])"
            )
        return collate(self.__getitems__(index))

    def __getitems__(self, indices: Sequence[int] | Array) -> Sequence[Any]:
        """The records at some positions, read at once: a list, to be changed like any other.

        It is a ``Batch``, or a ``list`` where records are single values, and after a transform.

        Raises:
            RecordIndexError: there is no such record.
        """
        end_in_order()
        # Several batches that are read at once would be padded to the largest of them all.
        if isinstance(indices, BatchPositions) and indices.run is not None and self.pad is None:
            whole = indices.run.read(self.dataref, indices)
        else:
            whole = _tensors.batch_tensors(self._spec, self.dataref.read(indices, pad=self.pad))
        if self.pad is not None:
            return batch_of(_tensors.stacked_spec(self._spec, whole), whole)
        if self.transform is None:
            return batch_of(self._spec, whole)
        return self._transformed(_tensors.split(self._spec, whole), indices)

    def _transformed(self, records: Sequence[Any], indices: Any) -> list[Any]:
        transform = self.transform
        assert transform is not None
        if not isinstance(transform, SeededTransform):
            return [called(transform, record) for record in records]
        places = self._places(indices)
        return [
            transform.of_record(record, *place)
            for record, place in zip(records, places, strict=True)
        ]

    def _places(self, indices: Any) -> Iterator[tuple[int, int]]:
        """The epoch and the position of each record."""
        count = len(self.dataref)
        for index in indices:
            if isinstance(indices, BatchPositions):
                epoch = indices.epoch
            elif isinstance(index, Position):
                epoch = index.epoch
            else:
                raise InvalidArgumentError(
                    f"the epoch is not known in which record {index} is read, which a seeded "
                    "transform needs; let yogadl.torch.Sampler(dataset, …) decide the order, made "
                    "of this MapDataset, or yogadl.torch.BatchSampler; or give "
                    "yogadl.torch.Position(position, epoch)"
                )
            yield epoch, int(index) % count
