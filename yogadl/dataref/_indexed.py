"""Data sets of which every record can be read by its position, and what can be made of them."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np

from yogadl import spec as specs
from yogadl.arguments import as_index
from yogadl.cache.record_reader import RecordReader
from yogadl.closing import Closing
from yogadl.completion import without
from yogadl.core import DataRef
from yogadl.dataref._announcer import BatchAnnouncer
from yogadl.dataref._epochs import Epochs
from yogadl.dataref._padding import Padding
from yogadl.dataref._positions import Listed, Selection, Slice, split_positions
from yogadl.dataref._read_ahead import DEFAULT_WINDOW
from yogadl.dataref._state import resume
from yogadl.dataref._stream import IndexedStream
from yogadl.dataref._views import SelectedReader
from yogadl.errors import ClosedError, InvalidArgumentError, RecordIndexError
from yogadl.format.spec_text import spec_text
from yogadl.lazy import lazy
from yogadl.orders import Order
from yogadl.shuffles import Shuffle

Reader = TypeVar("Reader", bound=RecordReader)

_SHOWN_PARTS = 3


class IndexedDataRef(DataRef, Closing):
    """A reference to a data set of which every record can be read by its position.

    Safe for threads and forks; can be pickled if what it refers to can. A context manager that
    closes it.
    """

    @property
    @abc.abstractmethod
    def reader(self) -> RecordReader:
        """What reads the records.

        Raises:
            ClosedError: the reference is closed.
        """

    @property
    def spec(self) -> specs.Structure:
        """The element spec: a nest of ``yogadl.spec`` leaves."""
        return self.reader.spec

    @property
    def metadata(self) -> dict[str, Any]:
        """What is known of the data set that is not in its records.

        Of a stored one, what was given as ``metadata`` when it was submitted. A slice, a selection
        or a part of a split has that of the data set it is made of; what is made of several data
        sets has none, ``{}``.

        Raises:
            ClosedError: the reference is closed.
        """
        return {}

    def stream(
        self,
        start_offset: int = 0,
        shuffle: bool | Shuffle = False,
        skip_shuffle_at_epoch_end: bool = False,
        shuffle_seed: int | None = None,
        shard_rank: int = 0,
        num_shards: int = 1,
        drop_shard_remainder: bool = False,
        *,
        shuffle_then_shard: bool = False,
        state: Mapping[str, Any] | None = None,
        read_ahead: int = DEFAULT_WINDOW,
    ) -> IndexedStream:
        """See ``DataRef.stream``, which describes the other arguments.

        Costs the same at any offset; unshuffled, in any data set.

        Args:
            shuffle: also a ``yogadl.KeyedShuffle`` or ``BlockShuffle``, to shuffle in that way.
            shuffle_then_shard: shuffle the whole data set in every epoch, and let rank ``r`` of
                ``n`` have places ``r, r+n, …`` of that order. ``start_offset`` then counts what all
                shards have read together; any number of them may go on from there. The order is
                frozen: ``RandomState((shuffle_seed + epoch) % 2**32).shuffle`` of all positions.
            state: go on where the ``state_dict`` of a stream of this data set says. The order is
                that of the state; what is given of it has to agree. ``shard_rank`` and
                ``num_shards`` may be others with ``shuffle_then_shard`` only.
            read_ahead: bytes of the coming records, in the stream's order, that the system is asked
                to fetch from the disk in advance if it has not got them yet. 0 asks for nothing.

        Raises:
            StateMismatchError: the state is of another data set, order or shard.
        """
        offset = as_index("start_offset", start_offset)
        if state is not None and shuffle and shuffle_seed is None and isinstance(state, Mapping):
            shuffle_seed = state.get("seed")
        order = Order.of_stream(
            record_count=len(self),
            shuffle=shuffle,
            skip_shuffle_at_epoch_end=skip_shuffle_at_epoch_end,
            shuffle_seed=shuffle_seed,
            shard_rank=shard_rank,
            num_shards=num_shards,
            drop_shard_remainder=drop_shard_remainder,
            shuffle_then_shard=shuffle_then_shard,
        )
        is_plain = not (
            shuffle or skip_shuffle_at_epoch_end or drop_shard_remainder or shuffle_then_shard
        )
        if state is None:
            length = order.epoch_length
            epoch, offset = divmod(offset, length) if length else (0, 0)
        elif offset:
            raise InvalidArgumentError("give start_offset or state, not both")
        else:
            wanted = None if is_plain else order
            order, epoch, offset = resume(state, self.reader, wanted, order, shuffle_seed)
        window = as_index("read_ahead", read_ahead)
        return IndexedStream(Epochs(self, order, epoch, offset, window))

    @lazy
    def announcer(self) -> BatchAnnouncer:
        """Tells the system of a batch before it is read."""
        return BatchAnnouncer()

    def __len__(self) -> int:
        return len(self.reader)

    @overload
    def __getitem__(self, index: slice) -> DerivedDataRef: ...

    @overload
    def __getitem__(self, index: int) -> Any: ...

    def __getitem__(self, index: int | slice) -> Any:
        """The record at a position, a negative one from the end; or of a slice, a DataRef.

        Raises:
            RecordIndexError: there is no such record.
            InvalidArgumentError: it is neither an integer nor a slice of integers.
        """
        if isinstance(index, slice):
            count = len(self)
            try:
                positions = range(count)[index]
            except (TypeError, ValueError) as error:
                raise InvalidArgumentError(
                    f"a slice of a DataRef takes integers, and a step that is not 0, not {index}"
                ) from error
            return self._selected(Slice(positions))
        if not isinstance(index, int | np.integer) or isinstance(index, bool):
            raise InvalidArgumentError(_advice_on_index(index))
        count = len(self)
        if not -count <= index < count:
            raise RecordIndexError(f"there is no record {index}: the data set has {count}")
        return self.reader.read_record(int(index) % count)

    def read(self, indices: Sequence[int] | np.ndarray[Any, Any], *, pad: Any = None) -> Any:
        """The records at some positions, as one batch.

        Args:
            indices: integers ``[n]``, in any order, repeated or negative if need be.
            pad: see ``IndexedStream.batches``.

        Returns:
            A nest as of the spec. A dense leaf of static shape, or one that is padded, is a fresh
            array ``[n, *shape]`` (``object`` with ``bytes`` for strings); any other leaf is a list
            of ``n`` values.

        Raises:
            RecordIndexError: there is no such record.
            InvalidArgumentError: the spec cannot be padded like that.
        """
        positions = self._positions(indices)
        reader = self.reader
        padding = None if pad is None else Padding(reader.spec, pad)
        self.announcer.before(reader, positions)
        columns = reader.read_columns(positions, spans=padding is not None)
        return specs.unflatten(reader.spec, columns if padding is None else padding.apply(columns))

    def _positions(self, indices: Any) -> np.ndarray[Any, Any]:
        try:
            given = np.asarray(indices)
        except ValueError:
            # Lists of several lengths.
            given = np.empty((0, 0))
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise InvalidArgumentError(
                f"indices must be a list or 1-D array of integers, not {indices!r:.100}"
                f"{_advice_on_mask(indices, given)}"
            )
        count = len(self)
        if given.dtype == np.int64 and given.size and int(given.view(np.uint64).max()) < count:
            # As unsigned integers, negative ones would be larger than any count.
            return given.copy()
        # Compared before they are converted, lest a huge one wrap around.
        wrong = (given < -count) | (given >= count)
        if wrong.any():
            raise RecordIndexError(
                f"there is no record {int(given[wrong][0])}: the data set has {count}"
            )
        positions = given.astype(np.int64)
        return np.where(positions < 0, positions + count, positions)

    # Other data sets made of this one

    def select(self, indices: Sequence[int] | np.ndarray[Any, Any]) -> DerivedDataRef:
        """The records at some positions, in that order, as a data set. Nothing is read or copied.

        Args:
            indices: integers ``[n]``, repeated or negative if need be; 8 bytes each are kept.

        Raises:
            RecordIndexError: there is no such record.
        """
        return self._selected(Listed(self._positions(indices)))

    def split(
        self, parts: Mapping[str, float], seed: int | None = None
    ) -> dict[str, DerivedDataRef]:
        """Divides the data set at random: ``split({"train": 0.9, "valid": 0.1}, seed=1)``.

        Every record is in one part, and the records of a part stand in the order of this data set.
        The same seed divides as many records the same way in every release.

        Args:
            parts: the share of each part, which add up to 1; sizes are rounded. Their order counts,
                since each part has what those before it have left.
            seed: in ``[0, 2**32)``. Without one, each part is a run of records.

        Raises:
            InvalidArgumentError: the shares do not add up to 1, or the seed is out of range.
        """
        found = split_positions(len(self), parts, seed)
        return {name: self._selected(positions) for name, positions in found.items()}

    @abc.abstractmethod
    def _origin(self) -> str:
        """What its records are from, in words; may be empty."""

    @property
    @abc.abstractmethod
    def _is_closed(self) -> bool: ...

    def __repr__(self) -> str:
        said = [self._origin()]
        if self._is_closed:
            said.append("closed")
        else:
            said.append(f"{len(self):,} records of {spec_text(self.spec)}")
        return f"{type(self).__name__}({', '.join(filter(None, said))})"

    def __dir__(self) -> list[str]:
        return without(super().__dir__(), ("reader", "announcer"))

    def _selected(self, positions: Selection) -> DerivedDataRef:
        return DerivedDataRef(functools.partial(SelectedReader, positions=positions), [self])


def _advice_on_mask(indices: Any, given: np.ndarray[Any, Any]) -> str:
    """What to do with a mask, or with what ``np.where`` or ``np.nonzero`` made of one."""
    if given.dtype == bool and given.ndim == 1:
        return "; of a mask, give the positions where it is true, np.flatnonzero(mask)"
    if isinstance(indices, tuple) and given.ndim == 2 and len(given) == 1:
        return "; np.where and np.nonzero return a tuple of arrays: give the array in it, [0]"
    return ""


def _advice_on_index(index: Any) -> str:
    taken = f"a DataRef takes an integer, a record's position, or a slice, not {index!r:.100}"
    if isinstance(index, str):
        return (
            f"{taken}; of one record, dataref[0][{index!r}], of many, "
            f"dataref.read(positions)[{index!r}]"
        )
    return f"{taken}; many are read as a batch, dataref.read(positions), or make a data set, select"


class ReaderDataRef(IndexedDataRef, Generic[Reader]):
    """A data set that has a reader until it is closed."""

    _reader: Reader | None

    @property
    def reader(self) -> Reader:
        """See ``IndexedDataRef.reader``."""
        if self._reader is None:
            raise ClosedError(self._told_when_closed())
        return self._reader

    def close(self) -> None:
        """Lets go of what is read, for this reference and its streams. May be called twice.

        Data sets that it is made of stay open.
        """
        if self._reader is not None:
            self._reader.close_observed()
            self._reader.close()
            self._reader = None

    @abc.abstractmethod
    def _told_when_closed(self) -> str:
        """What the error says."""

    @property
    def _is_closed(self) -> bool:
        return self._reader is None


class UnstoredDataRef(ReaderDataRef[Reader]):
    """A data set that stores nothing: its reader reads something else.

    Args:
        reader: reads the records.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def _told_when_closed(self) -> str:
        return "the DataRef is closed; make it again"

    def _origin(self) -> str:
        return ""


class DerivedDataRef(UnstoredDataRef[RecordReader]):
    """A data set made of others: closing these closes it.

    Args:
        view: makes the reader of the readers of ``parts``.
        parts: the data sets.
    """

    def __init__(self, view: Callable[..., RecordReader], parts: Sequence[IndexedDataRef]) -> None:
        super().__init__(view(*[part.reader for part in parts]))
        self._view = view
        self._parts = tuple(parts)

    @property
    def metadata(self) -> dict[str, Any]:
        """See ``IndexedDataRef.metadata``."""
        return self._parts[0].metadata if type(self.reader) is SelectedReader else {}

    def _origin(self) -> str:
        parts = [part._origin().removeprefix("of ") for part in self._parts[:_SHOWN_PARTS]]
        shown = ", ".join(filter(None, parts))
        more = len(self._parts) - _SHOWN_PARTS
        return f"of {shown}, and {more} more" if more > 0 else f"of {shown}"

    def __getstate__(self) -> tuple[Callable[..., RecordReader], tuple[IndexedDataRef, ...]]:
        return self._view, self._parts

    def __setstate__(
        self, state: tuple[Callable[..., RecordReader], tuple[IndexedDataRef, ...]]
    ) -> None:
        self.__init__(*state)  # type: ignore[misc] # the state is what the constructor takes
