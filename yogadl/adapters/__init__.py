"""Where records come from: what ``Storage.submit`` takes, fed to a ``CacheWriter``.

Others can add to it: see :func:`register`, and :class:`Source`, :class:`MapSource` and
:class:`IterableSource`, of which they make what their function returns.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Set
from typing import Any

from yogadl.adapters import _builtin as _builtin
from yogadl.adapters._base import MapSource, Source
from yogadl.adapters._columns import ColumnsSource
from yogadl.adapters._convert import to_record, type_name
from yogadl.adapters._items import ItemsSource
from yogadl.adapters._iterable import IterableSource, as_spec
from yogadl.adapters._pieces import Pieces, PiecesSource
from yogadl.adapters._registry import BUILT_IN, Opener, find_opener, register
from yogadl.completion import public_names
from yogadl.errors import UnsupportedTypeError

__all__ = [
    "ColumnsSource",
    "ItemsSource",
    "IterableSource",
    "MapSource",
    "Opener",
    "Pieces",
    "PiecesSource",
    "Source",
    "as_spec",
    "open_source",
    "register",
    "to_record",
]


def open_source(data: Any, spec: Any = None, tensorflow_config: Any = None) -> Source:
    """The source of what was submitted.

    Args:
        data: anything of a class that is registered; a table that speaks Arrow's PyCapsule
            interface; an iterable of records; or an object whose ``__len__`` and ``__getitem__``
            give records.
        spec: the element spec, as users write it; inferred without.
        tensorflow_config: a ``tf.compat.v1.ConfigProto``, for reading data sets of graph mode.

    Raises:
        UnsupportedTypeError: ``data`` is none of these, or has components that cannot be stored.
        InfiniteDatasetError: it is known never to end.
        InvalidArgumentError: arrays of different lengths, or no record to infer the spec from.
        SpecMismatchError: it is known not to fit the spec.
    """
    opener = find_opener(data) or _open_any
    source = opener(data, spec)
    if tensorflow_config is not None:
        source.tensorflow_config = tensorflow_config
    return source


def can_be_read(data: Any) -> bool:
    """Whether something looks like data, whatever else it may be; see :func:`open_source`."""
    return (
        find_opener(data) is not None
        or hasattr(data, "__arrow_c_stream__")
        or hasattr(data, "__iter__")
        or _has_positions(data)
    )


def _has_positions(data: Any) -> bool:
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")


def _open_any(data: Any, spec: Any) -> Source:
    if data is None or inspect.isroutine(data):
        raise UnsupportedTypeError(_advice_on(data))
    if hasattr(data, "__arrow_c_stream__"):
        # Polars and others hand over their tables like this.
        from yogadl.adapters._arrow import open_array

        return open_array(data, spec)
    # To iterate over a data frame gives the names of its columns, as over a dict its keys.
    unsuitable = isinstance(data, str | bytes | bytearray | memoryview | Mapping | Set) or hasattr(
        data, "__dataframe__"
    )
    has_positions = _has_positions(data)
    if unsuitable or not (hasattr(data, "__iter__") or has_positions):
        raise UnsupportedTypeError(
            f"cannot store a {type_name(data)}{_is_lazy(data)}; submit a data set of TensorFlow, "
            "Keras, PyTorch, TensorPack, Hugging Face or Grain, arrays, a table of pandas, polars "
            "or Arrow, or an iterable or generator of records; or register an adapter for it, "
            "yogadl.adapters.register"
        )
    if not has_positions:
        return IterableSource(data, spec)
    if not hasattr(data, "__iter__"):
        return ItemsSource(data, spec)
    return IterableSource(data, spec, map_source=lambda: ItemsSource(data, spec))


def _open_pieces(data: Pieces, spec: Any) -> PiecesSource:
    return PiecesSource(data, spec, open_source)


BUILT_IN.register(Pieces, _open_pieces)


def _is_lazy(data: Any) -> str:
    """What to do with a table that is yet to be computed, as of polars or Dask."""
    for method in ("collect", "compute"):
        if callable(getattr(data, method, None)):
            return f", but perhaps what its {method}() returns"
    return ""


def _advice_on(data: Any) -> str:
    if data is None:
        return "cannot store None; does the function that makes the data set lack its return?"
    name = getattr(data, "__name__", "make_records")
    what = "generator function" if inspect.isgeneratorfunction(data) else "function"
    return f"cannot store a {what}; call it, and store what it returns: {name}()"


__dir__ = functools.partial(public_names, globals())
