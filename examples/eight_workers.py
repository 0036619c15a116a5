"""Build a data set in parts, from several processes, and join the parts.

Usage: python examples/eight_workers.py STORAGE_DIR [WORKERS]

Run it again after it was interrupted: parts that are stored are not built again.
"""

from __future__ import annotations

# INCLUDE-START parts
import concurrent.futures
import sys
from collections.abc import Iterator
from typing import Any

import yogadl
import yogadl.storage

PARTS = 16


def records_of(part: int) -> Iterator[Any]:
    for number in range(part * 250, part * 250 + 250):
        yield {"number": number, "square": number**2}


def build(directory: str, part: int) -> yogadl.DataRef:
    storage = yogadl.storage.LFSStorage(directory)
    return storage.cacheable(f"squares/part-{part:04}", "1.0")(records_of)(part)


def build_all(directory: str, workers: int) -> Any:
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        parts = list(pool.map(build, [directory] * PARTS, range(PARTS)))
    return yogadl.concat(parts)


# INCLUDE-END parts


# INCLUDE-START whole
def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("Usage: python examples/eight_workers.py STORAGE_DIR [WORKERS]")
    directory = sys.argv[1]
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    squares = build_all(directory, workers)
    storage = yogadl.storage.LFSStorage(directory)
    storage.submit(squares, "squares", "1.0")
    print(f"{len(storage.fetch('squares', '1.0')):,} records.")


if __name__ == "__main__":
    main()
# INCLUDE-END whole
