"""What a cache file or a storage holds, and whether a file is whole.

python -m yogadl info PATH           element spec, record count, versions, metadata
python -m yogadl verify PATH         read the file and compare it with its checksums
python -m yogadl list STORAGE [ID]   versions in a directory, or at a URL: s3://…, gs://…
python -m yogadl card STORAGE ID [NAME]    what is known of a version, as Markdown or --html
python -m yogadl log STORAGE ID [NAME]     a version, and those that it was made from
python -m yogadl diff STORAGE ID BEFORE AFTER    what two versions differ in
python -m yogadl tag STORAGE ID TAG [NAME] set or move a tag; without a name, tell where it is
python -m yogadl untag STORAGE ID TAG      take a tag away
python -m yogadl revert STORAGE ID NAME BRANCH    take back what one commit has changed
python -m yogadl compact STORAGE ID NAME   store a version as one that was submitted
python -m yogadl delete STORAGE ID VERSION delete a version
python -m yogadl gc STORAGE [ID]     delete versions that are not to be kept, and what nobody needs
python -m yogadl sync STORAGE TO [ID [NAME …]]    copy what another storage lacks
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable
from typing import TypeAlias

from yogadl import _commands
from yogadl._version import __version__
from yogadl.errors import YogadlError

_Run: TypeAlias = Callable[[argparse.Namespace], None]
_Add: TypeAlias = Callable[[str, str, _Run], argparse.ArgumentParser]

_ENDED_BY_SIGPIPE = 141
"""What a shell says of a command whose reader went away."""

_NAME_OR_NEWEST = "a version or a tag; without, the newest"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m yogadl", description="Look at yogadl cache files, and keep storages."
    )
    parser.add_argument("--version", action="version", version=f"yogadl {__version__}")
    known = parser.add_subparsers(dest="command", required=True)

    def add(name: str, what: str, run: _Run) -> argparse.ArgumentParser:
        description = f"{what[0].upper()}{what[1:]}."
        command = known.add_parser(name, help=what, description=description)
        command.set_defaults(run=run)
        return command

    def add_for_storage(name: str, what: str, run: _Run) -> argparse.ArgumentParser:
        command = add(name, what, run)
        command.add_argument("storage", help="a directory, or a URL: s3://…, gs://…")
        return command

    _add_for_files(add)
    _add_for_versions(add_for_storage)
    _add_for_tags(add_for_storage)
    _add_for_changes(add_for_storage)
    _add_for_storages(add_for_storage)
    return parser


def _add_for_files(add: _Add) -> None:
    for name, what in (
        ("info", "show what a file holds: element spec, record count, versions, metadata"),
        ("verify", "read a file and compare it with its checksums"),
    ):
        add(name, what, _commands.look_at_file).add_argument("path", help="of a cache.mdb")


def _add_for_versions(add: _Add) -> None:
    command = add("list", "show the versions in a storage", _commands.tell_versions)
    command.add_argument("dataset_id", nargs="?", help="list the versions of this one")
    command = add("card", "show what is known of a version", _commands.tell_card)
    command.add_argument("dataset_id")
    command.add_argument("name", nargs="?", help=_NAME_OR_NEWEST)
    command.add_argument("--html", action="store_true", help="as HTML, not Markdown")
    command.add_argument("--sample", type=int, default=0, metavar="N", help="read N records")
    command = add("log", "show a version and those that it was made from", _commands.tell_history)
    command.add_argument("dataset_id")
    command.add_argument("name", nargs="?", help=_NAME_OR_NEWEST)
    command = add("diff", "show what two versions differ in", _commands.tell_difference)
    command.add_argument("dataset_id")
    command.add_argument("before", help="a version or a tag")
    command.add_argument("after", help="likewise")


def _add_for_tags(add: _Add) -> None:
    command = add("tag", "set or move a tag, or tell where it is", _commands.tag)
    command.add_argument("dataset_id")
    command.add_argument("tag")
    command.add_argument("name", nargs="?", help="the version that it is to be at, or a tag")
    only = command.add_mutually_exclusive_group()
    only.add_argument("--expect", metavar="VERSION", help="only if the tag is at this now")
    only.add_argument("--new", action="store_true", help="only if there is no such tag")
    command = add("untag", "take a tag away; the version stays", _commands.untag)
    command.add_argument("dataset_id")
    command.add_argument("tag")
    command.add_argument("--expect", metavar="VERSION", help="only if the tag is at this now")
    command.set_defaults(new=False)


def _add_for_changes(add: _Add) -> None:
    what = "take back what one commit has changed, by another commit"
    command = add("revert", what, _commands.revert)
    command.add_argument("dataset_id", help="of the versions")
    command.add_argument("name", help="the version that the commit made, or a tag")
    command.add_argument("branch", help="the tag that moves to the new version")
    command.add_argument("--message", help="of the new commit; without, it says what was reverted")
    what = "store a version of many commits as one that was submitted, which is read as fast"
    command = add("compact", what, _commands.compact)
    command.add_argument("dataset_id", help="of the version")
    command.add_argument("name", help="a version or a tag")
    command = add("delete", "delete a version", _commands.delete)
    command.add_argument("dataset_id", help="of the version")
    command.add_argument("version", help="itself: a tag is moved too easily")
    command.add_argument("--force", action="store_true", help="also if it is tagged")


def _add_for_storages(add: _Add) -> None:
    what = "delete versions that are not to be kept, and what nobody needs"
    command = add("gc", what, _commands.collect)
    command.add_argument("dataset_id", nargs="?", help="of this one only")
    command.add_argument("--keep-last", type=int, metavar="N", help="versions of each id to keep")
    command.add_argument("--older-than", type=float, metavar="DAYS", help="only what is so old")
    command.add_argument("--dry-run", action="store_true", help="tell what would go")
    command = add("sync", "copy from a storage what another one lacks", _commands.sync)
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
        print(_commands.shown(f"{type(error).__name__}: {error}"), file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Python flushes once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _ENDED_BY_SIGPIPE
    return 0


if __name__ == "__main__":
    sys.exit(main())
