"""What a cache file holds, and whether it is whole.

python -m yogadl info PATH      element spec, record count, versions, metadata
python -m yogadl verify PATH    read the file and compare it with its checksums
"""

from __future__ import annotations

import argparse
import sys

from yogadl.dataref import LMDBDataRef
from yogadl.errors import YogadlError


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
    print(f"metadata: {info.metadata}")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns 0, or 1 where the file cannot be read or is damaged."""
    parser = argparse.ArgumentParser("python -m yogadl", description="Look at yogadl cache files.")
    parser.add_argument("command", choices=["info", "verify"])
    parser.add_argument("path", help="of a cache.mdb")
    options = parser.parse_args(arguments)
    try:
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
