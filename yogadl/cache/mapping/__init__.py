"""Files mapped into memory, and what the system is told about how they will be read."""

from yogadl.cache.mapping._descriptors import Descriptor, open_file
from yogadl.cache.mapping._extents import Extents, MappedExtents, Memory
from yogadl.cache.mapping._files import MappedFile
from yogadl.cache.mapping._ranges import Access, ReservedRange, aligned_places, can_map_again

__all__ = [
    "Access",
    "Descriptor",
    "Extents",
    "MappedExtents",
    "MappedFile",
    "Memory",
    "ReservedRange",
    "aligned_places",
    "can_map_again",
    "open_file",
]
