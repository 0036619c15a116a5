"""Random operations and kills for a moment, and that what goes wrong in them would be found."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "cloud"))

import kill_leftovers
import kill_records
from kill_journal import ASKED, DONE, REFUSED, History, Journal
from kill_model import Model
from kill_operations import prepare
from kill_place import HERE, Place

SCRIPT = pathlib.Path(__file__).with_name("kills.py")

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.mark.once
def test_nothing_is_lost_on_a_disk() -> None:
    command = [sys.executable, str(SCRIPT), "--kind", "disk", "--kills", "3", "--seed", "1"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["kills"] == 3
    assert counts["versions acknowledged"] > 0


@pytest.fixture
def place(tmp_path: pathlib.Path) -> Place:
    found = Place(tmp_path)
    prepare(found)
    return found


@pytest.fixture
def journal(tmp_path: pathlib.Path) -> Journal:
    return Journal(tmp_path, 0, 0)


def faults(place: Place) -> list[str]:
    return list(Model(History(place.folder)).faults(place)) + list(kill_leftovers.faults(place))


def submit(place: Place, version: str, start: int) -> Any:
    storage = place.storage(HERE)
    storage.submit(kill_records.first_records(start), "a", version)
    return storage


def test_nothing_is_wrong_at_first(place: Place) -> None:
    assert faults(place) == []


def test_a_lost_version_is_found(place: Place, journal: Journal) -> None:
    journal.note(ASKED, "submit", "a", "1", 7)
    assert faults(place) == []
    journal.note(DONE, "submit", "a", "1", 7)
    (fault,) = faults(place)
    assert "is lost" in fault


def test_an_old_state_is_found(place: Place, journal: Journal) -> None:
    submit(place, "1", 7)
    for start in (7, 8):
        journal.note(ASKED, "submit", "a", "1", start)
        journal.note(DONE, "submit", "a", "1", start)
    (fault,) = faults(place)
    assert "begins with 7, not one of [8]" in fault


def test_a_version_of_nobody_is_found(place: Place) -> None:
    submit(place, "1", 5)
    assert all("nobody has asked for it" in fault for fault in faults(place))
    assert len(faults(place)) == 2


def test_a_version_that_came_back_is_found(place: Place, journal: Journal) -> None:
    submit(place, "1", 7)
    journal.note(ASKED, "submit", "a", "1", 7)
    journal.note(DONE, "submit", "a", "1", 7)
    journal.note(ASKED, "delete", "a", "1", None)
    assert faults(place) == []
    journal.note(DONE, "delete", "a", "1", None)
    (fault,) = faults(place)
    assert "the deletion was acknowledged" in fault


def test_a_commit_that_is_not_on_the_branch_is_found(place: Place, journal: Journal) -> None:
    token = kill_records.new_token(1)
    with place.storage(HERE).change("a", "first", version="1") as change:
        change.append(kill_records.added_records(token))
    journal.note(ASKED, "commit", "a", "1", token)
    assert faults(place) == []
    journal.note(DONE, "commit", "a", "1", token)
    (fault,) = faults(place)
    assert "is not on the branch" in fault


def test_a_tag_that_is_elsewhere_is_found(place: Place, journal: Journal) -> None:
    journal.note(ASKED, "tag", "a", "first", "0")
    journal.note(DONE, "tag", "a", "first", "0")
    journal.note(ASKED, "tag", "a", "second", "0")
    journal.note(REFUSED, "tag", "a", "second", "0")
    assert faults(place) == []
    place.storage(HERE).untag("a", "first")
    (fault,) = faults(place)
    assert "the tag 'first' of 'a' is at None" in fault


def test_metadata_that_were_lost_are_found(place: Place, journal: Journal) -> None:
    place.storage(HERE).set_metadata("a", "main", {"told": 1}, version="1")
    journal.note(ASKED, "told", "a", "1", ["told", 1])
    journal.note(ASKED, "set_metadata", "a", "told", 2)
    journal.note(DONE, "set_metadata", "a", "told", 2)
    (fault,) = faults(place)
    assert "'told' of 'a' is 1, not" in fault


@pytest.mark.parametrize("name", ["here/a/1/other", "here/a/1/cache.mdb.0.partial"])
def test_a_file_that_is_left_is_found(place: Place, name: str) -> None:
    path = place.folder / name
    path.parent.mkdir()
    path.touch()
    assert f"left over: {name}" in faults(place)
