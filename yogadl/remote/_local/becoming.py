"""What is kept on this machine of a version that is a part of another by now.

A version in a bucket that was one file is a part once it was changed. What is here of the file, all
of it or some, is then what would be fetched of the part, and gets its name.
"""

from __future__ import annotations

import fcntl
import logging
import os
import pathlib

from yogadl.cache.noted import note_of
from yogadl.cache.parts import OBJECTS_FOLDER, part_path, parts_of_sparse
from yogadl.errors import YogadlError
from yogadl.remote._local import notes
from yogadl.remote._local.kept import alone, remove_link, settled
from yogadl.remote._local.notes import VERSION_SUFFIX
from yogadl.remote._local.sparse_file import cells_of

_log = logging.getLogger(__name__)


def become_parts(folder: pathlib.Path, name: str, table: pathlib.Path) -> None:
    """Makes versions that nobody has open parts of a table, if they are named there.

    Args:
        folder: of the store.
        name: of the object that the table is.
        table: its file, named by its digest, of which all that names parts is here.
    """
    there = {path.stem: path for path in (folder / OBJECTS_FOLDER).glob(f"*{VERSION_SUFFIX}")}
    there.pop(table.stem, None)
    if not there:
        return
    try:
        wanted = [digest for digest in parts_of_sparse(table) if digest.hex() in there]
        for digest in wanted:
            path, part = there[digest.hex()], part_path(table, digest)
            if not part.exists():
                with settled(folder, fcntl.LOCK_EX), alone(path) as is_alone:
                    if is_alone and _lets_go(path, name, table):
                        _rename(path, part)
    except (YogadlError, OSError) as error:
        # It is fetched as a part.
        _log.info("Nothing of what is in %s becomes a part: %s", folder, error)


def _lets_go(path: pathlib.Path, name: str, table: pathlib.Path) -> bool:
    """Whether no object is the version any more, as far as is known: the others that were have
    become the same, or what is pinned stays."""
    note = notes.load(path)
    if note.pinned and note.names != (name,):
        return False
    if name in note.names and not notes.lose_name(path, name, table):
        return False
    for link in note.links:
        remove_link(pathlib.Path(link), path)
    # What has no note is of no object, and collected if this is killed.
    notes.note_of(path).unlink(missing_ok=True)
    notes.lose_version(path, *note.names)
    return True


def _rename(path: pathlib.Path, part: pathlib.Path) -> None:
    # First that: what says that bytes are there must not be there without them.
    os.rename(path, part)
    if cells_of(path).exists():
        os.rename(cells_of(path), cells_of(part))
    # It says what it is by a time that this has changed.
    note_of(path).unlink(missing_ok=True)
    _log.info("%s is %s now.", path, part)
