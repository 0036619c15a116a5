"""``local_metadata.json``, what is known of the copy beside it, and whose word on that counts.

Its format is in ``docs/cloud.md``.
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import stat
from typing import Any, TypeAlias

from yogadl.cache.partial import PartialFile, remove_leftovers
from yogadl.remote._local.own_file import replace_file
from yogadl.storage._paths import METADATA_FILE

Note: TypeAlias = dict[str, Any]

FORMAT = 1
# Whom the user's umask lets in by the group may write; others may not, whatever the umask.
FOLDER_MODE = 0o775
_LARGEST = 64 << 10

_log = logging.getLogger(__name__)


def is_trusted(status: os.stat_result) -> bool:
    """Whether a file or folder is of this user or of root, and others may not write to it.

    Others are those outside its group: whom its owner lets in by the group is trusted. In a folder
    with the sticky bit, others may write, but not touch what is not theirs.
    """
    if status.st_uid not in (os.geteuid(), 0):
        return False
    if not status.st_mode & stat.S_IWOTH:
        return True
    return stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISVTX)


def trusted_status(path: pathlib.Path) -> os.stat_result | None:
    """The status of a file or folder that is trusted; ``None`` if it is not, or cannot be seen.

    A link is followed if it is of this user or of root.
    """
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode) and status.st_uid in (os.geteuid(), 0):
            status = os.stat(path)
    except OSError:
        return None
    return status if is_trusted(status) else None


def make_trusted(file: PartialFile) -> PartialFile:
    """Keeps others from writing to a file, whatever the umask."""
    mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    os.fchmod(file.fileno(), mode & ~stat.S_IWOTH)
    return file


def load_note(folder: pathlib.Path) -> Note:
    """What a note says; nothing if there is none, if it makes no sense or is not trusted."""
    try:
        with open(folder / METADATA_FILE, "rb", opener=_open_no_link) as file:
            if not is_trusted(os.fstat(file.fileno())):
                return {}
            found = json.loads(file.read(_LARGEST))
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return {}
    except OSError as error:
        _log.warning("%s is taken for missing: %s", folder / METADATA_FILE, error)
        return {}
    return found if isinstance(found, dict) else {}


def save_note(folder: pathlib.Path, note: Note) -> None:
    """Replaces a note.

    That it cannot be written is no error: the copy is as good, and will be compared with the object
    where the note would have told.
    """
    path = folder / METADATA_FILE
    remove_partial_notes(folder)
    try:
        replace_file(path, [json.dumps(note).encode()])
    except OSError as error:
        _log.warning("%s cannot be written, so more has to be read next time: %s", path, error)


def remove_partial_notes(folder: pathlib.Path) -> None:
    """Removes what processes left that were killed while they wrote a note."""
    remove_leftovers(folder / METADATA_FILE)


def _open_no_link(path: str, flags: int) -> int:
    """Nor a pipe, which would keep us waiting for a writer."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
