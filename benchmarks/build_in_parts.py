"""Building a data set larger than the local disk in a bucket, by builders that are killed.

    python benchmarks/build_in_parts.py [--bytes 20000000000] [--kills 20] [--part-bytes 268435456]

A server on loopback speaks S3 and keeps sizes and digests only, see ``counting_store``. Builders
of one version are killed at random moments, the last one ends; then those of another version,
none of which ends. Told, as JSON: how many parts were uploaded, and how many of them more than
once; for how many bytes more than the parts have was sent; whether a version was ever seen
without its parts; the most bytes that the builders had on the local disk, above which the run
fails; and what was left over and collected. All builders make their records anew, so a run takes
about (kills / 2 + 1) times as long as one build.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

REPOSITORY = pathlib.Path(__file__).parents[1]
# Whoever runs this file from a checkout measures that checkout.
sys.path[:0] = [str(REPOSITORY)]

RECORD_BYTES = 1 << 20
BUCKET = "large"
WATCH_SECONDS = 0.02
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    # The server knows no checksums behind the bytes.
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "NO_PROXY": "127.0.0.1",
}


def records(size: int, seed: int) -> Iterator[Any]:
    """Records that differ from one another."""
    import numpy as np

    pool = np.random.default_rng(seed).integers(0, 255, (64, RECORD_BYTES), "uint8")
    for number in range(size // RECORD_BYTES):
        record = pool[number % 64]
        record[:8] = np.frombuffer(number.to_bytes(8, "little"), "uint8")
        yield record


def open_storage(url: str, local: pathlib.Path) -> Any:
    from yogadl.storage import S3Configurations, S3Storage

    return S3Storage(
        S3Configurations(
            BUCKET, "data", endpoint_url=url, local_cache_dir=local, conditional_writes=True
        )
    )


class Watch:
    """What can be seen from outside, again and again.

    Attributes:
        peak: most bytes on the local disk.
        broken: versions that were seen without all of their parts.
    """

    def __init__(self, url: str, local: pathlib.Path, limit: int) -> None:
        self._url = url
        self._local = local
        self._limit = limit
        self._stop = threading.Event()
        self._tables: dict[str, dict[str, int]] = {}
        self.builder: subprocess.Popen[bytes] | None = None
        self.peak = 0
        self.broken: list[str] = []
        self.looks = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(WATCH_SECONDS):
            self.peak = max(self.peak, disk_use(self._local))
            if self.peak > self._limit and self.builder is not None:
                self.builder.kill()
            self.look()

    def look(self) -> dict[str, dict[str, int]]:
        """The parts of all versions that can be seen, and their bytes."""
        sizes = server_log(self._url)["sizes"]
        seen = {}
        for key in sizes:
            if key.endswith("/cache.mdb"):
                parts = self._parts_of(key)
                seen[key] = parts
                if any(sizes.get(part) != size for part, size in parts.items()):
                    self.broken.append(key)
        self.looks += 1
        return seen

    def _parts_of(self, key: str) -> dict[str, int]:
        from yogadl.cache.parts import parts_of

        if key not in self._tables:
            with tempfile.TemporaryDirectory() as name:
                path = pathlib.Path(name, "cache.mdb")
                with urllib.request.urlopen(f"{self._url}/{BUCKET}/{key}") as answer:
                    path.write_bytes(answer.read())
                folder = f"{key.rsplit('/', 2)[0]}/yogadl.parts"
                self._tables[key] = {
                    f"{folder}/{digest.hex()}.mdb": size for digest, size in parts_of(path).items()
                }
        return self._tables[key]

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def disk_use(folder: pathlib.Path) -> int:
    """Bytes that the files below a folder take."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            # It may be gone again.
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(at, name)).st_blocks * 512
    return total


def server_log(url: str) -> Any:
    with urllib.request.urlopen(f"{url}/_log") as answer:
        return json.loads(answer.read())


@contextlib.contextmanager
def store() -> Iterator[str]:
    """The address of a server, empty at first."""
    script = pathlib.Path(__file__).with_name("counting_store.py")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, str(script)], **pipes) as process:  # type: ignore[call-overload]
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()


def builder(given: argparse.Namespace, url: str, local: pathlib.Path, version: str) -> Any:
    """A process that has begun to build."""
    command = [sys.executable, __file__, "--build", version, "--url", url, "--local", str(local)]
    command += ["--bytes", str(given.bytes), "--part-bytes", str(given.part_bytes)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    return process


def parts_there(log: Any) -> set[str]:
    return {key for key in log["sizes"] if key.endswith(".mdb") and "/yogadl.parts/" in key}


def left_by(process: Any, url: str, others: set[str]) -> set[str]:
    """The parts that a builder uploaded before it was killed, some time after the first of them."""
    while process.poll() is None and not parts_there(server_log(url)) - others:
        time.sleep(WATCH_SECONDS)
    process.kill()
    code = process.wait()
    process.stdout.close()
    assert code == -signal.SIGKILL, f"the builder to be killed ended with {code} before"
    return parts_there(server_log(url)) - others


def measure(given: argparse.Namespace, url: str, local: pathlib.Path) -> dict[str, Any]:
    chance = random.Random(given.seed)
    watch = Watch(url, local, given.local_bytes)
    killed = 0
    try:
        started = time.monotonic()
        watch.builder = builder(given, url, local, "1")
        for number in range(given.kills + 1):
            last = number == given.kills
            process = watch.builder
            if not last:
                seconds = chance.uniform(0, given.longest)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(seconds)
                killed += process.poll() is None
                process.send_signal(signal.SIGKILL)
            code = process.wait()
            process.stdout.close()
            assert last or code <= 0, f"a builder ended with {code}"
            assert watch.peak <= given.local_bytes, f"{watch.peak:,} bytes were on the local disk"
            if code == 0:
                break
            watch.builder = builder(given, url, local, "1")
        assert code == 0, f"the last builder ended with {code}"
        elapsed = time.monotonic() - started
        log = server_log(url)
        whole = parts_there(log)
        sent = log["received"]
        stored = sum(log["sizes"][key] for key in whole)
        watch.builder = builder(given, url, local, "2")
        left = left_by(watch.builder, url, whole)
        collected = collect(url, local)
        watch.look()
        log = server_log(url)
        needed = set().union(*watch.look().values())
        assert parts_there(log) == needed == whole, "what is left is not what is needed"
    finally:
        watch.stop()
        if watch.builder is not None:
            watch.builder.kill()
            watch.builder.wait()
    return {
        "bytes": given.bytes,
        "part_bytes": given.part_bytes,
        "builders_killed": killed,
        "seconds": round(elapsed, 1),
        "parts": len(whole),
        "parts_uploaded_twice": sum(log["writes"][key] > 1 for key in whole),
        "bytes_sent_again": sent - stored,
        "looks_at_the_bucket": watch.looks,
        "versions_seen_without_all_parts": len(set(watch.broken)),
        "most_local_bytes": watch.peak,
        "local_bytes_at_the_end": disk_use(local),
        "parts_left_by_a_killed_builder": len(left),
        "parts_collected": len(collected.removed),
        "bytes_collected": collected.size,
    }


def collect(url: str, local: pathlib.Path) -> Any:
    import datetime

    from yogadl.storage._buckets import part_collector

    # On loopback, requests of a killed process are over at once.
    part_collector.DEAD_SECONDS = 0.0
    return open_storage(url, local).collect_parts(older_than=datetime.timedelta())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=20_000_000_000)
    parser.add_argument("--part-bytes", type=int, default=256 << 20)
    parser.add_argument("--local-bytes", type=int, default=2_000_000_000, help="allowed here")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--longest", type=float, default=10.0, help="seconds before a kill")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=pathlib.Path)
    for hidden in ("--build", "--url", "--local"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    if given.build:
        storage = open_storage(given.url, pathlib.Path(given.local))
        print("begun", flush=True)
        storage.submit(
            records(given.bytes, int(given.build)),
            "large",
            given.build,
            part_bytes=given.part_bytes,
        )
        return
    with tempfile.TemporaryDirectory(prefix="build-") as name, store() as url:
        text = json.dumps(measure(given, url, pathlib.Path(name)), indent=2)
    print(text)
    if given.results:
        given.results.write_text(text + "\n")


if __name__ == "__main__":
    main()
