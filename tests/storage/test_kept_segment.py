"""The segment of a catalogue that a machine keeps, whatever stands where it would be."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable

import pytest
import xxhash

from yogadl.catalogue import SEGMENT_ENDING
from yogadl.storage._disk.kept_segment import LARGEST, KeptSegment

DATA = b"a segment"


def key(data: bytes) -> str:
    return f"{xxhash.xxh3_128_hexdigest(data)}{SEGMENT_ENDING}"


def test_the_last_one_is_kept(tmp_path: pathlib.Path) -> None:
    kept = KeptSegment(lambda: tmp_path)
    assert kept.get(key(DATA)) is None
    kept.put(key(DATA), DATA)
    assert kept.get(key(DATA)) == DATA
    kept.put(key(b"other"), b"other")
    assert kept.get(key(DATA)) is None
    assert KeptSegment(lambda: tmp_path).get(key(b"other")) == b"other"
    # What is none, too large, or not what its name says.
    for name, data in (("entry", b"x"), (key(b"x"), b"y"), (key(bytes(LARGEST + 1)), bytes(1))):
        kept.put(name, data)
        assert kept.get(name) is None
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "spoil",
    [
        os.mkfifo,
        os.mkdir,
        lambda path: os.symlink(path.with_name("precious"), path),
        lambda path: os.link(path.with_name("precious"), path),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(bytes(2 * LARGEST)),
    ],
    ids=["pipe", "directory", "symbolic link", "link", "empty", "long"],
)
def test_what_stands_there(tmp_path: pathlib.Path, spoil: Callable[[pathlib.Path], object]) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(DATA)
    folder = tmp_path / "folder"
    folder.mkdir()
    KeptSegment(lambda: folder).put(key(b"x"), b"x")
    (path,) = folder.iterdir()
    path.unlink()
    os.link(precious, folder / "precious")
    spoil(path)
    kept = KeptSegment(lambda: folder)
    assert kept.get(key(b"other")) is None
    kept.put(key(b"other"), b"other")
    is_kept = not path.is_dir()
    assert kept.get(key(b"other")) == (b"other" if is_kept else None)
    assert precious.read_bytes() == DATA


def test_nowhere() -> None:
    kept = KeptSegment(lambda: None)
    kept.put(key(DATA), DATA)
    assert kept.get(key(DATA)) is None
