"""What a change that was begun is made of."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from yogadl.dataref import StoredDataRef
from yogadl.storage._building.submission import Parts
from yogadl.storage._commits.made import Made
from yogadl.storage._version import Version


@dataclass(frozen=True)
class Begun:
    """A change that was begun.

    Attributes:
        storage: that it is made in.
        made: the version that is changed.
        base: the same, to be read.
        target: the version to be.
        branch: the tag to move; ``None`` for none.
        parts: by which parts are stored.
        path: of the version's file, beside which it is made.
        scratch: a folder of its own.
        change: its id.
        open_whole: opens the version that is changed to read all of it.
        is_named: whether the user has chosen the name of the version to be.
    """

    storage: Any
    made: Made
    base: StoredDataRef
    target: Version
    branch: str | None
    parts: Parts
    path: pathlib.Path
    scratch: pathlib.Path
    change: str
    open_whole: Callable[[], StoredDataRef]
    is_named: bool
