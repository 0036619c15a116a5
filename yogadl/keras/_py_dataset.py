"""``PyDataset``: a data set as Keras reads it, batch by batch, epoch after epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from yogadl.arguments import as_flag, as_index
from yogadl.closing import Closing
from yogadl.dataref import IndexedDataRef
from yogadl.dataref._place import Place
from yogadl.errors import ClosedError, InvalidArgumentError, RecordIndexError
from yogadl.extras import require
from yogadl.keras import _callers
from yogadl.keras._batch_reader import BatchReader
from yogadl.keras._workers import Workers
from yogadl.seeding import Transform
from yogadl.shuffles import Shuffle

_Base: Any = require("keras", "keras").utils.PyDataset

Array = np.ndarray[Any, Any]

_SHUFFLED = (
    "Keras shuffles batches unless it is told not to, which would spoil their order; call "
    "fit(..., shuffle=False), without steps_per_epoch"
)


class PyDataset(_Base, Closing):  # type: ignore[misc] # Keras is untyped
    """The batches of a data set for ``fit``, ``evaluate`` and ``predict``, under any back end::

        dataset = yogadl.keras.PyDataset(dataref, 32, shuffle=True, shuffle_seed=7)
        model.fit(dataset, epochs=10, shuffle=False)

    The order is that of ``dataref.stream`` with the same arguments, and the batches are those of
    its ``batches(batch_size)``. ``dataset[i]`` is batch ``i`` of the epoch that is on, a nest of
    NumPy arrays. Every epoch of ``fit`` is the next one, and so is every ``evaluate`` and every
    ``predict``; whoever loops over the batches calls ``on_epoch_end`` after each epoch.

    Tell ``fit`` not to shuffle: it would shuffle the batches once more, and differently each time.
    As it does so unless told otherwise, batches that are asked for out of order in ``fit`` are
    refused, before the first one is trained on. ``steps_per_epoch`` cannot be used: the data set
    knows its epochs.

    Reading is safe for threads, but one data set can serve one ``fit`` at a time; give
    ``validation_data`` another. Can be pickled, and then stands at the beginning of the same epoch.
    A context manager that closes it.

    Args:
        dataref: the data set. Records are ``(x, y)``, ``(x, y, sample_weight)``, ``(x,)``, a dict
            or an array, of numbers.
        batch_size: records in a batch; the last of an epoch may have fewer.
        start_offset, state: as in ``IndexedDataRef.stream``, and so are ``shuffle`` and the others
            up to ``shuffle_then_shard``. An epoch that begins at an offset has its batches counted
            from there.
        drop_remainder: leave out an epoch's last batch if it is smaller.
        pad: for records of varying shape, as in ``IndexedStream.batches``.
        transform: makes of a batch what the model takes. May be seeded, ``yogadl.seeded``, with a
            generator for each record.
        workers: with 2 or more, so many threads read ahead during ``fit``.
        use_multiprocessing: processes instead of threads, for a ``transform`` that takes its time
            in Python; one or more, which are started as ``multiprocessing.set_start_method`` says
            and kept until the data set is closed or goes. Without Python's start method ``fork``,
            ``transform`` must be picklable.
        max_queue_size: batches to read ahead, at least 1.

    Raises:
        InvalidArgumentError: an argument is out of range, or an epoch has no batch.
        UnsupportedTypeError: Keras does not take such records, and there is no ``transform``.
        StateMismatchError: the state is of another data set, order or shard.
    """

    def __init__(
        self,
        dataref: IndexedDataRef,
        batch_size: int,
        *,
        shuffle: bool | Shuffle = False,
        shuffle_seed: int | None = None,
        skip_shuffle_at_epoch_end: bool = False,
        shard_rank: int = 0,
        num_shards: int = 1,
        drop_shard_remainder: bool = False,
        shuffle_then_shard: bool = False,
        drop_remainder: bool = False,
        pad: Any = None,
        transform: Transform | None = None,
        start_offset: int = 0,
        state: Mapping[str, Any] | None = None,
        workers: int = 1,
        use_multiprocessing: bool = False,
        max_queue_size: int = 10,
    ) -> None:
        # Keras is to start no workers.
        super().__init__()
        if not isinstance(dataref, IndexedDataRef):
            raise InvalidArgumentError(
                "PyDataset takes a DataRef whose records can be read by position, as Storage.fetch "
                f"returns it, not a {type(dataref).__name__}: {dataref!r:.100}; an order is "
                "given to PyDataset itself: shuffle=, shuffle_seed= and so on"
            )
        self._dataref = dataref
        self._order_arguments: dict[str, Any] = {
            "shuffle": shuffle,
            "shuffle_seed": shuffle_seed,
            "skip_shuffle_at_epoch_end": skip_shuffle_at_epoch_end,
            "shard_rank": shard_rank,
            "num_shards": num_shards,
            "drop_shard_remainder": drop_shard_remainder,
            "shuffle_then_shard": shuffle_then_shard,
        }
        self._size = as_index("batch_size", batch_size, 1)
        self._drop_remainder = as_flag("drop_remainder", drop_remainder)
        self._reader = BatchReader(dataref, pad, transform)
        self._worker_arguments = (
            as_index("workers", workers),
            bool(use_multiprocessing),
            as_index("max_queue_size", max_queue_size, 1),
        )
        self._workers_ahead = self._make_workers()
        self._closed = False
        # Keras asks once, when `fit` begins, and counts all epochs by the answer. But the first
        # epoch after an interruption is shorter, so it gets an array, which changes with them.
        self._count = np.zeros((), dtype=np.int64)
        self._begin_at(start_offset=start_offset, state=state)

    def _make_workers(self) -> Workers | None:
        count, use_processes, depth = self._worker_arguments
        if count > 1 or (count and use_processes):
            return Workers(self._reader, count, use_processes, depth)
        return None

    def _set_no_epoch_on(self) -> None:
        self._is_begun = False  # between `on_epoch_begin` and `on_epoch_end`
        self._was_read = False  # since the last `on_epoch_end`
        self._next = 0  # the first batch that was not asked for since `on_epoch_begin`
        if self._workers_ahead is not None:
            self._workers_ahead.forget()

    # Batches

    def __len__(self) -> int:
        """Batches in the epoch that is on; fewer in one that begins at an offset."""
        return int(self._count)

    @property
    def num_batches(self) -> Array:
        """Batches in the epoch that is on: an int64 array ``[]`` that changes with the epochs."""
        return self._count

    def __getitem__(self, index: int) -> Any:
        """A batch of the epoch that is on.

        Raises:
            RecordIndexError: it has no such batch.
            InvalidArgumentError: Keras asks for it out of order.
            ClosedError: the data set or its DataRef is closed.
        """
        number, count = as_index("a batch's index", index), len(self)
        if self._closed:
            raise ClosedError("the PyDataset is closed; make another from its DataRef")
        if number >= count:
            raise RecordIndexError(f"there is no batch {number}: this epoch has {count}")
        self._was_read = True
        learner = _callers.shape_learner() if number <= 1 else None
        if learner is not None and learner.shuffle and count > 1:
            # Once it reads the epoch, TensorFlow hides what it is told among words of its own.
            raise InvalidArgumentError(_SHUFFLED)
        if learner is not None and number == 1 and self._reader.is_padding:
            # TensorFlow's trainer takes for fixed what is equal in the first two batches.
            return self._reader.read_unlike(self.epoch, self._positions(1), self._positions(0))
        if not self._is_begun:
            return self._reader.read(self.epoch, self._positions(number))
        if number > self._next:
            raise InvalidArgumentError(
                f"batch {number} was asked for before batch {self._next}: {_SHUFFLED}"
            )
        if number == self._next:
            # Only the thread that reads the epoch moves it; another may read past batches again.
            self._next += 1
        if self._workers_ahead is None:
            return self._reader.read(self.epoch, self._positions(number))
        return self._workers_ahead.batch(number, count, self.epoch, self._positions)

    def _positions(self, number: int) -> Array:
        start = self._place.number + number * self._size
        return self._epochs.positions(self.epoch, start, start + self._size)

    # Epochs

    @property
    def epoch(self) -> int:
        """Which epoch is on; the first is 0. It begins with its first batch that is left."""
        return self._place.epoch

    @property
    def workers(self) -> int:
        """How many workers Keras is to start: 1, which is none. The data set starts its own."""
        return 1

    def on_epoch_begin(self) -> None:
        """Called by Keras before it reads an epoch."""
        self._is_begun = True
        self._next = 0

    def on_epoch_end(self) -> None:
        """Goes on to the next epoch. Called by Keras after each.

        If no batch was read since the last call, it is still the same epoch; and so it is when
        Keras begins a ``fit`` or ``evaluate``, whatever was read to build the model.
        """
        is_over = self._was_read and not _callers.is_reset()
        self._set_no_epoch_on()
        if is_over:
            self._set_place(self._place.next_epoch())

    def _begin_at(self, **place: Any) -> None:
        stream = self._dataref.stream(**self._order_arguments, **place)
        self._set_no_epoch_on()
        self._epochs = stream.epochs
        self._set_place(stream.epochs.place())

    def _set_place(self, place: Place) -> None:
        """Where the epoch that is on begins."""
        if not self._batches_from(place) and place.number:
            place = place.next_epoch()
        count = self._batches_from(place)
        if not count:
            raise InvalidArgumentError(
                f"an epoch of {place.left:,} records has no batch of {self._size:,}; make batches "
                "smaller, or leave out drop_remainder=True"
            )
        self._place = place
        self._count[...] = count

    def _batches_from(self, place: Place) -> int:
        return place.left // self._size if self._drop_remainder else -(-place.left // self._size)

    # The place, saved and restored

    def state_dict(self, batches: int = 0) -> dict[str, Any]:
        """The place after some batches of the epoch that is on, for ``state=``.

        How many were trained on only the training loop knows, as Keras reads ahead.
        :class:`BackupAndRestore` saves this with the model.

        Args:
            batches: how many, from the beginning of this epoch or from where it was resumed.

        Returns:
            A dict as of ``IndexedStream.state_dict``.

        Raises:
            InvalidArgumentError: the epoch has not got so many.
        """
        taken, count = as_index("batches", batches), len(self)
        if taken > count:
            raise InvalidArgumentError(f"batches must be at most {count}, not {taken}")
        place = self._place.after(taken * self._size)
        # With drop_remainder, some records may be left of an epoch that has no more batches.
        place = place.next_epoch() if taken == count else place
        return place.state(self._epochs.reader())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where a state says. Not while an epoch is being read.

        Raises:
            StateMismatchError: the state is of another data set, order or shard.
        """
        self._begin_at(state=state)

    # The end

    def close(self) -> None:
        """Ends the workers and the reading. The DataRef stays open. May be called twice."""
        self._closed = True
        if self._workers_ahead is not None:
            self._workers_ahead.close()

    def __getstate__(self) -> dict[str, Any]:
        # The count changes with the epochs, and a copy has its own.
        return {**vars(self), "_workers_ahead": None, "_count": self._count.copy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_no_epoch_on()
        self._workers_ahead = self._make_workers()
