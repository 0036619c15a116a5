"""The benchmark of transfers runs, and measures what it says."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "benchmarks" / "transfer.py"


@pytest.mark.long
def test_transfers_are_measured(tmp_path: pathlib.Path) -> None:
    for name in ("boto3", "moto", "google.cloud.storage", "gcp_storage_emulator"):
        pytest.importorskip(name)
    results = tmp_path / "results.json"
    size = 20 << 20
    command = [sys.executable, str(SCRIPT), "--bytes", str(size), "--repeats", "1"]
    subprocess.run(
        [*command, "--results", str(results)], check=True, timeout=240, capture_output=True
    )
    found = json.loads(results.read_text())
    assert found["bytes"] == size
    for provider in ("s3", "gcs"):
        for way in ("sdk_upload", "yogadl_upload", "sdk_download", "yogadl_download"):
            assert found[provider][way]["seconds"] > 0
        assert found[provider]["upload_ratio"] > 0
        assert found[provider]["download_ratio"] > 0
