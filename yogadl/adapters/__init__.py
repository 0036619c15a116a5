"""Where records come from: what ``Storage.submit`` takes, fed to a ``CacheWriter``."""

from __future__ import annotations

import sys
from typing import Any

from yogadl.adapters._base import Source
from yogadl.adapters._iterable import IterableSource
from yogadl.errors import InvalidArgumentError, UnsupportedTypeError

__all__ = ["Source", "open_source"]


def open_source(data: Any, spec: Any = None, tensorflow_config: Any = None) -> Source:
    """The source of what was submitted.

    Args:
        data: a ``tf.data.Dataset`` or an iterable of records.
        spec: the element spec of an iterable, as users write it; inferred without.
        tensorflow_config: a ``tf.compat.v1.ConfigProto``, for reading data sets of graph mode.

    Raises:
        UnsupportedTypeError: ``data`` is neither, or has components that cannot be stored.
        InfiniteDatasetError: it is known never to end.
    """
    if _is_tf_dataset(data):
        from yogadl.adapters._tf_data import TfDatasetSource

        if spec is not None:
            raise InvalidArgumentError("a tf.data.Dataset has its own spec; leave out spec=")
        return TfDatasetSource(data, tensorflow_config)
    # To iterate over a data frame gives the names of its columns.
    unsuitable = isinstance(data, str | bytes | dict | set | frozenset) or hasattr(
        data, "__dataframe__"
    )
    if unsuitable or not hasattr(data, "__iter__"):
        raise UnsupportedTypeError(
            f"cannot store a {type(data).__module__}.{type(data).__qualname__}; submit a "
            "tf.data.Dataset, or an iterable or generator of records"
        )
    return IterableSource(data, spec)


def _is_tf_dataset(data: Any) -> bool:
    # What was never imported cannot have made the object.
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return False
    kinds = (tensorflow.data.Dataset, tensorflow.compat.v1.data.Dataset)
    return isinstance(data, kinds)
