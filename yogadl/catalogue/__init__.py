"""What a storage has: its versions and their tags, in one small object and one larger one.

The format is described in ``docs/catalogue.md``. This package knows of no storage: it is given the
small objects that it keeps all that in.
"""

from yogadl.catalogue._catalogue import (
    ENTRY_SECONDS,
    Catalogue,
    DoomedError,
    ReplacedError,
)
from yogadl.catalogue._entry import CatalogueEntry, Entry, Key, parsed_spec
from yogadl.catalogue._going_to import GoingTo
from yogadl.catalogue._known import Known
from yogadl.catalogue._renewed import Renewed
from yogadl.catalogue._root import ROOT, CatalogueObjects
from yogadl.catalogue._segments import SEGMENT_ENDING
from yogadl.catalogue._state import Expected, NameTakenError

__all__ = [
    "ENTRY_SECONDS",
    "ROOT",
    "SEGMENT_ENDING",
    "Catalogue",
    "CatalogueEntry",
    "CatalogueObjects",
    "DoomedError",
    "Entry",
    "Expected",
    "GoingTo",
    "Key",
    "Known",
    "NameTakenError",
    "Renewed",
    "ReplacedError",
    "parsed_spec",
]
