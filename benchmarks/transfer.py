"""Moving a large cache to a bucket and back, beside the SDK's own transfer of the same file.

    python benchmarks/transfer.py [--bytes 1073741824] [--repeats 5] [--results FILE]

The stores are those of the tests, on loopback: moto's server for S3, an emulator for Google's.
Every transfer is measured in a process of its own, yogadl's and the SDK's in turn; the median of
each counts, and the best is told. What is uploaded was written just before, for both: what the disk
and the page cache have to do with a new file makes any upload slower. yogadl's transfers include
what the SDKs leave out: the digest, the check of what arrived, and the fsync.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

REPOSITORY = pathlib.Path(__file__).parents[1]
# Whoever runs this file from a checkout measures that checkout.
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests" / "cloud")]

import processes  # noqa: E402

RECORD_BYTES = 1 << 20
SAMPLE_SECONDS = 0.02
WAYS = ("sdk_upload", "yogadl_upload", "sdk_download", "yogadl_download")
BUCKET = "transfer"
SDK_KEY = "sdk"


def records(size: int) -> Iterator[Any]:
    import numpy as np

    pool = np.random.default_rng(0).integers(0, 255, (64, RECORD_BYTES), "uint8")
    return (pool[number % 64] for number in range(size // RECORD_BYTES))


class S3:
    """boto3, as its documentation has it."""

    def __init__(self, endpoint: str) -> None:
        import boto3

        self.endpoint = endpoint
        self._client = boto3.client("s3", endpoint_url=endpoint)

    def make_bucket(self) -> None:
        self._client.create_bucket(Bucket=BUCKET)

    def sdk_upload(self, path: pathlib.Path) -> None:
        self._client.upload_file(str(path), BUCKET, SDK_KEY)

    def sdk_download(self, path: pathlib.Path) -> None:
        self._client.download_file(BUCKET, SDK_KEY, str(path))

    def storage(self, local: pathlib.Path) -> Any:
        from yogadl.storage import S3Configurations, S3Storage

        return S3Storage(
            S3Configurations(BUCKET, "data", endpoint_url=self.endpoint, local_cache_dir=local)
        )


class GCS:
    """google-cloud-storage, likewise."""

    def __init__(self, endpoint: str) -> None:
        from google.cloud import storage

        del endpoint
        self._client = storage.Client(project="p")
        self._bucket = self._client.bucket(BUCKET)

    def make_bucket(self) -> None:
        self._client.create_bucket(BUCKET)

    def sdk_upload(self, path: pathlib.Path) -> None:
        self._bucket.blob(SDK_KEY).upload_from_filename(str(path))

    def sdk_download(self, path: pathlib.Path) -> None:
        self._bucket.blob(SDK_KEY).download_to_filename(str(path))

    def storage(self, local: pathlib.Path) -> Any:
        from yogadl.storage import GCSConfigurations, GCSStorage

        return GCSStorage(GCSConfigurations(BUCKET, "data", local_cache_dir=local))


def transfer(provider: Any, way: str, directory: pathlib.Path) -> dict[str, float]:
    """Does one transfer; seconds, and how far memory rose."""
    source = directory / "disk" / "large" / "1" / "cache.mdb"
    with tempfile.TemporaryDirectory(dir=directory) as name:
        local = pathlib.Path(name)
        storage = provider.storage(local)
        storage.submit([1], "warm", "up")
        storage.fetch("warm", "up")
        file = staged(source, local) if way.endswith("upload") else contextlib.nullcontext()
        with file as new, watched() as grown:
            started = time.perf_counter()
            if way == "sdk_upload":
                provider.sdk_upload(new.path)
            elif way == "sdk_download":
                provider.sdk_download(local / "file")
            elif way == "yogadl_upload":
                # As ``submit`` does when it has built the file.
                version = storage._version("large", "1")
                with storage._adding(version, True) as parts:
                    storage._publish(new, version, parts)
            else:
                storage.fetch("large", "1")
            elapsed = time.perf_counter() - started
    return {"seconds": elapsed, **grown}


@contextlib.contextmanager
def watched() -> Iterator[dict[str, int]]:
    """How far this process's memory rises meanwhile; filled in at the end."""
    before = processes.Memory(["self"])
    grown = {"own_bytes": 0, "resident_bytes": 0}
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(SAMPLE_SECONDS):
            now = processes.Memory(["self"])
            grown["own_bytes"] = max(grown["own_bytes"], now.own - before.own)
            risen = now.resident - before.resident
            grown["resident_bytes"] = max(grown["resident_bytes"], risen)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield grown
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def staged(source: pathlib.Path, local: pathlib.Path) -> Iterator[Any]:
    """A new file with the contents of ``source``, where ``submit`` would have built it."""
    from yogadl.cache.partial import PartialFile

    path = local / "yogadl_local_cache" / "large" / "1" / "cache.mdb"
    path.parent.mkdir(parents=True)
    with PartialFile(path) as file, open(source, "rb") as data:
        while piece := data.read(RECORD_BYTES):
            file.append(piece)
        os.fsync(file.fileno())
        yield file


def measure(arguments: argparse.Namespace, name: str, server: Any, directory: pathlib.Path) -> Any:
    from rig import environment

    environ = {**os.environ, **environment(name, server.url)}
    command = [sys.executable, __file__, "--provider", name, "--endpoint", server.url]
    command += ["--directory", str(directory)]

    def run(way: str) -> Any:
        done = subprocess.run(
            [*command, "--way", way], env=environ, stdout=subprocess.PIPE, check=True
        )
        return json.loads(done.stdout or b"null")

    run("make_bucket")
    found: dict[str, list[Any]] = {way: [] for way in WAYS}
    for _ in range(arguments.repeats):
        for way in WAYS:
            found[way].append(run(way))
    result: dict[str, Any] = {}
    for way, lines in found.items():
        seconds = [line["seconds"] for line in lines]
        result[way] = {
            "seconds": statistics.median(seconds),
            "best_seconds": min(seconds),
            "own_bytes": max(line["own_bytes"] for line in lines),
            "resident_bytes": max(line["resident_bytes"] for line in lines),
        }
    for what in ("upload", "download"):
        ours, theirs = result[f"yogadl_{what}"]["seconds"], result[f"sdk_{what}"]["seconds"]
        result[f"{what}_ratio"] = ours / theirs
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("--providers", nargs="+", default=["s3", "gcs"])
    for hidden in ("--provider", "--endpoint", "--way", "--directory"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.provider:
        provider = {"s3": S3, "gcs": GCS}[arguments.provider](arguments.endpoint)
        if arguments.way == "make_bucket":
            provider.make_bucket()
        else:
            print(json.dumps(transfer(provider, arguments.way, pathlib.Path(arguments.directory))))
        return

    from servers import gcs_server, s3_server

    import yogadl.storage

    results: dict[str, Any] = {"bytes": arguments.bytes}
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        (directory / "disk").mkdir()
        disk = yogadl.storage.LFSStorage(yogadl.storage.LFSConfigurations(directory / "disk"))
        disk.submit(records(arguments.bytes), "large", "1")
        for provider_name in arguments.providers:
            with {"s3": s3_server, "gcs": gcs_server}[provider_name]() as server:
                results[provider_name] = measure(arguments, provider_name, server, directory)
    text = json.dumps(results, indent=2)
    print(text)
    if arguments.results:
        arguments.results.write_text(text + "\n")


if __name__ == "__main__":
    main()
