"""What a cache file or a storage holds, and whether a file is whole.

python -m yogadl info PATH           element spec, record count, versions, metadata
python -m yogadl verify PATH         read the file and compare it with its checksums
python -m yogadl list STORAGE [ID]   versions in a directory, or at a URL: s3://…, gs://…
python -m yogadl card STORAGE ID [NAME]    what is known of a version, as Markdown or --html
python -m yogadl gc STORAGE [ID]     delete versions that are not to be kept, and what nobody needs
python -m yogadl sync STORAGE TO [ID [NAME …]]    copy what another storage lacks
"""

from __future__ import annotations

import argparse
import datetime
import pathlib
import sys
from typing import Any

from yogadl.dataref import LMDBDataRef
from yogadl.errors import InvalidArgumentError, YogadlError
from yogadl.storage import open_storage


def _show(dataref: LMDBDataRef) -> None:
    info = dataref.info
    created = "unknown" if info.created is None else info.created.isoformat(timespec="seconds")
    print(f"records:  {info.record_count:,}")
    print(f"size:     {info.file_size:,} bytes")
    print(f"spec:     {dataref.spec}")
    print(f"format:   {info.format_version}")
    print(f"written:  by yogadl {info.library_version}, {created}")
    made = info.provenance
    if made.host:
        print(f"stored:   by {made.user} on {made.host}")
    if made.function:
        print(f"made by:  {made.function}({made.arguments})")
    if made.duration is not None:
        print(f"took:     {made.duration:.3g} s")
    if made.recipe:
        print(f"recipe:   {made.recipe}")
    if made.parents:
        print(f"parents:  {', '.join(map(':'.join, made.parents))}")
    if made.change:
        print(f"commit:   {made.change} {made.message}".rstrip())
    print(f"metadata: {info.metadata}")


def _open(url: str) -> Any:
    """A storage that is there: of a path that is mistyped, no directory is made."""
    if "://" not in url and not pathlib.Path(url).expanduser().is_dir():
        raise InvalidArgumentError(f"there is no directory {url!r}")
    return open_storage(url)


def _list(url: str, dataset_id: str | None) -> None:
    for entry in _open(url).list(dataset_id):
        count = "?" if entry.record_count is None else f"{entry.record_count:,}"
        tags = f" [{', '.join(entry.tags)}]" if entry.tags else ""
        by = f" by {entry.user} on {entry.host}" if entry.host else ""
        print(
            f"{entry.dataset_id} {entry.dataset_version}{tags}: {count} records, "
            f"{entry.size:,} bytes, {entry.created:%Y-%m-%d %H:%M} UTC{by}"
        )
        if entry.message:
            print(f"    {entry.message}")


def _card(options: argparse.Namespace) -> None:
    card = _open(options.storage).card(options.dataset_id, options.name, sample=options.sample)
    text = card.to_html() if options.html else card.to_markdown()
    # Whatever the terminal takes: what a file has is UTF-8, as the HTML says of itself.
    sys.stdout.buffer.write(text.encode())


def _gc(options: argparse.Namespace) -> None:
    older_than = None if options.older_than is None else datetime.timedelta(days=options.older_than)
    done = _open(options.storage).gc(
        options.dataset_id,
        keep_last=options.keep_last,
        older_than=older_than,
        dry_run=options.dry_run,
    )
    what = "would delete" if options.dry_run else "deleted"
    for version in done.versions:
        print(f"{what} {version.dataset_id} {version.dataset_version}")
    for version in done.unfinished:
        print(f"{what} {version.dataset_id} {version.dataset_version}, which was not committed")
    for folder in done.scratch:
        print(f"{what} {folder}")
    print(f"{what} {len(done.parts.removed):,} parts, {done.size:,} bytes in all")
    for name, reason in done.parts.skipped.items():
        print(f"parts of {name} stay: {reason}")


def _sync(options: argparse.Namespace) -> None:
    done = _open(options.storage).sync(
        open_storage(options.to),
        options.dataset_id,
        names=options.names or None,
        force=options.force,
        dry_run=options.dry_run,
    )
    what = "would copy" if options.dry_run else "copied"
    for version in done.versions:
        print(f"{what} {version.dataset_id} {version.dataset_version}")
    for name, tag, at in done.tags:
        print(f"{'would set' if options.dry_run else 'set'} {name} [{tag}] to {at}")
    if not (done.versions or done.tags):
        print("there is nothing to copy")


def _with_file(options: argparse.Namespace) -> None:
    with LMDBDataRef(options.path) as dataref:
        if options.command == "info":
            _show(dataref)
        else:
            dataref.verify()
            print(f"{options.path} is whole: {len(dataref):,} records.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m yogadl", description="Look at yogadl cache files, and keep storages."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("info", "verify"):
        command = commands.add_parser(name)
        command.add_argument("path", help="of a cache.mdb")
        command.set_defaults(run=_with_file)
    where = "a directory, or a URL: s3://…, gs://…"
    command = commands.add_parser("list")
    command.add_argument("storage", help=where)
    command.add_argument("dataset_id", nargs="?", help="list the versions of this one")
    command.set_defaults(run=lambda options: _list(options.storage, options.dataset_id))
    command = commands.add_parser("card")
    command.add_argument("storage", help=where)
    command.add_argument("dataset_id")
    command.add_argument("name", nargs="?", help="a version or a tag; without, the newest")
    command.add_argument("--html", action="store_true", help="as HTML, not Markdown")
    command.add_argument("--sample", type=int, default=0, metavar="N", help="read N records")
    command.set_defaults(run=_card)
    command = commands.add_parser("gc")
    command.add_argument("storage", help=where)
    command.add_argument("dataset_id", nargs="?", help="of this one only")
    command.add_argument("--keep-last", type=int, metavar="N", help="versions of each id to keep")
    command.add_argument("--older-than", type=float, metavar="DAYS", help="only what is so old")
    command.add_argument("--dry-run", action="store_true", help="tell what would go")
    command.set_defaults(run=_gc)
    command = commands.add_parser("sync")
    command.add_argument("storage", help=where)
    command.add_argument("to", help="the one to bring up to date, likewise")
    command.add_argument("dataset_id", nargs="?", help="of this one only")
    command.add_argument("names", nargs="*", help="versions and tags of it")
    command.add_argument("--force", action="store_true", help="replace versions, move all tags")
    command.add_argument("--dry-run", action="store_true", help="tell what would be copied")
    command.set_defaults(run=_sync)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns 0, or 1 where something cannot be read or done, or is damaged."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except YogadlError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
