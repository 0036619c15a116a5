"""Batches that pass for lists of records, and what makes them batches again."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from yogadl import spec as specs
from yogadl.extras import require
from yogadl.torch import _tensors

torch = require("torch", "torch")


class Batch(Sequence[Any]):
    """The records of a batch, as a sequence, and the batch that they are views of.

    To torch, it is a list of records like any other. ``collate`` takes the batch instead, and so
    does torch's ``default_collate`` where it would make the same of the records; these are made
    when they are first asked for, and it is not safe for threads before. Lists made of it, by
    slicing, are plain ones. Its item 0 may be of a class derived from ``dict`` or ``tuple``.

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


class _DictRecord(dict[Any, Any]):
    """A dict that is the first record of a batch; ``default_collate`` goes by its type."""


class _TupleRecord(tuple[Any, ...]):
    """A tuple that is the first record of a batch."""


class _WholeBatch(Batch):
    """Records that ``default_collate`` takes the batch of."""

    @functools.cached_property
    def _first(self) -> Any:
        record = _tensors.first(self._spec, self.whole)
        return _DictRecord(record) if isinstance(record, dict) else _TupleRecord(record)

    def __getitem__(self, index: Any) -> Any:
        return self._first if type(index) is int and index == 0 else super().__getitem__(index)


def batch_class(spec: specs.Structure) -> type[Batch]:
    """The kind of batch for an element spec."""
    if isinstance(spec, specs.LEAVES):
        return _ListBatch
    # A named tuple has a type of its own, which is to be kept.
    known = isinstance(spec, dict) or type(spec) is tuple
    return _WholeBatch if known and all(map(_is_stacked, specs.leaves(spec))) else Batch


def _is_stacked(leaf: specs.Leaf) -> bool:
    """Whether ``default_collate`` makes the same of such values as a batch has for them."""
    if not isinstance(leaf, specs.TensorSpec) or leaf.shape is None:
        return False
    return leaf.shape == () if leaf.is_string else None not in leaf.shape


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


def _as_default_collate(nest: Any) -> Any:
    """A batch with lists for tuples, and with tuples for the lists that are in these."""
    if isinstance(nest, dict):
        return {key: _as_default_collate(value) for key, value in nest.items()}
    if isinstance(nest, tuple):
        values = [tuple(v) if isinstance(v, list) else _as_default_collate(v) for v in nest]
        return type(nest)(*values) if specs.is_namedtuple(nest) else values
    return nest


def _collate_known(records: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    """What ``default_collate`` calls for records of which the first was that of a batch."""
    if isinstance(records, Batch):
        return _as_default_collate(records.whole)
    # A list that somebody made.
    first = records[0]
    plain = dict(first) if isinstance(first, dict) else tuple(first)
    collate_utils = torch.utils.data._utils.collate
    return collate_utils.collate([plain, *records[1:]], collate_fn_map=collate_fn_map)


# This is how torch's documentation says to extend `default_collate`, which goes by type.
torch.utils.data._utils.collate.default_collate_fn_map.update(
    dict.fromkeys((_DictRecord, _TupleRecord), _collate_known)
)
