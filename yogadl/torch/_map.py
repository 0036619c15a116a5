"""A map-style dataset over a DataRef, and batches that need no collating."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.dataref import IndexedDataRef
from yogadl.errors import InvalidArgumentError
from yogadl.extras import require
from yogadl.torch import _tensors
from yogadl.torch._runs import BatchPositions

torch = require("torch", "torch")

Array = np.ndarray[Any, Any]
_Dataset: Any = torch.utils.data.Dataset


class Batch(Sequence[Any]):
    """The records of a batch, as a sequence, and the batch that they are views of.

    To torch, it is a list of records like any other. ``collate`` takes the batch instead; the
    records are made when they are first asked for. Lists made of it, by slicing, are plain ones.
    Not safe for threads before that.

    Args:
        spec: the element spec.
        whole: the batch: a nest as of the spec, with a tensor ``[n, *shape]`` for each leaf of
            static shape and a list for any other.

    Attributes:
        whole: as given.
    """

    def __init__(self, spec: specs.Structure, whole: Any) -> None:
        self._spec = spec
        self.whole = whole

    @functools.cached_property
    def _records(self) -> list[Any]:
        return _tensors.split(self._spec, self.whole)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        return self._records[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._records)

    def __add__(self, other: Sequence[Any]) -> list[Any]:
        return [*self, *other]

    def __radd__(self, other: Sequence[Any]) -> list[Any]:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr(self._records)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._spec, self.whole)

    def pin_memory(self) -> Batch:
        """The same in pinned memory, as ``DataLoader(pin_memory=True)`` asks for it."""
        values = map(_tensors.pinned, specs.flatten(self._spec, self.whole))
        return type(self)(self._spec, specs.unflatten(self._spec, list(values)))


class _ListBatch(list[Any], Batch):  # type: ignore[misc] # a list adds only lists
    """Records that are single tensors, which ``torch.stack`` takes from a real list only."""

    def __init__(self, spec: specs.Structure, whole: Any) -> None:
        Batch.__init__(self, spec, whole)
        list.__init__(self, self._records)


def collate(records: Sequence[Any]) -> Any:
    """The ``collate_fn`` for a ``MapDataset``: hands a whole batch over without copying it again.

    Args:
        records: a ``Batch``, or any list of records, for which it is torch's ``default_collate``.

    Returns:
        Of a ``Batch`` what it is made of: a nest as of the spec, with a tensor ``[n, *shape]`` for
        each leaf of static shape, and a list of ``n`` values for any other. Tuples stay tuples,
        where ``default_collate`` makes lists of them.
    """
    if isinstance(records, Batch):
        return records.whole
    return torch.utils.data.default_collate(records)


class MapDataset(_Dataset):  # type: ignore[misc] # known at run time only
    """The records of a data set, by position, with tensors for arrays.

    Give ``DataLoader`` ``collate_fn=yogadl.torch.collate``, or whole batches of positions by
    ``sampler=BatchSampler(...)`` and ``batch_size=None``. Then each batch is read into memory in
    one copy, which the tensors share.

    Strings are ``bytes``, arrays of them (nested) lists. ``None``, ``Ragged`` and ``Sparse`` values
    are left as they are.

    Safe for threads. Survives a fork, and can be pickled, if the data set and the transform do; so
    any start method of workers will do.

    Args:
        dataref: the data set.
        transform: called with every record, tensors and all; what it returns takes the record's
            place. Batches are then put together by torch's ``default_collate``.

    Raises:
        InvalidArgumentError: it is no data set whose records can be read by position.
        UnsupportedTypeError: torch lacks one of its dtypes.
    """

    def __init__(
        self, dataref: IndexedDataRef, transform: Callable[[Any], Any] | None = None
    ) -> None:
        if not isinstance(dataref, IndexedDataRef):
            raise InvalidArgumentError(
                f"MapDataset takes a DataRef, as Storage.fetch returns it, not {dataref!r:.100}"
            )
        _tensors.check_spec(dataref.spec)
        self.dataref = dataref
        self.transform = transform
        self._spec = dataref.spec
        self._batch = _ListBatch if isinstance(self._spec, specs.LEAVES) else Batch

    def __len__(self) -> int:
        return len(self.dataref)

    def __getitem__(self, index: Any) -> Any:
        """One record for an integer; a batch for a list or a 1-D tensor or array of integers.

        Negative positions count from the end. A batch is what ``collate`` returns.

        Raises:
            RecordIndexError: there is no such record.
            InvalidArgumentError: it is none of these.
        """
        if isinstance(index, torch.Tensor):
            index = index.cpu().numpy()
        if isinstance(index, np.ndarray) and index.ndim == 0:
            index = index[()]
        if isinstance(index, int | np.integer):
            found = self.dataref[index]  # type: ignore[index] # it takes NumPy integers, too
            record = _tensors.record_tensors(self._spec, found)
            return record if self.transform is None else self.transform(record)
        if not isinstance(index, list | np.ndarray):
            raise InvalidArgumentError(
                "a MapDataset takes an integer, or a list, tensor or array of integers, not "
                f"{index!r:.100}; for a part of the data set, use MapDataset(dataref[start:stop])"
            )
        return collate(self.__getitems__(index))

    def __getitems__(self, indices: Sequence[int] | Array) -> Sequence[Any]:
        """The records at some positions, read at once: a ``Batch``, or a list after a transform.

        Raises:
            RecordIndexError: there is no such record.
        """
        if isinstance(indices, BatchPositions):
            whole = indices.run.read(self.dataref, indices)
        else:
            whole = self._read(indices)
        if self.transform is None:
            return self._batch(self._spec, whole)
        return list(map(self.transform, _tensors.split(self._spec, whole)))

    def _read(self, indices: Any) -> Any:
        return _tensors.batch_tensors(self._spec, self.dataref.read(indices))
