"""The how-to of data that changes runs on all storages, and costs the bytes of its changes."""

from __future__ import annotations

import contextlib
import io
import pathlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from yogadl.storage import LFSStorage

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "howto" / "changing-data.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMES = ("birds-data", "birds-backup")
MORE = 1.05


def blocks(language: str) -> list[str]:
    found = FENCE.findall(PAGE.read_text(encoding="utf-8"))
    return [code for name, code in found if name == language]


def size_of(folder: pathlib.Path) -> int:
    """Bytes of all files; of one with several names, once."""
    files = [path.stat() for path in folder.rglob("*") if path.is_file()]
    return sum({status.st_ino: status.st_size for status in files}.values())


def pictures(count: int) -> dict[str, Any]:
    return {"image": np.zeros((count, 32, 32, 3), "uint8"), "label": np.zeros(count, "int64")}


def alone(page: dict[str, Any], folder: pathlib.Path) -> tuple[int, int]:
    """Bytes of the first version, and of the changes, each in a file of its own."""
    changes = [
        pictures(2000),
        pictures(400),
        pictures(len(page["wrong"])),
        np.zeros((2400, 192), "float32"),
    ]
    storage = LFSStorage(folder)
    for number, records in enumerate(changes):
        storage.submit(records, "alone", str(number))
    first, *others = (entry.size for entry in storage.list("alone"))
    return first, sum(others)


def walk(
    monkeypatch: pytest.MonkeyPatch, measure: Callable[[], int], urls: dict[str, str]
) -> tuple[dict[str, Any], int]:
    """Runs the page.

    Args:
        monkeypatch: for the time of the test.
        measure: called after each block.
        urls: what stands in for the paths of its storages.

    Returns:
        Its variables, and by how much the measure grew in the blocks that made later versions.
    """
    page: dict[str, Any] = {"__name__": "__main__"}
    printed = io.StringIO()
    grown = before = 0
    for code in blocks("python"):
        named = re.sub(r'"(birds-\w+)"', lambda it: repr(urls.get(it[1], it[1])), code)
        with contextlib.redirect_stdout(printed):
            exec(compile(named, str(PAGE), "exec"), page)
        now = measure()
        if "storage.change(" in code:
            grown += now - before
        before = now
    assert printed.getvalue() == "".join(blocks("text"))
    return page, grown


def test_on_a_disk(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page, grown = walk(monkeypatch, lambda: size_of(tmp_path / NAMES[0]), {})
    first, changes = alone(page, tmp_path / "alone")
    assert grown <= MORE * changes
    for name in NAMES:
        assert size_of(tmp_path / name) <= MORE * (first + changes)


def test_in_a_bucket(
    rig: Any,
    local: pathlib.Path,
    elsewhere: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if rig.dialect == "s3":
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", rig.proxy.url)
    scheme = {"s3": "s3", "gcs": "gs"}[rig.dialect]
    urls = {
        name: f"{scheme}://{rig.bucket}/{name}?local_cache_dir={here}"
        for name, here in zip(NAMES, (local, elsewhere), strict=True)
    }
    caplog.set_level("WARNING", "urllib3")
    with rig.counting() as requests:
        page, uploaded = walk(monkeypatch, lambda: sum(it.sent for it in requests), urls)
    assert caplog.messages == []
    first, changes = alone(page, tmp_path / "alone")
    assert uploaded <= MORE * changes
    stored = {name: sum(len(rig.raw.get(key)) for key in rig.raw.list(name)) for name in NAMES}
    for name in NAMES:
        assert stored[name] <= MORE * (first + changes)
