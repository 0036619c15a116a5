"""Ways to shuffle: which record stands where, by a seed. Index arithmetic, NumPy only.

They are frozen: training runs are resumed by them. docs/streams.md specifies them.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl.arguments import as_index
from yogadl.errors import InvalidArgumentError

Array = np.ndarray[Any, Any]

_ROUNDS = 8
_CHUNK = 8192
_LONGEST_NAME = 200
_WORDS = 1 << 64
_STEP = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


class Permutation(abc.ABC):
    """A permutation of the numbers below a count, calculated. May be shared by threads.

    Args:
        count: of the numbers.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        # A few numbers take nearly as long as a thousand. One tuple, so that both are of one chunk.
        self._chunk: tuple[int, Array] = (-1, np.empty(0, "i8"))

    def __getitem__(self, places: Any) -> Array:
        """The numbers at some places: int64 ``[n]``, each below the count, or a slice of them."""
        if not isinstance(places, slice):
            return self._at(places)
        start, stop, step = places.indices(self._count)
        if step != 1 or stop - start > _CHUNK:
            return self._at(np.arange(start, stop, step))
        parts = [
            self._chunk_of(number)[max(0, start - number * _CHUNK) : stop - number * _CHUNK]
            for number in range(start // _CHUNK, -(-stop // _CHUNK))
        ]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, "i8"), *parts])

    def _chunk_of(self, number: int) -> Array:
        known, chunk = self._chunk
        if known != number:
            start = number * _CHUNK
            chunk = self._at(np.arange(start, min(start + _CHUNK, self._count)))
            self._chunk = (number, chunk)
        return chunk

    @abc.abstractmethod
    def _at(self, places: Array) -> Array:
        """The numbers at some places, int64 ``[n]`` each."""


class Shuffle(abc.ABC):
    """A way to shuffle. Immutable; can be pickled."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Says which it is, in states: a word, and its numbers."""

    @abc.abstractmethod
    def permutation(self, count: int, seed: int) -> Any:
        """A permutation of the numbers below ``count``: an int64 array, or a ``Permutation``.

        Args:
            count: of records.
            seed: in ``[0, 2**32)``.
        """


@dataclass(frozen=True)
class FullShuffle(Shuffle):
    """``numpy.random.RandomState(seed).shuffle`` of all positions, as in yogadl 0.1.4.

    Takes 8 bytes of memory a record, and about a second for 20 million records.
    """

    @property
    def name(self) -> str:
        """See ``Shuffle.name``."""
        return "full"

    def permutation(self, count: int, seed: int) -> Array:
        """See ``Shuffle.permutation``."""
        positions = np.arange(count, dtype=np.int64)
        np.random.RandomState(seed).shuffle(positions)
        return positions


@dataclass(frozen=True)
class KeyedShuffle(Shuffle):
    """A shuffle of all records that takes no memory and no time to make, whatever their number.

    Which record stands at a place is calculated when it is asked for: a Feistel network (Luby and
    Rackoff, 1988) permutes the numbers of as many bits as the count has, and is repeated for what
    falls outside the count (Black and Rogaway, 2002).
    """

    @property
    def name(self) -> str:
        """See ``Shuffle.name``."""
        return "keyed"

    def permutation(self, count: int, seed: int) -> Permutation:
        """See ``Shuffle.permutation``."""
        return _Keyed(count, _scattered(seed))


@dataclass(frozen=True)
class BlockShuffle(Shuffle):
    """A shuffle of blocks of records that lie together, then of the records of some blocks.

    Kinder to small records that are far away, since what is read together lies together; but
    records stay near each other: those of one block are in one window of ``block_records *
    window_blocks`` places of the order or in two that touch, in every epoch.

    Attributes:
        block_records: records of a block, at least 1.
        window_blocks: blocks whose records are shuffled together, at least 1.
    """

    block_records: int = 4096
    window_blocks: int = 16

    def __post_init__(self) -> None:
        for name in ("block_records", "window_blocks"):
            # Also of NumPy's integers, of which a product may wrap around.
            object.__setattr__(self, name, as_index(name, getattr(self, name), 1))

    @property
    def name(self) -> str:
        """See ``Shuffle.name``."""
        return f"blocks {self.block_records} {self.window_blocks}"

    def permutation(self, count: int, seed: int) -> Permutation:
        """See ``Shuffle.permutation``."""
        return _Blocks(count, self.block_records, self.window_blocks, seed)


class _Keyed(Permutation):
    """The permutation of ``KeyedShuffle``.

    Args:
        count: of the numbers.
        key: of 64 bits.
    """

    def __init__(self, count: int, key: int) -> None:
        super().__init__(count)
        self._keys = _round_keys(np.array([key], "u8"))

    def _at(self, places: Array) -> Array:
        return _permuted(places.astype("u8"), self._count, self._keys).astype("i8")


class _Blocks(Permutation):
    """The permutation of ``BlockShuffle``.

    The last block, if it has fewer records, stands somewhere among the others, which are shuffled.
    """

    def __init__(self, count: int, block: int, window: int, seed: int) -> None:
        super().__init__(count)
        # What is larger than the count makes the same order, and may be too large for an array.
        block = min(block, count + 1)
        self._block = block
        self._span = max(1, min(block * window, count))
        self._blocks, self._rest = divmod(count, block)
        key = _scattered(seed)
        self._order = _Keyed(self._blocks, _scattered(key))
        self._window_key = _scattered(_scattered(key)) % 2**62
        # The place of the short block's first record.
        self._rest_at = _scattered(self._window_key) % (self._blocks + 1) * block

    def _at(self, places: Array) -> Array:
        return self._of_blocks(self._in_windows(places))

    def _in_windows(self, places: Array) -> Array:
        """The places before the records of each window were shuffled."""
        numbers, within = np.divmod(places.astype("i8"), self._span)
        found = numbers * self._span
        # The last window may have fewer places than the others.
        last, rest = divmod(self._count, self._span)
        for width, at in (
            (self._span, np.flatnonzero(numbers < last)),
            (rest, np.flatnonzero(numbers == last)),
        ):
            windows, which = np.unique(numbers[at], return_inverse=True)
            keys = _round_keys(_scatter(windows.astype("u8") + np.uint64(self._window_key)))
            if len(windows) > 1:
                keys = [key[which] for key in keys]
            found[at] += _permuted(within[at].astype("u8"), width, keys).astype("i8")
        return found

    def _of_blocks(self, places: Array) -> Array:
        """The positions at some places in the order of blocks."""
        after = places - self._rest_at
        in_rest = (after >= 0) & (after < self._rest)
        full = np.where(after >= self._rest, places - self._rest, places)
        numbers, within = np.divmod(full, self._block)
        blocks = self._order[np.where(in_rest, 0, numbers)] if self._blocks else numbers
        return np.where(in_rest, self._blocks * self._block + after, blocks * self._block + within)


def _permuted(numbers: Array, count: int, keys: list[Array]) -> Array:
    """Some numbers, uint64, each permuted among those below a count by its key.

    Args:
        numbers: uint64 ``[n]``, below ``count``.
        count: at least 1, if there are any.
        keys: of :func:`_round_keys`.
    """
    low = max(1, count - 1).bit_length()
    high = low // 2
    low -= high
    found = _network(numbers, high, low, keys)
    while len(outside := np.flatnonzero(found >= np.uint64(count))):
        some = keys if len(keys[0]) == 1 else [key[outside] for key in keys]
        found[outside] = _network(found[outside], high, low, some)
    return found


def _round_keys(keys: Array) -> list[Array]:
    """The keys of the rounds of the network, uint64 ``[n]`` each, of keys uint64 ``[n]``."""
    return [_scatter(keys + np.uint64(number * _STEP % _WORDS)) for number in range(_ROUNDS)]


def _network(numbers: Array, high: int, low: int, keys: list[Array]) -> Array:
    """Numbers of ``high + low`` bits, permuted by a Feistel network of keyed rounds."""
    left, right = numbers >> np.uint64(low), numbers & np.uint64((1 << low) - 1)
    sizes = (high, low)
    for key in keys:
        mixed = right + key
        mixed *= np.uint64(_FACTORS[0])
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(_FACTORS[1])
        # Its highest bits, of which there may be none.
        mixed >>= np.uint64(1)
        mixed >>= np.uint64(63 - sizes[0])
        mixed ^= left
        left, right = right, mixed
        sizes = sizes[::-1]
    found: Array = left << np.uint64(low) | right
    return found


def _scatter(words: Array) -> Array:
    """SplitMix64's permutation of the numbers of 64 bits (Steele, Lea and Flood, 2014)."""
    words = words + np.uint64(_STEP)
    words = (words ^ words >> np.uint64(30)) * np.uint64(_FACTORS[0])
    words = (words ^ words >> np.uint64(27)) * np.uint64(_FACTORS[1])
    found: Array = words ^ words >> np.uint64(31)
    return found


def _scattered(word: int) -> int:
    """The same of one number."""
    return int(_scatter(np.array([word % _WORDS], "u8"))[0])


FULL = FullShuffle()


def shuffle_of(name: Any) -> Shuffle:
    """The way to shuffle of a name.

    Raises:
        InvalidArgumentError: there is none of that name.
    """
    # No name is longer, and Python refuses to make numbers of very many digits.
    match name.split() if isinstance(name, str) and len(name) < _LONGEST_NAME else []:
        case ["full"]:
            return FULL
        case ["keyed"]:
            return KeyedShuffle()
        case ["blocks", block, window] if block.isdecimal() and window.isdecimal():
            return BlockShuffle(int(block), int(window))
    raise InvalidArgumentError(f"there is no way to shuffle of the name {name!r:.100}")
