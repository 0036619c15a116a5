"""What a cache file or a storage holds, and whether a file is whole.

python -m yogadl info PATH           element spec, record count, versions, metadata
python -m yogadl verify PATH         read the file and compare it with its checksums
python -m yogadl list STORAGE [ID]   versions in a directory, or at a URL: s3://…, gs://…
python -m yogadl card STORAGE ID [NAME]    what is known of a version, as Markdown or --html
python -m yogadl log STORAGE ID [NAME]     a version, and those that it was made from
python -m yogadl diff STORAGE ID BEFORE AFTER    what two versions differ in
python -m yogadl tag STORAGE ID TAG [NAME] set or move a tag; without a name, tell where it is
python -m yogadl untag STORAGE ID TAG      take a tag away
python -m yogadl gc STORAGE [ID]     delete versions that are not to be kept, and what nobody needs
python -m yogadl sync STORAGE TO [ID [NAME …]]    copy what another storage lacks
"""

from __future__ import annotations

import argparse
import datetime
import io
import os
import pathlib
import sys
import tempfile
import urllib.parse
from collections.abc import Callable
from typing import Any, TypeAlias

from yogadl._version import __version__
from yogadl.cache.files import telling
from yogadl.cards._text import visible
from yogadl.catalogue import CatalogueEntry
from yogadl.dataref import LMDBDataRef
from yogadl.errors import CacheNotFoundError, InvalidArgumentError, YogadlError
from yogadl.storage import Collected, LFSConfigurations, Synced, open_storage
from yogadl.storage._open_storage import path_of, scheme_of

_Run: TypeAlias = Callable[[argparse.Namespace], None]
_Add: TypeAlias = Callable[[str, str, _Run], argparse.ArgumentParser]

_ENDED_BY_SIGPIPE = 141
"""What a shell says of a command whose reader went away."""

_NAME_OR_NEWEST = "a version or a tag; without, the newest"


def _tell(text: str) -> None:
    """Prints a line: what others have stored may hold what a terminal takes for commands."""
    print(_visible(text).replace("\n", "\\n"))


def _visible(text: str) -> str:
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


def _list(options: argparse.Namespace) -> None:
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


def _log(options: argparse.Namespace) -> None:
    storage = _open(options.storage)
    name = options.name or storage.latest(options.dataset_id)
    _tell_entries(storage.log(options.dataset_id, name))


def _diff(options: argparse.Namespace) -> None:
    found = _open(options.storage).diff(options.dataset_id, options.before, options.after)
    for line in str(found).split("\n"):
        _tell(line)


def _tag(options: argparse.Namespace) -> None:
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
    # Names mean what they mean to fetch: versions, and else tags.
    found = storage.log(name, options.name)
    version = found[0].dataset_version if found else options.name
    storage.tag(name, tag, version, **expected)
    _tell(f"set {name} [{tag}] to {version}")


def _untag(options: argparse.Namespace) -> None:
    _open(options.storage).untag(options.dataset_id, options.tag, **_expected(options))
    _tell(f"took {options.dataset_id} [{options.tag}] away")


def _expected(options: argparse.Namespace) -> dict[str, Any]:
    if options.new:
        return {"expect": None}
    return {} if options.expect is None else {"expect": options.expect}


def _unknown(dataset_id: str, storage: Any) -> CacheNotFoundError:
    """Who mistypes an id is told, whatever nothing means to a program."""
    return CacheNotFoundError(f"there is no data set {dataset_id!r} in {storage._where}")


def _card(options: argparse.Namespace) -> None:
    card = _open(options.storage).card(options.dataset_id, options.name, sample=options.sample)
    text = card.to_html() if options.html else card.to_markdown()
    # Whatever the terminal takes: what a file has is UTF-8, as the HTML says of itself.
    sys.stdout.buffer.write(text.encode())


def _gc(options: argparse.Namespace) -> None:
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


def _sync(options: argparse.Namespace) -> None:
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


def _with_file(options: argparse.Namespace) -> None:
    _check_file(options.path)
    with LMDBDataRef(options.path) as dataref:
        if options.command == "info":
            _show(dataref)
        else:
            dataref.verify()
            _tell(f"{options.path} is whole: {len(dataref):,} records.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m yogadl", description="Look at yogadl cache files, and keep storages."
    )
    parser.add_argument("--version", action="version", version=f"yogadl {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, what: str, run: _Run) -> argparse.ArgumentParser:
        description = f"{what[0].upper()}{what[1:]}."
        command = commands.add_parser(name, help=what, description=description)
        command.set_defaults(run=run)
        return command

    def add_for_storage(name: str, what: str, run: _Run) -> argparse.ArgumentParser:
        command = add(name, what, run)
        command.add_argument("storage", help="a directory, or a URL: s3://…, gs://…")
        return command

    _add_for_files(add)
    _add_for_versions(add_for_storage)
    _add_for_tags(add_for_storage)
    _add_for_storages(add_for_storage)
    return parser


def _add_for_files(add: _Add) -> None:
    for name, what in (
        ("info", "show what a file holds: element spec, record count, versions, metadata"),
        ("verify", "read a file and compare it with its checksums"),
    ):
        add(name, what, _with_file).add_argument("path", help="of a cache.mdb")


def _add_for_versions(add: _Add) -> None:
    command = add("list", "show the versions in a storage", _list)
    command.add_argument("dataset_id", nargs="?", help="list the versions of this one")
    command = add("card", "show what is known of a version", _card)
    command.add_argument("dataset_id")
    command.add_argument("name", nargs="?", help=_NAME_OR_NEWEST)
    command.add_argument("--html", action="store_true", help="as HTML, not Markdown")
    command.add_argument("--sample", type=int, default=0, metavar="N", help="read N records")
    command = add("log", "show a version and those that it was made from", _log)
    command.add_argument("dataset_id")
    command.add_argument("name", nargs="?", help=_NAME_OR_NEWEST)
    command = add("diff", "show what two versions differ in", _diff)
    command.add_argument("dataset_id")
    command.add_argument("before", help="a version or a tag")
    command.add_argument("after", help="likewise")


def _add_for_tags(add: _Add) -> None:
    command = add("tag", "set or move a tag, or tell where it is", _tag)
    command.add_argument("dataset_id")
    command.add_argument("tag")
    command.add_argument("name", nargs="?", help="the version that it is to be at, or a tag")
    only = command.add_mutually_exclusive_group()
    only.add_argument("--expect", metavar="VERSION", help="only if the tag is at this now")
    only.add_argument("--new", action="store_true", help="only if there is no such tag")
    command = add("untag", "take a tag away; the version stays", _untag)
    command.add_argument("dataset_id")
    command.add_argument("tag")
    command.add_argument("--expect", metavar="VERSION", help="only if the tag is at this now")
    command.set_defaults(new=False)


def _add_for_storages(add: _Add) -> None:
    what = "delete versions that are not to be kept, and what nobody needs"
    command = add("gc", what, _gc)
    command.add_argument("dataset_id", nargs="?", help="of this one only")
    command.add_argument("--keep-last", type=int, metavar="N", help="versions of each id to keep")
    command.add_argument("--older-than", type=float, metavar="DAYS", help="only what is so old")
    command.add_argument("--dry-run", action="store_true", help="tell what would go")
    command = add("sync", "copy from a storage what another one lacks", _sync)
    command.add_argument("to", help="the one to bring up to date, likewise")
    command.add_argument("dataset_id", nargs="?", help="of this one only")
    command.add_argument("names", nargs="*", help="versions and tags of it")
    command.add_argument("--force", action="store_true", help="replace versions, move all tags")
    command.add_argument("--dry-run", action="store_true", help="tell what would be copied")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0, or 1 where something cannot be read or done, or is damaged; 141 if who read what it
        prints went away.
    """
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Whatever letters the terminal has not.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        options.run(options)
        sys.stdout.flush()
    except YogadlError as error:
        print(_visible(f"{type(error).__name__}: {error}"), file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Python flushes once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _ENDED_BY_SIGPIPE
    return 0


if __name__ == "__main__":
    sys.exit(main())
