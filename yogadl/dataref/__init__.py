"""References to data sets in cache files."""

from yogadl.dataref._lmdb import LMDBDataRef
from yogadl.dataref._padding import Padding
from yogadl.dataref._read_ahead import ReadAhead
from yogadl.dataref._stream import IndexedStream

__all__ = ["IndexedStream", "LMDBDataRef", "Padding", "ReadAhead"]
