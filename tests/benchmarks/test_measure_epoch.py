"""The benchmark runs and measures every way of reading; how fast is not a matter for tests."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize(("workload", "records"), [("scalars", 9984), ("images", 32)])
def test_a_small_run(workload: str, records: int, tmp_path: pathlib.Path) -> None:
    script = REPOSITORY / "benchmarks/measure_epoch.py"
    command = [sys.executable, str(script), workload, str(tmp_path), "0.01", "5"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    results = json.loads(done.stdout.splitlines()[-1])
    assert results["records"] == records
    for measured in ("write", "plain", "batch", "batch_size"):
        assert results[measured] > 0
