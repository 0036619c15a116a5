"""What tells data sets apart: what their records are, and nothing of how these are stored.

Every record has a *token*, of 64 bits: the length of its content and the checksum of that. The
content id of a data set is a digest of its spec and of two sums over the tokens of its records in
order. So it is the same for any layout of files, however the records came into them, and for any
slices, selections and concatenations that make the same records of others.

A sum is ``sum(scattered(token[i]) * r**i)`` modulo ``2**64``, for an odd ``r``; so the sums of
records one behind the other follow from those of their parts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from yogadl import spec as specs
from yogadl.format import spec_json
from yogadl.format.layout import INLINE_LIMIT, LEAD

Array = np.ndarray[Any, Any]

_CHUNK = 1 << 16
_WORDS = 1 << 64
# Of the longest period, which is as long.
_PERIOD = 1 << 62
_FACTORS = (0x9E6C63D0876A9A4D, 0xC2B2AE3D27D4EB4D)
_SHIFTS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def content_id_of(spec: specs.Structure, count: int, tokens: Callable[[Array], Array]) -> str:
    """The content id of a data set: the XXH3-128 of its spec and the sums of its tokens, in hex.

    Args:
        spec: the element spec; the order of dict keys in it does not matter.
        count: number of records.
        tokens: gives the tokens of the records at some positions.
    """
    return sums_of_tokens(count, tokens).content_id(spec)


def sums_of_tokens(count: int, tokens: Callable[[Array], Array]) -> TokenSums:
    """The sums over the tokens of all records of a data set; see :func:`content_id_of`."""
    sums = NO_TOKENS
    for start in range(0, count, _CHUNK):
        sums = sums.then(TokenSums.of(tokens(np.arange(start, min(start + _CHUNK, count)))))
    return sums


@dataclass(frozen=True)
class TokenSums:
    """The sums over the tokens of some records.

    Attributes:
        count: of the records.
        sums: in ``[0, 2**64)``.
    """

    count: int
    sums: tuple[int, int]

    @classmethod
    def of(cls, tokens: Array) -> TokenSums:
        """The sums over some tokens, uint64 ``[n]``; 16 bytes of memory each are taken for it."""
        found = []
        # Scattered in two ways, since a sum tells records of far distance apart by fewer bits.
        scattered = _scattered(tokens)
        for factor in _FACTORS:
            powers = _powers_up_to(factor, len(tokens))
            found.append(int((scattered * powers).sum(dtype="u8")))
            scattered = _scattered(scattered)
        return cls(len(tokens), (found[0], found[1]))

    def then(self, others: TokenSums) -> TokenSums:
        """The sums over these tokens, and some others behind them."""
        one, two = (
            (mine + pow(factor, self.count, _WORDS) * theirs) % _WORDS
            for factor, mine, theirs in zip(_FACTORS, self.sums, others.sums, strict=True)
        )
        return TokenSums(self.count + others.count, (one, two))

    def content_id(self, spec: specs.Structure) -> str:
        """The content id of a data set of these records."""
        text = f"{spec_json.canonical(spec)}\n{self.count} {self.sums[0]:x} {self.sums[1]:x}"
        return xxhash.xxh3_128_hexdigest(text.encode())


NO_TOKENS = TokenSums(0, (0, 0))


def sums_of(entries: Array) -> TokenSums:
    """The sums over the tokens of records with these entries, which are not marked yet."""
    sums = NO_TOKENS
    for start in range(0, len(entries), _CHUNK):
        sums = sums.then(TokenSums.of(entry_tokens(entries[start : start + _CHUNK])))
    return sums


def sums_of_slices(tokens: Array, firsts: Array, counts: Array, starts: Array) -> tuple[int, int]:
    """What slices of some tokens add to the sums over all records of a data set.

    Args:
        tokens: uint64 ``[n]``; 16 bytes of memory each are taken for it.
        firsts: the first of each slice in ``tokens``, int64 ``[m]``.
        counts: tokens in each.
        starts: the position in the data set of the first of each.
    """
    found = []
    scattered = _scattered(tokens)
    for factor in _FACTORS:
        behind = np.concatenate([np.zeros(1, "u8"), scattered * _powers_up_to(factor, len(tokens))])
        np.add.accumulate(behind, out=behind)
        within = behind[firsts + counts] - behind[firsts]
        found.append(int((within * _powers(factor, starts - firsts)).sum(dtype="u8")))
        scattered = _scattered(scattered)
    return found[0], found[1]


def sums_of_wholes(sums: Array, starts: Array) -> tuple[int, int]:
    """What some records that follow on one another add to the sums over all of a data set.

    Args:
        sums: over the tokens of the records of each run of them, uint64 ``[m, 2]``.
        starts: the position in the data set of the first record of each run, int64 ``[m]``.
    """
    one, two = [
        int((sums[:, at] * _powers(factor, starts)).sum(dtype="u8"))
        for at, factor in enumerate(_FACTORS)
    ]
    return one, two


def _powers_up_to(factor: int, count: int) -> Array:
    """The powers of a factor from 0 on, uint64 ``[count]``."""
    powers = np.full(count, factor, "u8")
    powers[:1] = 1
    np.multiply.accumulate(powers, out=powers)
    return powers


def _powers(factor: int, exponents: Array) -> Array:
    """Some powers of an odd factor, uint64; exponents may be negative."""
    left = exponents % _PERIOD
    powers = np.ones(len(left), "u8")
    while left.any():
        powers[left % 2 == 1] *= np.uint64(factor)
        factor = factor * factor % _WORDS
        left = left // 2
    return powers


def entry_tokens(entries: Array, marks: Any = 0) -> Array:
    """The tokens of records with these entries of the index, uint64 ``[n]``.

    Args:
        entries: ``ENTRY`` ``[n]``.
        marks: that their checksums have, see :func:`yogadl.format.entries.marks_of`.
    """
    lengths = entries["length"]
    leads = np.where(lengths > INLINE_LIMIT, np.uint32(LEAD), np.uint32(0))
    return record_tokens(lengths - leads, entries["checksum"] ^ np.uint32(marks))


def record_tokens(lengths: Array, checksums: Array) -> Array:
    """The tokens of records whose contents have these lengths and checksums, uint64 ``[n]``."""
    tokens: Array = lengths.astype("u8") << np.uint64(32) | checksums.astype("u8")
    return tokens


def mixed(tokens: Array, others: Array) -> Array:
    """Tokens made of two of each record, uint64 ``[n]``: others for any other two, or the same two
    the other way round, but for one case in 2**64."""
    return _scattered(_scattered(tokens) + others)


def marked(tokens: Array, text: str) -> Array:
    """Tokens mixed with a text that says what they are tokens of, uint64 ``[n]``."""
    return mixed(tokens, np.array([xxhash.xxh3_64_intdigest(text.encode())], "u8"))


def _scattered(words: Array) -> Array:
    """A permutation of the numbers of 64 bits that leaves nothing in place: that of SplitMix64."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in _SHIFTS:
        words = (words ^ words >> np.uint64(shift)) * np.uint64(factor)
    found: Array = words ^ words >> np.uint64(31)
    return found
