"""Batches that pass for lists of records, and what makes them batches again."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from yogadl import spec as specs
from yogadl.dataref import IndexedDataRef, IndexedStream
from yogadl.extras import require
from yogadl.torch import _callers, _tensors

torch = require("torch", "torch")

_torchs: Any = torch.utils.data._utils.collate

if TYPE_CHECKING:
    _UserList = collections.UserList[Any]
else:
    _UserList = collections.UserList


class Batch(_UserList):
    """The records of a batch, which are views of it, as a list that can be changed like any other.

    As long as nobody has asked for a record, ``collate`` takes the batch as it was read, and
    torch's ``default_collate`` a copy of it. From then on the records are what counts, whatever was
    done to them. Lists made of it, by slicing, adding or copying, are plain ones. Not safe for
    threads.

    Args:
        spec: the element spec.
        whole: the batch: a nest as of the spec, with a tensor ``[n, *shape]`` for each leaf of
            static shape and a list for any other.
    """

    def __init__(self, spec: specs.Structure, whole: Any) -> None:
        self._spec = spec
        self._read = whole
        self._records: list[Any] | None = None
        # Record 0, and how often it was asked for while there were no others.
        self._first: Any = None
        self._asked = 0

    @property
    def data(self) -> list[Any]:
        """The records: what all methods of the base work on."""
        if self._records is None:
            self._records = _tensors.split(self._spec, self._read)
            if self._asked:
                self._records[0] = self._first
        return self._records

    @data.setter
    def data(self, records: list[Any]) -> None:
        self._records = records

    @property
    def is_untouched(self) -> bool:
        """Whether nobody but ``default_collate``, which begins with record 0, has got a record."""
        return self._records is None and self._asked <= 1

    @property
    def whole(self) -> Any:
        """The batch of the records as they are now; see ``collate``."""
        if self._records is None and not self._asked:
            return _tensors.with_own_containers(self._spec, self._read)
        return _whole(self._spec, self.data, self._read)

    def __getitem__(self, index: Any) -> Any:
        if self._records is None and type(index) is int and index == 0:
            if not self._asked:
                self._first = _tensors.first(self._spec, self._read)
            self._asked += 1
            return self._first
        return self.data[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)

    def __add__(self, other: Iterable[Any]) -> list[Any]:  # type: ignore[override] # no Batch
        return [*self.data, *other]

    def __radd__(self, other: Iterable[Any]) -> list[Any]:  # type: ignore[override] # likewise
        return [*other, *self.data]

    def __mul__(self, count: int) -> list[Any]:  # type: ignore[override] # likewise
        return self.data * count

    __rmul__ = __mul__  # type: ignore[assignment] # likewise

    def copy(self) -> list[Any]:  # type: ignore[override] # likewise
        return list(self.data)

    __copy__ = copy  # type: ignore[assignment] # likewise


class LeafBatch(list[Any]):
    """Records that are single values which torch cannot be trusted to put together, as a list.

    ``torch.stack`` takes no other sequence.

    Args:
        spec: the element spec, a leaf.
        whole: the batch: a tensor or a list.
    """

    def __init__(self, spec: specs.Structure, whole: Any) -> None:
        super().__init__(_tensors.split(spec, whole))
        self._spec = spec
        self._read = whole

    @property
    def whole(self) -> Any:
        """The batch of the records as they are now; see ``collate``."""
        return _whole(self._spec, self, self._read)


def batch_of(spec: specs.Structure, whole: Any) -> Batch | list[Any]:
    """The records of a batch; the arguments are those of ``Batch``."""
    if not isinstance(spec, specs.LEAVES):
        return Batch(spec, whole)
    # torch gives a list of strings back as it is, so it must be a plain one.
    is_plain = len(whole) > 0 and _is_stacked(whole)
    return _tensors.split(spec, whole) if is_plain else LeafBatch(spec, whole)


def collate(records: Sequence[Any]) -> Any:
    """The ``collate_fn`` for a ``MapDataset``: hands a batch over as it was read, without a copy.

    Where records were looked at or changed before, the batch is made of them as they are; what they
    have beside the components of the spec is put together by torch's ``default_collate``. Records
    that are single values are always put together so.

    Args:
        records: what ``MapDataset.__getitems__`` returned, or any list of records, for which it is
            torch's ``default_collate``.

    Returns:
        Of a ``Batch``, a nest as of the spec, with a tensor ``[n, *shape]`` for each leaf of static
        shape, and a list of ``n`` values for any other. Tuples stay tuples, where
        ``default_collate`` makes lists of them.
    """
    if isinstance(records, Batch | LeafBatch):
        return records.whole
    return torch.utils.data.default_collate(records)


def _whole(spec: specs.Structure, records: list[Any], read: Any) -> Any:
    """The batch of some records, which may be others than those that were read."""
    if records:
        return _joined(spec, records)
    columns = specs.flatten(spec, read)
    return specs.unflatten(spec, [column[:0] for column in columns])


def _joined(spec: Any, values: list[Any]) -> Any:
    """Records, or values of one component, as a batch.

    Args:
        spec: what they were when they were read; ``None`` if they are from elsewhere.
        values: what they are now; at least one.
    """
    first = values[0]
    if isinstance(spec, dict) and isinstance(first, dict):
        return {key: _joined(spec.get(key), [value[key] for value in values]) for key in first}
    if isinstance(spec, tuple) and all(
        isinstance(value, tuple) and len(value) == len(spec) for value in values
    ):
        columns = map(list, zip(*values, strict=True))
        parts = [_joined(part, column) for part, column in zip(spec, columns, strict=True)]
        return specs.tuple_like(first, parts)
    if isinstance(spec, specs.LEAVES) and not _is_tensor(spec):
        return list(values)
    return torch.utils.data.default_collate(values)


def _is_tensor(leaf: specs.Leaf) -> bool:
    """Whether a batch has a tensor for its values."""
    if not isinstance(leaf, specs.TensorSpec):
        return False
    return not leaf.is_string and leaf.static_shape is not None


def _is_stacked(column: Any) -> bool:
    """Whether ``default_collate`` makes of the values of a component what a batch has for them."""
    return isinstance(column, torch.Tensor) or all(type(value) is bytes for value in column)


# torch's `default_collate` goes by the type of item 0, and is extended by types: so it is for all
# dicts and tuples, and of those of others it makes what it would without.

_CONTAINERS = (dict, tuple)
_functions = torch.utils.data._utils.collate.default_collate_fn_map
_EARLIER = {kind: _functions[kind] for kind in _CONTAINERS if kind in _functions}


def _collate_containers(records: Any, *, collate_fn_map: Any = None) -> Any:
    """What ``default_collate`` calls for records that are dicts or tuples."""
    if (
        isinstance(records, Batch)
        and records.is_untouched
        and all(map(_is_stacked, specs.flatten(records._spec, records._read)))
        and _is_torchs_own(collate_fn_map)
    ):
        return _copy_as_collated(records._read)
    plain = {kind: made for kind, made in collate_fn_map.items() if made is not _collate_containers}
    try:
        return _torchs.collate(records, collate_fn_map={**plain, **_EARLIER})
    except RuntimeError as error:
        advice = _advice_on_shapes(records)
        if not advice:
            raise
        # Of torch's own class, for who catches that.
        raise RuntimeError(f"{error}. {advice}") from error


def _advice_on_shapes(records: Any) -> str:
    """What to do where torch cannot stack records; empty if they are not from here."""
    dataset = _callers.loaded_dataset()
    # Datasets are told apart by what they have, since their modules import this one.
    if isinstance(dataset, IndexedDataRef):
        return (
            "Where records differ in shape, make a dataset that fills them up, "
            "DataLoader(yogadl.torch.MapDataset(dataref, pad=0), …)"
        )
    if isinstance(getattr(dataset, "stream", None), IndexedStream):
        return (
            "Of an IterableDataset whose records differ in shape, have it make and fill up the "
            "batches, DataLoader(IterableDataset(stream, batch_size, pad=0), batch_size=None); or "
            "give the DataLoader a collate_fn of your own"
        )
    if isinstance(getattr(dataset, "dataref", None), IndexedDataRef) and dataset.transform:
        return (
            "The records that the transform of the MapDataset makes differ in shape: have it make "
            "them alike, or give the DataLoader a collate_fn of your own"
        )
    if not isinstance(records, Batch):
        return ""
    advice = (
        "Of a MapDataset whose records differ in shape, give the DataLoader "
        "collate_fn=yogadl.torch.collate, which makes lists of them"
    )
    if getattr(dataset, "pad", None) is not None:
        return f"{advice}; pad= has left them alone, as it does strings"
    return f"{advice}; or fill up those that are numbers, MapDataset(dataref, pad=0)"


def _is_torchs_own(functions: dict[Any, Any]) -> bool:
    """Whether nobody else has extended how torch collates."""
    return not _EARLIER and all(
        function is _collate_containers or function.__module__ == _torchs.__name__
        for function in functions.values()
    )


def _copy_as_collated(nest: Any) -> Any:
    """A batch with lists for tuples, and with tuples for the lists that are in these."""
    if isinstance(nest, dict):
        return {key: _copy_as_collated(value) for key, value in nest.items()}
    if isinstance(nest, tuple):
        values = [tuple(v) if isinstance(v, list) else _copy_as_collated(v) for v in nest]
        return type(nest)(*values) if specs.is_namedtuple(nest) else values
    if isinstance(nest, list):
        return list(nest)
    # torch's own copy, which a worker makes in shared memory.
    return _torchs.collate_tensor_fn([nest])[0]


_functions.update(dict.fromkeys(_CONTAINERS, _collate_containers))
