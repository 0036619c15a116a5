"""From what a function made a data set, and whether that is what it would make one from now."""

from __future__ import annotations

import dataclasses
import getpass
import inspect
import itertools
import json
import logging
import os
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from yogadl import spec as specs
from yogadl.dataref import StoredDataRef
from yogadl.errors import (
    InvalidArgumentError,
    SpecMismatchError,
    StaleCacheError,
    StaleCacheWarning,
)
from yogadl.format.provenance import Provenance
from yogadl.format.spec_text import spec_text
from yogadl.recipes import Recipe, changes, named_call, parse

_told: set[tuple[str, ...]] = set()
_log = logging.getLogger(__name__)


def of_here() -> Provenance:
    """Of what is stored by this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        # A container may know its user by number only.
        user = str(os.getuid())
    return Provenance(host=socket.gethostname(), user=user)


def of_call(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    named: Mapping[str, Any],
    recipe: Recipe | None,
) -> Provenance:
    """Of what a function makes when it is called so by this process."""
    name, shown, source = named_call(function, arguments, named)
    return dataclasses.replace(
        of_here(),
        function=name,
        arguments=shown,
        source=source,
        recipe="" if recipe is None else recipe.digest,
    )


@dataclass(frozen=True)
class Difference:
    """Something that is stored otherwise than it was asked for.

    Attributes:
        text: that says so.
        now: tells it from others of the same text.
        is_contradiction: whether what is stored cannot be what was asked for.
    """

    text: str
    now: str = ""
    is_contradiction: bool = False


def check_stored(
    ref: StoredDataRef,
    name: str,
    spec: specs.Structure | None,
    metadata: Mapping[str, Any] | None,
    now: Provenance,
    recipe: Recipe | None = None,
    on_change: str = "warn",
    is_own: bool = False,
) -> None:
    """Compares what is stored with what was asked for; warns once for each difference.

    Args:
        ref: what is stored.
        name: of the version, for messages.
        spec: that was asked for, in standard form.
        metadata: that was asked for.
        now: of the call that asked.
        recipe: likewise, if it can be told.
        on_change: ``"warn"``, ``"raise"`` or ``"ignore"``.
        is_own: see :func:`differences`.

    Raises:
        SpecMismatchError: records of that spec cannot be what is stored.
        StaleCacheError: there is a difference, and it is to be raised.
        InvalidArgumentError: JSON cannot hold the metadata.
    """
    made = f"{name} was stored{_by(ref)}"
    for found in differences(ref, spec, metadata, now, recipe, is_own):
        if found.is_contradiction:
            raise SpecMismatchError(
                f"{made} {found.text}. Store it under another version, or delete this one"
            )
        if on_change == "raise":
            raise StaleCacheError(
                f"{made} {found.text}. Store it under another version, delete this one, or have it "
                'made anew by on_change="rebuild"'
            )
        if on_change != "ignore":
            _warn(ref, made, found)
    stored = ref.info.provenance
    if stored.host and not stored.function:
        _log.info("%s by submit; %s is not called.", made, now.function)


def differences(
    ref: StoredDataRef,
    spec: specs.Structure | None,
    metadata: Mapping[str, Any] | None,
    now: Provenance,
    recipe: Recipe | None,
    is_own: bool = False,
) -> Iterator[Difference]:
    """What is stored otherwise than it was asked for; see :func:`check_stored`.

    Args:
        ref, spec, metadata, now, recipe: see there.
        is_own: whether this process has run the function for the version. It may have counted its
            calls in a list, so what containers hold then does not count.
    """
    if spec is not None and spec != ref.spec:
        text = f"with the spec {spec_text(ref.spec)}, and spec= is {spec_text(spec)}"
        yield Difference(text, is_contradiction=not _may_be(ref.spec, spec))
    other = _not_stored(ref, metadata)
    if other:
        shown = {key: ref.metadata[key] for key in other if key in ref.metadata}
        yield Difference(f"with the metadata {shown!r:.200}, and metadata= has {other!r:.200}")
    stored = ref.info.provenance
    if stored.recipe and recipe is not None:
        if stored.recipe == recipe.digest:
            return
        text = _told_of_call(stored, now)
        if not text:
            before = parse(stored.recipe_document)
            found = () if before is None else changes(before, recipe)
            if is_own and found:
                found = tuple(it for it in found if not it.is_of_container)
                if not found:
                    return
            text = str(found[0]) if found else "what it goes by is not the same"
            more = f" (and {len(found) - 1} more, see storage.why)" if len(found) > 1 else ""
            text = f"by {stored.function}, and now {text}{more}"
        # Who changes it again is told again.
        yield Difference(text, recipe.digest)
    elif text := _told_of_call(stored, now):
        yield Difference(text, now.source)


def _told_of_call(stored: Provenance, now: Provenance) -> str:
    """What is other in the function itself and its arguments; empty if nothing is."""
    if stored.source and now.source and stored.source != now.source:
        return f"by {stored.function}, and {now.function} is not the same code"
    if stored.function and stored.arguments != now.arguments:
        return (
            f"by {stored.function}({stored.arguments}), and {now.function}({now.arguments}) is "
            "called"
        )
    return ""


def _not_stored(ref: StoredDataRef, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """What of some metadata is stored otherwise or not at all. A source may have added more."""
    if not metadata or not ref.info.format_version:
        return {}
    try:
        given = dict(json.loads(json.dumps(metadata)))
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"metadata must be a dict that JSON can hold, and {metadata!r:.200} is not: {error}"
        ) from error
    return {key: value for key, value in given.items() if ref.metadata.get(key, ...) != value}


def _by(ref: StoredDataRef) -> str:
    stored, created = ref.info.provenance, ref.info.created
    when = "" if created is None else f" on {created:%Y-%m-%d %H:%M} UTC"
    return f"{when} by {stored.user} on {stored.host}," if stored.host else when


def _may_be(stored: specs.Structure, wanted: specs.Structure) -> bool:
    """Whether what is stored under one spec may also be of the other."""
    try:
        return specs.common(stored, wanted) in (stored, wanted)
    except SpecMismatchError:
        return False


def _warn(ref: StoredDataRef, made: str, found: Difference) -> None:
    """Warns, once for each file and difference."""
    told = ref.info.digest, found.text, found.now
    if told in _told:
        return
    _told.add(told)
    warnings.warn(
        f"{made} {found.text}. What is stored is read as it is, since cacheable goes by id and "
        "version: to have it made anew, store it under another version, or delete this one",
        StaleCacheWarning,
        stacklevel=_level_of_user(),
    )


def _level_of_user() -> int:
    """How far up the stack, as ``warnings.warn`` counts for its caller, is who called yogadl."""
    package = __name__.partition(".")[0]
    frame = inspect.currentframe()
    for level in itertools.count(0):
        if frame is None or frame.f_globals.get("__name__", "").partition(".")[0] != package:
            return level
        frame = frame.f_back
    raise AssertionError("the stack has an end")
