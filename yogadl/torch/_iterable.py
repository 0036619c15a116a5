"""An iterable dataset over a stream, which the workers of a ``DataLoader`` divide among them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from yogadl import chunk_sizes
from yogadl.arguments import as_flag, as_index
from yogadl.dataref import IndexedStream, state_of
from yogadl.dataref._batches import tell_of_no_batches
from yogadl.dataref._place import Place
from yogadl.dataref._state import resume
from yogadl.errors import InvalidArgumentError, StateMismatchError
from yogadl.extras import require
from yogadl.seeding import Transform, after, check_transform
from yogadl.torch import _callers, _tensors
from yogadl.torch._share import Share
from yogadl.torch._shared_epochs import EpochOffset, SharedEpochs, Worker
from yogadl.torch._workers import end_in_order

torch = require("torch", "torch")

_IterableDataset: Any = torch.utils.data.IterableDataset


def _this_worker() -> Worker | None:
    info = torch.utils.data.get_worker_info()
    return None if info is None else Worker(info.id, info.num_workers, info.seed - info.id)


class IterableDataset(_IterableDataset):  # type: ignore[misc] # known at run time only
    """The batches or records of a stream, with tensors for arrays: every iteration is an epoch.

    For ``DataLoader(dataset, batch_size=None)``: worker ``w`` of ``W`` reads the items
    ``w, w+W, …`` of the epoch, and the loader takes them in turn, so they come in the order of the
    stream, whatever the number of workers. Each iterator of the loader is the next epoch, with
    persistent workers and without, forked or spawned.

    The dataset counts its epochs itself, from where the stream stands when the dataset is made. An
    epoch is used up when an iterator is made. A process that is no worker of this one's, such as a
    rank of a distributed run, counts for itself from where it got the dataset.

    Strings are ``bytes``, arrays of them (nested) lists. ``None``, ``Ragged`` and ``Sparse`` values
    are left as they are.

    Can be pickled, and goes on in the copy with the next epoch. Safe for threads and forks; an
    iterator is for one thread.

    Args:
        stream: of ``DataRef.stream``. It is read by position, and does not move on.
        batch_size: records in a batch. Without it, items are single records.
        drop_remainder: leave out an epoch's last batch if it is smaller.
        pad: see ``IndexedStream.batches``.
        transform: called with every item, a batch or a record, tensors and all; what it returns
            takes its place. May be seeded, ``yogadl.seeded``. ``None`` for a batch is refused;
            for a record it is passed on, for a ``collate_fn`` that leaves it out.

    Raises:
        InvalidArgumentError: an argument is out of range, or does not fit the spec.
        UnsupportedTypeError: torch lacks one of the dtypes.
    """

    def __init__(
        self,
        stream: IndexedStream,
        batch_size: int | None = None,
        drop_remainder: bool = False,
        pad: Any = None,
        transform: Transform | None = None,
    ) -> None:
        if not isinstance(stream, IndexedStream):
            raise InvalidArgumentError(
                f"IterableDataset takes a Stream, as dataref.stream() makes it, not a "
                f"{type(stream).__name__}: {stream!r:.100}"
            )
        if batch_size is None and (drop_remainder or pad is not None):
            raise InvalidArgumentError("drop_remainder= and pad= need a batch_size")
        _tensors.check_spec(stream.spec)
        self.stream = stream
        self.batch_size = None if batch_size is None else as_index("batch_size", batch_size, 1)
        self.drop_remainder = as_flag("drop_remainder", drop_remainder)
        self.pad = pad
        self.transform = check_transform(transform)
        if self.batch_size is not None:
            stream.batches(self.batch_size, pad=pad)  # refuses what does not fit the spec
            tell_of_no_batches(len(stream), self.batch_size, self.drop_remainder)
        self._epochs = SharedEpochs(EpochOffset(*stream.epochs.what_comes()))
        self._last: EpochProgress | None = None

    def __len__(self) -> int:
        """Items per epoch; an offset does not make them fewer."""
        count = len(self.stream)
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_remainder else -(-count // self.batch_size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.stream!r}, batch_size={self.batch_size})"

    def __iter__(self) -> Items:
        """The items of the next epoch; in a worker of a ``DataLoader``, this worker's.

        Raises:
            ClosedError: the stream or its DataRef is closed.
            InvalidArgumentError: a ``DataLoader`` would make batches of the batches.
        """
        if self.batch_size is not None and _callers.is_batching_loader():
            raise InvalidArgumentError(
                f"the dataset gives batches of {self.batch_size:,}, of which the DataLoader would "
                "make batches again: use DataLoader(dataset, batch_size=None)"
            )
        end_in_order()
        worker = _this_worker()
        self.stream.epochs.reader()

        def begin(place: EpochOffset) -> Items:
            items = Items(self, place, worker)
            self._last = items.progress
            return items

        return self._epochs.claim(worker, begin)

    def set_epoch(self, epoch: int) -> None:
        """Makes an epoch, counted from 0, the next one. For the process that has the loader."""
        self._epochs.set_next(EpochOffset(as_index("epoch", epoch), 0), _this_worker())
        self._last = None

    def state_dict(self) -> dict[str, Any]:
        """The place: what comes next after the items taken from the last iterator of this process.

        ``DataRef.stream(state=…)`` takes it, too. With workers, only ``StatefulDataLoader`` knows
        how far they got; save its state instead.

        Raises:
            InvalidArgumentError: workers of a ``DataLoader`` read the epoch.
            ClosedError: the stream or its DataRef is closed.
        """
        epochs, worker = self.stream.epochs, _this_worker()
        place, by_workers = self._epochs.peek(worker)
        if worker is not None and self._last is not None:
            place = self._last.place
        elif by_workers:
            raise InvalidArgumentError(
                "the dataset is read by the workers of a DataLoader, and does not know how far; "
                "use torchdata's StatefulDataLoader and save its state_dict(), or num_workers=0"
            )
        elif self._last is not None and not self._last.is_finished:
            place = self._next_place(self._last)
        return state_of(epochs.reader(), epochs.order, *place)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on at a place that :meth:`state_dict` gave: the next iterator begins there.

        Raises:
            StateMismatchError: the state is of another data set, order or shard.
            InvalidArgumentError: it is no state.
        """
        epochs = self.stream.epochs
        _, epoch, offset = resume(state, epochs.reader(), epochs.order, epochs.order)
        self._epochs.set_next(EpochOffset(epoch, offset), _this_worker())
        self._last = None

    def _next_place(self, progress: EpochProgress) -> EpochOffset:
        """The place after the items that an iterator has given out, which is no worker's."""
        size = self.batch_size or 1
        reached = Place.at(self.stream.epochs.order, *progress.place).after(progress.taken * size)
        if self.drop_remainder and progress.taken and reached.left < size:
            # What is left is dropped.
            return EpochOffset(reached.epoch + 1, 0)
        return EpochOffset(*reached.what_comes())

    def __getstate__(self) -> dict[str, Any]:
        # Iterators stay behind.
        return {**vars(self), "_last": None}


@dataclass
class EpochProgress:
    """How far an iterator has got.

    Attributes:
        place: the epoch, and the offset at which it was begun.
        taken: how many items of it were given out.
        is_finished: whether the iterator has ended.
    """

    place: EpochOffset
    taken: int = 0
    is_finished: bool = False


class Items(Iterator[Any]):
    """An iterator over the items of one epoch, or those of one worker. Not safe for threads.

    ``StatefulDataLoader`` saves and restores it.

    Attributes:
        progress: how far it has got.
    """

    def __init__(self, dataset: IterableDataset, place: EpochOffset, worker: Worker | None) -> None:
        self._dataset = dataset
        self._worker = worker
        self.progress = EpochProgress(place)
        # Read when the first one is asked for: another place may be restored before.
        self._items: Iterator[Any] | None = None

    def __next__(self) -> Any:
        if self._items is None:
            self._items = self._read()
        try:
            item = next(self._items)
        except StopIteration:
            self.progress.is_finished = True
            raise
        self.progress.taken += 1
        return item

    def _read(self) -> Iterator[Any]:
        dataset = self._dataset
        share = self._share()
        stream, spec = IndexedStream(share), share.reader().spec
        if dataset.batch_size is not None:
            as_torch = functools.partial(_tensors.batch_tensors, spec)
            transform = after(as_torch, dataset.transform)
            return iter(stream.batches(dataset.batch_size, pad=dataset.pad, transform=transform))
        if dataset.transform is not None:
            as_torch = functools.partial(_tensors.record_tensors, spec)
            return iter(stream.map(after(as_torch, dataset.transform)))
        size = chunk_sizes.RECORDS.of(share.reader().record_bytes)
        return itertools.chain.from_iterable(
            _tensors.split(spec, _tensors.batch_tensors(spec, chunk), not share.reader().lends_rows)
            for chunk in stream.batches(size)
        )

    def _share(self) -> Share:
        dataset, worker, place = self._dataset, self._worker, self.progress.place
        return Share(
            source=dataset.stream.epochs,
            begun=Place.at(dataset.stream.epochs.order, *place),
            item_size=dataset.batch_size or 1,
            drop_remainder=dataset.drop_remainder,
            worker=0 if worker is None else worker.number,
            workers=1 if worker is None else worker.count,
            skip=self.progress.taken,
        )

    def state_dict(self) -> dict[str, Any]:
        """The place at which the epoch was begun, and how many items of it were taken.

        Returns:
            A state as of ``IndexedStream.state_dict``, and ``items``, ``batch_size``,
            ``drop_remainder``, ``worker`` (``None`` in the main process) and ``num_workers``.
        """
        epochs = self._dataset.stream.epochs
        state = state_of(epochs.reader(), epochs.order, *self.progress.place)
        return {**state, **self._division(), "items": self.progress.taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where an iterator stood; the dataset goes on with the epoch after.

        Raises:
            StateMismatchError: it is of another data set, order or shard, or items were divided
                otherwise among workers.
            InvalidArgumentError: it is no state.
        """
        epochs = self._dataset.stream.epochs
        _, epoch, offset = resume(state, epochs.reader(), epochs.order, epochs.order)
        for name, is_now in self._division().items():
            if name not in state:
                raise InvalidArgumentError(f"the state lacks {name!r}: {dict(state)!r:.200}")
            if state[name] != is_now:
                raise StateMismatchError(
                    f"the state is of another loader: {name} was {state[name]!r} and is now "
                    f"{is_now!r}; give the dataset and the loader the arguments they had"
                )
        place, taken = EpochOffset(epoch, offset), as_index("items", state.get("items"))
        if state["num_shards"] != epochs.order.num_shards:
            place, taken = self._after(state, taken), 0
        # The dataset knows this object as its last iterator's.
        self.progress.place, self.progress.taken = place, taken
        self.progress.is_finished = False
        self._items = None
        self._dataset._epochs.set_next(EpochOffset(place.epoch + 1, 0), self._worker)

    def _after(self, state: Mapping[str, Any], taken: int) -> EpochOffset:
        """The place after what as many ranks took together as there were when a state was saved.

        Raises:
            StateMismatchError: workers took it, each by itself.
        """
        order = self._dataset.stream.epochs.order
        if self._worker is not None:
            raise StateMismatchError(
                f"the state is of {state['num_shards']} ranks with workers, and there are now "
                f"{order.num_shards}: how far all of them got, one worker cannot tell; resume with "
                "as many ranks, use num_workers=0, or a Sampler with MapDataset"
            )
        then = replace(order, shard_rank=state["shard_rank"], num_shards=state["num_shards"])
        begun = Place.at(then, state["epoch"], state["offset"])
        reached = begun.after(taken * (self._dataset.batch_size or 1))
        return EpochOffset(reached.epoch, reached.offset)

    def _division(self) -> dict[str, Any]:
        """What decides which items are whose."""
        worker = self._worker
        return {
            "batch_size": self._dataset.batch_size,
            "drop_remainder": self._dataset.drop_remainder,
            "worker": None if worker is None else worker.number,
            "num_workers": 0 if worker is None else worker.count,
        }
