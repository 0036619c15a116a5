"""The index: offset, length and checksum of every record, 16 bytes each.

Entries are checked in blocks when first used: opening must not depend on the number of records.
Files that are mapped one behind the other have one index, whose entries lie in each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from yogadl.errors import REPAIR, ChecksumError
from yogadl.format.entries import ENTRY, EntryCheck, marks_of
from yogadl.format.layout import RecordLayout

Array = np.ndarray[Any, Any]

BLOCK = 4096
"""Entries under one checksum."""

# To find the run of a position, as many times as there are runs; fewer where there are many.
_BUCKETS = 4
_MANY_RUNS = 1 << 16

# Of so many bytes at most, the entries of all records are put in the order of positions, once all
# of them are checked. Then finding a record costs no more than in one file.
_LARGEST_ORDERED = 32 << 20
_STEP = 1 << 16


def block_checksums(entries: Array) -> Array:
    """One XXH3-64 for every ``BLOCK`` entries, uint64."""
    raw = memoryview(np.ascontiguousarray(entries)).cast("B")
    step = BLOCK * ENTRY.itemsize
    sums = [xxhash.xxh3_64_intdigest(raw[at : at + step]) for at in range(0, len(raw), step)]
    return np.asarray(sums, "<u8")


def block_counts(counts: Any) -> Any:
    """Blocks of a file of so many records; also for arrays."""
    return -(-counts // BLOCK)


@dataclass(frozen=True)
class IndexedFiles:
    """Where some files lie in a buffer; arrays int64 ``[n]``.

    Attributes:
        counts: records of each; at least 1, but where there is one file only.
        bases: the byte of the buffer that is its first.
        sizes: its bytes.
        entries: where its entries begin in it, a multiple of 16, as bases are.
        salts: what its entries are marked by, uint32 ``[n]``.
    """

    counts: Array
    bases: Array
    sizes: Array
    entries: Array
    salts: Array


@dataclass(frozen=True)
class Runs:
    """Which records of some files there are, in the order of positions; arrays int64 ``[n]``.

    Attributes:
        files: the number of a file.
        firsts: the first of its records that is meant.
        counts: so many of them; at least 1, but where there is one run only.
    """

    files: Array
    firsts: Array
    counts: Array

    @classmethod
    def of_whole(cls, counts: Array) -> Runs:
        """All records of files of so many records, one file behind the other."""
        return cls(np.arange(len(counts)), np.zeros_like(counts), counts)

    def behind(self, files: int) -> Runs:
        """The same where so many other files come before these."""
        return Runs(self.files + files, self.firsts, self.counts)


class RunFinder:
    """Finds the runs in which some positions are. Immutable.

    Args:
        counts: records of each run, in the order of positions, int64 ``[n]``.

    Attributes:
        ends: the first position behind each run, int64 ``[n]``.
        starts: the first position of each.
    """

    def __init__(self, counts: Array) -> None:
        self.ends: Array = np.cumsum(counts)
        self.starts: Array = self.ends - counts
        # NumPy takes as long to make an array of a number as to divide 32 others by it.
        self._even = np.array(_even(counts))
        self._buckets, self._shift = _buckets(self.ends)

    def find(self, positions: Array) -> Array:
        """The numbers of the runs of some positions, int64 ``[n]``."""
        if self._even:
            even: Array = positions // self._even
            return even
        runs: Array = self._buckets[positions >> self._shift]
        beyond = positions >= self.ends[runs]
        if beyond.any():
            runs += beyond
            # Where many short runs stand side by side.
            beyond = positions >= self.ends[runs]
            if beyond.any():
                runs[beyond] = np.searchsorted(self.ends, positions[beyond], side="right")
        return runs


class Index:
    """The entries of all records of some files, checked as they are used. Safe for threads.

    Args:
        buffer: in which the files lie, uint8.
        files: the files; also an attribute.
        checksums: one per block of each, as of :func:`block_checksums`; also an attribute.
        layout: of the records.
        alignment: what the offset of every content must be a multiple of.
        where: what to call in errors what has a record of the file of a number, and its position
            there.
        touch: called before entries are read: with the number of the file, and their first byte in
            the buffer and the end of them.
        runs: which records of the files there are; without, all of them in order. Also an
            attribute.
    """

    def __init__(
        self,
        buffer: Array,
        files: IndexedFiles,
        checksums: Array,
        *,
        layout: RecordLayout,
        alignment: int,
        where: Callable[[int, int], tuple[str, int]],
        touch: Callable[[int, int, int], object],
        runs: Runs | None = None,
    ) -> None:
        self._buffer = buffer
        self.files = files
        self.checksums = checksums
        self.runs = runs
        self._is_fixed = layout.content_size is not None
        self._possible = EntryCheck(layout, alignment)
        self.where = where
        self._touch = touch
        blocks = block_counts(files.counts)
        self._first_blocks = np.cumsum(blocks) - blocks
        self._arrange(Runs.of_whole(files.counts) if runs is None else runs)
        # The buffer as entries.
        self._all = buffer[: len(buffer) // ENTRY.itemsize * ENTRY.itemsize].view(ENTRY)
        self._all_offsets = self._all["offset"].view("<i8")
        # Of all records in the order of positions, with offsets in the buffer.
        self._whole: Array | None = None
        self._whole_offsets: Array | None = None
        if self._is_single:
            # Where a plain file says, which may be anywhere.
            start = int(files.entries[0]) + ENTRY.itemsize * -int(self._shifts[0])
            self._whole = buffer[start : start + ENTRY.itemsize * len(self)].view(ENTRY)
            self._whole_offsets = self._whole["offset"].view("<i8")
        self._checked = self._needless_blocks()
        self._all_checked = bool(self._checked.all())

    def _arrange(self, runs: Runs) -> None:
        """Prepares what is looked up of every run."""
        files = self.files
        self._finder = RunFinder(runs.counts)
        # A position less this is that of the record in its file.
        self._shifts = self._finder.starts - runs.firsts
        self._bases = files.bases[runs.files]
        self._salts = files.salts[runs.files]
        self._blocks = self._first_blocks[runs.files]
        # The number, in the buffer, of the entry of position 0, if a run had it.
        self._at = (self._bases + files.entries[runs.files]) // ENTRY.itemsize - self._shifts
        self._is_single = len(files.counts) == 1 and len(runs.counts) == 1

    def _needless_blocks(self) -> Array:
        """Of each block whether no run has any of its records, so that it is never checked."""
        total, runs = len(self.checksums), self.runs
        if runs is None:
            return np.zeros(total, bool)
        firsts = self._blocks + runs.firsts // BLOCK
        behind = self._blocks + (runs.firsts + runs.counts - 1) // BLOCK + 1
        begun = np.bincount(firsts, minlength=total + 1)
        ended = np.bincount(behind, minlength=total + 1)
        needless: Array = np.cumsum(begun - ended)[:total] == 0
        return needless

    def __len__(self) -> int:
        return int(self._finder.ends[-1])

    def lookup(self, positions: Array) -> Array:
        """The entries of some records.

        Args:
            positions: int64 ``[n]``, each in ``[0, len(self))``; not checked here.

        Returns:
            ``ENTRY`` records ``[n]``, with offsets in the buffer; the caller may trust that they
            lie inside their file, where the format lets them begin, and are no shorter than the
            spec allows.

        Raises:
            ChecksumError: a block that is needed is damaged.
        """
        if self._whole is not None:
            self._check_single(positions)
            return self._whole[positions]
        runs, places = self._places(positions)
        entries: Array = self._all[places]
        entries["offset"] += self._bases[runs].view("u8")
        return entries

    def offsets(self, positions: Array) -> Array:
        """The offsets alone, int64 ``[n]``, in a fraction of the time; see :meth:`lookup`."""
        if self._whole_offsets is not None:
            self._check_single(positions)
            whole: Array = self._whole_offsets[positions]
            return whole
        runs, places = self._places(positions)
        offsets: Array = self._all_offsets[places]
        offsets += self._bases[runs]
        return offsets

    @property
    def ordered_offsets(self) -> Array | None:
        """The offsets of all records in the order of positions, int64 ``[n]``, once all entries are
        checked; ``None`` before, where they would take much memory, and for what is one file."""
        return None if self._is_single else self._whole_offsets

    def marks(self, positions: Array) -> Array:
        """The marks of the entries of some records, uint32 ``[n]``; see :func:`marks_of`."""
        runs = self._finder.find(positions)
        return marks_of(positions - self._shifts[runs], self._salts[runs])

    def stretches(self, start: int, stop: int) -> tuple[Array, Array]:
        """The positions from ``start`` to before ``stop``, at least one, cut where records that
        follow on one another may lie far apart: the first and the last of each, int64 ``[n]``.

        Of files that are mapped one behind the other, that is nowhere.
        """
        if self.runs is None:
            return np.array([start]), np.array([stop - 1])
        ends, starts = self._finder.ends, self._finder.starts
        first, last = np.searchsorted(ends, [start, stop - 1], side="right").tolist()
        firsts, lasts = starts[first : last + 1].copy(), ends[first : last + 1] - 1
        firsts[0], lasts[-1] = start, stop - 1
        return firsts, lasts

    @property
    def record_bytes(self) -> float:
        """Bytes that a record takes of its file, on average."""
        runs, files = self.runs, self.files
        if runs is None:
            return float(files.sizes.sum()) / max(len(self), 1)
        per_record = files.sizes / files.counts
        return float((per_record[runs.files] * runs.counts).sum()) / len(self)

    def _check_single(self, positions: Array) -> None:
        """Checks what is needed of the only file."""
        if not self._all_checked:
            self._check((positions - self._shifts) // BLOCK)

    def _places(self, positions: Array) -> tuple[Array, Array]:
        """The runs of some records, and which entries of the buffer are theirs; checks these."""
        runs = self._finder.find(positions)
        if not self._all_checked:
            within = positions - self._shifts[runs]
            self._check(self._blocks[runs] + within // BLOCK)
        places: Array = self._at[runs]
        places += positions
        return runs, places

    def _check(self, blocks: Array) -> None:
        missing = blocks[~self._checked[blocks]]
        if len(missing) == 0:
            return
        for block in np.unique(missing).tolist():
            self._check_block(block)
        if self._checked.all():
            self._all_checked = True
            self._order()

    def _order(self) -> None:
        """Puts the entries of all records, or their offsets, in the order of positions."""
        dtype = np.dtype("i8") if self._is_fixed else ENTRY
        if self._is_single or len(self) * dtype.itemsize > _LARGEST_ORDERED:
            return
        find = self.offsets if self._is_fixed else self.lookup
        whole = np.empty(len(self), dtype)
        for start in range(0, len(self), _STEP):
            stop = min(start + _STEP, len(self))
            whole[start:stop] = find(np.arange(start, stop))
        if self._is_fixed:
            self._whole_offsets = whole
        else:
            self._whole = whole

    def _check_block(self, block: int) -> None:
        file = int(np.searchsorted(self._first_blocks, block, side="right")) - 1
        first = (block - int(self._first_blocks[file])) * BLOCK
        count = min(BLOCK, int(self.files.counts[file]) - first)
        start = int(self.files.bases[file] + self.files.entries[file])
        start += first * ENTRY.itemsize
        stop = start + count * ENTRY.itemsize
        self._touch(file, start, stop)
        entries = self._buffer[start:stop].view(ENTRY)
        name, first = self.where(file, first)
        if xxhash.xxh3_64_intdigest(entries) != int(self.checksums[block]):
            raise ChecksumError(
                f"{name} has a damaged index at records {first} to {first + count - 1}; {REPAIR}"
            )
        if not self._possible.are_possible(entries, int(self.files.sizes[file])).all():
            raise ChecksumError(
                f"{name} has an index with impossible entries (a record outside the file, of "
                f"another size than its spec has, or out of line) at records {first} to "
                f"{first + count - 1}; {REPAIR}"
            )
        self._checked[block] = True


def _even(counts: Array) -> int:
    """The records of every run if all have as many, and the last no more; else 0."""
    first = int(counts[0])
    are_even = (counts[:-1] == first).all() and counts[-1] <= first
    return first if are_even else 0


def _buckets(ends: Array) -> tuple[Array, int]:
    """By which a position's run is found without a search, mostly.

    Args:
        ends: the first position behind each run, ascending.

    Returns:
        For every ``2**shift`` positions, the run of the first of them; and ``shift``.
    """
    total = max(1, int(ends[-1]))
    wanted = len(ends) * (_BUCKETS if len(ends) <= _MANY_RUNS else 1)
    shift = max(0, (total // wanted).bit_length() - 1)
    count = (total - 1 >> shift) + 1
    # Of each, how many runs end before its first position, or there.
    ended = np.bincount((ends + ((1 << shift) - 1)) >> shift, minlength=count)[:count]
    return np.cumsum(ended).clip(0, len(ends) - 1), shift
