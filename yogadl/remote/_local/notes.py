"""What is noted beside the files of versions that are kept on this machine.

Beside a version's file stands ``<name>.json``, which says of which objects it is, when it was last
opened, whether it is pinned, and which symbolic links lead to it. ``<digest of an object's
name>.names`` says under which digests that object was opened, so that who replaces it need not read
all notes; the notes are what counts. It may say so of others, which do no harm, but has all whose
notes have the object, whenever a process is killed. Who changes any of it holds ``notes.lock``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import pathlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from yogadl.remote._local.ledger import exclusive
from yogadl.remote._local.own_file import replace_file

VERSION_SUFFIX = ".mdb"

_LARGEST_NOTE = 64 << 10
_MOST_NAMES = 16
_LATEST = 2.0**37
_NOTES_LOCK = "notes.lock"
_NAMES_SUFFIX = ".names"
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_STEM = re.compile(r"[0-9a-f]{1,128}")
_NONSENSE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Note:
    """What is noted of a version.

    Attributes:
        names: of the objects that it is known to be, the last opened first.
        opened: when it was last opened, seconds since 1970.
        pinned: whether it stays when room is needed.
        links: absolute paths of the symbolic links to it.
    """

    names: tuple[str, ...] = ()
    opened: float = 0.0
    pinned: bool = False
    links: tuple[str, ...] = ()


def note_opened(path: pathlib.Path, name: str, link: pathlib.Path | None = None) -> None:
    """Notes that a version was opened, of which ``path`` is the file, as the object of a name; and
    a link to it.

    That it cannot be noted is no error: it counts as not opened for long.
    """
    try:
        with changing_notes(path):
            note = load(path)
            names = _first(name, note.names)
            links = note.links if link is None else _first(os.path.abspath(link), note.links)
            # In this order: what a note says without that, nobody who replaces the object finds.
            _change_versions(path.parent, name, lambda found: _first(path.stem, found))
            _save(path, Note(names, time.time(), note.pinned, links))
    except OSError as error:
        _log.info("It cannot be noted that %s was opened: %s", path, error)


def set_pinned(path: pathlib.Path, pinned: bool) -> None:
    """Notes whether a version stays.

    Raises:
        OSError: it cannot be noted down.
    """
    with changing_notes(path):
        _save(path, dataclasses.replace(load(path), pinned=pinned))


def lose_name(path: pathlib.Path, name: str, but: pathlib.Path | None) -> bool:
    """Notes that a version is not the object of a name any more.

    Args:
        path: of the version.
        name: of the object.
        but: the version that the object is now, which is pinned then if the other was.

    Returns:
        Whether it could be noted.
    """
    try:
        with changing_notes(path):
            note = load(path)
            names = tuple(other for other in note.names if other != name)
            if note.pinned and but is not None:
                _save(but, dataclasses.replace(load(but), pinned=True))
            pinned = note.pinned and bool(names)
            _save(path, dataclasses.replace(note, names=names, pinned=pinned))
    except OSError as error:
        _log.info("%s stays: %s", path, error)
        return False
    return True


def lose_version(path: pathlib.Path, *names: str) -> None:
    """Notes that an object need not look for a version any more, or that several need not, unless
    somebody has opened it as that object by now."""
    try:
        with changing_notes(path):
            for name in set(names).difference(load(path).names):
                _change_versions(
                    path.parent, name, lambda found: tuple(it for it in found if it != path.stem)
                )
    except OSError as error:
        # Who looks for it does not find it.
        _log.info("It cannot be noted that %s goes: %s", path, error)


def lose_what_is_gone(folder: pathlib.Path) -> None:
    """Notes that objects need not look for versions that are not there, as who was killed while he
    removed one did not."""
    try:
        for path in folder.glob(f"*{_NAMES_SUFFIX}"):
            # Most have none such: then nobody is kept from changing notes.
            if not _are_there(path):
                with changing_notes(path):
                    _keep_those_there(path)
    except OSError as error:
        # Who looks for them does not find them.
        _log.info("It cannot be noted what is gone from %s: %s", folder, error)


def versions_of(folder: pathlib.Path, name: str) -> list[pathlib.Path]:
    """Paths in a folder of the versions that an object was opened as, the last one first.

    They may be gone, and their notes may not have the name any more.
    """
    return [folder / f"{stem}{VERSION_SUFFIX}" for stem in _stems(_names_of(folder, name))]


@contextlib.contextmanager
def changing_notes(path: pathlib.Path) -> Iterator[None]:
    """Nobody else changes notes beside a file meanwhile.

    Raises:
        OSError: they cannot be kept from it.
    """
    with exclusive(path.with_name(_NOTES_LOCK)):
        yield


def load(path: pathlib.Path) -> Note:
    """What a version's note says; nothing if there is none, or one that makes no sense."""
    try:
        found = _read(note_of(path))
        names, links = (
            tuple(str(one) for one in found.get(key, ())[:_MOST_NAMES])
            for key in ("names", "links")
        )
        opened = float(found["opened"])
        if not 0 <= opened < _LATEST:
            raise ValueError(f"it was opened at {opened}")
        return Note(names, opened, found["pinned"] is True, links)
    except (OSError, *_NONSENSE) as error:
        _log.debug("%s has no note: %s", path, error)
        return Note()


def note_of(path: pathlib.Path) -> pathlib.Path:
    """Where the note of a version is."""
    return path.with_name(f"{path.name}.json")


def _save(path: pathlib.Path, note: Note) -> None:
    replace_file(note_of(path), [json.dumps(dataclasses.asdict(note)).encode()])


def _read(path: pathlib.Path) -> Any:
    with open(os.open(path, _FLAGS), "rb") as file:
        return json.loads(file.read(_LARGEST_NOTE))


def _first(one: str, others: tuple[str, ...]) -> tuple[str, ...]:
    return (one, *[other for other in others if other != one])[:_MOST_NAMES]


def _names_of(folder: pathlib.Path, name: str) -> pathlib.Path:
    # A name may have bytes that are no text.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return folder / f"{digest[:32]}{_NAMES_SUFFIX}"


def _stems(path: pathlib.Path) -> tuple[str, ...]:
    """Names, without their suffix, of the versions in a file of them."""
    try:
        return _stems_read(path)
    except OSError as error:
        _log.debug("%s names no versions: %s", path, error)
        return ()


def _stems_read(path: pathlib.Path) -> tuple[str, ...]:
    """The same; that it cannot be read is an ``OSError``, that it makes no sense is none."""
    try:
        found = _read(path)
        return tuple(stem for stem in found["versions"][:_MOST_NAMES] if _STEM.fullmatch(stem))
    except _NONSENSE as error:
        _log.debug("%s names no versions: %s", path, error)
        return ()


def _are_there(path: pathlib.Path) -> bool:
    """Whether a file of such names has any, and all of these versions are there."""
    stems = _stems_read(path)
    return bool(stems) and stems == _those_there(path, stems)


def _those_there(path: pathlib.Path, stems: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(it for it in stems if os.path.lexists(path.with_name(f"{it}{VERSION_SUFFIX}")))


def _keep_those_there(path: pathlib.Path) -> None:
    stems = _those_there(path, _stems_read(path))
    if not stems:
        path.unlink(missing_ok=True)
    else:
        replace_file(path, [json.dumps({**_read(path), "versions": stems}).encode()])


def _change_versions(
    folder: pathlib.Path, name: str, change: Callable[[tuple[str, ...]], tuple[str, ...]]
) -> None:
    path = _names_of(folder, name)
    before = _stems(path)
    after = change(before)
    if not after:
        path.unlink(missing_ok=True)
    elif after != before:
        replace_file(path, [json.dumps({"object": name, "versions": after}).encode()])
