"""Reading a version from a bucket without downloading it first: how fast, and what is asked for.

    python benchmarks/far.py [--rounds 3] [--scale 1.0] [--parts NAME …] [--peers NAME …]
                             [--frameworks NAME …] [--results DIRECTORY] [--python NAME=PATH]

The bucket is nginx on loopback that waits 30 ms before every answer and gives each connection
85 MB/s; requests and bytes are those of its log. Everything is read in a process of its own with
nothing kept on the machine, in turn, round after round; medians count. The parts:

    first   the first batch of a true shuffle, of few and of many records, in one file and in parts;
            round trips are told from how much later it comes when every answer takes longer
    epoch   a first epoch, beside boto3's download of the same file; and what a second one asks for
    shard   one rank of 64
    share   eight processes of one machine with one order among them; with two that are killed; and
            with a download first
    limit   three epochs with room for a quarter and for a half of the data
    memory  the most that a reader takes, by NumPy, TensorFlow and PyTorch
    peers   Mosaic Streaming, LitData, WebDataset and Hugging Face, from the same server

Of the ways that a peer has, all are read in the first round, and after that the fastest.

Needs boto3, TensorFlow, and nginx with its Lua module. Environments of the peers and of PyTorch
(``torch_yogadl``) are made in ``.venv-bench-NAME`` unless --python names an interpreter; one that
cannot be made is left out, and the report says why. Results go to ``far.json`` and ``far.md``. The
exit status is 1 if anything of yogadl's was wrong or failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import sys
import tempfile
from collections.abc import Iterator

import bucket_server
import environments
import far_report
import machine
from bucket_server import BucketServer
from far_bench import Bench, ReadingError, Results
from far_cases import CASES, PEERS, SLOWER_SECONDS
from far_memory import FRAMEWORKS, TORCH

RESULTS = pathlib.Path(__file__).resolve().parent / "results"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the record counts")
    parser.add_argument("--parts", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--frameworks", nargs="+", choices=FRAMEWORKS, default=list(FRAMEWORKS))
    parser.add_argument("--latency", type=float, default=bucket_server.LATENCY_SECONDS)
    parser.add_argument("--rate", type=int, default=bucket_server.BYTES_PER_SECOND)
    parser.add_argument("--directory", type=pathlib.Path, help="for the data sets")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS, help="where to report")
    parser.add_argument(
        "--others", type=pathlib.Path, help="far.json that has the parts that are not measured now"
    )
    parser.add_argument(
        "--python", action="append", default=[], metavar="NAME=PATH", help="of a peer"
    )
    arguments = parser.parse_args()
    arguments.pythons = dict(pair.split("=", 1) for pair in arguments.python)
    return arguments


def find_interpreters(arguments: argparse.Namespace, results: Results) -> dict[str, str]:
    """The interpreters of the peers, and PyTorch's; why one is missing goes into the results."""
    names = list(arguments.peers) if "peers" in arguments.parts else []
    if "memory" in arguments.parts and "PyTorch" in arguments.frameworks:
        names.append(TORCH)
    found = {}
    for name in names:
        try:
            found[name] = environments.interpreter(name, arguments.pythons)
        except environments.UnavailableError as reason:
            results["loaders"][name] = {"skipped": str(reason)}
            print(f"{name}: skipped: {reason}", file=sys.stderr)
    return found


@contextlib.contextmanager
def servers(
    served: pathlib.Path, arguments: argparse.Namespace
) -> Iterator[tuple[BucketServer, BucketServer]]:
    """The bucket, and another one of the same files whose answers take longer to come."""
    rate = arguments.rate
    with (
        BucketServer(served, arguments.latency, rate) as server,
        BucketServer(served, arguments.latency + SLOWER_SECONDS, rate) as slower,
    ):
        yield server, slower


def keep_others(results: Results, arguments: argparse.Namespace) -> None:
    """Takes what is not measured now from results of before, which were of the same bucket."""
    before = json.loads(arguments.others.read_text())
    for name in ("scale", "latency", "rate"):
        if before["arguments"][name] != results["arguments"][name]:
            sys.exit(f"--others was measured with --{name} {before['arguments'][name]:g}")
    results["loaders"] |= before["loaders"]
    for part in CASES:
        if part in before["parts"] and part not in arguments.parts:
            results["parts"][part] = before["parts"][part]
            results["measured"][part] = before["measured"][part]


def save(results: Results, directory: pathlib.Path) -> str:
    """Writes what there is so far; returns it as tables."""
    (directory / "far.json").write_text(json.dumps(results, indent=2) + "\n")
    table = far_report.markdown(results)
    (directory / "far.md").write_text(table)
    return table


def main() -> None:
    arguments = parse_arguments()
    names = ("rounds", "scale", "latency", "rate")
    results: Results = {
        "arguments": {name: getattr(arguments, name) for name in names},
        "loaders": {},
        "parts": {},
        "measured": {},
        "faults": [],
    }
    if arguments.others:
        keep_others(results, arguments)
    pythons = find_interpreters(arguments, results)
    # The system's temporary directory may be in memory.
    place = arguments.directory or arguments.results
    for directory in (place, arguments.results):
        directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="data-", dir=place) as temporary:
        directory = pathlib.Path(temporary)
        results["machine"] = machine.describe(directory)
        served = directory / "served"
        served.mkdir()
        try:
            with servers(served, arguments) as (server, slower):
                bench = Bench(server, slower, directory, arguments, pythons, results)
                for part in arguments.parts:
                    try:
                        results["parts"][part] = CASES[part](bench)
                        when = machine.now()
                        results["measured"][part] = {"rounds": arguments.rounds, "date": when}
                    except ReadingError as error:
                        bench.fault(error)
                    table = save(results, arguments.results)
        except bucket_server.ServerUnavailableError as error:
            sys.exit(str(error))
    print(table)
    for fault in results["faults"]:
        print(fault, file=sys.stderr)
    sys.exit(bool(results["faults"]))


if __name__ == "__main__":
    main()
