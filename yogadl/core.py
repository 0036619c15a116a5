"""The three interfaces of the yoga data layer: ``Storage``, ``DataRef`` and ``Stream``."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ParamSpec, TypeAlias

Submittable: TypeAlias = Any
"""What ``Storage.submit`` takes: a data set or loader of TensorFlow, Keras, PyTorch, TensorPack,
Hugging Face or Grain; a DataRef; arrays, or dicts and tuples of them; a pandas or Arrow table; what
an adapter was registered for, ``yogadl.adapters.register``; or any iterable of records, which are
nests of dicts and tuples with arrays, tensors, images, numbers, strings and ``None``."""

Params = ParamSpec("Params")


class Stream:
    """The records of a data set in a decided order, epoch after epoch.

    Safe for threads and picklable if ``iterator_fn`` is. A stream of ``DataRef.stream`` is both,
    and goes on in a copy where the original stood.

    Args:
        iterator_fn: each call returns an iterator over one epoch.
        length: records per epoch.
        output_types: nest of ``tf.DType`` of the records, for ``tf.data``.
        output_shapes: nest of ``tf.TensorShape``, likewise.
    """

    def __init__(
        self,
        iterator_fn: Callable[[], Iterator[Any]],
        length: int,
        output_types: Any = None,
        output_shapes: Any = None,
    ) -> None:
        self.iterator_fn = iterator_fn
        self.length = length
        self.output_types = output_types
        self.output_shapes = output_shapes

    def __iter__(self) -> Iterator[Any]:
        """An iterator over the next epoch, which begins when its first record is asked for."""
        return self.iterator_fn()

    def __len__(self) -> int:
        """Records per epoch; an offset does not make it less."""
        return self.length


class DataRef(abc.ABC):
    """A reference to a data set, which need not be on this machine.

    All that concerns random access is said up front, in :meth:`stream`; whatever consumes the
    stream is sequential.
    """

    @abc.abstractmethod
    def stream(
        self,
        start_offset: int = 0,
        shuffle: bool = False,
        skip_shuffle_at_epoch_end: bool = False,
        shuffle_seed: int | None = None,
        shard_rank: int = 0,
        num_shards: int = 1,
        drop_shard_remainder: bool = False,
    ) -> Stream:
        """A stream of this data set: sharded, then shuffled inside the shard, then offset.

        Args:
            start_offset: records of this shard to skip, in the first epoch only. ``n`` records per
                epoch skip a whole one: it starts at record ``start_offset % n`` of epoch
                ``start_offset // n``.
            shuffle: shuffle the whole shard.
            skip_shuffle_at_epoch_end: keep the first epoch's order instead of shuffling each epoch.
            shuffle_seed: in ``[0, 2**32)``; epoch ``e`` is shuffled by ``shuffle_seed + e``. Needed
                with ``shuffle`` unless ``skip_shuffle_at_epoch_end``, when an order is drawn once.
                Without ``shuffle``, it does nothing.
            shard_rank: which shard, ``0 <= shard_rank < num_shards``; it has every
                ``num_shards``-th record from ``shard_rank`` on.
            num_shards: how many shards there are.
            drop_shard_remainder: leave out the last ``len(self) % num_shards`` records, so that all
                shards are equally long.

        Raises:
            InvalidArgumentError: an argument is out of range, or the seed is missing.
        """

    @abc.abstractmethod
    def __len__(self) -> int:
        """Records of the whole data set."""


class Storage(abc.ABC):
    """A store of data sets by id and version.

    ``submit`` and ``fetch`` may be called by anybody at any time: who reads while another submits
    gets the old version or the new, whole. ``cacheable`` also sees to it that only one of many
    threads, processes and machines does the work.
    """

    @abc.abstractmethod
    def submit(
        self,
        data: Submittable,
        dataset_id: str,
        dataset_version: str,
        *,
        spec: Any = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Stores a data set, replacing what is stored under this id and version.

        Args:
            data: see ``Submittable``.
            dataset_id: not empty; ``/`` makes sub-folders.
            dataset_version: not empty, without ``/``.
            spec: the element spec, where it cannot be told from the data set's types or its first
                record: a nest of ``yogadl.spec`` leaves, or of ``tf.TypeSpec``.
            metadata: anything JSON can hold, kept with the data set.

        Raises:
            InvalidArgumentError: an id or version that is empty or leaves the storage.
            InfiniteDatasetError: the data set is known never to end.
            UnsupportedTypeError, SpecMismatchError: it has components that cannot be stored.
            StorageFullError: it does not fit.
        """

    @abc.abstractmethod
    def fetch(self, dataset_id: str, dataset_version: str) -> DataRef:
        """A reference to a stored data set.

        Raises:
            CacheNotFoundError: nothing is stored under this id and version.
            CacheFormatError: what is stored cannot be read.
        """

    @abc.abstractmethod
    def cacheable(
        self,
        dataset_id: str,
        dataset_version: str,
        *,
        spec: Any = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Callable[[Callable[Params, Any]], Callable[Params, DataRef]]:
        """A decorator that makes a function return a DataRef of what it returned for ``submit``.

        The function runs only when nothing is stored under this id and version. Its arguments are
        passed on, but are not part of the key. Of many threads, processes and machines that call at
        once, one runs the function, and the others wait and read.

        Args:
            dataset_id, dataset_version, spec, metadata: as in :meth:`submit`.

        Raises:
            InvalidArgumentError: an id or version that is empty or leaves the storage. What the
                function and ``submit`` raise reaches the caller of the decorated function.
        """
