"""Writes data sets, or reads one in a process that does nothing else; see ``far_memory.py``.

Between two lines of JSON that say so, whoever started the process looks at its memory. The records
that are read are compared with those that were written.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import processes

# Whoever runs this file from a checkout measures that checkout.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

MADE_UP = {"many": 100, "millions": 4}
"""Data sets of one part that is named so many times."""
READ = 20_000
"""Records that are read of those."""
FEWEST_RANKS = 100
"""Of fewer ranks, each would fetch all of it."""
PARTS = 1000
FEWEST_PARTS = 10
POOL = 16


@dataclasses.dataclass(frozen=True)
class Data:
    """A data set: bytes and number of records, and how many are read at once."""

    size: int
    count: int
    batch: int = 32


def data_sets(scale: float) -> dict[str, Data]:
    images = Data(150_528, max(int(3000 * scale), 64))
    return {
        "images": images,
        "parts": images,
        "large": Data(5_000_000, max(int(100 * scale), 8), batch=4),
        **{
            name: Data(1000, parts * max(int(1_000_000 * scale), 10_000))
            for name, parts in MADE_UP.items()
        },
    }


@functools.cache
def pool(size: int) -> Any:
    """What records have, by their number: uint8 ``[16, size]``."""
    return np.random.default_rng(0).integers(0, 256, (POOL, size), "u1")


# Writing


def write(folder: pathlib.Path, scale: float) -> dict[str, int]:
    """Stores all data sets; their bytes."""
    from yogadl.storage import LFSStorage

    folder.mkdir(parents=True)
    storage = LFSStorage(folder)
    sets = data_sets(scale)
    storage.submit(records(sets["images"]), "images", "1")
    size = (folder / "images" / "1" / "cache.mdb").stat().st_size
    parts = max(int(PARTS * min(scale, 1)), FEWEST_PARTS)
    storage.submit(records(sets["parts"]), "parts", "1", part_bytes=size // parts)
    storage.submit(records(sets["large"]), "large", "1")
    part = dataclasses.replace(sets["many"], count=sets["many"].count // MADE_UP["many"])
    storage.submit(records(part), "made-up", "part")
    for name, parts in MADE_UP.items():
        write_tables(folder / "made-up", name, parts)
    return {name: each.size * each.count for name, each in sets.items()}


def records(data: Data) -> Iterator[Any]:
    for number in range(data.count):
        yield {"x": pool(data.size)[number % POOL], "number": np.int64(number)}


def write_tables(folder: pathlib.Path, name: str, count: int) -> None:
    """Two tables of the one file ``part``, many times over.

    In ``NAME-disk``, all parts are that file. In ``NAME-far``, each has a digest that is made up,
    so that whoever fetches them takes them for different files, which the server has.
    """
    from yogadl.cache.parts import PARTS_FOLDER, part_path, read_header
    from yogadl.cache.table_writer import PartList

    path = folder / "part" / "cache.mdb"
    header, file = read_header(path)
    spec, metadata, checksums = [
        file.array[place.offset : place.offset + place.length].tobytes()
        for place in (header.spec, header.metadata, header.index_checksums)
    ]
    (folder / PARTS_FOLDER).mkdir(exist_ok=True)
    for where in ("disk", "far"):
        parts = PartList()
        table = folder / f"{name}-{where}" / "cache.mdb"
        table.parent.mkdir()
        for number in range(count):
            digest = header.digest if where == "disk" else number.to_bytes(16, "big")
            parts.add(dataclasses.replace(header, digest=digest), np.frombuffer(checksums, "u8"))
            place = part_path(table, digest)
            if not place.exists():
                place.hardlink_to(path)
        with parts.write(table, spec, metadata, header.created_ns) as written:
            written.commit(table)


# Reading


def start(framework: str) -> None:
    """Imports a framework, and has it do something."""
    if framework == "TensorFlow":
        import tensorflow as tf

        list(tf.data.Dataset.range(10).batch(2))
    elif framework == "PyTorch":
        import torch
        from torch.utils.data import DataLoader

        list(DataLoader(torch.arange(10), batch_size=2))  # type: ignore[arg-type]


def open_data(given: argparse.Namespace) -> Any:
    import yogadl
    from yogadl.dataref import LMDBDataRef

    path = f"{given.data}/1/cache.mdb"
    if given.data in MADE_UP:
        path = f"made-up/{given.data}-{'disk' if given.where == 'disk' else 'far'}/cache.mdb"
    if given.where == "disk":
        return LMDBDataRef(given.folder / path)
    limit = given.limit if given.where == "passing" else None
    url = f"{given.url}/{path}"
    return yogadl.from_url(url, local_cache_dir=given.cache, local_cache_bytes=limit)


def batches(given: argparse.Namespace, dataref: Any, data: Data) -> Iterator[Any]:
    """Batches of an epoch, as the framework has them."""
    import yogadl

    orders: dict[str, Any] = {
        "keyed": yogadl.KeyedShuffle(),
        "blocks": yogadl.BlockShuffle(32, 8),
        "none": False,
    }
    options: dict[str, Any] = {}
    if given.data in MADE_UP and given.where == "far":
        # All of it would be fetched otherwise.
        options = {"num_shards": max(len(dataref) // READ, FEWEST_RANKS), "shard_rank": 0}
    stream = dataref.stream(shuffle=orders[given.order], shuffle_seed=1, **options)
    if given.framework == "NumPy":
        return iter(stream.batches(data.batch))
    if given.framework == "TensorFlow":
        import yogadl.tensorflow

        return iter(yogadl.tensorflow.make_tf_dataset(stream, batch_size=data.batch))
    from torch.utils.data import DataLoader

    import yogadl.torch

    dataset = yogadl.torch.IterableDataset(stream, batch_size=data.batch)
    return iter(DataLoader(dataset, batch_size=None))


def read(given: argparse.Namespace, data: Data) -> dict[str, Any]:
    """Reads an epoch, or what is read of it, and compares a record of every batch."""
    started = time.monotonic()
    dataref = open_data(given)
    most = READ if given.data in MADE_UP else data.count
    seen = 0
    for batch in batches(given, dataref, data):
        numbers = np.asarray(batch["number"])
        if np.asarray(batch["x"][0]).tobytes() != pool(data.size)[numbers[0] % POOL].tobytes():
            return {"wrong": f"record {numbers[0]} is not what was written"}
        seen += len(numbers)
        if seen >= most:
            break
    return {"records": seen, "seconds": time.monotonic() - started}


def tell(output: Any, line: dict[str, Any]) -> None:
    output.write(json.dumps(line) + "\n")
    output.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=("write", "read"))
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="of the data sets")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--framework")
    parser.add_argument("--data")
    parser.add_argument("--where")
    parser.add_argument("--order")
    parser.add_argument("--url", help="where the folder is served")
    parser.add_argument("--cache", type=pathlib.Path, help="an empty folder")
    parser.add_argument("--limit", type=int, help="bytes to keep there, where little is kept")
    given = parser.parse_args()
    # A framework may print from C, too: its standard output becomes this process's standard error.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if given.mode == "write":
        tell(output, write(given.folder, given.scale))
        return
    data = data_sets(given.scale)[given.data]
    pool(data.size)
    start(given.framework)
    tell(output, {"event": "watch", "baseline": processes.Memory(["self"]).own})
    line = read(given, data)
    tell(output, {"event": "watched"})
    tell(output, line)
    os._exit("wrong" in line)


if __name__ == "__main__":
    main()
