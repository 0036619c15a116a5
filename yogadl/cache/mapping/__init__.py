"""Files mapped into memory, and what the system is told about how they will be read."""

from yogadl.cache.mapping._descriptors import Descriptor, open_file
from yogadl.cache.mapping._extents import Extents, MappedExtents, Memory
from yogadl.cache.mapping._files import MappedFile
from yogadl.cache.mapping._ranges import Access, ReservedRange, can_map_again, page_multiple

__all__ = [
    "Access",
    "Descriptor",
    "Extents",
    "MappedExtents",
    "MappedFile",
    "Memory",
    "ReservedRange",
    "can_map_again",
    "open_file",
    "page_multiple",
]
