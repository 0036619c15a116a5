"""What a huge version costs to open, and how near a plan comes to what is done.

    python benchmarks/far_scale.py [--records 1000000] [--size 1000] [--parts 0] [--latency 0.03]
                                   [--rate 85000000] [--directory DIRECTORY] [--results DIRECTORY]

Of the huge version only the table is there, made up: a thousand million records of 60 to 140 KB in
100,000 parts, 100 TB. A new process opens it from afar, and plans for one of 1,000 nodes.

Then ``--records`` records of ``--size`` bytes, in one file or in as many parts, are read once by
eight processes, true shuffle, with nothing kept on the machine before; what they ask for is in the
server's log, beside what was planned. The bucket is that of ``far.py``. Results go to
``far_scale.json`` and to standard output.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

import bucket_server
import numpy as np
from bucket_server import BucketServer

from yogadl import spec as specs
from yogadl.cache.table_writer import PartList
from yogadl.format import header as headers
from yogadl.format import index as indexes
from yogadl.format import spec_json
from yogadl.format.entries import ENTRY
from yogadl.format.pages import PAGE_SIZE
from yogadl.storage import LFSConfigurations, LFSStorage, S3Configurations, S3Storage

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
BUCKET = "data"
NODES, SHARDS_PER_NODE = 1000, 8
PARTS, RECORDS_PER_PART = 100_000, 10_000
SMALLEST, LARGEST = 60_000, 140_000
PROCESSES = 8
CHUNK_BYTES = 10_000_000
READY = b"ready\n"

Results = dict[str, Any]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1000, help="bytes of a record")
    parser.add_argument("--parts", type=int, default=0, help="0 for one file")
    parser.add_argument("--latency", type=float, default=bucket_server.LATENCY_SECONDS)
    parser.add_argument("--rate", type=int, default=bucket_server.BYTES_PER_SECOND)
    parser.add_argument("--directory", type=pathlib.Path, help="for the data sets")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    return parser.parse_args()


# The huge table


def write_table(path: pathlib.Path) -> None:
    """Writes the table of parts that are nowhere."""
    spec = {"image": specs.TensorSpec("uint8", (None,)), "label": specs.TensorSpec("int64", ())}
    example = _header_of_such(spec)
    rng = np.random.default_rng(0)
    blocks = int(indexes.block_counts(RECORDS_PER_PART))
    parts = PartList()
    for size in rng.integers(SMALLEST, LARGEST, PARTS).tolist():
        start = -(-size * RECORDS_PER_PART // PAGE_SIZE) * PAGE_SIZE
        sums = rng.integers(0, 1 << 63, 2).tolist()
        header = dataclasses.replace(
            example,
            record_count=RECORDS_PER_PART,
            file_size=start + 2 * ENTRY.itemsize * RECORDS_PER_PART // PAGE_SIZE * PAGE_SIZE,
            digest=rng.bytes(16),
            index=headers.Section(start, ENTRY.itemsize * RECORDS_PER_PART, 0),
            token_sums=(sums[0], sums[1]),
        )
        parts.add(header, rng.integers(0, 1 << 63, blocks, dtype="u8"))
    path.parent.mkdir(parents=True)
    parts.write(path, spec_json.canonical(spec).encode(), b"{}", time.time_ns()).commit()


def _header_of_such(spec: Any) -> headers.Header:
    """That of a small file of such records."""
    with tempfile.TemporaryDirectory() as folder:
        storage = LFSStorage(LFSConfigurations(folder))
        storage.submit([{"image": np.zeros(SMALLEST, "u1"), "label": 0}], "a", "1", spec=spec)
        (path,) = pathlib.Path(folder).rglob("cache.mdb")
        data = path.read_bytes()
    return headers.unpack(data[headers.HEADER_OFFSET : headers.BODY_OFFSET], len(data), "it")


def measure_table(served: pathlib.Path, arguments: argparse.Namespace) -> Results:
    """Opens the huge version in a new process, and plans."""
    path = served / BUCKET / "huge" / "1" / "cache.mdb"
    write_table(path)
    with BucketServer(served, arguments.latency, arguments.rate) as server:
        found = _in_child("table", server.url)
    return {**found, "table_bytes": path.stat().st_size}


def open_table(url: str) -> Results:
    """In a process of its own."""
    before = _peak_bytes()
    with tempfile.TemporaryDirectory() as cache:
        storage = _storage(url, cache)
        started = time.perf_counter()
        dataref = storage.fetch("huge", "1", download=False)
        seconds = time.perf_counter() - started
        plan = dataref.plan(num_shards=NODES * SHARDS_PER_NODE, shards_here=SHARDS_PER_NODE)
        found = {
            "records": len(dataref),
            "open_seconds": seconds,
            "open_peak_bytes": _peak_bytes() - before,
            "plan": dataclasses.asdict(plan),
            "index_share": plan.index_bytes / plan.record_bytes,
        }
        dataref.close()
    return found


# A plan, and what it was of


def write_records(served: pathlib.Path, count: int, size: int, parts: int) -> None:
    spec = {"x": specs.TensorSpec("uint8", (size,)), "number": specs.TensorSpec("int64", ())}
    rng = np.random.default_rng(0)
    step = max(1, CHUNK_BYTES // size)

    def records() -> Any:
        for start in range(0, count, step):
            chunk = rng.integers(0, 256, (min(step, count - start), size), dtype="u1")
            yield from ({"x": x, "number": start + at} for at, x in enumerate(chunk))

    part_bytes = count * (size + 100) // parts if parts else 1 << 50
    storage = LFSStorage(LFSConfigurations(served / BUCKET))
    storage.submit(records(), "records", "1", spec=spec, part_bytes=part_bytes)
    # What the disk is still writing would be waited for by who reads.
    os.sync()


def measure_plan(served: pathlib.Path, arguments: argparse.Namespace) -> Results:
    """What eight processes were planned to ask for, and what they did."""
    write_records(served, arguments.records, arguments.size, arguments.parts)
    with (
        BucketServer(served, arguments.latency, arguments.rate) as server,
        tempfile.TemporaryDirectory(dir=served.parent) as cache,
    ):
        with (
            tempfile.TemporaryDirectory() as other,
            _storage(server.url, other).fetch("records", "1", download=False) as dataref,
        ):
            plan = dataref.plan(
                num_shards=PROCESSES, latency=arguments.latency, connection_bytes=arguments.rate
            )
        since = server.mark()
        started = time.time()
        command = [sys.executable, __file__, "--child", "read", server.url, cache]
        children = [
            subprocess.Popen([*command, str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for rank in range(PROCESSES)
        ]
        _begin_together(children)
        lines = [json.loads(child.communicate()[0]) for child in children]
        seconds = time.time() - started
        # Of making a storage, nothing is planned.
        requests = [it for it in server.requests(since) if it.path.strip("/") != BUCKET]
    return {
        "plan": {**dataclasses.asdict(plan), "requests": plan.requests, "bytes": plan.nbytes},
        "records": sum(line["records"] for line in lines),
        "sum": sum(line["sum"] for line in lines),
        "requests": len(requests),
        "bytes": sum(request.nbytes for request in requests),
        "seconds": max(line["ended"] for line in lines) - min(line["begun"] for line in lines),
        "seconds_with_start": seconds,
    }


def _begin_together(children: list[subprocess.Popen[bytes]]) -> None:
    """As the processes of a job do, which meet before they train; and as is planned for."""
    for child in children:
        assert child.stdout is not None
        if child.stdout.readline() != READY:
            raise SystemExit("a process that was to read could not begin")
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()


def read_shard(url: str, cache: str, rank: str) -> Results:
    """In a process of its own, when all others could begin, too."""
    storage = _storage(url, cache)
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    sys.stdin.buffer.readline()
    begun = time.time()
    dataref = storage.fetch("records", "1", download=False)
    stream = dataref.stream(
        shuffle=True, shuffle_seed=1, shard_rank=int(rank), num_shards=PROCESSES
    )
    count = total = 0
    for batch in stream.batches(32):
        count += len(batch["number"])
        total += int(batch["number"].sum())
    return {"records": count, "sum": total, "begun": begun, "ended": time.time()}


# Processes


def _storage(url: str, cache: str) -> S3Storage:
    return S3Storage(
        S3Configurations(
            BUCKET, "", access_key="a", secret_key="b", endpoint_url=url, local_cache_dir=cache
        )
    )


def _peak_bytes() -> int:
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _in_child(*arguments: str) -> Results:
    command = [sys.executable, __file__, "--child", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: Results = json.loads(done.stdout)
    return found


CHILDREN = {"table": open_table, "read": read_shard}


def main() -> int:
    arguments = parse_arguments()
    if arguments.child:
        name, *given = arguments.child
        print(json.dumps(CHILDREN[name](*given)))
        return 0
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        served = pathlib.Path(folder) / "served"
        results = {
            "table": measure_table(served, arguments),
            "plan": measure_plan(served, arguments),
        }
    count = arguments.records
    arguments.results.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1)
    (arguments.results / "far_scale.json").write_text(f"{text}\n")
    print(text)
    found = results["plan"]
    return int(found["records"] != count or found["sum"] != count * (count - 1) // 2)


if __name__ == "__main__":
    sys.exit(main())
