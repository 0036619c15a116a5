"""Bringing a storage up to date with another one: versions and tags."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from yogadl.catalogue import Entry, Key, Known
from yogadl.errors import (
    CacheNotFoundError,
    ConflictError,
    InvalidArgumentError,
    TagMovedError,
    VersionExistsError,
)
from yogadl.storage._collected import StoredVersion
from yogadl.storage._copying.copying import Copier, Original
from yogadl.storage._listed import Listed, oldest_first
from yogadl.storage._version import Version

_ATTEMPTS = 5
_SHOWN = 5

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Synced:
    """What ``sync`` did.

    Attributes:
        versions: that were copied, or would be.
        tags: id, tag and version of each that was set or moved, or would be.
    """

    versions: tuple[StoredVersion, ...] = ()
    tags: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class _Move:
    """A tag that is to be set."""

    dataset_id: str
    tag: str
    version: str
    expect: str | None


@dataclass(frozen=True)
class _Stored:
    """What a storage has: versions, of each id the oldest first, and tags."""

    versions: Mapping[Key, tuple[Listed, Entry]]
    known: Known

    def parents(self, key: Key) -> tuple[Key, ...]:
        found = self.versions.get(key)
        return () if found is None else found[1].provenance.parents


def synced(
    source: Any,
    to: Any,
    dataset_id: str | None,
    names: Iterable[str] | None,
    force: bool,
    dry_run: bool,
) -> Synced:
    """See ``CacheStorage.sync``."""
    here, there = (_stored(one, dataset_id, not dry_run) for one in (source, to))
    keys, tags = _chosen(here, dataset_id, names, source._where)
    missing = _missing(here, there, keys, force)
    moves = _moves(source, here, there, tags, force)
    if moves:
        to._prove_tags(to._version(moves[0].dataset_id, moves[0].tag))
    if not dry_run:
        gone = _copy(
            source, to, [(listed, here.versions[listed.key][1]) for listed in missing], force
        )
        missing = [listed for listed in missing if listed.key not in gone]
        moves = [move for move in moves if (move.dataset_id, move.version) not in gone]
        for move in moves:
            _move(to, move, force)
    return Synced(
        tuple(StoredVersion(*listed.key, listed.size) for listed in missing),
        tuple((move.dataset_id, move.tag, move.version) for move in moves),
    )


def _stored(storage: Any, dataset_id: str | None, enters: bool) -> _Stored:
    known = storage._catalogue.load(dataset_id)
    there = (one for one in storage._listed(dataset_id) if not one.is_doomed(known))
    found = storage._looked_up(there, known, enters)
    return _Stored({one.key: (one, entry) for one, entry in oldest_first(found)}, known)


def _chosen(
    here: _Stored, dataset_id: str | None, names: Iterable[str] | None, where: str
) -> tuple[list[Key], list[tuple[str, str, str]]]:
    """The versions to copy, the oldest first, and the tags to set."""
    if dataset_id is not None and not here.versions:
        raise CacheNotFoundError(f"there is no data set {dataset_id!r} in {where}")
    if names is None:
        ids = here.known.tags if dataset_id is None else [dataset_id]
        tags = [
            (name, tag, version)
            for name in sorted(ids)
            for tag, version in sorted(here.known.tags.get(name, {}).items())
            if (name, version) in here.versions
        ]
        return list(here.versions), tags
    assert dataset_id is not None
    tagged = here.known.tags.get(dataset_id, {})
    keys, tags = set(), []
    for name in names:
        version = name if (dataset_id, name) in here.versions else tagged.get(name)
        if version is None or (dataset_id, version) not in here.versions:
            raise CacheNotFoundError(
                f"there is no version or tag {name!r} of data set {dataset_id!r} in {where}"
            )
        keys.add((dataset_id, version))
        if version != name:
            tags.append((dataset_id, name, version))
    return [key for key in here.versions if key in keys], tags


def _missing(here: _Stored, there: _Stored, keys: Iterable[Key], force: bool) -> list[Listed]:
    """What is to be copied.

    Raises:
        ConflictError: something else is stored under the same name.
        InvalidArgumentError: a name is a tag there.
    """
    found, others = [], []
    for key in keys:
        _check_tag(there.known.tags, key)
        listed, entry = here.versions[key]
        theirs = there.versions.get(key)
        if theirs is None:
            found.append(listed)
        elif not _are_same(entry, theirs[1]):
            found.append(listed)
            others.append(key)
    if others and not force:
        raise ConflictError(
            f"{_shown(':'.join(key) for key in others)} there is another one than here; give it "
            "another name by copy, or replace it by force=True"
        )
    return found


def _are_same(one: Entry, other: Entry) -> bool:
    """Whether two versions of one name have the same records."""
    if one.content_id or other.content_id:
        return one.content_id == other.content_id
    # Of 0.1.4, of which nothing else is known.
    return one.object_size == other.object_size


def _check_tag(tags: Mapping[str, Mapping[str, str]], key: Key) -> None:
    if key[1] in tags.get(key[0], {}):
        raise InvalidArgumentError(
            f"{key[1]!r} is a version of data set {key[0]!r} in one storage, and a tag in the "
            "other; remove the tag (untag), or give it another name"
        )


def _moves(
    source: Any,
    here: _Stored,
    there: _Stored,
    tags: Iterable[tuple[str, str, str]],
    force: bool,
) -> list[_Move]:
    """The tags that are to be set, and where they are now.

    Raises:
        ConflictError: one is at a version that the other does not follow from.
        InvalidArgumentError: one is a version there.
    """
    found, others = [], []
    for name, tag, version in tags:
        if (name, tag) in there.versions:
            _check_tag({name: {tag: version}}, (name, tag))
        at = there.known.tags.get(name, {}).get(tag)
        if at == version:
            continue
        found.append(_Move(name, tag, version, at))
        if at is not None and not _follows(source, here, there, (name, version), (name, at)):
            others.append(f"{name}:{tag} (at {at!r})")
    if others and not force:
        raise ConflictError(
            f"the tag {_shown(others)} there is at a version that, as far as is known, the one "
            "here was not made from; move it there, or here, or wherever it is by force=True"
        )
    return found


def _follows(source: Any, here: _Stored, there: _Stored, key: Key, before: Key) -> bool:
    """Whether a version here was made from one there, by any number of commits.

    Args:
        source: the storage here.
        here, there: what both have.
        key: of the version here.
        before: of the one there.
    """
    seen, waiting = set(), [key]
    while waiting:
        at = waiting.pop()
        is_same = _is_in_both(here, there, at)
        if at == before:
            return is_same
        if at not in seen:
            seen.add(at)
            waiting += [it for it in here.parents(at) if _is_parent(source, here, there, at, it)]
            if is_same:
                waiting += there.parents(at)
    return False


def _is_in_both(here: _Stored, there: _Stored, key: Key) -> bool:
    """Whether a version that is here, or was, is one of that name there, as far as is known."""
    one, other = here.versions.get(key), there.versions.get(key)
    return one is None or other is None or _are_same(one[1], other[1])


def _is_parent(source: Any, here: _Stored, there: _Stored, key: Key, parent: Key) -> bool:
    """Whether one of the parents of a version here, if only one of that name is there, is that, as
    far as the version's file tells: it does of the first."""
    other = there.versions.get(parent)
    if parent in here.versions or other is None or parent != here.parents(key)[0]:
        return True
    try:
        content = source._made(source._version(*key)).parent_content
    except CacheNotFoundError:
        # Nor is it copied then.
        return True
    return content in ("", other[1].content_id)


def _copy(source: Any, to: Any, missing: Iterable[tuple[Listed, Entry]], force: bool) -> set[Key]:
    """Copies versions; which of them were deleted meanwhile.

    Raises:
        ConflictError: somebody else has stored another one there meanwhile.
    """
    gone = set()
    # Of one id, the oldest first: what a version was made from is there before it.
    ordered = sorted(missing, key=lambda it: it[0].dataset_id)
    for name, versions in itertools.groupby(ordered, lambda it: it[0].dataset_id):
        with contextlib.ExitStack() as stack:
            copier: Copier | None = None
            for listed, entry in versions:
                target = to._version(name, listed.dataset_version)
                if copier is None:
                    copier = Copier(to, stack.enter_context(to._adding(target, False)))
                version = source._version(*listed.key)
                if _is_copied(copier, source, version, to, target, None if force else entry):
                    _log.info("Copied %s.", version.label)
                else:
                    _log.info("%s was deleted before it was copied.", version.label)
                    gone.add(listed.key)
    return gone


def _is_copied(
    copier: Copier, source: Any, version: Version, to: Any, target: Version, entry: Entry | None
) -> bool:
    """Copies a version as :func:`_put` does, unless it was deleted; whether it was copied."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            with source._original(version) as original:
                _put(copier, to, original, target, entry)
        except CacheNotFoundError:
            if source._look(version) is None:
                return False
            # It was stored again since it was looked for.
            if not left:
                raise
        else:
            break
    return True


def _move(to: Any, move: _Move, force: bool) -> None:
    try:
        to.tag(move.dataset_id, move.tag, move.version, expect=... if force else move.expect)
    except TagMovedError as error:
        # Another sync may have done the same.
        if error.current != move.version:
            raise


def _put(copier: Copier, to: Any, original: Original, target: Version, entry: Entry | None) -> None:
    """Copies a version.

    Args:
        copier: copies it.
        to: the storage.
        original: the version.
        target: what it is to be.
        entry: what is known of it; ``None`` if it is to replace whatever is there.

    Raises:
        ConflictError: another one is there.
    """
    for _ in range(_ATTEMPTS):
        try:
            return copier.copy(original, target, entry is None)
        except VersionExistsError:
            assert entry is not None
            listed = to._look(target)
            if listed is None:
                continue
            known = to._catalogue.load(target.dataset_id)
            if listed.is_doomed(known):
                # Who deleted it was killed.
                to._delete(target, listed)
                continue
            theirs = next((found for _, found in to._described([listed])), None)
            if theirs is None:
                continue
            if not _are_same(entry, theirs):
                break
            if not known.is_uncommitted(theirs.key, theirs.going_to):
                return None
            if entry.provenance.change != theirs.provenance.change:
                break
            # A sync that put it back was killed before it could enter it.
            return copier.copy(original, target)
    raise ConflictError(
        f"somebody else has stored another {target} there, or is committing it; give it another "
        "name by copy, or replace it by force=True"
    )


def _shown(names: Iterable[str]) -> str:
    listed = list(names)
    rest = len(listed) - _SHOWN
    return ", ".join(listed[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
