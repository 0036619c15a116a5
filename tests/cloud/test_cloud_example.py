"""The example for buckets, run by several at once, as on several machines."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "cloud_cache.py"


@pytest.mark.parametrize("lock", ["lease", "lock server"])
@pytest.mark.long_for("gcs")
def test_several_run_it_at_once(
    lock: str, rig: Any, tmp_path: pathlib.Path, request: pytest.FixtureRequest
) -> None:
    command = [sys.executable, str(EXAMPLE), rig.dialect, rig.bucket]
    if rig.dialect == "s3":
        command += ["--endpoint-url", rig.proxy.url]
    if lock == "lock server":
        command += ["--lock-server", request.getfixturevalue("lock_server")]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, **rig.env, "PYTHONPATH": os.pathsep.join(paths)}
    running = []
    for number in range(3):
        local = tmp_path / str(number)
        local.mkdir()
        running.append(
            subprocess.Popen(
                [*command, "--local-cache-dir", str(local)],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    printed = []
    for process in running:
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        printed.append(out)
    assert "".join(printed).count("Building.") == 1
    for out in printed:
        assert "1000 records, sum of squares 332833500." in out
        assert "Stored: squares:1.0, " in out
