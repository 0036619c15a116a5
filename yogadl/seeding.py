"""Random numbers that depend on the record and the epoch, and on nothing else.

A transform that draws them gives the same result whichever worker or rank reads the record, in
whatever batch, and before or after any resume. What is derived here is frozen, as the orders are.

NumPy only.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from yogadl.arguments import as_index
from yogadl.completion import public_names
from yogadl.errors import InvalidArgumentError

Array = np.ndarray[Any, Any]

_LIMIT = 2**64
_MASK = _LIMIT - 1


def _split(state: Any, number: Any) -> Any:
    """The ``number``-th output of SplitMix64 seeded with ``state``, modulo 2**64.

    Of integers, or of arrays of uint64.
    """
    mixed = (state + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)


def _words(seed: int, epoch: int, position: Any) -> tuple[Any, Any]:
    """128 bits as two words of 64, for one position or an array of them."""
    first, second = (_split(_split(seed, number), epoch) for number in range(2))
    return _split(first, position), _split(second, position)


def check_seed(seed: Any) -> int:
    """A seed as an int.

    Raises:
        InvalidArgumentError: it is not in ``[0, 2**64)``.
    """
    value = as_index("seed", seed)
    if value >= _LIMIT:
        raise InvalidArgumentError(f"seed must be below 2**64, and {value} is not")
    return value


def seeds(seed: int, epoch: int, positions: Sequence[int] | Array) -> Array:
    """The seeds of some records in an epoch, such as ``tf.random.stateless_uniform`` takes.

    ``make_tf_dataset(…, seeds=seed)`` gives the same.

    Args:
        seed: in ``[0, 2**64)``.
        epoch: which epoch; the first is 0.
        positions: of the records in the data set, integers ``[n]`` of at least 0.

    Returns:
        int64 ``[n, 2]``.

    Raises:
        InvalidArgumentError: an argument is out of range.
    """
    try:
        given = np.asarray(positions)
    except ValueError:
        # Lists of several lengths.
        given = np.empty((0, 0))
    if given.ndim != 1 or (given.size and (given.dtype.kind not in "iu" or given.min() < 0)):
        raise InvalidArgumentError(
            "positions must be a list or 1-D array of integers of at least 0, not "
            f"{positions!r:.100}"
        )
    words = _words(check_seed(seed), as_index("epoch", epoch), given.astype(np.uint64))
    return np.stack(words, axis=1).view(np.int64)


class _Known(ISeedSequence):
    """Words that a bit generator is to begin with. Generators made of it cannot be spawned from."""

    def __init__(self, words: tuple[int, int]) -> None:
        self._words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Array:
        assert (n_words, np.dtype(dtype)) == (2, np.uint64)
        return np.array(self._words, np.uint64)


def generator(seed: int, epoch: int, position: int) -> np.random.Generator:
    """The random generator of a record in an epoch: ``Generator(Philox(key=words))``.

    The words are those of :func:`seeds`, as uint64. They are frozen, and so is the sequence of bits
    that NumPy's Philox makes of them. What methods as ``normal`` make of the bits may differ
    between releases of NumPy.

    Args:
        seed: in ``[0, 2**64)``.
        epoch: which epoch; the first is 0.
        position: of the record in the data set, at least 0.

    Raises:
        InvalidArgumentError: an argument is out of range.
    """
    index = as_index("position", position)
    return _generator(_words(check_seed(seed), as_index("epoch", epoch), index))


def _generator(words: tuple[int, int]) -> np.random.Generator:
    # Given `key=`, Philox would ask the system for random numbers first, which takes longer.
    return np.random.Generator(np.random.Philox(_Known(words)))  # type: ignore[arg-type] # as NumPy documents it


def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of the user returns. It cannot end the epoch, as a StopIteration would."""
    try:
        return function(*arguments)
    except StopIteration as error:
        raise RuntimeError("the transform raised StopIteration") from error


@dataclass(frozen=True)
class SeededTransform:
    """A transform that gets random generators; see :func:`seeded`.

    Immutable. Safe for threads if the function is; can be pickled if it can.

    Attributes:
        function: of a record and its generator, or of a batch and a list of one for each record.
        seed: what all of them are derived from.
    """

    function: Callable[[Any, Any], Any]
    seed: int

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Refuses to be called by who does not know epochs and positions.

        Raises:
            InvalidArgumentError: always.
        """
        raise InvalidArgumentError(
            "a seeded transform needs the epoch and the position of every record; give it as "
            "transform= to a dataset of yogadl, or to stream.map, or call its of_record or of_batch"
        )

    def of_record(self, record: Any, epoch: int, position: int) -> Any:
        """What the function makes of the record at a position, in an epoch."""
        return called(self.function, record, generator(self.seed, epoch, position))

    def of_batch(self, batch: Any, epoch: int, positions: Sequence[int] | Array) -> Any:
        """What the function makes of the batch of the records at some positions, in an epoch."""
        words = seeds(self.seed, epoch, positions).view(np.uint64).tolist()
        return called(self.function, batch, list(map(_generator, words)))


def seeded(function: Callable[[Any, Any], Any], seed: int) -> SeededTransform:
    """A transform with random numbers that are the same in every run: ``seeded(augment, seed=7)``.

    For ``transform=`` of ``yogadl.torch``, ``yogadl.keras`` and ``yogadl.jax``, and for
    ``stream.map``. Where these would call a transform with a record, ``function`` gets the record
    and its ``numpy.random.Generator``; where with a batch, the batch and a list of one generator
    for each of its records, in their order.

    A generator is derived from the seed, the epoch and the position of the record in the data set
    that is streamed (see :func:`yogadl.seeding.generator`). So a record is transformed alike
    whatever the number of workers and ranks, and after any resume, if ``function`` draws from its
    generators only, and of those of a batch, for each record from its own.

    Args:
        function: makes of a record, or of a batch, what takes its place.
        seed: in ``[0, 2**64)``. Transforms with different seeds are independent of each other.

    Raises:
        InvalidArgumentError: an argument is out of range.
    """
    if not callable(function):
        raise InvalidArgumentError(f"seeded takes a function, not {function!r:.100}")
    try:
        signature = inspect.signature(function)
    except ValueError:
        signature = None  # It is not written in Python.
    try:
        if signature is not None:
            signature.bind(None, None)
    except TypeError as error:
        raise InvalidArgumentError(
            "a seeded function is called with a record and its random generator, function(record, "
            f"rng), or with a batch and a list of them, and this takes {signature}; without random "
            "numbers, give it as transform= itself"
        ) from error
    return SeededTransform(function, check_seed(seed))


Transform = Callable[[Any], Any]
"""What ``transform=`` takes: a function, or a :class:`SeededTransform`."""


def check_transform(transform: Transform | None) -> Transform | None:
    """What ``transform=`` was given, as it is.

    Raises:
        InvalidArgumentError: it is neither ``None`` nor can be called.
    """
    if transform is None or callable(transform):
        return transform
    raise InvalidArgumentError(
        f"transform= takes a function, or what yogadl.seeded makes of one, not {transform!r:.100}"
    )


def transformed_record(transform: Transform, record: Any, epoch: int, position: int) -> Any:
    """A record as a transform, seeded or not, makes it."""
    if isinstance(transform, SeededTransform):
        return transform.of_record(record, epoch, position)
    return called(transform, record)


def transformed_batch(transform: Transform, batch: Any, epoch: int, positions: Array) -> Any:
    """A batch as a transform, seeded or not, makes it.

    Raises:
        InvalidArgumentError: it makes ``None`` of it.
    """
    if isinstance(transform, SeededTransform):
        made = transform.of_batch(batch, epoch, positions)
    else:
        made = called(transform, batch)
    if made is None:
        raise InvalidArgumentError(
            "the transform made None of a batch; does it lack its return? What it returns takes "
            "the place of the batch"
        )
    return made


def after(function: Callable[[Any], Any], transform: Transform | None) -> Transform:
    """A transform, seeded or not, of what a function makes of a record or batch."""
    if transform is None:
        return function
    if isinstance(transform, SeededTransform):
        inner = transform.function
        return replace(transform, function=lambda value, rng: inner(function(value), rng))
    outer = transform
    return lambda value: outer(function(value))


__dir__ = functools.partial(public_names, globals())
