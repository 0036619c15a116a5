"""Folders that are declared as inputs, with empty ones in them."""

from __future__ import annotations

import os
import pathlib

import pytest

import yogadl
from yogadl.recipes import recipe_of


def make() -> list[str]:
    return []


@pytest.fixture(name="folder")
def new_folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder in which everything is of the same time."""
    (tmp_path / "cats").mkdir()
    for name, content in (("cats/1", "one"), ("2", "two")):
        (tmp_path / name).write_text(content)
        os.utime(tmp_path / name, (1_700_000_000, 1_700_000_000))
    return tmp_path


@pytest.mark.parametrize("by", ["content", "time"])
def test_empty_folders_count(folder: pathlib.Path, by: str) -> None:
    """They may stand for classes, whose numbers follow from their names."""

    def told() -> str:
        return recipe_of(make, inputs=(yogadl.FileInput(folder, by=by),)).digest

    before = told()
    digests = {before}
    for name in ("birds", "dogs", "cats/small", "cats/small/striped"):
        (folder / name).mkdir()
        digests.add(told())
    assert len(digests) == 5
    (folder / "birds").rmdir()
    (folder / "birds").touch()
    assert told() not in digests
    (folder / "birds").unlink()
    for name in ("dogs", "cats/small/striped", "cats/small"):
        (folder / name).rmdir()
    assert told() == before


def test_folders_without_empty_ones_stay_what_they_were(folder: pathlib.Path) -> None:
    (item,) = (it for it in recipe_of(make, inputs=(folder,)).items if it.kind == "input")
    assert item.digest == "d01c6822d95f35ce70deb9a3b8cd97d4"
