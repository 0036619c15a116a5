"""A data set in a cache file on this machine."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from yogadl import spec as specs
from yogadl.cache.mapping import Access
from yogadl.cache.reader import CacheInfo, RecordReader, open_cache
from yogadl.closing import Closing
from yogadl.core import DataRef
from yogadl.dataref._read_ahead import DEFAULT_WINDOW
from yogadl.dataref._stream import Epochs, IndexedStream
from yogadl.errors import CacheReplacedError, ClosedError, InvalidArgumentError, RecordIndexError
from yogadl.keys import Order, as_index


def _access(name: str) -> Access:
    try:
        return Access(name)
    except ValueError:
        raise InvalidArgumentError(
            f"access must be one of {', '.join(repr(a.value) for a in Access)}, not {name!r}"
        ) from None


class LMDBDataRef(DataRef, Closing):
    """A reference to a cache file, of this release or of yogadl 0.1.4.

    Opening reads a few pages, however large the file. The file is mapped into memory; replacing it
    under its name does not disturb this reference. Safe for threads. Survives a fork; pickled, it
    opens the same path again and insists on the same contents. A context manager that closes it.

    Args:
        cache_filepath: of the ``cache.mdb``.
        check_records: compare every record with its checksum before it is read, by whatever way: a
            ``ChecksumError`` instead of wrong data from a failing disk, for some of the speed. A
            cache of 0.1.4 has no checksums.
        access: what the system is told of reads that no stream announces: ``"random"``,
            ``"sequential"`` or ``"normal"``.

    Raises:
        CacheNotFoundError: there is no such file.
        CacheFormatError: it cannot be read.
        InvalidArgumentError: ``access`` is none of these.
    """

    def __init__(
        self,
        cache_filepath: pathlib.Path | str,
        *,
        check_records: bool = False,
        access: str = "random",
    ) -> None:
        self._path = pathlib.Path(cache_filepath)
        self._check_records = check_records
        self._access = _access(access)
        self._reader: RecordReader | None = open_cache(self._path, check_records, self._access)

    @property
    def reader(self) -> RecordReader:
        """The open file.

        Raises:
            ClosedError: the reference is closed.
        """
        if self._reader is None:
            raise ClosedError(f"the DataRef of {self._path} is closed; fetch it again")
        return self._reader

    @property
    def spec(self) -> specs.Structure:
        """The element spec: a nest of ``yogadl.spec`` leaves."""
        return self.reader.spec

    @property
    def info(self) -> CacheInfo:
        """What the file says of itself: record count, creation time, versions, metadata."""
        return self.reader.info

    @property
    def metadata(self) -> dict[str, Any]:
        """What was given as ``metadata`` when the data set was submitted."""
        return self.info.metadata

    def stream(
        self,
        start_offset: int = 0,
        shuffle: bool = False,
        skip_shuffle_at_epoch_end: bool = False,
        shuffle_seed: int | None = None,
        shard_rank: int = 0,
        num_shards: int = 1,
        drop_shard_remainder: bool = False,
        *,
        read_ahead: int = DEFAULT_WINDOW,
    ) -> IndexedStream:
        """See ``DataRef.stream``, which describes all arguments but the last.

        Costs the same at any offset; unshuffled, in any data set.

        Args:
            read_ahead: bytes of the coming records, in the stream's order, that the system is asked
                to fetch from the disk in advance if it has not got them yet. 0 asks for nothing.
        """
        order = Order.of_stream(
            record_count=len(self),
            shuffle=shuffle,
            skip_shuffle_at_epoch_end=skip_shuffle_at_epoch_end,
            shuffle_seed=shuffle_seed,
            shard_rank=shard_rank,
            num_shards=num_shards,
            drop_shard_remainder=drop_shard_remainder,
        )
        return IndexedStream(
            Epochs(
                self,
                order,
                as_index("start_offset", start_offset),
                as_index("read_ahead", read_ahead),
            )
        )

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, index: int) -> Any:
        """The record at a position; a negative one counts from the end.

        Raises:
            RecordIndexError: there is no such record.
        """
        if not isinstance(index, int | np.integer) or isinstance(index, bool):
            raise InvalidArgumentError(
                f"a DataRef takes one integer as index, not {index!r}; for many, use read(indices)"
            )
        count = len(self)
        if not -count <= index < count:
            raise RecordIndexError(f"there is no record {index}: the data set has {count}")
        return self.reader.read_record(int(index) % count)

    def read(self, indices: Sequence[int] | np.ndarray[Any, Any]) -> Any:
        """The records at some positions, as one batch.

        Args:
            indices: integers ``[n]``, in any order, repeated or negative if need be.

        Returns:
            A nest as of the spec. A dense leaf of static shape is a fresh array ``[n, *shape]``
            (``object`` with ``bytes`` for strings); any other leaf is a list of ``n`` values.

        Raises:
            RecordIndexError: there is no such record.
        """
        positions = self._positions(indices)
        reader = self.reader
        if len(positions) and not reader.are_cached(positions[:: -(-len(positions) // 8)]):
            reader.announce(positions)
        return specs.unflatten(reader.spec, reader.read_columns(positions))

    def _positions(self, indices: Any) -> np.ndarray[Any, Any]:
        given = np.asarray(indices)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise InvalidArgumentError(
                f"indices must be a list or 1-D array of integers, not {indices!r:.100}"
            )
        count = len(self)
        # Compared before they are converted, lest a huge one wrap around.
        wrong = (given < -count) | (given >= count)
        if wrong.any():
            raise RecordIndexError(
                f"there is no record {int(given[wrong][0])}: the data set has {count}"
            )
        positions = given.astype(np.int64)
        return np.where(positions < 0, positions + count, positions)

    def verify(self) -> None:
        """Reads the whole file and compares it with its checksums.

        Raises:
            CacheFormatError: it is not what was written.
        """
        self.reader.verify()

    def close(self) -> None:
        """Lets go of the file, for this reference and its streams. May be called twice."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def __getstate__(self) -> tuple[pathlib.Path, bool, Access, str]:
        return self._path.absolute(), self._check_records, self._access, self.info.identity

    def __setstate__(self, state: tuple[pathlib.Path, bool, Access, str]) -> None:
        path, check_records, access, identity = state
        self._path = path
        self._check_records = check_records
        self._access = access
        self._reader = open_cache(path, check_records, access)
        if self.info.identity != identity:
            self.close()
            raise CacheReplacedError(
                f"{path} was replaced after this reference was pickled, so positions in it mean "
                "other records; fetch it again"
            )

    def __repr__(self) -> str:
        state = "closed" if self._reader is None else f"{len(self):,} records"
        return f"{type(self).__name__}({str(self._path)!r}, {state})"
