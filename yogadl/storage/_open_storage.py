"""Storages by their URLs."""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import urllib.parse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from yogadl.core import Storage
from yogadl.errors import InvalidArgumentError
from yogadl.redaction import without_password
from yogadl.storage._base import CacheStorage
from yogadl.storage._configurations import (
    SECRETS,
    CloudOptions,
    FsspecConfigurations,
    GCSConfigurations,
    LFSConfigurations,
    S3Configurations,
)
from yogadl.storage._fsspec import FsspecStorage
from yogadl.storage._gcs import GCSStorage
from yogadl.storage._lfs import LFSStorage
from yogadl.storage._paths import CACHE_FILE
from yogadl.storage._s3 import S3Storage

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Opener: TypeAlias = Callable[..., Storage]
"""Makes a storage of a URL, and of the configuration that was given besides."""

ENTRY_POINT_GROUP = "yogadl.storages"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_PARTS_OF_PATHS = ("bucket", "bucket_directory_path")
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}

_PASSWORD = re.compile(r"://[^/@]*:[^/@]*@")
# What may stand in the URL; all else is given besides, and fsspec takes it.
_OF_FSSPEC = {"local_cache_dir": "str", "local_cache_bytes": "int"}

_registered: dict[str, Opener] = {}


def open_storage(url: str | os.PathLike[str], **configuration: Any) -> CacheStorage[Any]:
    """A storage by its URL::

        yogadl.open_storage("s3://bucket/directory?region=eu-west-1&local_cache_dir=/scratch")
        yogadl.open_storage("gs://bucket/directory")
        yogadl.open_storage("file:///data/yogadl")
        yogadl.open_storage("/data/yogadl")
        yogadl.open_storage("sftp://host/data", username="me")  # by fsspec, to be read only

    What is behind the ``?`` are arguments of ``S3Configurations`` and ``GCSConfigurations``; what
    is special in them, or in the path of a URL, is escaped as in all URLs. Other schemes are those
    of ``yogadl.storage.register_scheme``, of entry points, and what fsspec can read, if that is
    installed; see ``FsspecStorage``.

    Args:
        url: of the storage, or a path on this machine, which is taken as it is.
        **configuration: more arguments, also those that may not be in a URL: secrets.

    Returns:
        The storage; of a scheme that was registered, what was registered for it makes, which may be
        any ``Storage``.

    Raises:
        InvalidArgumentError: the URL is none, its scheme is unknown, it has a secret, or an
            argument that there is not.
        StoreError: the bucket cannot be used.
        MissingExtraError: what is needed for it is not installed.
    """
    text = os.fspath(url) if isinstance(url, str | os.PathLike) else None
    if not isinstance(text, str):
        raise InvalidArgumentError(f"url must be a string or a path, not {url!r:.100}")
    name = scheme_of(text)
    if not name:
        begin, colon, _ = text.partition(":")
        if colon and begin.lower() in _BUILT_IN:
            raise InvalidArgumentError(
                f"url begins with '{begin}:', and is no URL without '//' behind that; a path that "
                f"begins so is given as './{begin}:…'"
            )
        _check_names(configuration, {}, "a path")
        return LFSStorage(LFSConfigurations(text))
    opener = _find(name) or _find_in_fsspec(name)
    if opener is None:
        known = ", ".join(sorted({*_BUILT_IN, *_registered}))
        advice = (
            "; a data set on a web server is read by yogadl.from_url"
            if name in ("http", "https")
            else ""
        )
        raise InvalidArgumentError(
            f"no storage is known for URLs with {name}://, only for {known}, and paths{advice}. "
            "What fsspec knows can be read if it is installed (pip install 'yogadl[fsspec]'); "
            "others can be registered by yogadl.storage.register_scheme"
        )
    # What most of them make, so that it is known what it can do.
    return cast("CacheStorage[Any]", opener(text, **configuration))


def scheme_of(text: str) -> str:
    """The scheme of a URL; empty for what is taken for a path."""
    scheme = _SCHEME.match(text)
    return "" if scheme is None else scheme[1].lower()


def register_scheme(scheme: str) -> Callable[[Opener], Opener]:
    """Registers what opens storages of some kind of URL, as a decorator::

        @yogadl.storage.register_scheme("tape")
        def open_tape(url, **configuration):
            return TapeStorage(url, **configuration)

    What was registered here comes before entry points, these before what yogadl brings. A package
    can do the same without being imported, by an entry point of the group ``yogadl.storages``: its
    name is the scheme, its value the function::

        [project.entry-points."yogadl.storages"]
        tape = "package.module:open_tape"

    Args:
        scheme: what stands before ``://``; upper and lower case are the same.

    Returns:
        A decorator of a function that takes the whole URL, and what ``open_storage`` was given by
        name, and returns a ``Storage``.

    Raises:
        InvalidArgumentError: there can be no such scheme.
    """
    if not isinstance(scheme, str) or not _SCHEME.fullmatch(f"{scheme}://"):
        raise InvalidArgumentError(
            f"scheme must be what stands before '://', of two letters at least, not {scheme!r:.100}"
        )

    def decorate(opener: Opener) -> Opener:
        _registered[scheme.lower()] = opener
        return opener

    return decorate


def _find(scheme: str) -> Opener | None:
    found = _registered.get(scheme)
    if found is None:
        for point in _entry_points():
            if point.name.lower() == scheme:
                loaded: Opener = point.load()
                return loaded
    return found or _BUILT_IN.get(scheme)


def _find_in_fsspec(scheme: str) -> Opener | None:
    """What reads such URLs by fsspec, if that is installed and knows them."""
    try:
        import fsspec
    except ModuleNotFoundError:
        return None
    return _open_fsspec if scheme in fsspec.available_protocols() else None


def _open_fsspec(url: str, **configuration: Any) -> Storage:
    location, _, query = url.partition("?")
    if location.endswith(f"/{CACHE_FILE}"):
        raise InvalidArgumentError(
            f"{without_password(location)!r} is one version's file, and no storage; if it is on a "
            "web server, it is read by yogadl.from_url"
        )
    given = _arguments(query)
    _check_names(given, _OF_FSSPEC, "a URL that fsspec reads")
    twice = given.keys() & configuration.keys()
    if twice:
        raise InvalidArgumentError(f"{', '.join(sorted(twice))}: given in the URL and besides")
    if _PASSWORD.search(location):
        raise InvalidArgumentError(
            f"{without_password(location)!r} was given with a password, and URLs are shown and "
            "logged: give it as an argument, open_storage(url, username=…, password=…)"
        )
    read = {name: _read(name, value, _OF_FSSPEC[name]) for name, value in given.items()}
    return FsspecStorage(FsspecConfigurations(location, **read, **configuration))


@functools.cache
def _entry_points() -> tuple[EntryPoint, ...]:
    # It takes as long to import as a tenth of yogadl.
    import importlib.metadata

    return tuple(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP))


def _open_file(url: str, **configuration: Any) -> LFSStorage:
    parts = _split(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InvalidArgumentError(
            f"{_shown(url)!r} is no file of this machine: after file:// comes an absolute path, "
            "file:///data/yogadl"
        )
    _check_names({**_arguments(parts.query), **configuration}, {}, "a file:// URL")
    return LFSStorage(LFSConfigurations(path_of(parts.path)))


def path_of(escaped: str) -> str:
    """The path on this machine that a ``file://`` URL has, whose names may be any bytes."""
    # Bytes may also stand there as they are, as Python has them in the names of files.
    return urllib.parse.unquote(
        escaped, sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
    )


def _open_bucket(
    storage: Callable[[Any], Storage], made: type[Any], url: str, **configuration: Any
) -> Storage:
    parts = _split(url)
    if not parts.netloc:
        raise InvalidArgumentError(
            f"{_shown(url)!r} has no bucket; write {parts.scheme}://bucket/…"
        )
    kinds = _kinds(made)
    given = _arguments(parts.query)
    for name in given:
        if name in SECRETS:
            raise InvalidArgumentError(
                f"{name} is a secret, and URLs are shown and logged: give it as an argument, "
                f"open_storage(url, {name}=…), or leave it to the environment"
            )
    twice = given.keys() & configuration.keys()
    if twice:
        raise InvalidArgumentError(f"{', '.join(sorted(twice))}: given in the URL and besides")
    _check_names(given, kinds, f"a {parts.scheme}:// URL")
    _check_names(configuration, {**kinds, **dict.fromkeys(SECRETS)}, made.__name__)
    read = {name: _read(name, value, kinds[name]) for name, value in given.items()}
    try:
        directory = urllib.parse.unquote(parts.path, errors="strict").strip("/")
    except UnicodeDecodeError:
        raise InvalidArgumentError(
            f"{_shown(url)!r} is no URL: what it has escaped is not UTF-8"
        ) from None
    return storage(made(parts.netloc, directory, **read, **configuration))


_BUILT_IN: Mapping[str, Opener] = {
    "file": _open_file,
    "s3": functools.partial(_open_bucket, S3Storage, S3Configurations),
    "gs": functools.partial(_open_bucket, GCSStorage, GCSConfigurations),
}


def _split(url: str) -> urllib.parse.SplitResult:
    if any(character in "\t\r\n" for character in url):
        # Else it would be left out, and be a URL of something else.
        raise InvalidArgumentError(
            f"{_shown(url)!r} has a tab or an end of a line, which are written as %09 and %0A"
        )
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError as error:
        raise InvalidArgumentError(f"{_shown(url)!r} is no URL: {error}") from error
    if "@" in parts.netloc:
        raise InvalidArgumentError(
            f"{_shown(url)!r} has a user or a password, which URLs of storages do not have; give "
            "keys as arguments, or leave them to the environment"
        )
    if parts.fragment:
        raise InvalidArgumentError(f"{_shown(url)!r} has a '#', which is written as %23 in a path")
    return parts


def _arguments(query: str) -> dict[str, str]:
    """What is behind the ``?``."""
    try:
        pairs = urllib.parse.parse_qsl(
            query, keep_blank_values=True, strict_parsing=bool(query), errors="strict"
        )
    except UnicodeDecodeError:
        raise InvalidArgumentError(
            "what is escaped behind the '?' of the URL is not UTF-8; give it as an argument"
        ) from None
    except ValueError:
        raise InvalidArgumentError(
            "what is behind the '?' of the URL is not of the form name=value&name=value"
        ) from None
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidArgumentError("a name comes twice behind the '?' of the URL")
    return found


def _kinds(made: type[Any]) -> dict[str, str]:
    """The arguments of a configuration that are no secrets, and the name of the type of each."""
    hints = {
        name: str(parameter.annotation)
        for name, parameter in inspect.signature(made).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    }
    for name, hint in CloudOptions.__annotations__.items():
        hints[name] = getattr(hint, "__forward_arg__", str(hint))
    return {
        name: hint.split(" ")[0]
        for name, hint in hints.items()
        if name not in SECRETS and name not in _PARTS_OF_PATHS
    }


def _check_names(given: Mapping[str, Any], known: Mapping[str, Any], of: str) -> None:
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        can = f"it can have {', '.join(sorted(known))}" if known else "it has none"
        raise InvalidArgumentError(f"{of} has no argument {', '.join(unknown)}; {can}")


def _read(name: str, value: str, kind: str) -> Any:
    """The value of an argument that is written in a URL."""
    try:
        if kind == "bool":
            return _TRUTHS[value.lower()]
        return {"int": int, "float": float}.get(kind, str)(value)
    except (KeyError, ValueError):
        wanted = "true or false" if kind == "bool" else f"a number ({kind})"
        raise InvalidArgumentError(f"{name} must be {wanted}, not {value!r:.100}") from None


def _shown(url: str) -> str:
    """A URL without what may be secret in it."""
    scheme, _, rest = re.split("[?#]", url, maxsplit=1)[0].partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
