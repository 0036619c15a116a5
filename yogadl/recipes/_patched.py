"""What of the user's is in libraries, in a recipe."""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING

from yogadl.recipes._functions import label_of
from yogadl.recipes._ledger import Ledger
from yogadl.recipes._patches import found_in, library_of, registered

if TYPE_CHECKING:
    from yogadl.recipes._walk import Walker


class Patched:
    """What of the user's counts although no code of the user's that was met says so.

    Attributes:
        kinds: classes of the user's that were described last, and their tokens.
    """

    def __init__(self) -> None:
        self.kinds: dict[type, str] = {}
        self._libraries: set[str] = set()
        self._known: set[tuple[int, str]] = set()

    def use(self, module: str) -> None:
        """Says that something of a library was met."""
        self._libraries.add(library_of(module))

    def add(self, walk: Walker, ledger: Ledger) -> bool:
        """Adds what is new; whether there was anything that has to be described."""
        patches, bases = found_in(self._libraries)
        due = [it for it in patches if (id(it.owner), it.name) not in self._known]
        for patch in due:
            self._known.add((id(patch.owner), patch.name))
            if not walk.is_ignored(patch.label):
                walk.restart("")
                walk.item("patch", patch.owner, patch.name, patch.label, patch.value)
        kinds, self.kinds = self.kinds, {}
        for kind, names in registered(bases, kinds).items():
            ledger.add(kinds[kind], f"registered with {','.join(sorted(names))}")
        reduced = copyreg.dispatch_table.keys() & kinds.keys()
        for kind in sorted(reduced, key=kinds.__getitem__):
            ledger.begin(f"{kinds[kind]} reduced")
            walk.restart(label_of(kind))
            found = walk.inside(".__reduce__", copyreg.dispatch_table[kind])
            ledger.add(kinds[kind], f"reduced by {found}")
        return bool(due or reduced)
