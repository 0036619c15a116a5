"""The soak for some seconds: that it finds nothing here, and would if there were something."""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
import sys
import time
from multiprocessing import connection
from typing import Any

import pytest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "cloud"))

import soak
import soak_content
import soak_job

from yogadl.storage import LFSConfigurations, LFSStorage

SCRIPT = pathlib.Path(__file__).with_name("soak.py")

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def run(tmp_path: pathlib.Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--folder", str(tmp_path), *options]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)


def test_jobs_without_a_bucket(tmp_path: pathlib.Path) -> None:
    done = run(tmp_path, "--minutes", "0.1", "--seed", "1", "--jobs", "local", "damage")
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["jobs"]
    assert counts["local"]["kills"] > 0
    assert counts["local"]["records compared"] > 0
    assert counts["damage"]["damaged files"] > 0
    assert counts["damage"]["damaged tables"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("job", ["s3", "gcs", "disks", "evicted"])
@pytest.mark.long_for("evicted", "disks", "gcs")
def test_jobs_with_a_bucket(job: str, tmp_path: pathlib.Path) -> None:
    pytest.importorskip({"gcs": "gcp_storage_emulator"}.get(job, "moto"))
    done = run(tmp_path, "--minutes", "0.1", "--seed", "1", "--jobs", job)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["jobs"][job]
    assert counts.get("rounds", 0) > 0 or counts == {"not possible here": 1}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("way", soak_content.WAYS)
def test_one_wrong_byte_is_found(way: Any, storage_dir: pathlib.Path) -> None:
    generation = soak_content.Generation(2)
    records = [generation.record(at) for at in range(generation.count)]
    records[-1]["payload"][-1] ^= 1
    storage = LFSStorage(LFSConfigurations(storage_dir))
    storage.submit(records, "a", "1", spec=generation.spec)
    with storage.fetch("a", "1") as ref, pytest.raises(AssertionError, match="payload"):
        way(ref, generation, random.Random(1))


class Failing(soak_job.Job):
    """For ``test_a_failure_is_told``."""

    def prepare(self) -> None:
        self.counts["begun"] += 1

    def round(self) -> None:
        raise AssertionError("not as promised")


def test_a_failure_is_told(tmp_path: pathlib.Path) -> None:
    options = {"seed": "1", "folder": tmp_path / "job"}
    with soak.Process(Failing, time.monotonic() + 60, options) as process:
        assert connection.wait([process], 60)
        failure, counts = process.result()
    assert "not as promised" in failure
    assert counts == {"begun": 1}
