"""What the commands of ``python -m yogadl`` do."""

from __future__ import annotations

import argparse
import datetime
import pathlib
import sys
import tempfile
import urllib.parse
from typing import Any

from yogadl.cache.files import telling
from yogadl.cards._text import visible
from yogadl.catalogue import CatalogueEntry
from yogadl.dataref import LMDBDataRef
from yogadl.errors import CacheNotFoundError, InvalidArgumentError
from yogadl.storage import Collected, LFSConfigurations, Synced, open_storage
from yogadl.storage._open_storage import path_of, scheme_of


def _tell(text: str) -> None:
    """Prints a line: what others have stored may hold what a terminal takes for commands."""
    print(shown(text).replace("\n", "\\n"))


def shown(text: str) -> str:
    """A text as a terminal shows it, whatever others have put in."""
    return visible(text, longest=len(text))


def _show(dataref: LMDBDataRef) -> None:
    info = dataref.info
    created = "unknown" if info.created is None else info.created.isoformat(timespec="seconds")
    _tell(f"records:  {info.record_count:,}")
    _tell(f"size:     {info.file_size:,} bytes")
    _tell(f"spec:     {dataref.spec}")
    _tell(f"format:   {info.format_version}")
    _tell(f"written:  by yogadl {info.library_version}, {created}")
    made = info.provenance
    if made.host:
        _tell(f"stored:   by {made.user} on {made.host}")
    if made.function:
        _tell(f"made by:  {made.function}({made.arguments})")
    if made.duration is not None:
        _tell(f"took:     {made.duration:.3g} s")
    if made.recipe:
        _tell(f"recipe:   {made.recipe}")
    if made.parents:
        _tell(f"parents:  {', '.join(map(':'.join, made.parents))}")
    if made.change:
        _tell(f"commit:   {made.change} {made.message}".rstrip())
    _tell(f"metadata: {info.metadata}")


def _directory(url: str) -> pathlib.Path | None:
    """The directory that a URL or path names; ``None`` if it is elsewhere."""
    scheme = scheme_of(url)
    if not scheme:
        return LFSConfigurations(url).storage_dir_path
    if scheme != "file":
        return None
    return pathlib.Path(path_of(urllib.parse.urlsplit(url).path))


def _open(url: str) -> Any:
    """A storage that is there: of a path that is mistyped, no directory is made."""
    directory = _directory(url)
    if directory is not None:
        with telling("use", directory):
            is_there = directory.is_dir()
        if not is_there:
            raise InvalidArgumentError(f"there is no directory {url!r}")
    return open_storage(url)


def tell_versions(options: argparse.Namespace) -> None:
    """Lists versions."""
    storage, dataset_id = _open(options.storage), options.dataset_id
    entries = storage.list(dataset_id)
    if dataset_id is not None and not entries:
        raise _unknown(dataset_id, storage)
    _tell_entries(entries)


def _tell_entries(entries: list[CatalogueEntry]) -> None:
    for entry in entries:
        count = "?" if entry.record_count is None else f"{entry.record_count:,}"
        tags = f" [{', '.join(entry.tags)}]" if entry.tags else ""
        by = f" by {entry.user} on {entry.host}" if entry.host else ""
        _tell(
            f"{entry.dataset_id} {entry.dataset_version}{tags}: {count} records, "
            f"{entry.size:,} bytes, {entry.created:%Y-%m-%d %H:%M} UTC{by}"
        )
        if entry.message:
            _tell(f"    {entry.message}")


def tell_history(options: argparse.Namespace) -> None:
    """Tells what a version was made from."""
    storage = _open(options.storage)
    name = options.name or storage.latest(options.dataset_id)
    _tell_entries(storage.log(options.dataset_id, name))


def tell_difference(options: argparse.Namespace) -> None:
    """Tells what two versions differ in."""
    found = _open(options.storage).diff(options.dataset_id, options.before, options.after)
    for line in str(found).split("\n"):
        _tell(line)


def tag(options: argparse.Namespace) -> None:
    """Sets or moves a tag, or tells where it is."""
    storage = _open(options.storage)
    name, tag = options.dataset_id, options.tag
    expected = _expected(options)
    if options.name is None:
        if expected:
            raise InvalidArgumentError("--expect and --new are for setting a tag: give a version")
        tags = storage.tags(name)
        if tag not in tags:
            raise CacheNotFoundError(
                f"there is no tag {tag!r} of data set {name!r} in {storage._where}"
            )
        _tell(tags[tag])
        return
    version = _version_named(storage, options)
    storage.tag(name, tag, version, **expected)
    _tell(f"set {name} [{tag}] to {version}")


def _version_named(storage: Any, options: argparse.Namespace) -> str:
    """The version of a name, which means what it means to fetch: a version, and else a tag."""
    found = storage.log(options.dataset_id, options.name)
    return str(found[0].dataset_version if found else options.name)


def untag(options: argparse.Namespace) -> None:
    """Takes a tag away."""
    _open(options.storage).untag(options.dataset_id, options.tag, **_expected(options))
    _tell(f"took {options.dataset_id} [{options.tag}] away")


def _expected(options: argparse.Namespace) -> dict[str, Any]:
    if options.new:
        return {"expect": None}
    return {} if options.expect is None else {"expect": options.expect}


def _unknown(dataset_id: str, storage: Any) -> CacheNotFoundError:
    """Who mistypes an id is told, whatever nothing means to a program."""
    return CacheNotFoundError(f"there is no data set {dataset_id!r} in {storage._where}")


def tell_card(options: argparse.Namespace) -> None:
    """Prints a data card."""
    card = _open(options.storage).card(options.dataset_id, options.name, sample=options.sample)
    text = card.to_html() if options.html else card.to_markdown()
    # Whatever the terminal takes: what a file has is UTF-8, as the HTML says of itself.
    sys.stdout.buffer.write(text.encode())


def delete(options: argparse.Namespace) -> None:
    """Deletes a version."""
    storage = _open(options.storage)
    name, version = options.dataset_id, options.version
    storage.delete(name, version, force=options.force)
    _tell(f"deleted {name} {version}")
    for tag, at in storage.tags(name).items():
        if at == version:
            _tell(f"[{tag}] is at nothing now: tag another version, or untag it")


def compact(options: argparse.Namespace) -> None:
    """Stores a version anew, as one that was submitted."""
    storage = _open(options.storage)
    version = _version_named(storage, options)
    storage.compact(options.dataset_id, version)
    _tell(f"compacted {options.dataset_id} {version}")


def revert(options: argparse.Namespace) -> None:
    """Takes a commit back."""
    storage = _open(options.storage)
    name, branch = options.dataset_id, options.branch
    version = _version_named(storage, options)
    made = storage.revert(name, version, on=branch, message=options.message or None)
    _tell(f"set {name} [{branch}] to {made}, without what {version} changed")


def collect(options: argparse.Namespace) -> None:
    """Deletes what is not to be kept."""
    older_than = None if options.older_than is None else _days(options.older_than)
    storage = _open(options.storage)
    name = options.dataset_id
    is_known = name is None or bool(storage.list(name))
    done: Collected = storage.gc(
        name, keep_last=options.keep_last, older_than=older_than, dry_run=options.dry_run
    )
    if not is_known and done == Collected():
        raise _unknown(name, storage)
    what = "would delete" if options.dry_run else "deleted"
    for version in done.versions:
        _tell(f"{what} {version.dataset_id} {version.dataset_version}")
    for version in done.unfinished:
        _tell(f"{what} {version.dataset_id} {version.dataset_version}, which was not committed")
    for folder in done.scratch:
        _tell(f"{what} {folder}")
    _tell(f"{what} {len(done.parts.removed):,} parts, {done.size:,} bytes in all")
    for name, reason in done.parts.skipped.items():
        _tell(f"parts of {name} stay: {reason}")
    if options.keep_last is not None and older_than is None:
        _tell("versions that are less than a day old stay; --older-than says how old")


def _days(count: float) -> datetime.timedelta:
    try:
        return datetime.timedelta(days=count)
    except (ValueError, OverflowError):
        raise InvalidArgumentError(
            f"--older-than takes a number of days, at most 999999999, not {count}"
        ) from None


def sync(options: argparse.Namespace) -> None:
    """Copies what another storage lacks."""
    source = _open(options.storage)
    is_new = _is_new(options.to)
    if is_new:
        # An empty one tells the same, before a directory is made by a dry run, or in vain.
        with tempfile.TemporaryDirectory() as empty:
            done = _synced(source, open_storage(empty), options, dry_run=True)
    if not (is_new and options.dry_run):
        done = _synced(source, open_storage(options.to), options, options.dry_run)
    if is_new:
        _tell(f"{'would make a' if options.dry_run else 'made a'} new storage {options.to}")
    what = "would copy" if options.dry_run else "copied"
    for version in done.versions:
        _tell(f"{what} {version.dataset_id} {version.dataset_version}")
    for name, tag, at in done.tags:
        _tell(f"{'would set' if options.dry_run else 'set'} {name} [{tag}] to {at}")
    if not (done.versions or done.tags):
        _tell("there is nothing to copy")


def _is_new(url: str) -> bool:
    """Whether a directory would be made for it. Where its parent is missing, opening it says so."""
    directory = _directory(url)
    if directory is None:
        return False
    with telling("use", directory):
        return not directory.exists() and directory.parent.is_dir()


def _synced(source: Any, to: Any, options: argparse.Namespace, dry_run: bool) -> Synced:
    done: Synced = source.sync(
        to,
        options.dataset_id,
        names=options.names or None,
        force=options.force,
        dry_run=dry_run,
    )
    return done


def _check_file(given: str) -> None:
    """Raises if a path is a URL, or that of a directory, where a file is asked for."""
    if scheme_of(given):
        raise InvalidArgumentError(
            f"{given!r} is a URL: give the path of a file on this machine. What is known of a "
            "version in a bucket, `python -m yogadl card` shows, and fetch(…, check_records=True) "
            "compares all that it reads"
        )
    path = pathlib.Path(given)
    with telling("read", path):
        is_directory = path.is_dir()
    if is_directory:
        is_version = (path / "cache.mdb").exists()
        inside = "cache.mdb" if is_version else "ID/VERSION/cache.mdb"
        raise InvalidArgumentError(
            f"{str(path)!r} is a directory: give the file of a version, {path / inside}, or see "
            "by `python -m yogadl list` what a storage has"
        )


def look_at_file(options: argparse.Namespace) -> None:
    """Tells what a file holds, or whether it is whole."""
    _check_file(options.path)
    with LMDBDataRef(options.path) as dataref:
        if options.command == "info":
            _show(dataref)
        else:
            dataref.verify()
            _tell(f"{options.path} is whole: {len(dataref):,} records.")
