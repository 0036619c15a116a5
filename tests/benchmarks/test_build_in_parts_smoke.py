"""The benchmark of killed builders runs, and measures what it says."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "benchmarks" / "build_in_parts.py"


def test_killed_builders_are_measured(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("boto3")
    results = tmp_path / "results.json"
    options = ["--bytes", "40000000", "--part-bytes", "8000000", "--kills", "1", "--longest", "1"]
    command = [sys.executable, str(SCRIPT), *options, "--results", str(results)]
    subprocess.run(command, check=True, capture_output=True)
    found = json.loads(results.read_text())
    assert found["parts"] > 3
    assert found["parts_uploaded_twice"] == 0
    assert found["versions_seen_without_all_parts"] == 0
    assert 0 < found["most_local_bytes"] < 40_000_000
    assert found["parts_left_by_a_killed_builder"] > 0
    assert found["parts_collected"] == found["parts_left_by_a_killed_builder"]
