"""Reading records from afar: what is not here is fetched, and all of it checked."""

from __future__ import annotations

import contextlib
import itertools
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl.cache.columns import Column, ColumnReader
from yogadl.cache.content_id import entry_tokens
from yogadl.cache.mapping import Extents
from yogadl.cache.traffic import Traffic
from yogadl.errors import ChecksumError
from yogadl.format.codec import RecordCodec
from yogadl.format.entries import EntryCheck
from yogadl.format.layout import INLINE_LIMIT, LEAD
from yogadl.format.pages import PAGE_SIZE
from yogadl.remote._fetching.bulk_queue import LARGE_BYTES, TWICE
from yogadl.remote._fetching.fetcher import fetcher
from yogadl.remote._fetching.planner import FIRST_RECORDS, has_order, merged, planner
from yogadl.remote._fetching.right_bytes import fetches
from yogadl.remote._fetching.work import Bulk, Range, Small
from yogadl.remote._files import RemoteFiles
from yogadl.remote._index import DamagedIndexError, RemoteIndex
from yogadl.remote._near import Near
from yogadl.remote._records import RemoteRecords, Version, is_whole_cheaper
from yogadl.remote._staged import Staged, joined, read_into, room_for

Array = np.ndarray[Any, Any]

SETTLING_SECONDS = 0.5
# Of a machine, until it can be seen how many there are.
_USUAL_PROCESSES = 8


class RemoteReader(RemoteRecords):
    """The records of a version whose bytes are fetched when they are needed, and kept.

    Every record is compared with its checksum whenever it is read. Safe for threads and forks.

    Args:
        version: what it has.
        files: in which it has it.
        checksums: see ``RemoteIndex``.
        near: see ``RemoteRecords``.
    """

    def __init__(
        self,
        version: Version,
        files: RemoteFiles,
        checksums: Callable[[], Array],
        near: Near | None,
    ) -> None:
        super().__init__(version, near)
        self._columns_of = ColumnReader(version.codec)
        self._open_files: RemoteFiles | None = files
        check = EntryCheck(version.codec.layout, version.alignment)
        self._open_index: RemoteIndex | None = RemoteIndex(files, check, checksums)
        # Whether the last records read were here, so that the next may be read without looking.
        self._is_here = False
        self._sharing = 1
        # How many records, whether they had to be waited for or not.
        self._read = 0
        # When others that began together should have been seen.
        self._settled: float | None = None

    @property
    def files(self) -> RemoteFiles:
        """Where the records are.

        Raises:
            ClosedError: this is closed.
        """
        if self._open_files is None:
            raise self._closed()
        return self._open_files

    @property
    def kinds(self) -> Sequence[tuple[RemoteFiles, RecordCodec]]:
        return ((self.files, self.version.codec),)

    @property
    def _index(self) -> RemoteIndex:
        self.files  # noqa: B018 # raises if it is closed
        index = self._open_index
        assert index is not None
        return index

    def _far_tokens(self, positions: Array) -> Array:
        with self._telling_damage():
            return entry_tokens(self._index.verified(positions))

    def close(self) -> None:
        # Who waits for some of them is told, once no copy of this has them.
        self._open_files = None
        self._open_index = None
        self._near = None

    # Finding

    def look_up(self, positions: Array, small: Small = Small.ASK) -> tuple[Array, Array]:
        """See ``RemoteIndex.look_up``, and of ``small`` ``Fetcher.ensure``.

        Raises:
            ChecksumError: the index is damaged there.
            StoreError: it cannot be read.
        """
        # Who waits must not have the files, which another thread may close meanwhile.
        fetcher().ensure(self.index_ranges(positions), small=small)
        with self._telling_damage():
            return self._index.look_up(positions)

    @contextlib.contextmanager
    def _telling_damage(self) -> Iterator[None]:
        try:
            yield
        except DamagedIndexError as error:
            raise ChecksumError(
                f"{self.version.name} has a damaged index at record {error.position}; rebuild it"
            ) from error

    def in_steps(self, positions: Array) -> list[Array]:
        """Some records in their order, as many at a time as may be asked about at once."""
        return self.files.in_steps(positions)

    def index_ranges(self, positions: Array) -> list[Range]:
        """Where the entries of some records are, as far as they may have to be fetched."""
        return self._index.ranges(positions)

    def record_ranges(self, positions: Array) -> list[Range]:
        """Where some records are, in their order."""
        numbers, entries = self.look_up(positions)
        return self._ranges(numbers, entries)

    def _ranges(self, numbers: Array, entries: Array) -> list[Range]:
        wanted = numbers.tolist()
        files = {number: self.files.file(number) for number in set(wanted)}
        return [
            (files[number], offset, offset + length)
            for number, (offset, length, _) in zip(wanted, entries.tolist(), strict=True)
        ]

    # Reading

    def _far_columns(
        self, positions: Array, out: Sequence[Array] | None, spans: bool
    ) -> list[Column]:
        buffer, entries = self._staged(positions)
        try:
            offsets, lengths = entries["offset"].astype("i8"), entries["length"].astype("i8")
            if out is None:
                out = self._columns_of.room_for(len(positions))
            return self._columns_of.read(buffer, offsets, lengths, out, spans)
        except ChecksumError as error:
            raise ChecksumError(f"{self.version.name}: {error}; rebuild it") from error

    def _far_record(self, position: int) -> Any:
        buffer, entries = self._staged(np.array([position]))
        ((offset, length, _),) = entries.tolist()
        lead = LEAD if length > INLINE_LIMIT else 0
        try:
            return self.version.codec.decode(memoryview(buffer)[offset + lead : offset + length])
        except ChecksumError as error:
            name = self.version.name
            raise ChecksumError(f"{name}, record {position}: {error}; rebuild it") from error

    def _staged(self, positions: Array) -> tuple[Array, Array]:
        """Some records in memory of their own, compared with their checksums.

        Returns:
            A buffer, uint8, and their entries with offsets in it; as aligned as in a file, and with
            a page behind them.
        """
        read = self._read_once(positions)
        return (read if not read.wrong else self._mended(positions, read))[:2]

    def _mended(self, positions: Array, first: Staged) -> Staged:
        """The same with what was wrong fetched again.

        Raises:
            ChecksumError: some of it still is.
        """
        chosen, reads = [np.arange(len(positions))], [first]
        wrong = np.array(first.wrong)
        for _ in fetches():
            read = self._read_once(positions[wrong])
            chosen.append(wrong)
            reads.append(read)
            wrong = wrong[read.wrong]
            if not len(wrong):
                return joined(chosen, reads)
        raise ChecksumError(
            f"{self.version.name}: record {positions[wrong[0]]} is not what was written, however "
            "often it is fetched; open the data set anew, as it may have been replaced, or rebuild "
            "it"
        )

    def _read_once(self, positions: Array) -> Staged:
        """Some records, of which those that are wrong will be fetched again."""
        # A consumer's first batch is not to wait until nearly all is here, unless it needs that.
        is_first, self._read = self._read < FIRST_RECORDS, self._read + len(positions)
        if is_first and self.files.are_most_small(positions, self._sharing):
            is_first = False
            fetcher().start_bulk()
        groups = self.files.in_groups(positions)
        if len(groups) == 1:
            return self._read_together(positions, is_first)
        reads = [self._read_together(positions[group], is_first) for group in groups]
        return joined(groups, reads)

    def _read_together(self, positions: Array, is_first: bool) -> Staged:
        """The same of records whose files may all be open; the first have it urgent."""
        # Bulk begins with the entries.
        numbers, entries = self.look_up(positions, Small.ASK if is_first else Small.WAIT)
        ranges = self._ranges(numbers, entries)
        buffer, staged = room_for(entries)
        wrong = list(range(len(ranges)))
        if self._is_here:
            wrong = read_into(buffer, ranges, staged, wrong)
        if wrong:
            needed = merged(ranges[at] for at in wrong)
            dropped = _pages_of(ranges[at] for at in wrong)
            small = Small.ASK_AGAIN if is_first else Small.WAIT
            with fetcher().holding(needed, True, dropped, small) as self._is_here:
                wrong = read_into(buffer, ranges, staged, wrong)
        if wrong:
            # They are damaged, or what led to them.
            self._is_here = False
            fetcher().discard([ranges[at] for at in wrong])
            self._index.forget(positions[wrong])
        return Staged(buffer, staged, entries, wrong)

    # Fetching ahead

    def traffic(self) -> list[Traffic]:
        return [self.files.traffic]

    def _is_wanted_whole(self, num_shards: int, rank: int) -> bool | None:
        self._sharing = num_shards
        here = self.files.file(0).pieces.claims.shards_here(rank, num_shards)
        if is_whole_cheaper(self._bytes_of_each(), num_shards, here):
            return True
        if self._settled is None:
            self._settled = time.monotonic() + SETTLING_SECONDS
        return None if time.monotonic() < self._settled else False

    def _far_extents(self, positions: Array | range) -> list[Extents]:
        return [_RemoteExtents(self, positions)]

    def are_here(self, positions: Array) -> bool:
        """Whether some records need not be fetched."""
        return all(map(self._are_here, self.in_steps(positions)))

    def _are_here(self, positions: Array) -> bool:
        # What finds them first: to look that up waits for it.
        return all(
            file.pieces.has(start, stop)
            for ranges in (self.index_ranges, self.record_ranges)
            for file, start, stop in ranges(positions)
        )


@dataclass(frozen=True)
class _RemoteExtents(Extents):
    """Where some records of a reader lie."""

    reader: RemoteReader
    positions: Array | range

    def are_cached(self) -> bool:
        return self.reader.are_here(np.asarray(self.positions))

    def will_need(self) -> None:
        if len(self.positions) == len(self.reader) and isinstance(self.positions, range):
            files = self.reader.files
            if files.are_complete():
                return
            whole = _all_of(weakref.ref(files), self.reader._sharing)
            processes = min(self.reader._sharing, _USUAL_PROCESSES)
            is_small = self.reader._bytes_of_each() < LARGE_BYTES
            bulk = Bulk(
                whole,
                files.nbytes,
                files.traffic,
                processes,
                is_small,
                has_many_files=files.are_many_small,
                is_begun=self.reader._read > 0,
            )
            fetcher().want_whole(bulk, files.server)
            return
        positions = np.asarray(self.positions)
        # What is small would not be fetched by itself while all is, and to find out where it is
        # takes time that who reads waits for.
        is_large = self.reader._bytes_of_each() >= LARGE_BYTES or has_order(positions)
        if is_large or not fetcher().has_bulk(self.reader.files.traffic):
            # All of a part is like all of it, but not a part of what is read.
            is_all = isinstance(self.positions, range)
            planning = planner(self.reader.files.server)
            planning.submit(self.reader, positions, must_keep=is_all)

    def touch(self) -> None:
        for some in self.reader.in_steps(np.asarray(self.positions)):
            fetcher().ensure(self.reader.record_ranges(some))

    def forget(self) -> None:
        """What is here is not in this process's memory."""


def _pages_of(ranges: Iterable[Range]) -> list[Range]:
    """The pages of those records that have some for themselves.

    On those of small ones are others, which are perhaps read next.
    """
    return [
        (file, start & -PAGE_SIZE, -(-stop // PAGE_SIZE) * PAGE_SIZE)
        for file, start, stop in ranges
        if stop - start > INLINE_LIMIT
    ]


def _all_of(wanted: weakref.ref[RemoteFiles], sharing: int) -> Iterator[Range]:
    """All bytes of some files, as long as anybody reads them; first what finds the records of those
    that are not small.

    ``sharing`` processes do so, if all of them are on this machine.
    """
    files = wanted()
    if files is None:
        return
    are_small, files.twice.most = files.are_small, int(files.nbytes * TWICE) // sharing
    del files
    for is_index, number in itertools.chain(
        ((True, number) for number in np.flatnonzero(~are_small).tolist()),
        ((False, number) for number in range(len(are_small))),
    ):
        files = wanted()
        if files is None:
            return
        file, index = files.file(number), files.index(number)
        del files
        end = file.size if are_small[number] else index[0]
        yield (file, *index) if is_index else (file, 0, end)
