"""Ratios and verdicts of the benchmark's report, on made-up results."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import pytest

sys.path.append(str(pathlib.Path(__file__).parents[2] / "benchmarks"))

import measures
import report
import steps
import targets

MACHINE = {
    "cpu": "a processor",
    "cores": 2,
    "memory_bytes": 2**34,
    "system": "Linux",
    "kernel": "6",
    "file_system": "ext4",
    "read_ahead_kb": 128,
    "python": "3.11",
    "date": "2030-01-01",
}


def phases(warm: dict[str, float], written: float, shard: float) -> dict[str, Any]:
    rates = {way: {"records_per_second": rate} for way, rate in warm.items()}
    seconds = {way: {"seconds": 0.001} for way in warm}
    checked = {"epoch": {"records": 1, "complete": True, "moved": 0.25}}
    rate = {"records_per_second": written, "records_per_cpu_second": 2 * written}
    write = {"arrays": {**rate, "disk_bytes": 10**8}}
    return {
        "write": {"result": {"record_bytes": 10**8, "ways": write}},
        "open": {"result": {"open_seconds": 0.001, "first_seconds": 0.002}},
        "warm": {"result": {"ways": rates, "memory": {"peak_bytes": 5_000_000}}},
        "resume": {"result": {"ways": seconds}},
        "cold": {"result": {"records_per_second": written}},
        "shard": {"result": {"seconds": 0.1, "read_to_record_bytes": shard}},
        "check": {"result": {"records": 1, "ways": dict.fromkeys(warm, checked)}},
    }


@pytest.fixture
def results() -> dict[str, Any]:
    ours = {"batches": 30_000.0, "tf_batch_size": 20_000.0, "tf_batch": 9_000.0, "records": 5e4}
    loaders = {
        "this_yogadl": phases(ours, 3000, 1.02),
        "ffcv_loader": phases({"batches": 20_000.0}, 1000, 2.0),
        "tf_record": phases({"batches": 4_000.0}, 1500, 3.0),
        "yogadl_014": phases({"records": 25_000.0, "tf_batch": 1_000.0}, 300, 4.0),
        "floors": {
            "copyto": {"result": {"records_per_second": 40_000.0}},
            "tf_ready": {"result": {"records_per_second": 5e4, "ways": {"batches": 5e4}}},
            "write_fsync": {"result": {"records_per_second": 4_000.0}},
            "random_reads": {"result": {"reads_per_second": 3_000.0}},
        },
    }
    versions = {name: {"version": f"{name} 1"} for name in loaders if name != "floors"}
    versions["mosaic"] = {"skipped": "cannot be installed"}
    return {
        "machine": MACHINE,
        "arguments": {"scale": 1.0, "seconds": 3.0},
        "loaders": versions,
        "results": {"images": loaders},
    }


def warm_table(results: dict[str, Any]) -> list[str]:
    text = report.markdown(results)
    section = text.partition("## Shuffled epoch, warm")[2].partition("##")[0]
    return [line for line in section.splitlines() if line.startswith("|")]


def test_ratios_are_to_the_best_way_of_the_same_kind(results: dict[str, Any]) -> None:
    table = warm_table(results)
    assert "| this yogadl · batches | 30,000 |" in table
    assert "| FFCV · batches | 20,000 (1.5×) |" in table
    assert "| tf.data TFRecord · batches | 4,000 (5×) |" in table
    assert "| yogadl 0.1.4 · records | 25,000 (2×) |" in table
    assert "| yogadl 0.1.4 · tf_batch | 1,000 (20×) |" in table


def test_less_is_better_for_times() -> None:
    seconds = next(measure for measure in measures.MEASURES if measure.name == "open")
    rate = next(measure for measure in measures.MEASURES if measure.name == "warm")
    assert seconds.better(4.0, 2.0) == 2.0
    assert rate.better(4.0, 2.0) == 0.5


def verdicts(results: dict[str, Any]) -> dict[str, str]:
    return {target.text: target.verdict for target in targets.targets(results)}


def test_verdicts(results: dict[str, Any]) -> None:
    assert verdicts(results) == {
        "warm NumPy batches / FFCV": "met",
        "warm NumPy batches / copyto": "missed",
        "batch_size=32 / tf.data's ready batches": "missed",
        "batch_size=32 / best of tf.data's files": "met",
        ".batch(32) / best of tf.data's files": "met",
        "cold epoch / direct random reads": "met",
        "cold epoch / best peer": "met",
        "read from the disk for one shard of 64 / its records' bytes": "met",
        "write, from arrays / best peer": "met",
        "write, by processors' time, from arrays / best peer": "met",
        "write / plain write and fsync": "missed",
    }


def test_what_was_not_measured_has_no_verdict(results: dict[str, Any]) -> None:
    del results["results"]["images"]["ffcv_loader"]
    results["results"]["images"]["this_yogadl"]["cold"] = {"error": "out of order"}
    found = verdicts(results)
    assert found["warm NumPy batches / FFCV"] == "not measured"
    assert found["cold epoch / best peer"] == "not measured"


def test_wrong_records_are_no_figures_and_a_fault(results: dict[str, Any]) -> None:
    results["results"]["images"]["ffcv_loader"]["check"] = {"wrong": "record 3 comes twice"}
    assert "| FFCV | WRONG |" in warm_table(results)
    assert "FFCV, images, check: WRONG: record 3 comes twice" in report.markdown(results)
    assert steps.faults(results) == ["WRONG: images: ffcv_loader: check: record 3 comes twice"]
    assert verdicts(results)["warm NumPy batches / FFCV"] == "not measured"


def test_a_poor_shuffle_is_told(results: dict[str, Any]) -> None:
    assert "| FFCV · batches | 0.25 |" in report.markdown(results)


def test_what_takes_too_long_is_ended(tmp_path: pathlib.Path) -> None:
    script = "import subprocess; subprocess.run(['sleep', '60'])"
    step = steps.Step(sys.executable, tmp_path, 1.0, 1.0)
    found: dict[str, Any] = {"results": {}, "loaders": {}}
    step.script = ["-c", script]
    step.run(found, ["slow"], ["images"], ["write"], timeout=0.3)
    assert found["results"] == {"images": {"slow": {"write": {"error": "not done after 0.3 s"}}}}


def test_skipped_peers_and_unsupported_measures_are_told(results: dict[str, Any]) -> None:
    results["results"]["images"]["ffcv_loader"]["shard"] = {"unsupported": "no shards"}
    text = report.markdown(results)
    assert "- Mosaic Streaming: skipped: cannot be installed" in text
    assert "- FFCV, images, shard: skipped: no shards" in text
    assert "| FFCV | – |" in text
    assert steps.faults(results) == []


def test_files_are_written(results: dict[str, Any], tmp_path: pathlib.Path) -> None:
    text = report.write(results, tmp_path)
    assert (tmp_path / "report.md").read_text() == text
    assert (tmp_path / "results.json").stat().st_size > 0
    for picture in tmp_path.glob("*.png"):  # none without matplotlib
        assert picture.name in text
