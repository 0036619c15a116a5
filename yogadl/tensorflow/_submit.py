"""Reading a ``tf.data.Dataset`` and writing it to a cache file, as yogadl 0.1.4 offered them."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

from yogadl.adapters._tf_data import TfDatasetSource, graph_mode_elements
from yogadl.cache.writer import CacheWriter
from yogadl.errors import UnsupportedTypeError
from yogadl.extras import require
from yogadl.legacy.lmdb_access import new_cache_path

tf = require("tensorflow", "tensorflow")


def _check(dataset: Any) -> None:
    if not isinstance(dataset, tf.data.Dataset | tf.compat.v1.data.Dataset):
        raise UnsupportedTypeError(
            f"dataset must be a tf.data.Dataset, not {type(dataset).__qualname__}"
        )


def read_tf_dataset(dataset: Any, tf_config: Any) -> Iterator[Any]:
    """The elements of a data set as nests of NumPy values, in eager or graph mode.

    Args:
        dataset: a ``tf.data.Dataset``.
        tf_config: a ``tf.compat.v1.ConfigProto`` or ``None``, for the session of graph mode.

    Raises:
        UnsupportedTypeError: ``dataset`` is something else.
    """
    _check(dataset)
    if tf.executing_eagerly():
        return iter(dataset.as_numpy_iterator())
    return graph_mode_elements(dataset, tf_config)


def serialize_tf_dataset_to_lmdb(
    dataset: Any,
    checkpoint_path: pathlib.Path | str,
    tf_config: Any,
    write_frequency: int = 5000,  # noqa: ARG001 # scripts may give it
) -> int:
    """Writes a data set to a new cache file.

    Args:
        dataset: a ``tf.data.Dataset``.
        checkpoint_path: where to write; the folder must exist, the file must not.
        tf_config: a ``tf.compat.v1.ConfigProto`` or ``None``, for the session of graph mode.
        write_frequency: had a meaning in yogadl 0.1.4, and has none now.

    Returns:
        The number of records.

    Raises:
        InvalidArgumentError: the folder does not exist, or the file does.
        InfiniteDatasetError: the data set is known never to end.
        UnsupportedTypeError: it has components that a cache cannot hold.
        StorageFullError: the disk is full, or nearly so.
    """
    _check(dataset)
    path = new_cache_path(checkpoint_path)
    source = TfDatasetSource(dataset, tf_config)
    with CacheWriter(path, source.spec, total=source.count) as writer:
        source.feed(writer)
        return writer.commit()
