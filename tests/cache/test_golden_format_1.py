"""The golden files of format 1: today's writer writes them, today's reader reads them."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import numpy as np
from strategies import same

from yogadl.cache.grouped import GroupedReader
from yogadl.cache.opening import open_cache
from yogadl.cache.parts_reader import PartsReader
from yogadl.cache.reader import CacheFile
from yogadl.spec import TensorSpec

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"


def test_todays_writer_writes_the_golden_files(tmp_path: pathlib.Path) -> None:
    script = GOLDEN / "make_format_1.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, script, tmp_path], env=environment, check=True)
    made, kept = _files(tmp_path), _files(GOLDEN / "format-1")
    assert sorted(made) == sorted(kept)
    # Whole files in a failure's message would help nobody.
    assert [name for name in kept if made[name] != kept[name]] == []


def _files(folder: pathlib.Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def golden(name: str) -> CacheFile:
    reader = open_cache(GOLDEN / "format-1" / f"{name}.mdb")
    assert isinstance(reader, CacheFile)
    reader.verify()
    assert reader.info.library_version == "1.0.0-golden"
    assert reader.header.created_ns == 1_790_000_000_123_456_789
    return reader


def test_golden_empty_and_fixed_and_large() -> None:
    with golden("empty") as reader:
        assert (len(reader), reader.spec) == (0, TensorSpec("float32", (None,)))
    with golden("fixed") as reader:
        assert reader.info.metadata == {"made": "for ever", "n": [1]}
        rows = [reader.read_record(at) for at in range(5)]
        assert [row["id"] for row in rows] == [-2, -1, 0, 1, 2]
        assert [row["x"].tolist() for row in rows] == [[n, n + 1, n + 2] for n in range(5)]
        assert [row["flag"] for row in rows] == [False, True, False, True, False]
        assert {type(row["id"]) for row in rows} == {np.int64}
        assert reader.read_value(1).hex() == "ff" * 8 + "0000803f000000400000404001000000"
    with golden("large") as reader:
        assert reader.spec == (TensorSpec("uint8", (26, 26, 3)), TensorSpec("int32"))
        images, labels = reader.read_columns(np.array([2, 0, 1]))
        assert (images.shape, labels.tolist()) == ((3, 26, 26, 3), [2, 0, 1])
        assert (images == labels[:, None, None, None]).all()


def test_golden_mixed() -> None:
    with golden("mixed") as reader:
        assert reader.info.metadata == {"ä": None}
        rows = [reader.read_record(at) for at in range(4)]
    assert [row["name"] for row in rows[::2]] == ["näme 0".encode(), "näme 2".encode()]
    assert rows[1]["name"] == "näme 1".encode() * 300
    assert [row["tags"].tolist() for row in rows] == [[b"a" * n, b"\0"] for n in range(4)]
    assert same([row["dense"] for row in rows], [np.full((n, 2), n, "i2") for n in range(4)])
    assert same([row["any"] for row in rows], [np.full((1,) * n, n, "f8")[()] for n in range(4)])
    assert [row["ragged"].flat_values.tolist() for row in rows] == [[], [0], [0, 1], [0, 1, 2]]
    assert [row["ragged"].nested_row_splits[0].tolist() for row in rows][3] == [0, 0, 3]
    assert same(
        tuple(rows[3]["sparse"]), (np.array([[3, 0]]), np.array([1.5], "f4"), np.array([5, 1]))
    )
    assert [row["none"] for row in rows] == [None] * 4
    assert [row["pair"].left for row in rows] == [None, 1, None, 3]
    assert [row["pair"].right for row in rows] == [1j, 1 + 1j, 2 + 1j, 3 + 1j]


def test_golden_tables() -> None:
    folder = GOLDEN / "format-1" / "tables"
    with open_cache(folder / "runs" / "cache.mdb") as reader:
        reader.verify()
        assert isinstance(reader, PartsReader)
        assert reader.info.metadata == {"made": "of runs"}
        rows = [reader.read_record(at) for at in range(len(reader))]
        assert [row["id"] + 2 for row in rows] == [7, 8, 0, 1, 2, 6, 2, 3, 0]
        assert [row["x"][0] for row in rows] == [row["id"] + 2 for row in rows]
    with open_cache(folder / "groups" / "cache.mdb") as reader:
        reader.verify()
        assert isinstance(reader, GroupedReader)
        assert reader.info.metadata == {"made": "of groups"}
        rows = [reader.read_record(at) for at in range(len(reader))]
        assert [list(row) for row in rows] == [["name", "number", "x"]] * 5
        assert [row["name"] for row in rows] == [b"nnnn", b"", b"n", b"nn", b"nnn"]
        assert [row["number"] + 2 for row in rows] == [4, 5, 1, 2, 3]
        assert [row["x"][2] - 2 for row in rows] == [4, 5, 1, 2, 3]
