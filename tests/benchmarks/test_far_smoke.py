"""The benchmark of reading from a bucket runs, counts what is asked for, and knows what failed."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

PROCESSES = 3
BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import bucket_server  # noqa: E402
import far  # noqa: E402
import far_bench  # noqa: E402
import far_cases  # noqa: E402
import far_limits  # noqa: E402
import far_report  # noqa: E402


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[bucket_server.BucketServer]:
    try:
        server = bucket_server.BucketServer(tmp_path, latency=0.001, rate=0)
    except bucket_server.ServerUnavailableError as error:
        pytest.skip(str(error))
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "key").write_bytes(bytes(100_000))
    with server:
        yield server


def test_requests_and_bytes_are_counted(server: bucket_server.BucketServer) -> None:
    def ask(path: str, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer

    ask("/bucket/key")
    with bucket_server.counted(server) as requests:
        answer = ask("/bucket/key", Range="bytes=10-99")
        ask("/bucket/key", **{"If-Match": '"another"'})
        ask("/bucket/missing")
    assert answer.headers["Content-Range"] == "bytes 10-99/100000"
    assert [request.status for request in requests] == [206, 412, 404]
    assert requests[0].nbytes == 90
    assert requests[0].path == "/bucket/key"
    assert requests[0].started <= requests[0].ended <= requests[1].ended


@pytest.mark.long
def test_yogadl_is_measured(server: bucket_server.BucketServer, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("boto3")
    results = tmp_path / "results"
    command = [sys.executable, str(BENCHMARKS / "far.py"), "--scale", "0.01", "--rounds", "1"]
    command += ["--latency", "0.001", "--peers", "--frameworks", "NumPy"]
    command += ["--results", str(results)]
    few = {**os.environ, "YOGADL_BENCH_PROCESSES": str(PROCESSES)}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=290, env=few
    )
    assert done.returncode == 0, done.stderr[-3000:]
    parts = json.loads((results / "far.json").read_text())["parts"]
    assert set(parts) == set(far_cases.CASES)
    for name, case in parts["first"]["cases"].items():
        assert case["from_fetch_seconds"] > 0
        assert case["first_requests"] >= 1
        assert (case["parts"] > 1) == name.endswith("2")
    for workload in ("images", "small_images"):
        size = parts["epoch"]["written"][workload]["bytes"]
        ours = parts["epoch"]["cases"][f"{workload}, yogadl"]
        assert ours["bytes"] >= size
        assert ours["epoch_2_requests"] == 0
        assert ours["records"] == parts["epoch"]["written"][workload]["records"]
        assert parts["epoch"]["cases"][f"{workload}, boto3"]["bytes"] == size
        shared = parts["share"]["cases"]
        assert shared[f"{workload}, all"]["records"] == ours["records"]
        assert 0 < shared[f"{workload}, killed"]["records"] < ours["records"]
        assert shared[f"{workload}, downloaded"]["bytes"] >= size
        for share in far_limits.SHARES:
            for processes in (1, PROCESSES):
                limited = parts["limit"]["cases"][f"{workload}, {share}, {processes}"]
                assert limited["records"] == ours["records"]
                # Of so little data, what processes take of the limit in advance is much.
                assert size < limited["bytes"] < 4 * size
                assert limited["epoch_3_bytes"] < size
    for case in parts["memory"]["cases"].values():
        assert case["records"] > 0
        assert case["megabytes"] > 0
    assert parts["shard"]["cases"]["images"]["records"] == 1
    assert set(parts["peers"]) == set(far_cases.SCALES)
    for found in parts["peers"].values():
        assert 0.5 < found[far_bench.OURS]["moved"] < 1.5
        assert 0.5 < found[far_bench.OURS]["first_span"] <= 1
    table = (results / "far.md").read_text()
    assert "failed" not in table
    assert "not measured" not in table
    assert sorted(path.name for path in results.iterdir()) == ["far.json", "far.md"]


def test_what_cannot_run_is_told(
    server: bucket_server.BucketServer, tmp_path: pathlib.Path
) -> None:
    pytest.importorskip("boto3")
    results = tmp_path / "results"
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    command = [sys.executable, str(BENCHMARKS / "far.py"), "--scale", "0.001", "--rounds", "1"]
    command += ["--parts", "peers", "--peers", "mosaic_far", "litdata_far"]
    command += ["--python", f"mosaic_far={python}", "--python", "litdata_far=/nowhere"]
    done = subprocess.run(
        [*command, "--results", str(results)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    # What others cannot do is no fault of ours.
    assert done.returncode == 0, done.stderr[-3000:]
    table = (results / "far.md").read_text()
    assert "LitData: skipped: the interpreter that was named is not there" in table
    assert "mosaic_far/tokens is written: ended with status 3" in table
    assert "| Mosaic Streaming | failed |" in table


def test_what_has_to_come_with_room_for_a_half() -> None:
    """The file once, and in each later epoch the half of it that does not fit."""
    case = {"seconds": 2.0, "records": 100, "requests": 9, "bytes": 2030}
    later = {"epoch_2_bytes": 510, "epoch_3_bytes": 520}
    times = {"epoch_2_seconds": 2.2, "epoch_3_seconds": 2.6}
    written = {"images": {"bytes": 1000, "records": 100}}
    part = {"cases": {"images, 0.5, 1": {**case, **later, **times}}, "written": written}
    nbytes, rate = far_limits.targets(part)
    assert (nbytes.ratio, nbytes.verdict) == (1.015, "met")
    assert (rate.ratio, rate.verdict) == (2.0 / 2.6, "missed")
    part["cases"]["images, 0.5, 1"] = {"error": "hung"}
    assert [target.verdict for target in far_limits.targets(part)] == ["not measured"] * 2
    assert "failed" in far_limits.table(part)


def results(seconds: float, nbytes: int) -> dict[str, Any]:
    """As if the first epoch had taken so long, where boto3 took a second."""
    times = {"seconds": seconds, "first_seconds": 0.3, "from_fetch_seconds": 0.2}
    case = {**times, "records": 100, "bytes": nbytes, "requests": 9}
    ours = {**case, "from_fetch_to_end_seconds": seconds - 0.1, "epoch_2_requests": 0}
    theirs = {**case, "seconds": 1.0, "from_fetch_to_end_seconds": 0.9}
    written = {"images": {"bytes": 1000, "records": 100}}
    peer = {**case, "seconds": 1.0, "first_seconds": 3.0, "errors": {}}
    return {
        "epoch": {
            "cases": {"images, yogadl": ours, "images, boto3": theirs},
            "written": written,
        },
        "share": {
            "cases": {
                "images, all": case,
                "images, killed": {"error": "hung"},
                "images, downloaded": {**case, "seconds": 0.7},
            },
            "written": written,
        },
        "peers": {"images": {far_bench.OURS: case, "mosaic_far": peer, "litdata_far": {}}},
    }


@pytest.mark.parametrize(
    ("seconds", "nbytes", "verdicts"),
    [
        (0.3, 1020, "met " * 9),
        (0.81, 1030, "met missed met missed met missed missed missed met"),
        (1.1, 1010, "missed missed met met met met missed missed met"),
    ],
)
def test_verdicts(seconds: float, nbytes: int, verdicts: str) -> None:
    found = far_report.targets(results(seconds, nbytes))
    assert [target.verdict for target in found] == verdicts.split()


def test_what_is_not_measured_anew_is_kept(tmp_path: pathlib.Path) -> None:
    given: dict[str, Any] = {"scale": 1.0, "latency": 0.03, "rate": 85_000_000}
    when = {"rounds": 5, "date": "2026-11-24 04:08 UTC"}
    before = tmp_path / "before.json"
    before.write_text(
        json.dumps(
            {
                "arguments": {**given, "rounds": 5},
                "loaders": {"mosaic_far": {"version": "2"}},
                "parts": {"first": {"old": 1}, "shard": {"old": 2}},
                "measured": {"first": when, "shard": when},
            }
        )
    )
    arguments = argparse.Namespace(others=before, parts=["first"])
    results: dict[str, Any] = {"arguments": given, "loaders": {}, "parts": {}, "measured": {}}
    far.keep_others(results, arguments)
    assert results["parts"] == {"shard": {"old": 2}}
    assert results["measured"] == {"shard": when}
    assert results["loaders"] == {"mosaic_far": {"version": "2"}}
    results["arguments"] = {**given, "rate": 0}
    with pytest.raises(SystemExit, match="was measured with --rate"):
        far.keep_others(results, arguments)
