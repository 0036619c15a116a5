"""Reading the cache files of yogadl 0.1.4.

Such a file is an LMDB database of pickles: keys ``00000000``, ``00000001``, … hold the records,
``__keys__`` a list of all these keys, ``__shapes__`` and ``__types__`` the nests of TensorFlow
shapes and dtypes. It has no checksums: what is damaged inside the numbers of a record is not found.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.cache.columns import Column, stack
from yogadl.cache.file_reader import CacheInfo, FileReader
from yogadl.cache.files import shown
from yogadl.cache.gather import gather
from yogadl.cache.mapping import Extents, MappedExtents, MappedFile
from yogadl.cache.whole_file import pieces
from yogadl.errors import (
    REPAIR,
    CacheFormatError,
    ChecksumError,
    ClosedError,
    ForeignFileError,
    YogadlError,
)
from yogadl.format.header import LARGEST_SPEC
from yogadl.format.provenance import UNKNOWN
from yogadl.format.tree import Entries, Tree
from yogadl.legacy import unpickling

Array = np.ndarray[Any, Any]

FORMAT_VERSION = 0
LIBRARY_VERSION = "0.1.4"

_EXTRA_KEYS = (b"__keys__", b"__shapes__", b"__types__")
_KEY_DIGITS = 8
_MAX_DIGITS = 18
_SAMPLES = 64
_SAMPLE_BYTES = 4096
_VERIFY_BYTES = 16 << 20


class LegacyCacheFile(FileReader):
    """A cache file of yogadl 0.1.4, mapped into memory.

    Opening walks its B+tree, 0.2 s for a million records; records are checked when read.

    Args:
        path: of the file, for errors.
        file: the open file.

    Raises:
        CacheFormatError: it is not such a file; see its subclasses.
    """

    def __init__(self, path: pathlib.Path, file: MappedFile) -> None:
        self.path = path
        buffer = file.array
        self._name = shown(path)
        tree = Tree(buffer, self._name)
        extra = self._find_extra(tree)
        view = memoryview(buffer)
        shapes, types = [view[at : at + size] for at, size in extra[1:]]
        self.spec = self._load_spec(shapes, types)
        self._leaves = list(specs.leaves(self.spec))
        self._offsets, self._sizes = self._load_places(tree, buffer)
        self.info = CacheInfo(
            record_count=len(self._offsets),
            format_version=FORMAT_VERSION,
            library_version=LIBRARY_VERSION,
            created=None,
            metadata={},
            file_size=len(buffer),
            digest=self._identify(tree, buffer),
            provenance=UNKNOWN,
        )
        self._file: MappedFile | None = file
        # Made when first needed, from any record: threads may make two, which are as good.
        self._mold: _Mold | None = None
        self._mold_tried = False

    def _find_extra(self, tree: Tree) -> list[tuple[int, int]]:
        places = [tree.find(key) for key in _EXTRA_KEYS]
        found = [place for place in places if place is not None]
        if len(found) != len(_EXTRA_KEYS):
            raise ForeignFileError(
                f"{self._name} is an LMDB file, but neither a yogadl cache nor a finished one of "
                f"yogadl {LIBRARY_VERSION}; if it is left from a submit that was stopped, remove it"
            )
        return found

    def _load_spec(self, shapes: memoryview, types: memoryview) -> specs.Structure:
        if max(len(shapes), len(types)) > LARGEST_SPEC:
            raise self._damaged("its shapes and dtypes are far too large")
        try:
            return specs.normalize(
                unpickling.load_spec(unpickling.load(shapes), unpickling.load(types))
            )
        except YogadlError as error:
            # What 0.1.4 wrote can be read, so it is damaged, whatever the error is.
            kind = type(error) if isinstance(error, CacheFormatError) else ChecksumError
            raise kind(f"{self._name}: its shapes and dtypes: {error}; rebuild it") from error

    def _load_places(self, tree: Tree, buffer: Array) -> tuple[Array, Array]:
        """File offset and size of the pickle of every record, by position."""
        parts = [(np.empty(0, "<i8"),) * 3]
        for entries in tree.walk():
            positions, chosen = self._positions(tree, buffer, entries)
            parts.append((positions, entries.offsets[chosen], entries.sizes[chosen]))
        positions, found, lengths = (np.concatenate(part) for part in zip(*parts, strict=True))
        # As many as there really are, whatever the tree says of itself.
        count = len(positions)
        if (positions >= count).any() or (lengths == 0).any():
            raise self._damaged("a record that should not be there")
        offsets = np.zeros(count, "<i8")
        # A pickle has some bytes, so a size of zero tells that a position was not seen.
        sizes = np.zeros(count, "<i8")
        offsets[positions] = found
        sizes[positions] = lengths
        if not sizes.all():
            raise self._damaged("a record is missing")
        return offsets, sizes

    def _positions(self, tree: Tree, buffer: Array, entries: Entries) -> tuple[Array, Array]:
        """The positions that some keys stand for, and which of the entries they are."""
        positions: list[Array] = []
        chosen: list[Array] = []
        for size in np.unique(entries.key_sizes).tolist():
            which = np.flatnonzero(entries.key_sizes == size)
            if size <= _MAX_DIGITS:
                digits = gather(buffer, entries.key_offsets[which], size) - np.uint8(ord("0"))
                numeric = (digits <= 9).all(axis=1)
                values = digits.astype("<i8") @ 10 ** np.arange(size - 1, -1, -1, dtype="<i8")
                # Longer keys than eight digits have no leading zeros, or two would be one number.
                numeric &= (size == _KEY_DIGITS) | ((size > _KEY_DIGITS) & (digits[:, 0] != 0))
                positions.append(values[numeric])
                chosen.append(which[numeric])
                which = which[~numeric]
            for at in which.tolist():
                key = tree.key(int(entries.key_offsets[at]), int(entries.key_sizes[at]))
                if key not in _EXTRA_KEYS:
                    raise ForeignFileError(
                        f"{self._name} is an LMDB file with key {key[:40]!r}, so no yogadl cache"
                    )
        return np.concatenate([np.empty(0, "<i8"), *positions]), np.concatenate(
            [np.empty(0, "<i8"), *chosen]
        )

    def _damaged(self, what: str) -> ChecksumError:
        return ChecksumError(f"{self._name} is damaged: {what}; rebuild it")

    def _identify(self, tree: Tree, buffer: Array) -> str:
        """XXH3-128 of the file size, the current meta page's fields, where every record lies, and
        64 samples of 4 KiB spread over the file. Two files of equal layout that differ only
        between the samples count as one: the format has nothing better, short of reading it all."""
        digest = xxhash.xxh3_128(f"{len(buffer)} {tree.meta}".encode())
        digest.update(self._offsets.tobytes())
        digest.update(self._sizes.tobytes())
        last = max(len(buffer) - _SAMPLE_BYTES, 0)
        for start in np.linspace(0, last, _SAMPLES).astype("<i8").tolist():
            digest.update(buffer[start : start + _SAMPLE_BYTES].tobytes())
        return digest.hexdigest()

    @property
    def record_bytes(self) -> int:
        return max(self.info.file_size // max(self.info.record_count, 1), 1)

    @property
    def _open_file(self) -> MappedFile:
        if self._file is None:
            raise ClosedError(f"the reader of {self._name} is closed; open it again")
        return self._file

    def _load(self, position: int) -> tuple[Any, list[Any]]:
        """One record, and the values of its leaves, checked against the spec."""
        buffer = memoryview(self._open_file.array)
        start, size = int(self._offsets[position]), int(self._sizes[position])
        try:
            return _fit(self.spec, unpickling.load(buffer[start : start + size]))
        except YogadlError as error:
            raise type(error)(f"{self._name}: record {position}: {error}; {REPAIR}") from error

    def extents(self, positions: Array | range) -> list[Extents]:
        if isinstance(positions, range):
            positions = np.array(positions, dtype="<i8")
        starts = self._offsets[positions]
        return [MappedExtents(self._open_file, starts, starts + self._sizes[positions])]

    def _columns(
        self,
        positions: Array,
        out: Sequence[Array] | None,
        spans: bool,  # noqa: ARG002 # pickles have to be taken apart to the end
    ) -> list[Column]:
        columns = self._read_columns(positions)
        if out is None:
            return columns
        for target, column in zip(out, columns, strict=True):
            target[...] = column
        return list(out)

    def _read_columns(self, positions: Array) -> list[Column]:
        alike = self._read_alike(self._open_file.array, positions)
        if alike is not None:
            return alike
        rows = [self._load(position)[1] for position in positions.tolist()]
        columns = zip(*rows, strict=True) if rows else [()] * len(self._leaves)
        return [
            stack(leaf, values) if isinstance(leaf, specs.TensorSpec) else list(values)
            for leaf, values in zip(self._leaves, columns, strict=True)
        ]

    def _read_alike(self, buffer: Array, positions: Array) -> list[Column] | None:
        """The columns of records whose pickles differ only in the bytes of their arrays, as those
        of most caches do; ``None`` if these are not of that kind."""
        if len(positions) == 0:
            return None
        if not self._mold_tried:
            first = int(positions[0])
            start, size = int(self._offsets[first]), int(self._sizes[first])
            self._mold = _Mold.of(self.spec, buffer[start : start + size].tobytes())
            self._mold_tried = True
        if self._mold is None or (self._sizes[positions] != self._mold.size).any():
            return None
        return self._mold.read(buffer, self._offsets[positions])

    def _record(self, position: int) -> Any:
        return self._load(position)[0]

    def verify(self) -> None:
        step = max(_VERIFY_BYTES // self.record_bytes, 1)
        for start in range(0, len(self), step):
            positions = np.arange(start, min(start + step, len(self)))
            if self._read_alike(self._open_file.array, positions) is None:
                for position in positions.tolist():
                    self._load(position)

    def pieces(self) -> Iterator[Array]:
        return pieces(self._open_file)

    def close(self) -> None:
        self._file = None


@dataclass(frozen=True)
class _Mold:
    """What pickles have in common: ``size`` bytes, of which ``fixed`` are the same at their
    offsets; the others are ``arrays``, one per leaf: offset and an array of like dtype and shape.
    """

    size: int
    fixed: list[tuple[int, Array]]
    arrays: list[tuple[int, Array]]

    @classmethod
    def of(cls, spec: specs.Structure, data: bytes) -> _Mold | None:
        """The mold of a record's pickle, if all its leaves are numbers of static shape."""
        leaves = list(specs.leaves(spec))
        traced = unpickling.trace(data)
        if traced is None or any(
            not isinstance(leaf, specs.TensorSpec) or leaf.static_shape is None for leaf in leaves
        ):
            return None
        value, place = traced
        try:
            values = _fit(spec, value)[1]
        except ChecksumError:
            # The same error comes, with its position, when the record is loaded.
            return None
        arrays = [(place(array), array) for array in values]
        placed = [(at, array) for at, array in arrays if at is not None]
        if len(placed) != len(leaves):
            return None
        free = np.zeros(len(data), bool)
        for at, array in placed:
            free[at : at + array.nbytes] = True
        fixed = []
        edges = np.flatnonzero(np.diff(np.concatenate([[True], free, [True]]))).tolist()
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            fixed.append((start, np.frombuffer(data[start:end], "u1")))
        return cls(len(data), fixed, placed)

    def read(self, buffer: Array, offsets: Array) -> list[Column] | None:
        """One column per leaf, or ``None`` if a pickle does not fit the mold."""
        for at, wanted in self.fixed:
            if (gather(buffer, offsets + at, len(wanted)) != wanted).any():
                return None
        columns = []
        for at, array in self.arrays:
            if array.nbytes == 0:
                raw = np.empty((len(offsets), 0), "u1")
            else:
                raw = gather(buffer, offsets + at, array.nbytes)
            # NumPy takes for granted that a bool is 0 or 1.
            column = raw.astype(bool) if array.dtype == bool else raw.view(array.dtype)
            columns.append(column.reshape(len(offsets), *array.shape))
        return columns


def _fit(spec: specs.Structure, record: Any) -> tuple[Any, list[Any]]:
    """A record with its leaves as of the spec, and these leaves in order.

    Raises:
        ChecksumError: it does not fit the spec.
    """
    if isinstance(spec, specs.TensorSpec):
        value = _fit_tensor(spec, record)
        return value, [value]
    if isinstance(spec, specs.NoneSpec) and record is None:
        return None, [None]
    if isinstance(spec, dict) and isinstance(record, dict) and record.keys() == spec.keys():
        flat: list[Any] = []
        children = {}
        for key in specs.sorted_keys(spec):
            children[key], leaves = _fit(spec[key], record[key])
            flat += leaves
        return type(record)((key, children[key]) for key in record), flat
    if isinstance(spec, tuple) and isinstance(record, tuple | list) and len(record) == len(spec):
        parts = [_fit(child, value) for child, value in zip(spec, record, strict=True)]
        values = [value for value, _ in parts]
        return type(record)(values), [leaf for _, leaves in parts for leaf in leaves]
    raise ChecksumError(f"it does not fit the element spec: a {type(record).__name__}")


def _fit_tensor(spec: specs.TensorSpec, value: Any) -> Any:
    if spec.is_string and spec.shape in ((), None) and isinstance(value, bytes):
        return value
    if isinstance(value, np.ndarray | np.generic):
        dtype = dtypes.to_numpy(spec.dtype)
        shape = spec.shape
        if value.dtype == dtype and (shape is None or _fits(shape, value.shape)):
            return value
    raise ChecksumError(f"it does not fit the element spec: a {type(value).__name__} for {spec}")


def _fits(wanted: tuple[int | None, ...], shape: tuple[int, ...]) -> bool:
    return len(wanted) == len(shape) and all(
        want is None or want == got for want, got in zip(wanted, shape, strict=True)
    )
