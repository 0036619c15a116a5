"""From what a function made a data set, and whether that is what it would make one from now."""

from __future__ import annotations

import ast
import dataclasses
import functools
import getpass
import inspect
import itertools
import json
import logging
import os
import socket
import textwrap
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import xxhash

from yogadl import spec as specs
from yogadl.dataref import StoredDataRef
from yogadl.errors import InvalidArgumentError, SpecMismatchError, StaleCacheWarning
from yogadl.format.provenance import Provenance
from yogadl.format.spec_text import spec_text
from yogadl.storage._call_text import call_text

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
    function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> Provenance:
    """Of what a function makes when it is called so by this process."""
    while isinstance(function, functools.partial):
        arguments = (*function.args, *arguments)
        named = {**function.keywords, **named}
        function = function.func
    if inspect.ismethod(function):
        arguments = (function.__self__, *arguments)
    function = inspect.unwrap(function)
    coded: Any = function
    if not inspect.isroutine(function) and not inspect.isclass(function):
        # An object that can be called does what its class says.
        coded, arguments = type(function), (function, *arguments)
    return dataclasses.replace(
        of_here(),
        function=f"{coded.__module__}.{coded.__qualname__}",
        arguments=call_text(arguments, named),
        source=source_digest(coded),
    )


def check_stored(
    ref: StoredDataRef,
    name: str,
    spec: specs.Structure | None,
    metadata: Mapping[str, Any] | None,
    now: Provenance,
) -> None:
    """Compares what is stored with what was asked for; warns once for each difference.

    Args:
        ref: what is stored.
        name: of the version, for messages.
        spec: that was asked for, in standard form.
        metadata: that was asked for.
        now: of the call that asked.

    Raises:
        SpecMismatchError: records of that spec cannot be what is stored.
        InvalidArgumentError: JSON cannot hold the metadata.
    """
    stored = ref.info.provenance
    made = f"{name} was stored{_by(ref)}"
    if spec is not None and spec != ref.spec:
        difference = f"with the spec {spec_text(ref.spec)}, and spec= is {spec_text(spec)}"
        if not _may_be(ref.spec, spec):
            raise SpecMismatchError(
                f"{made} {difference}. Store it under another version, or delete this one"
            )
        _warn(ref, made, difference)
    other = _not_stored(ref, metadata)
    if other:
        shown = {key: ref.metadata[key] for key in other if key in ref.metadata}
        _warn(ref, made, f"with the metadata {shown!r:.200}, and metadata= has {other!r:.200}")
    if stored.source and now.source and stored.source != now.source:
        difference = f"by {stored.function}, and {now.function} is not the same code"
        # Who changes it again is told again.
        _warn(ref, made, difference, now.source)
    elif stored.function and stored.arguments != now.arguments:
        _warn(
            ref,
            made,
            f"by {stored.function}({stored.arguments}), and {now.function}({now.arguments}) is "
            "called",
        )
    elif stored.host and not stored.function:
        _log.info("%s by submit; %s is not called.", made, now.function)


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


def _warn(ref: StoredDataRef, made: str, difference: str, *more: str) -> None:
    """Warns, once for each file, difference and whatever ``more`` tells apart."""
    told = ref.info.digest, difference, *more
    if told in _told:
        return
    _told.add(told)
    warnings.warn(
        f"{made} {difference}. What is stored is read as it is, since cacheable goes by id and "
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


def source_digest(coded: Any) -> str:
    """Of the source of a function or class, not of what that calls; empty if it has none."""
    try:
        text = textwrap.dedent(inspect.getsource(coded))
    except (OSError, TypeError):
        return ""
    try:
        text = ast.unparse(_essence(ast.parse(text)))
    except (SyntaxError, RecursionError):
        # A lambda's source is the line around it, which need not be whole.
        text = text.strip()
    return xxhash.xxh3_128_hexdigest(text.encode())


def _essence(tree: ast.Module) -> ast.Module:
    """The definition without its decorators and its docstring."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.decorator_list = []
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return tree
