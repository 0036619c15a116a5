"""The machine a benchmark ran on, described."""

from __future__ import annotations

import datetime
import os
import pathlib
import platform
import subprocess
from typing import Any


def describe(directory: pathlib.Path) -> dict[str, Any]:
    """What the results depend on; ``directory`` is where the data sets are."""
    return {
        "cpu": _after_colon("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "file_system": _file_system(directory),
        "read_ahead_kb": _read_ahead(directory),
        "python": platform.python_version(),
        "date": now(),
    }


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def _after_colon(path: str, key: str) -> str:
    try:
        lines = pathlib.Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def _file_system(directory: pathlib.Path) -> str:
    command = ["stat", "--file-system", "--format=%T", str(directory)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.strip()


def _read_ahead(directory: pathlib.Path) -> int | None:
    """What the kernel reads ahead, in KiB, of the device that the directory is on."""
    device = directory.stat().st_dev
    link = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    for place in (link, link.resolve().parent):  # a partition's is its disk's
        try:
            return int((place / "queue" / "read_ahead_kb").read_text())
        except OSError:
            continue
    return None
