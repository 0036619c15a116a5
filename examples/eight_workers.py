"""Build a data set from several processes, and go on with what is missing after a break.

Usage: python examples/eight_workers.py STORAGE_DIR [WORKERS]
"""

from __future__ import annotations

# INCLUDE-START build
import concurrent.futures
import functools
import sys
from collections.abc import Iterator
from typing import Any

import yogadl
import yogadl.storage

PIECES = 16
NUMBER = yogadl.spec.TensorSpec("int64", ())
SPEC = {"number": NUMBER, "square": NUMBER}


def records_of(piece: int) -> Iterator[Any]:
    for number in range(piece * 250, piece * 250 + 250):
        yield {"number": number, "square": number**2}


def write(build: yogadl.storage.Build, piece: int) -> yogadl.storage.Receipt:
    return build.write(piece, functools.partial(records_of, piece))


def build_all(directory: str, workers: int) -> yogadl.DataRef:
    storage = yogadl.storage.LFSStorage(directory)
    with (
        concurrent.futures.ProcessPoolExecutor(workers) as pool,
        storage.build("squares", "1.0", spec=SPEC, recipe="n and n * n") as build,
    ):
        return build.commit(pool.map(functools.partial(write, build), range(PIECES)))


# INCLUDE-END build


# INCLUDE-START whole
def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("Usage: python examples/eight_workers.py STORAGE_DIR [WORKERS]")
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else 8
    print(f"{len(build_all(sys.argv[1], workers)):,} records.")


if __name__ == "__main__":
    main()
# INCLUDE-END whole
