"""Copies on this machine, as tests look at them and harm them."""

from __future__ import annotations

import json
import os
import pathlib
import stat
from typing import Any

from yogadl import DataRef

KEY = "data/a/1/cache.mdb"
LEGACY = pathlib.Path(__file__).parent.parent / "golden" / "yogadl-0.1.4" / "range.mdb"
ROOT = "yogadl_local_cache"


def records(ref: DataRef) -> list[int]:
    with ref:
        return [int(record) for record in ref.stream()]


def folder(local: pathlib.Path) -> pathlib.Path:
    """Where 0.1.4 keeps version "1" of "a"."""
    return local / ROOT / "a" / "1"


def folders(local: pathlib.Path) -> list[pathlib.Path]:
    """Of all copies of it."""
    return sorted(path.parent for path in local.glob(f"{ROOT}*/a/1/cache.mdb"))


def load_note(where: pathlib.Path) -> Any:
    return json.loads((where / "local_metadata.json").read_text())


def write_note(where: pathlib.Path, note: Any) -> None:
    (where / "local_metadata.json").write_text(json.dumps(note))


def flip(path: pathlib.Path, at: int, mask: int = 1) -> None:
    """Changes a byte, in place."""
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ mask]))


def rot(where: pathlib.Path, at: int, mask: int = 1) -> None:
    """Changes a byte of a copy, as a failing disk does: the file system knows nothing of it."""
    flip(where / "cache.mdb", at, mask)
    hide(where)


def hide(where: pathlib.Path) -> None:
    """Has the note take the copy for what it was."""
    status = os.stat(where / "cache.mdb")
    assert stat.S_ISREG(status.st_mode)
    file = [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
    write_note(where, {**load_note(where), "file": file})
