"""The benchmark of workers runs, and measures what it says."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "benchmarks" / "workers.py"


def test_workers_and_parts_are_measured() -> None:
    pytest.importorskip("PIL.Image")
    command = [sys.executable, str(SCRIPT), "--images", "20", "--size", "64"]
    command += ["--megabytes", "1", "--rounds", "2"]
    done = subprocess.run(command, check=True, timeout=120, capture_output=True)
    found = json.loads(done.stdout)
    assert all(len(taken) == 2 and min(taken) > 0 for taken in found.pop("seconds").values())
    assert len(found) == 2
    assert all(ratio > 0 for ratio in found.values())
