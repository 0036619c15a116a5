"""Files on the disk: their size, their place in the page cache, and how fast the disk is."""

from __future__ import annotations

import json
import mmap
import os
import pathlib
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator

PAGE = 4096
_DEPTH = 16
_CHUNK = 4 << 20


def files(directory: pathlib.Path) -> Iterator[pathlib.Path]:
    return (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())


def used_bytes(directory: pathlib.Path) -> int:
    """Bytes that a directory's files take up on the disk."""
    return sum(path.stat().st_blocks * 512 for path in files(directory))


def sync(directory: pathlib.Path) -> None:
    """Has every file of a directory written to the disk."""
    for path in files(directory):
        with path.open("rb") as file:
            os.fsync(file.fileno())


def fill_cache(directory: pathlib.Path) -> None:
    """Reads every file once, so that it is in the page cache."""
    for path in files(directory):
        with path.open("rb", buffering=0) as file:
            while file.read(_CHUNK):
                pass


def drop_cache(directory: pathlib.Path) -> None:
    """Drops every file from the page cache, except for pages that a process has mapped."""
    for path in files(directory):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sequential_write(path: pathlib.Path, size: int) -> float:
    """Seconds that it takes to write a file of ``size`` bytes and have it on the disk."""
    chunk = random.Random(0).randbytes(_CHUNK)
    started = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for at in range(0, size, _CHUNK):
            file.write(chunk[: size - at])
        os.fsync(file.fileno())
    return time.perf_counter() - started


def random_reads(path: pathlib.Path, block: int, seconds: float) -> dict[str, float]:
    """Direct reads per second of random blocks, 16 at a time: the better of two ways to do it.

    Args:
        path: a file; shorter than a block, it is made longer.
        block: bytes, a multiple of 4096.

    Raises:
        OSError: the file system has no direct reads.
    """
    size = path.stat().st_size
    os.truncate(path, max(-(-size // PAGE) * PAGE, block))
    rates = {"threads": _read_by_threads(path, block, seconds)}
    if shutil.which("fio"):
        rates["fio"] = _read_by_fio(path, block, seconds)
    best = max(rates.values())
    return {
        "block": block,
        "reads_per_second": best,
        "bytes_per_second": best * block,
        **{f"{name}_reads_per_second": rate for name, rate in rates.items()},
    }


def _read_by_threads(path: pathlib.Path, block: int, seconds: float) -> float:
    blocks = path.stat().st_size // block
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    counts = [0] * _DEPTH
    started = time.perf_counter()
    deadline = started + seconds

    def read(worker: int, buffer: mmap.mmap) -> None:
        number = random.Random(worker)
        while time.perf_counter() < deadline:
            os.preadv(descriptor, [buffer], number.randrange(blocks) * block)
            counts[worker] += 1

    try:
        # Mapped memory is aligned as direct reads need it. The first read raises what is wrong.
        os.preadv(descriptor, [mmap.mmap(-1, block)], 0)
        threads = [
            threading.Thread(target=read, args=(worker, mmap.mmap(-1, block)))
            for worker in range(_DEPTH)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        os.close(descriptor)
    return sum(counts) / (time.perf_counter() - started)


def _read_by_fio(path: pathlib.Path, block: int, seconds: float) -> float:
    command = ["fio", "--name=reads", f"--filename={path}", "--rw=randread", "--direct=1"]
    command += ["--ioengine=libaio", f"--iodepth={_DEPTH}", f"--bs={block}", "--readonly"]
    command += ["--time_based", f"--runtime={max(round(seconds), 1)}", "--output-format=json"]
    done = subprocess.run(  # noqa: PLW1510
        command, capture_output=True, text=True, timeout=seconds + 60
    )
    if done.returncode:
        return 0.0
    return float(json.loads(done.stdout)["jobs"][0]["read"]["iops"])
