"""Data sets that are read where they are: arrays, tables, and map-style objects of any framework.

Nothing is stored. A record is what ``Storage.submit`` would have stored of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xxhash

from yogadl.adapters import ItemsSource, MapSource, open_source
from yogadl.adapters._convert import type_name
from yogadl.adapters._grain import map_dataset_by_position
from yogadl.adapters._nests import are_columns, is_table, open_nest
from yogadl.adapters._registry import is_a
from yogadl.cache.columns import Column
from yogadl.cache.content_id import content_id_of
from yogadl.cache.encoding import content_tokens
from yogadl.cache.record_reader import RecordReader
from yogadl.dataref._indexed import IndexedDataRef, UnstoredDataRef
from yogadl.errors import ClosedError, InvalidArgumentError, UnsupportedTypeError
from yogadl.format import spec_json
from yogadl.format.codec import RecordCodec
from yogadl.lazy import lazy

Array = np.ndarray[Any, Any]


class SourceReader(RecordReader):
    """Reads a source by position.

    Args:
        source: what has the records.
        identity: tells it from other data sets; derived from the source if it is ``None``.
    """

    def __init__(self, source: MapSource, identity: str | None = None) -> None:
        self._open_source: MapSource | None = source
        self.given_identity = identity
        self._known_content_id = identity or ""
        self.spec = source.spec

    @property
    def source(self) -> MapSource:
        """What has the records.

        Raises:
            ClosedError: the reader is closed.
        """
        if self._open_source is None:
            raise ClosedError("the DataRef is closed; make it again")
        return self._open_source

    def __len__(self) -> int:
        return self.source.count

    @property
    def content_id(self) -> str:
        if not self._known_content_id:
            self._known_content_id = self._identify()
        return self._known_content_id

    def _identify(self) -> str:
        if self._is_known_by_records:
            return content_id_of(self.spec, len(self), self.tokens)
        source = self.source
        spec = spec_json.canonical(source.spec)
        parts = [type(source).__name__, str(source.count), spec, str(source.fingerprint)]
        return xxhash.xxh3_128_hexdigest("\n".join(parts).encode())

    @property
    def _is_known_by_records(self) -> bool:
        return self.given_identity is None and self.source.fingerprint is None

    def tokens(self, positions: Array) -> Array:
        if not self._is_known_by_records:
            return super().tokens(positions)
        source, codec = self.source, RecordCodec(self.spec)
        step = source.chunk_size
        found = [
            content_tokens(codec, source.columns(positions[start : start + step]))
            for start in range(0, len(positions), step)
        ]
        return np.concatenate([np.empty(0, "u8"), *found])

    def _columns(self, positions: Array, out: Sequence[Array] | None, spans: bool) -> list[Column]:
        del spans  # Its values are no bytes in a file.
        return self.source.columns(positions, out)

    def _record(self, position: int) -> Any:
        return self.source.record(position)

    @property
    def lends_rows(self) -> bool:
        return False

    @lazy
    def record_bytes(self) -> int:
        codec = RecordCodec(self.spec)
        if codec.layout.content_size is not None:
            return max(1, codec.layout.content_size)
        # Of few, as each may take its time; the largest, as so many are read at once.
        samples = sorted({0, len(self) // 2, len(self) - 1}) if len(self) else []
        return max([1, *[len(codec.encode(self.read_record(at))) for at in samples]])

    def close(self) -> None:
        self._open_source = None


class SourceDataRef(UnstoredDataRef[SourceReader]):
    """A data set that is read where it is; see :func:`from_source`, which makes it.

    Safe for threads if the source is: arrays, tables and Hugging Face data sets are, of other
    objects ``__getitem__`` may be called by several threads at once. Survives a fork. It can be
    pickled if the source can, which goes along with it. What the source raises passes through.
    Closing it lets go of the source.
    """

    def __init__(self, source: MapSource, identity: str | None = None) -> None:
        if identity is not None and (not isinstance(identity, str) or not identity):
            raise InvalidArgumentError(
                f"identity must be a string that is not empty, not {identity!r:.100}"
            )
        super().__init__(SourceReader(source, identity))

    @property
    def metadata(self) -> dict[str, Any]:
        """What the source knows of its records, such as the names of Hugging Face's classes."""
        return dict(self.reader.source.metadata)

    def _origin(self) -> str:
        return "" if self._is_closed else type(self.reader.source).__name__

    def __getstate__(self) -> tuple[MapSource, str | None]:
        return self.reader.source, self.reader.given_identity

    def __setstate__(self, state: tuple[MapSource, str | None]) -> None:
        super().__init__(SourceReader(*state))


def from_source(data: Any, *, spec: Any = None, identity: str | None = None) -> IndexedDataRef:
    """A data set of what can be read by position, as it is, without storing it.

    Args:
        data: an array or tensor, or a dict or tuple of equally long ones, whose rows are the
            records; a table of pandas or Arrow; a map-style data set of PyTorch, Hugging Face or
            Grain; a Keras ``PyDataset``, whose batches are taken apart; a list, or any object whose
            ``__len__`` and ``__getitem__`` give records; or a DataRef, which is returned.
        spec: the element spec; inferred from record 0, or from the types of a table, without.
        identity: what tells the data set apart when a stream of it is resumed. Without it, for
            arrays and tables it is made of their records, which are all read when it is first
            needed, and is the same when they are stored; for other objects only of the type's name,
            the length and the spec. What is in those is not looked at: give an identity where
            another data set might look the same.

    Returns:
        A ``SourceDataRef``. Its records are what ``Storage.submit`` would have stored.

    Raises:
        UnsupportedTypeError: it cannot be read by position, or has what no record can hold.
        InfiniteDatasetError: it never ends.
        InvalidArgumentError: arrays of different lengths, or nothing to infer the spec from.
        SpecMismatchError: it does not fit the spec. A record that does not is found when it is
            read.
    """
    if isinstance(data, IndexedDataRef):
        if spec is None and identity is None:
            return data
        raise InvalidArgumentError("a DataRef has its own spec and identity; leave them out")
    if is_a(data, "grain.MapDataset"):
        return SourceDataRef(map_dataset_by_position(data, spec), identity)
    if hasattr(data, "__next__"):
        raise UnsupportedTypeError(
            f"a {type_name(data)} can only be read one record after the other; submit it to a "
            "storage, and fetch it from there"
        )
    return SourceDataRef(open_source(data, spec).by_position(), identity)


def _made_of(kind: str, is_it: bool, data: Any, spec: Any, identity: str | None) -> IndexedDataRef:
    if not is_it:
        raise UnsupportedTypeError(
            f"this takes {kind}, not a {type_name(data)}; from_source takes all kinds"
        )
    return from_source(data, spec=spec, identity=identity)


def from_arrays(nest: Any, *, spec: Any = None, identity: str | None = None) -> IndexedDataRef:
    """A data set of arrays ``[n, ...]``, whose rows are the records. The arrays are not copied.

    Args:
        nest: an array or tensor, or a nest of dicts and tuples of such. Columns of tables may stand
            among them: series of pandas and polars, arrays of Arrow.
        spec, identity: see :func:`from_source`, also for errors.
    """
    if is_table(nest):
        taker = "from_pandas" if is_a(nest, "pandas.DataFrame") else "from_arrow"
        raise UnsupportedTypeError(
            f"a {type_name(nest)} has columns with names, which from_arrays would lose; give it to "
            f"{taker}, or one array made of it"
        )
    if not are_columns(nest):
        raise UnsupportedTypeError(
            "from_arrays takes an array, or a dict or tuple of nothing but arrays that have a "
            f"first axis, not a {type_name(nest)}: {nest!r:.100}"
        )
    return SourceDataRef(open_nest(nest, spec), identity)


def from_torch(dataset: Any, *, spec: Any = None, identity: str | None = None) -> IndexedDataRef:
    """A data set of a map-style ``torch.utils.data.Dataset``. Lists in its items are tuples.

    ``__getitems__`` is used where there is one. For ``spec`` and ``identity``, see
    :func:`from_source`, also for errors.
    """
    is_it = is_a(dataset, "torch.utils.data.Dataset") and not is_a(
        dataset, "torch.utils.data.IterableDataset"
    )
    return _made_of("a map-style torch.utils.data.Dataset", is_it, dataset, spec, identity)


def from_keras(sequence: Any, *, spec: Any = None, identity: str | None = None) -> IndexedDataRef:
    """A data set of the records in the batches of a ``keras.utils.PyDataset`` (``Sequence``).

    All batches but the last must be of one size. Each thread keeps the batch it used last, so that
    records in order make every batch once; in any other order, a batch is made anew for nearly each
    record. For ``spec`` and ``identity``, see :func:`from_source`, also for errors.
    """
    is_it = is_a(sequence, "keras.utils.PyDataset", "keras.utils.Sequence")
    return _made_of("a keras.utils.PyDataset", is_it, sequence, spec, identity)


def from_huggingface(
    dataset: Any, *, spec: Any = None, identity: str | None = None
) -> IndexedDataRef:
    """A data set of the rows of a ``datasets.Dataset``, as dicts.

    For ``spec`` and ``identity``, see :func:`from_source`, also for errors.
    """
    is_it = is_a(dataset, "datasets.Dataset")
    return _made_of("a datasets.Dataset", is_it, dataset, spec, identity)


def from_grain(source: Any, *, spec: Any = None, identity: str | None = None) -> IndexedDataRef:
    """A data set of a ``grain.MapDataset`` or a random access source of Grain.

    Such a source is any object whose ``__len__`` and ``__getitem__`` give records. For ``spec`` and
    ``identity``, see :func:`from_source`, also for errors.
    """
    if is_a(source, "grain.MapDataset"):
        return SourceDataRef(map_dataset_by_position(source, spec), identity)
    has_both = hasattr(source, "__len__") and hasattr(source, "__getitem__")
    if not has_both or isinstance(source, Mapping | str | bytes):
        raise UnsupportedTypeError(
            "from_grain takes a grain.MapDataset, or an object whose __len__ and __getitem__ give "
            f"records, not a {type_name(source)}"
        )
    return SourceDataRef(ItemsSource(source, spec), identity)


def from_pandas(frame: Any, *, spec: Any = None, identity: str | None = None) -> IndexedDataRef:
    """A data set of the rows of a ``pandas.DataFrame``, as dicts, or of the values of a ``Series``.

    The index is left out. For ``spec`` and ``identity``, see :func:`from_source`, also for errors.
    """
    is_it = is_a(frame, "pandas.DataFrame", "pandas.Series")
    return _made_of("a pandas.DataFrame or Series", is_it, frame, spec, identity)


def from_arrow(table: Any, *, spec: Any = None, identity: str | None = None) -> IndexedDataRef:
    """A data set of the rows of a ``pyarrow.Table`` or ``RecordBatch``, as dicts of its columns.

    Any object that hands over its table by Arrow's PyCapsule interface will do, as
    those of Polars do. For ``spec`` and ``identity``, see :func:`from_source`, also for errors.
    """
    is_it = hasattr(table, "__arrow_c_stream__") or is_a(
        table, "pyarrow.Table", "pyarrow.RecordBatch"
    )
    return _made_of("a pyarrow.Table", is_it, table, spec, identity)
