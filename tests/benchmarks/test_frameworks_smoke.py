"""The benchmark of PyTorch and Keras runs, and measures what it says."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import frameworks_report  # noqa: E402
import steps  # noqa: E402


def need(*names: str) -> None:
    for name in names:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}")


def test_records_come_right_by_torch(tmp_path: pathlib.Path) -> None:
    need("torch", "torch.utils.data")
    step = steps.Step(sys.executable, tmp_path, 0.005, 0.01)
    found: dict[str, Any] = {"loaders": {}, "results": {}}
    phases = ["write", "warm", "check"]
    step.run(found, ["torch_yogadl"], ["small_images", "features"], phases, 200, ["workers0"])
    assert found["loaders"]["torch_yogadl"]["version"].startswith("yogadl ")
    for loaders in found["results"].values():
        lines = loaders["torch_yogadl"]
        assert set(lines) == set(phases)
        assert lines["warm"]["result"]["ways"]["workers0"]["records_per_second"] > 0
        checked = lines["check"]["result"]["ways"]
        assert set(checked) == {"workers0"}
        assert checked["workers0"]["epoch"]["complete"]
        assert 0.2 < checked["workers0"]["epoch"]["moved"] < 0.45


def installed_backend() -> str:
    need("keras")
    backends = ("tensorflow", "jax", "torch")
    wanted = os.environ.get("KERAS_BACKEND", "")
    for name in (wanted, *backends):
        if name in backends and importlib.util.find_spec(name):
            return name
    pytest.skip("needs a back end of Keras")


@pytest.mark.long
def test_fits_are_measured(tmp_path: pathlib.Path) -> None:
    backend = installed_backend()
    command = [sys.executable, str(BENCHMARKS / "keras_fit.py"), "--directory", str(tmp_path)]
    command += ["--scale", "0.001"]
    ended, (about,) = steps.run([*command, "--write"], 200, KERAS_BACKEND=backend)
    assert not ended
    assert f"with {backend}" in about["version"]
    assert about["ways"][:3] == ["memory", "memory_dataset", "yogadl"]
    ended, fits = steps.run([*command, "--way", "yogadl"], 200, KERAS_BACKEND=backend)
    assert not ended
    models = [(fit["side"], fit["model"]) for fit in fits]
    assert models == [(s, m) for s in (32, 128) for m in ("convolutions", "one_pixel")]
    assert all(fit["images"] == 64 and fit["seconds"] > 0 for fit in fits)


def test_what_cannot_run_is_told(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "frameworks.py"), "--parts", "torch"]
    command += ["--python", f"torch_yogadl={tmp_path / 'python'}", "--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "the interpreter that was named is not there" in done.stderr
    assert "torch: failed" in (tmp_path / "frameworks.md").read_text()
    assert "not measured" in (tmp_path / "frameworks.md").read_text()


@pytest.mark.parametrize(
    ("ours", "memory", "verdicts"),
    [
        (200.0, 2.0, ["met", "met", "missed", "missed", "met"]),
        (100.0, 1.0, ["missed", "met", "missed", "missed", "missed"]),
    ],
)
def test_verdicts(ours: float, memory: float, verdicts: list[str]) -> None:
    rates = {
        "torch_yogadl": [ours, 1.0, 900.0],
        "torch_yogadl_plain": [90.0, 80.0, 200.0],
        "torch_lmdb": [100.0, 90.0, 110.0],
        "torch_lmdb_plain": [50.0, 60.0, 40.0],
        "litdata_loader": [70.0, 70.0, 70.0],
    }
    seconds = {"memory": [memory, 0.1, 9.0], "memory_dataset": [1.0] * 3, "yogadl": [2.1] * 3}
    fit = {"side": 32, "model": "convolutions", "images": 64, "seconds": seconds}
    fits = [fit, {**fit, "model": "one_pixel"}]
    parts = {"torch": {"records_per_second": rates}, "keras_jax": {"fits": fits}}
    assert [target.verdict for target in frameworks_report.targets(parts)] == verdicts
