"""The cache file as yogadl 0.1.4's scripts know it: keys, shapes, types, values by key."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Any

from yogadl import spec as specs
from yogadl.cache.file_reader import FileReader
from yogadl.cache.files import shown, telling
from yogadl.cache.opening import open_cache
from yogadl.cache.writer import CacheWriter
from yogadl.closing import Closing
from yogadl.errors import InvalidArgumentError, RecordIndexError
from yogadl.format.record_keys import record_key


class LmdbAccess(Closing):
    """Access to the records of a cache file by key. Safe for threads and after a fork.

    Args:
        lmdb_path: of the cache file, written by this release or by 0.1.4.

    Raises:
        CacheNotFoundError: there is no such file.
        CacheFormatError: it cannot be read.
    """

    def __init__(self, lmdb_path: pathlib.Path | str) -> None:
        self._path = pathlib.Path(lmdb_path).absolute()
        self._reader: FileReader = open_cache(self._path)

    def get_keys(self) -> list[bytes]:
        """The keys of all records in order, a new list of ``bytes`` every time."""
        return [record_key(position) for position in range(len(self._reader))]

    def get_shapes(self) -> Any:
        """Nest of ``tf.TensorShape``. Imports TensorFlow."""
        from yogadl import tf_specs

        return tf_specs.output_shapes(self._reader.spec)

    def get_types(self) -> Any:
        """Nest of ``tf.DType``. Imports TensorFlow."""
        from yogadl import tf_specs

        return tf_specs.output_types(self._reader.spec)

    def read_value_by_key(self, key: bytes) -> Any:
        """The record under a key of :meth:`get_keys`.

        Raises:
            RecordIndexError: there is no such key.
        """
        position = int(key) if isinstance(key, bytes) and key.isdigit() else -1
        if not 0 <= position < len(self._reader) or record_key(position) != key:
            raise RecordIndexError(f"{shown(self._path)} has no record under the key {key!r}")
        return self._reader.read_record(position)

    def close(self) -> None:
        """Lets go of the file. May be called twice."""
        self._reader.close()

    def __getstate__(self) -> pathlib.Path:
        return self._path

    def __setstate__(self, state: pathlib.Path) -> None:
        self._path = state
        self._reader = open_cache(state)


def serialize_generator_to_lmdb(
    dataset_generator: Iterable[Any],
    data_shapes: Any,
    data_types: Any,
    lmdb_path: pathlib.Path | str,
    write_frequency: int = 5000,  # noqa: ARG001 # scripts may give it
) -> int:
    """Writes the records of a generator to a new cache file.

    Args:
        dataset_generator: yields records, nests of NumPy values.
        data_shapes: nest of shapes (``tf.TensorShape``, or tuples with ``None`` for the unknown).
            With ``data_types=None`` both are inferred from the first record.
        data_types: nest of dtypes (``tf.DType``, or anything NumPy takes).
        lmdb_path: where to write; nothing must be there.
        write_frequency: had a meaning in yogadl 0.1.4, and has none now.

    Returns:
        The number of records.

    Raises:
        InvalidArgumentError: the folder does not exist, the file does, or there are neither types
            nor records.
        SpecMismatchError, UnsupportedTypeError: a record does not fit.
        StorageFullError: the disk is full, or nearly so.
    """
    from yogadl.adapters import open_source

    path = new_cache_path(lmdb_path)
    spec = None if data_types is None else _checked_spec(data_shapes, data_types)
    source = open_source(dataset_generator, spec)
    with CacheWriter(path, source.spec, total=source.count) as writer:
        source.feed(writer)
        return writer.commit()


def new_cache_path(path: pathlib.Path | str) -> pathlib.Path:
    """A path at which a new cache may be made.

    Raises:
        InvalidArgumentError: its folder does not exist, or it does; or it is too long.
        FileAccessError: the user may not look there.
    """
    new = pathlib.Path(path)
    with telling("write", new):
        has_folder, is_there = new.parent.is_dir(), new.exists()
    if not has_folder:
        raise InvalidArgumentError(f"the directory {shown(new.parent)} does not exist; create it")
    if is_there:
        raise InvalidArgumentError(f"{shown(new)} exists already; remove it or choose another path")
    return new


def _checked_spec(shapes: Any, types: Any) -> Any:
    try:
        return _spec_of(shapes, types)
    except (KeyError, ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f"data_shapes must be nested as data_types, and {shapes!r:.100} is not nested as "
            f"{types!r:.100}: {error!r}"
        ) from error


def _spec_of(shapes: Any, types: Any) -> Any:
    """The element spec of two nests; that of the types tells what is a leaf."""
    if isinstance(types, dict):
        return {key: _spec_of(shapes[key], child) for key, child in types.items()}
    if isinstance(types, tuple | list):
        parts = [_spec_of(shape, child) for shape, child in zip(shapes, types, strict=True)]
        return specs.tuple_like(types, parts)
    dtype = types.name if hasattr(types, "as_numpy_dtype") else types
    if shapes is None or getattr(shapes, "rank", 0) is None:
        return specs.TensorSpec(dtype, None)
    return specs.TensorSpec(
        dtype, tuple(shapes.as_list() if hasattr(shapes, "as_list") else shapes)
    )
