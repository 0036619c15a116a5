"""``storage.card``: what it says of a version."""

from __future__ import annotations

import getpass
import math
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import yogadl.storage
from yogadl.cards import sample_of
from yogadl.errors import CacheFormatError, CacheNotFoundError, InvalidArgumentError
from yogadl.spec import OptionalSpec, Ragged, RaggedSpec, TensorSpec

LEGACY = pathlib.Path(__file__).parents[1] / "golden" / "yogadl-0.1.4" / "images.mdb"


@pytest.fixture
def storage(storage_dir: pathlib.Path) -> yogadl.storage.LFSStorage:
    return yogadl.storage.LFSStorage(storage_dir)


def rows(markdown: str) -> Iterator[list[str]]:
    """The cells of all tables."""
    for line in markdown.splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def test_a_card_says_what_is_known(
    storage: yogadl.storage.LFSStorage, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "in.txt").write_text("x")
    given = {"license": "CC0", "description": "Some rows.", "class_names": {"y": ["cat", "dog"]}}

    @storage.cacheable("a", inputs=[tmp_path / "in.txt"], key=5, metadata=given)
    def make(count: int) -> Any:
        return [{"x": np.zeros((2, 3), "f4"), "y": number % 2} for number in range(count)]

    make(10).close()
    first = storage.latest("a")
    text = storage.card("a").to_markdown()
    assert text.startswith(f"# a {first}\n\nSome rows.\n\n| | |\n|---|---|\n| license | CC0 |\n")
    found = {row[0]: row[1:] for row in rows(text)}
    assert found["x"] == ["float32", "2 × 3"]
    assert found["y"] == ["2", "0 cat, 1 dog"]
    assert found["records"] == ["10"]
    assert found["stored"][0].endswith(f"UTC by {getpass.getuser()} on {socket.gethostname()}")
    assert found["function"][0].endswith(".make(10)")
    assert found["recipe"] == [first.removeprefix("r-")]
    assert found["library"] == ["numpy", np.__version__]
    assert found["input"][0].endswith("in.txt")
    assert found["key"] == ["key", "5"]
    assert found["argument"] == ["count", "10"]
    assert "history" not in text.lower()
    for word in ("Some rows.", "2 × 3", "0 cat, 1 dog", "CC0"):
        assert word in storage.card("a").to_html()


def test_a_card_tells_of_commits(storage: yogadl.storage.LFSStorage) -> None:
    storage.cacheable("a", "1")(lambda: np.arange(9000))().close()
    storage.tag("a", "main", "1")
    for number in range(12):
        with storage.change("a", "main", version=f"c{number}", message=f"no. {number}") as change:
            change.append([number])
    card = storage.card("a", "main")
    assert (card.entry, list(card.log)) == (storage.log("a", "main")[0], storage.log("a", "main"))
    text = card.to_markdown()
    found = {row[0]: row[1:] for row in rows(text)}
    assert found["tags"] == ["main"]
    assert found["parents"] == ["a c10"]
    assert found["begun as"] == ["1"]
    assert "<lambda>" in found["by function"][0].replace("&lt;", "<").replace("&gt;", ">")
    assert found["size"][0].endswith("in 14 files")
    own, shared = (
        int(found[name][0].split("(")[-1].split(" ")[0].replace(",", ""))
        for name in ("of these its own", "shared with parents")
    )
    assert own + shared == card.entry.size
    assert found["c11"][-1] == "no. 11"
    assert "c1" not in found
    assert "And 3 before." in text
    assert storage.card("a").entry.dataset_version == "c11"
    assert storage.card("a", "1").entry.dataset_version == "1"


def test_no_records_are_read_unasked(
    storage: yogadl.storage.LFSStorage, storage_dir: pathlib.Path
) -> None:
    storage.submit(np.arange(5000), "a", "1", part_bytes=4000)
    for part in (storage_dir / "a").rglob("*.mdb"):
        if part.name != "cache.mdb":
            part.unlink()
    assert storage.card("a").entry.record_count == 5000
    with pytest.raises(CacheFormatError):
        storage.card("a", sample=1)


def test_what_says_nothing_of_itself(
    storage: yogadl.storage.LFSStorage, storage_dir: pathlib.Path
) -> None:
    for name in ("", "old", "damaged"):
        (storage_dir / name / "1").mkdir(parents=True)
    (storage_dir / "old/1/cache.mdb").write_bytes(LEGACY.read_bytes())
    assert "yogadl 0.1.4" in storage.card("old").to_markdown()
    storage.submit([1], "damaged", "1")
    path = storage_dir / "damaged/1/cache.mdb"
    data = bytearray(path.read_bytes())
    data[8240] ^= 1
    path.write_bytes(data)
    with pytest.raises(CacheFormatError):
        storage.card("damaged")
    for name in (None, "2"):
        with pytest.raises(CacheNotFoundError):
            storage.card("none", name)
    with pytest.raises(CacheNotFoundError, match="no version or tag '2'"):
        storage.card("old", "2")
    with pytest.raises(InvalidArgumentError):
        storage.card("../a")
    with pytest.raises(InvalidArgumentError, match="sample"):
        storage.card("old", sample=-1)


def test_a_sample_is_spread_evenly(storage: yogadl.storage.LFSStorage) -> None:
    storage.submit({"x": np.arange(101), "s": np.array(["a" * n for n in range(101)])}, "a", "1")
    card = storage.card("a", sample=11)
    one, two = card.sample
    assert (two.name, two.least, two.mean, two.greatest) == ("x", 0, 50, 100)
    assert (one.is_of_strings, one.least, one.mean, one.greatest) == (True, 0, 50, 100)
    text = card.to_markdown()
    assert "## Values of 11 records\n" in text
    assert "| s | 0 | 50 | 100 | lengths in bytes |" in text
    assert storage.card("a", sample=1000).sample_size == 101
    storage.submit([], "b", "1", spec=TensorSpec("int64"))
    assert storage.card("b", sample=5).sample == ()


def test_samples_of_all_kinds() -> None:
    spec = {
        "a": TensorSpec("float32", (None,)),
        "b": OptionalSpec(TensorSpec("int64")),
        "c": RaggedSpec("uint8", (None, None), 1),
        "d": TensorSpec("complex64"),
        "e": TensorSpec("bool"),
    }
    splits = (np.array([0, 2]),)
    records = [
        {
            "a": np.array(values, "f4"),
            "b": maybe,
            "c": Ragged(np.array([7, 9], "u1"), splits),
            "d": np.complex64(1j),
            "e": np.bool_(values != []),
        }
        for values, maybe in (([1, np.nan, np.inf], None), ([], np.int64(3)))
    ]
    a, b, c, d, e = sample_of(spec, records)
    assert (a.least, a.mean, a.greatest, a.not_finite) == (1, 1, 1, 2)
    assert (b.least, b.greatest, b.missing) == (3, 3, 1)
    assert (c.least, c.mean, c.greatest) == (7, 8, 9)
    assert math.isnan(d.mean)
    assert (e.least, e.mean, e.greatest) == (0, 0.5, 1)


def test_the_command_prints_a_card(
    storage: yogadl.storage.LFSStorage, storage_dir: pathlib.Path
) -> None:
    storage.submit([1, 2, 3], "numbers", "1", metadata={"source": "hier: ü"})
    command = [sys.executable, "-m", "yogadl", "card", str(storage_dir), "numbers"]

    def run(*more: str) -> bytes:
        return subprocess.run([*command, *more], stdout=subprocess.PIPE, check=True).stdout

    card = storage.card("numbers", sample=3)
    assert run("1", "--sample", "3").decode() == card.to_markdown()
    assert run("--html", "--sample", "3").decode() == card.to_html()
