"""Sharding and shuffling keys, as yogadl 0.1.4 had it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import numpy as np

from yogadl.arguments import as_index, check_seed, check_shard
from yogadl.errors import InvalidArgumentError
from yogadl.orders import EpochCounter, Order

Key = TypeVar("Key")


def sequential_shard(keys: Sequence[Key], shard_index: int, num_shards: int) -> Sequence[Key]:
    """A contiguous run of ``keys``; the first ``len(keys) % num_shards`` runs are one longer.

    Raises:
        InvalidArgumentError: not ``0 <= shard_index < num_shards``.
    """
    shard, shards = check_shard(shard_index, num_shards)
    size, longer = divmod(len(keys), shards)
    start = size * shard + min(longer, shard)
    return keys[start : start + size + (shard < longer)]


def non_sequential_shard(keys: Sequence[Key], shard_index: int, num_shards: int) -> Sequence[Key]:
    """Every ``num_shards``-th of ``keys``, from ``shard_index`` on.

    Raises:
        InvalidArgumentError: not ``0 <= shard_index < num_shards``.
    """
    shard, shards = check_shard(shard_index, num_shards)
    return keys[shard::shards]


def shard_keys(
    keys: Sequence[Key],
    shard_index: int,
    num_shards: int,
    sequential: bool = False,
    drop_shard_remainder: bool = False,
) -> Sequence[Key]:
    """The part of ``keys`` that belongs to one shard.

    Args:
        keys: a list, tuple or NumPy array; the result is of the same type.
        shard_index: which shard, ``0 <= shard_index < num_shards``.
        num_shards: how many there are.
        sequential: contiguous runs instead of every ``num_shards``-th key.
        drop_shard_remainder: leave out the last ``len(keys) % num_shards`` keys, so that all shards
            are equally long.

    Raises:
        InvalidArgumentError: not ``0 <= shard_index < num_shards``.
    """
    shard, shards = check_shard(shard_index, num_shards)
    if drop_shard_remainder:
        keys = keys[: len(keys) - len(keys) % shards]
    pick = sequential_shard if sequential else non_sequential_shard
    return pick(keys, shard, shards)


def shuffle_keys(keys: Any, seed: int | None = None) -> Any:
    """Shuffles ``keys`` (a list or an array) in place and returns it.

    The order is that of ``numpy.random.RandomState(seed).shuffle``; without a seed it differs from
    call to call.

    Raises:
        InvalidArgumentError: a seed outside ``[0, 2**32)``.
    """
    np.random.RandomState(None if seed is None else check_seed(seed)).shuffle(keys)
    return keys


class GeneratorFromKeys:
    """Generators over keys in shuffled order, one per epoch, as yogadl 0.1.4 had them.

    Args:
        keys: any sequence; not changed.
        initial_offset: records to skip, in the first epoch only; as many as ``len(keys)`` skip an
            epoch.
        read_val_from_key_fn: makes a record of a key.
        shuffle_at_start: shuffle at all.
        shuffle_after_epoch: shuffle again in every epoch, which needs a seed.
        shuffle_seed: in ``[0, 2**32)``. Without one, an order is drawn once and kept.

    Raises:
        InvalidArgumentError: arguments that contradict each other or are out of range.
    """

    def __init__(
        self,
        keys: Sequence[Any],
        initial_offset: int,
        read_val_from_key_fn: Callable[[Any], Any],
        shuffle_at_start: bool,
        shuffle_after_epoch: bool,
        shuffle_seed: int | None,
    ) -> None:
        if shuffle_after_epoch and not shuffle_at_start:
            raise InvalidArgumentError("shuffle_after_epoch=True needs shuffle_at_start=True")
        if shuffle_after_epoch and shuffle_seed is None:
            raise InvalidArgumentError("shuffle_after_epoch=True needs a shuffle_seed")
        self._keys = keys
        self._read = read_val_from_key_fn
        self._order = Order.of_stream(
            record_count=len(keys),
            shuffle=shuffle_at_start,
            skip_shuffle_at_epoch_end=not shuffle_after_epoch,
            shuffle_seed=shuffle_seed,
            shard_rank=0,
            num_shards=1,
            drop_shard_remainder=False,
        )
        offset = as_index("initial_offset", initial_offset)
        self._epochs = EpochCounter(*(divmod(offset, len(keys)) if len(keys) else (0, 0)))

    def instantiate_generator(self) -> Generator[Any, None, None]:
        """The records of the next epoch, which begins when the first of them is asked for."""
        if not len(self._order):
            return
        epoch, start = self._epochs.claim()
        permutation = self._order.permutation(epoch)
        for index in range(start, len(self._order)):
            position = index if permutation is None else int(permutation[index])
            yield self._read(self._keys[position])
