"""The orders of records: shards, shuffles, offsets and epochs. Index arithmetic, NumPy only.

They are frozen: training runs are resumed by them.
"""

from __future__ import annotations

import functools
import operator
import secrets
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from yogadl.arguments import SEEDS, as_flag, check_seed, check_shard
from yogadl.errors import InvalidArgumentError
from yogadl.shuffles import FULL, Permutation, Shuffle

Array = np.ndarray[Any, Any]

# More epochs than any stream has, as an iterator over them tells how many are left of that many.
_EPOCHS = 2**62


@dataclass(frozen=True)
class Order:
    """The order in which one shard of a data set is read, in every epoch.

    Shard first, then shuffle inside the shard: rank ``r`` of ``n`` has positions ``r, r+n, …``.
    Epoch ``e`` is shuffled by ``RandomState((seed + e) % 2**32)``, or by ``RandomState(seed)``
    every time if ``reshuffle`` is false.

    With ``shuffle_then_shard``, the whole data set is shuffled by that, and rank ``r`` has places
    ``r, r+n, …`` of the shuffled order. An epoch that begins at place ``p``, which any number of
    ranks got to, is dealt out from there: rank ``r`` has ``p+r, p+r+n, …``.

    Immutable; may be shared by threads and processes.

    Attributes:
        record_count: records of the whole data set.
        shard_rank, num_shards: which shard of how many.
        drop_remainder: leave out what is left of an epoch after every shard had as many records.
        shuffle, reshuffle: shuffle at all; again in every epoch.
        how: in which way to shuffle; ``FULL``, which the above describes, without ``shuffle``.
        seed: in ``[0, 2**32)``; unused without ``shuffle``.
        shuffle_then_shard: shuffle the whole data set, not each shard.
        first_epoch, first_place: with ``shuffle_then_shard``, where the stream begins.
    """

    record_count: int
    shard_rank: int = 0
    num_shards: int = 1
    drop_remainder: bool = False
    shuffle: bool = False
    reshuffle: bool = False
    seed: int = 0
    shuffle_then_shard: bool = False
    first_epoch: int = 0
    first_place: int = 0
    how: Shuffle = FULL

    @classmethod
    def of_stream(
        cls,
        record_count: int,
        shuffle: bool | Shuffle,
        skip_shuffle_at_epoch_end: bool,
        shuffle_seed: int | None,
        shard_rank: int,
        num_shards: int,
        drop_shard_remainder: bool,
        shuffle_then_shard: bool = False,
    ) -> Order:
        """The order for the arguments of ``DataRef.stream``, checked.

        Raises:
            InvalidArgumentError: an argument is out of range, or a seed is missing.
        """
        rank, shards = check_shard(shard_rank, num_shards, "shard_rank")
        _check_shuffle(shuffle)
        # A seed in the place of a flag, ``stream(0, True, 777)``, would be lost without a word.
        keeps = _flag("skip_shuffle_at_epoch_end", skip_shuffle_at_epoch_end)
        drops = _flag("drop_shard_remainder", drop_shard_remainder)
        shuffle_then_shard = _flag("shuffle_then_shard", shuffle_then_shard)
        if shuffle and shuffle_seed is None and not keeps:
            raise InvalidArgumentError(
                "shuffle=True needs a shuffle_seed (any integer in [0, 2**32)), without which an "
                "interrupted run could not be resumed; or set skip_shuffle_at_epoch_end=True"
            )
        if shuffle_then_shard and shuffle and shuffle_seed is None and shards > 1:
            raise InvalidArgumentError(
                "shuffle_then_shard=True needs a shuffle_seed (any integer in [0, 2**32)), or the "
                "shards would deal out different orders"
            )
        seed = secrets.randbelow(SEEDS) if shuffle_seed is None else check_seed(shuffle_seed)
        return cls(
            record_count=record_count,
            shard_rank=rank,
            num_shards=shards,
            drop_remainder=drops,
            shuffle=bool(shuffle),
            reshuffle=bool(shuffle) and not keeps,
            seed=seed if shuffle else 0,
            shuffle_then_shard=shuffle_then_shard,
            how=shuffle if isinstance(shuffle, Shuffle) else FULL,
        )

    def in_words(self) -> str:
        """What an epoch is: ``1,000 records an epoch, shuffled by seed 23, shard 1 of 4``."""
        words = [f"{len(self):,} records an epoch"]
        if self.shuffle:
            how = "" if self.how == FULL else f" ({self.how.name})"
            words.append(f"shuffled{how}{'' if self.reshuffle else ' once'} by seed {self.seed}")
        if self.num_shards > 1:
            words.append(f"shard {self.shard_rank} of {self.num_shards}")
        return ", ".join(words)

    # Lengths

    def __len__(self) -> int:
        """Records of the shard in an epoch that begins at its beginning."""
        return len(range(self.shard_rank, self._end(0), self.num_shards))

    def stop(self, epoch: int) -> int:
        """The number after that of the last record that the shard has in an epoch."""
        begun = self._begun(epoch)
        return len(range(self._rank(begun), self._end(begun), self.num_shards))

    @property
    def epoch_length(self) -> int:
        """How many offsets an epoch has: records of the shard, or places of the whole data set."""
        return self._end(0) if self.shuffle_then_shard else len(self)

    def stop_offset(self, epoch: int) -> int:
        """The offset at which an epoch is over."""
        return self._end(self._begun(epoch)) if self.shuffle_then_shard else self.stop(epoch)

    def _end(self, begun: int) -> int:
        """The place after the last that is dealt out in an epoch that begins at place ``begun``."""
        if not self.drop_remainder:
            return self.record_count
        return self.record_count - (self.record_count - begun) % self.num_shards

    def _begun(self, epoch: int) -> int:
        return self.first_place if epoch == self.first_epoch else 0

    def _rank(self, begun: int) -> int:
        """The shard that has the places of this one in an epoch that begins at place ``begun``."""
        return (begun + self.shard_rank) % self.num_shards

    # Where to begin, and where one is

    def beginning_at(self, epoch: int, offset: int) -> tuple[Order, int]:
        """The order of a stream that begins there, and the number of its first record.

        Args:
            epoch: which epoch.
            offset: less than ``epoch_length``: records of the shard to skip, or places of the whole
                data set with ``shuffle_then_shard``.
        """
        if not self.shuffle_then_shard:
            return self, offset
        order = replace(self, first_epoch=epoch, first_place=offset)
        return order, (offset + self.shard_rank) // self.num_shards

    def offset(self, epoch: int, number: int) -> int:
        """The offset in an epoch of who has read all records of the shard before ``number``.

        With ``shuffle_then_shard``, of all shards together, if they have all read as many.
        """
        if not self.shuffle_then_shard:
            return number
        begun = self._begun(epoch)
        read = number - (begun + self.shard_rank) // self.num_shards
        return min(begun + read * self.num_shards, self._end(begun))

    # Positions

    def permutation(self, epoch: int) -> Array | Permutation | None:
        """The permutation of an epoch, int64 or calculated; ``None`` if it is not shuffled.

        Of the shard's own positions, or of all with ``shuffle_then_shard``.
        """
        if not self.shuffle:
            return None
        seed = (self.seed + epoch) % SEEDS if self.reshuffle else self.seed
        count = self.record_count if self.shuffle_then_shard else len(self)
        found: Array | Permutation = self.how.permutation(count, seed)
        return found

    def positions(
        self, permutation: Array | Permutation | None, epoch: int, start: int, stop: int
    ) -> Array:
        """The data set's positions of the shard's records ``start … stop-1`` of an epoch, int64.

        Args:
            permutation: what :meth:`permutation` returned for that epoch.
            epoch: which epoch.
            start, stop: as in a slice; ``stop`` may lie beyond the end.
        """
        stop = min(stop, self.stop(epoch))
        if permutation is not None and not self.shuffle_then_shard:
            return permutation[start:stop] * self.num_shards + self.shard_rank
        places = np.arange(start, stop, dtype=np.int64) * self.num_shards
        places += self._rank(self._begun(epoch))
        return places if permutation is None else permutation[places]


class EpochCounter:
    """Which epoch comes next, and where in it to begin.

    Safe for threads without a lock, which a fork could leave locked in the child. Can be pickled.

    Args:
        epoch, start: the first epoch, and the number of the first record to read of it.
    """

    def __init__(self, epoch: int, start: int) -> None:
        self._first, self._start = epoch, start
        # All that changes is in this object, whose steps are in C, and so are not interrupted.
        self._epochs = iter(range(epoch, epoch + _EPOCHS))

    def claim(self) -> tuple[int, int]:
        """The next epoch and its first record; the one after it is next from then on."""
        epoch = next(self._epochs)
        return epoch, self.start_of(epoch)

    def peek(self) -> tuple[int, int]:
        """What :meth:`claim` would return."""
        epoch = self._first + self.claimed
        return epoch, self.start_of(epoch)

    @property
    def first(self) -> int:
        """As given."""
        return self._first

    @property
    def claimed(self) -> int:
        """How many epochs were claimed."""
        return _EPOCHS - operator.length_hint(self._epochs)

    def start_of(self, epoch: int) -> int:
        """The number of the first record to read of an epoch."""
        return self._start if epoch == self._first else 0

    def __getstate__(self) -> tuple[int, int]:
        return self.peek()

    def __setstate__(self, state: tuple[int, int]) -> None:
        self.__init__(*state)  # type: ignore[misc] # the state is what the constructor takes


class Permutations:
    """The permutations of an order. Safe for threads; pickles without what it has in memory.

    In memory are the one that was asked for last, and all that somebody still has: whoever reads
    an epoch keeps its positions (:meth:`positions_of`), so that others who read other epochs at the
    same time do not have them made again and again.
    """

    def __init__(self, order: Order) -> None:
        self.order = order
        self._last: Array | Permutation | None = None
        self._known: weakref.WeakValueDictionary[int, Array | Permutation] = (
            weakref.WeakValueDictionary()
        )

    def of_epoch(self, epoch: int) -> Array | Permutation | None:
        """See :meth:`Order.permutation`."""
        if not self.order.shuffle:
            return None
        key = epoch if self.order.reshuffle else 0
        found = self._known.get(key)
        if found is None:
            found = self.order.permutation(epoch)
            assert found is not None
            self._known[key] = found
        self._last = found
        return found

    def positions_of(self, epoch: int) -> Callable[[int, int], Array]:
        """The data set's positions of the shard's records ``start … stop-1`` of an epoch, int64.

        A function of ``start`` and ``stop``, as :meth:`Order.positions` takes them.
        """
        return functools.partial(self.order.positions, self.of_epoch(epoch), epoch)

    def __getstate__(self) -> Order:
        return self.order

    def __setstate__(self, order: Order) -> None:
        self.__init__(order)  # type: ignore[misc] # the state is what the constructor takes


def _flag(name: str, value: Any) -> bool:
    """A caller's ``True`` or ``False``; ``None`` is false, as it was in yogadl 0.1.4."""
    return value is not None and as_flag(name, value)


def _check_shuffle(shuffle: Any) -> None:
    """Sees that what was given says whether and how to shuffle.

    What is merely true, such as the class ``KeyedShuffle`` or the text ``"no"``, would shuffle in
    another order than was meant, and runs could not go on in the right one later.
    """
    is_flag = shuffle is None or (isinstance(shuffle, int | np.bool_) and shuffle in (0, 1))
    if not is_flag and not isinstance(shuffle, Shuffle):
        advice = ""
        if isinstance(shuffle, type) and issubclass(shuffle, Shuffle):
            advice = f"; an instance: {shuffle.__name__}(…)"
        raise InvalidArgumentError(
            "shuffle must be True, False, or a way to shuffle such as yogadl.KeyedShuffle(), not "
            f"{shuffle!r:.100}{advice}"
        )
