"""References to data sets whose records can be read by position."""

import importlib
from typing import TYPE_CHECKING, Any

from yogadl.dataref._compose import concat, mix, zip  # noqa: A004 # named as in tf.data
from yogadl.dataref._indexed import DerivedDataRef, IndexedDataRef
from yogadl.dataref._lmdb import LMDBDataRef
from yogadl.dataref._padding import Padding
from yogadl.dataref._read_ahead import ReadAhead
from yogadl.dataref._state import state_of
from yogadl.dataref._stored import StoredDataRef
from yogadl.dataref._stream import IndexedStream

if TYPE_CHECKING:
    from yogadl.dataref._remote import RemoteDataRef
    from yogadl.dataref._sources import (
        SourceDataRef,
        from_arrays,
        from_arrow,
        from_grain,
        from_huggingface,
        from_keras,
        from_pandas,
        from_source,
        from_torch,
    )


def __getattr__(name: str) -> Any:
    """What not all programs need: what speaks HTTP, and what writes and reads all kinds of data."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "_remote" if name == "RemoteDataRef" else "_sources"
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


__all__ = [
    "DerivedDataRef",
    "IndexedDataRef",
    "IndexedStream",
    "LMDBDataRef",
    "Padding",
    "ReadAhead",
    "RemoteDataRef",
    "SourceDataRef",
    "StoredDataRef",
    "concat",
    "from_arrays",
    "from_arrow",
    "from_grain",
    "from_huggingface",
    "from_keras",
    "from_pandas",
    "from_source",
    "from_torch",
    "mix",
    "state_of",
    "zip",
]
