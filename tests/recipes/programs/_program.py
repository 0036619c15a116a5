"""Programs with edits that change the data that they make, and edits that do not.

A program is some files of a package ``shop``, whose ``main.make()`` makes the data. An edit is a
piece of text that is there once, and what it is replaced by.
"""

from __future__ import annotations

import dataclasses

Edit = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Program:
    """See above.

    Attributes:
        files: the text of all files, each below a line ``=== name``.
        matter: edits that change the data.
        do_not: edits that change nothing.
    """

    files: str
    matter: tuple[Edit, ...]
    do_not: tuple[Edit, ...] = ()

    def texts(self, edit: Edit | None = None) -> dict[str, str]:
        """The files, edited."""
        text = self.files
        if edit is not None:
            assert text.count(edit[0]) == 1, edit
            text = text.replace(*edit)
        found = {"__init__.py": ""}
        for piece in text.split("=== ")[1:]:
            name, _, content = piece.partition("\n")
            found[name] = content
        return found
