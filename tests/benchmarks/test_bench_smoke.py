"""The benchmark runs every case and knows wrong records; how fast is not a matter for tests."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]
BENCHMARKS = REPOSITORY / "benchmarks"
WORKLOADS = {"scalars", "small_images", "images", "strings", "tokens", "features"}
PHASES = {"write", "open", "warm", "resume", "check", "cold", "shard"}
FLOORS = {"copyto", "tf_ready", "write_fsync", "random_reads"}


@pytest.mark.long
def test_smoke_command(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "run.py"), "--smoke", "--directory", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert set(found["results"]) == WORKLOADS
    assert found["loaders"]["this_yogadl"]["version"].startswith("yogadl ")
    for loaders in found["results"].values():
        assert set(loaders["floors"]) == FLOORS
        phases = loaders["this_yogadl"]
        assert set(phases) == PHASES
        check_delivered(phases["check"]["result"])
        written = phases["write"]["result"]["ways"]
        # That needs pyarrow.
        rates = [written[way]["records_per_second"] for way in written if way != "arrow"]
        assert min(rates) > 0
        assert {*written} == {"arrays", "arrow", "generator", "tf"}
        assert phases["warm"]["result"]["memory"]["peak_resident_bytes"] > 0
    assert {cost["way"] for cost in found["scaling"]["cost"]} >= {"records", "tf_batch_size"}
    assert list(tmp_path.iterdir()) == []


def check_delivered(result: dict[str, Any]) -> None:
    """All of an epoch, its last tenth, and a 64th of it, in every way."""
    count = result["records"]
    assert len(result["ways"]) >= 2
    for way in result["ways"].values():
        assert way["epoch"]["records"] == count
        assert way["epoch"]["complete"]
        assert 0.2 < way["epoch"]["moved"] < 0.45
        assert way["resumed"]["records"] == count - int(count * 0.9)
        assert way["resumed"]["complete"]
        assert way["shard"]["records"] in (count // 64, count // 64 + 1)


BROKEN_LOADER = """
import numpy as np
from loaders import BATCH, Loader
import workloads

class PeerLoader(Loader):
    @classmethod
    def version(cls):
        return "broken 1"

    def write(self):
        (self.directory / "data").write_bytes(b"data")

    def open(self):
        pass

    def epoch(self, way, *, seed, offset=0, shard=0, shards=1):
        records = list(self.workload.records())[offset:]
        {fault}
        return iter(records[at:at + BATCH] for at in range(0, len(records), BATCH))

    def to_records(self, way, batch):
        return batch
"""


@pytest.fixture
def broken(tmp_path: pathlib.Path) -> Any:
    """Runs measure.py in a copy of the benchmark with one more loader, of a given fault."""
    copy = tmp_path / "benchmarks"
    (copy / "loaders").mkdir(parents=True)
    for path in [*BENCHMARKS.glob("*.py"), BENCHMARKS / "loaders/__init__.py"]:
        (copy / path.relative_to(BENCHMARKS)).write_bytes(path.read_bytes())

    def run(fault: str) -> dict[str, Any]:
        (copy / "loaders/broken.py").write_text(BROKEN_LOADER.replace("{fault}", fault))
        command = [sys.executable, str(copy / "measure.py"), "--directory", str(tmp_path / "data")]
        command += ["--loaders", "broken", "--workloads", "small_images", "--scale", "0.001"]
        command += ["--phases", "check"]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        return dict(json.loads(done.stdout.splitlines()[-1]))

    return run


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("records[7]['image'] = records[7]['image'] + 1", "record 7: image is float32"),
        ("records[7]['image'] = records[7]['image'].astype('f8')", "image is float64"),
        ("records[7]['image'] = records[7]['image'][..., 0]", "instead of float32[28, 28, 1]"),
        ("records[7] = records[8]", "record 8 comes twice"),
        ("records = records[:-1]", "1 records are missing"),
        ("del records[7]['image']", "fields ['number']"),
    ],
)
def test_wrong_records_are_found_out(broken: Any, fault: str, words: str) -> None:
    assert words in broken(fault)["wrong"]


def test_a_right_loader_passes(broken: Any) -> None:
    result = broken("records.reverse() if not offset else None")["result"]
    assert result["ways"]["batches"]["epoch"] == {"records": 64, "complete": True, "moved": 0.5}
