"""What a cache file or a storage holds, and whether a file is whole.

python -m yogadl info PATH           element spec, record count, versions, metadata
python -m yogadl verify PATH         read the file and compare it with its checksums
python -m yogadl list STORAGE [ID]   versions in a directory, or at a URL: s3://…, gs://…
"""

from __future__ import annotations

import argparse
import sys

from yogadl.dataref import LMDBDataRef
from yogadl.errors import YogadlError
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


def _list(url: str, dataset_id: str | None) -> None:
    for entry in open_storage(url).list(dataset_id):
        count = "?" if entry.record_count is None else f"{entry.record_count:,}"
        tags = f" [{', '.join(entry.tags)}]" if entry.tags else ""
        by = f" by {entry.user} on {entry.host}" if entry.host else ""
        print(
            f"{entry.dataset_id} {entry.dataset_version}{tags}: {count} records, "
            f"{entry.size:,} bytes, {entry.created:%Y-%m-%d %H:%M} UTC{by}"
        )
        if entry.message:
            print(f"    {entry.message}")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns 0, or 1 where the file cannot be read or is damaged."""
    parser = argparse.ArgumentParser(
        "python -m yogadl", description="Look at yogadl cache files and storages."
    )
    parser.add_argument("command", choices=["info", "verify", "list"])
    parser.add_argument("path", help="of a cache.mdb, or of a storage, also its URL")
    parser.add_argument("dataset_id", nargs="?", help="list the versions of this one")
    options = parser.parse_args(arguments)
    if options.dataset_id is not None and options.command != "list":
        parser.error(f"{options.command} takes one path")
    try:
        if options.command == "list":
            _list(options.path, options.dataset_id)
            return 0
        with LMDBDataRef(options.path) as dataref:
            if options.command == "info":
                _show(dataref)
            else:
                dataref.verify()
                print(f"{options.path} is whole: {len(dataref):,} records.")
    except YogadlError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
