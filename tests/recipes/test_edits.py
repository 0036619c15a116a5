"""No edit that changes data goes unnoticed, and none that changes nothing is noticed."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
from made_once import made_once
from programs import PROGRAMS, Edit

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE / "golden.json"
# Python itself has them otherwise before 3.11.
BY_PYTHON = ("private names of enumerations",)
Found = dict[str, tuple[str, str]]


def cases() -> dict[str, tuple[str, Edit | None]]:
    """All programs, unedited and with each edit, by names of folders."""
    found: dict[str, tuple[str, Edit | None]] = {}
    for number, (name, program) in enumerate(PROGRAMS.items()):
        found[f"{number}"] = name, None
        for count, edit in enumerate((*program.matter, *program.do_not)):
            found[f"{number}-{count}"] = name, edit
    return found


CASES = cases()


def write_all(folder: pathlib.Path) -> list[str]:
    """Writes all programs; their folders."""
    folders = []
    for case, (name, edit) in CASES.items():
        for file, text in PROGRAMS[name].texts(edit).items():
            path = folder / case / "shop" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        folders.append(str(folder / case))
    return folders


def run_all(
    folder: pathlib.Path, hash_seed: int, *flags: str, arguments: tuple[str, ...] = ()
) -> Found:
    done = subprocess.run(
        [sys.executable, *flags, HERE / "run_programs.py", *arguments],
        input="\n".join(write_all(folder)),
        env={
            **os.environ,
            "PYTHONHASHSEED": str(hash_seed),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {case: (digest, data) for case, (digest, data) in json.loads(done.stdout).items()}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    def run() -> Found:
        # Another seed on every Python, all of which tell the same.
        return run_all(tmp_path_factory.mktemp("programs"), sys.version_info.minor)

    told: Found = made_once(tmp_path_factory, "edits", run)
    return {case: (digest, data) for case, (digest, data) in told.items()}


def edited(found: Found, what: str) -> list[tuple[str, Edit, bool, bool]]:
    """For each edit of a kind: of which program, whether the recipe and the data changed."""
    told = []
    for number, (name, program) in enumerate(PROGRAMS.items()):
        digest, data = found[f"{number}"]
        edits = (*program.matter, *program.do_not)
        for edit in getattr(program, what):
            other, changed = found[f"{number}-{edits.index(edit)}"]
            told.append((name, edit, digest != other, data != changed))
    return told


def test_edits_that_matter_are_noticed(found: Found) -> None:
    told = edited(found, "matter")
    assert len(told) >= 200
    assert [it[:2] for it in told if not it[3]] == [], "edits that do not matter"
    assert [it[:2] for it in told if not it[2]] == [], "false hits"


def test_edits_that_do_not_matter_are_not(found: Found) -> None:
    told = edited(found, "do_not")
    assert len(told) >= 100
    assert [it[:2] for it in told if it[3]] == [], "edits that matter"
    assert [it[:2] for it in told if it[2]] == [], "false misses"


def test_all_recipes_differ(found: Found) -> None:
    """Those of edits that make data of their own, too."""
    by_digest: dict[str, set[str]] = {}
    for digest, data in found.values():
        by_digest.setdefault(digest, set()).add(data)
    assert [data for data in by_digest.values() if len(data) > 1] == []


@pytest.mark.long
def test_another_process_and_seed_of_hashes(found: Found, tmp_path: pathlib.Path) -> None:
    """And other folders."""
    assert {case: it[0] for case, it in run_all(tmp_path, 2).items()} == {
        case: it[0] for case, it in found.items()
    }


@pytest.mark.once
def test_what_programs_put_into_libraries_is_told_by_their_text(
    found: Found, tmp_path: pathlib.Path
) -> None:
    """As it is by looking through all that libraries have, in another process, with another seed of
    hashes and in other folders."""
    by_text = run_all(tmp_path, 1, arguments=("by_text",))
    assert {case: it[0] for case, it in by_text.items()} == {
        case: it[0] for case, it in found.items()
    }


def test_every_python_tells_the_same(found: Found) -> None:
    """This is run by all that are supported. If recipes change on purpose, whatever was stored
    without a version is built again; write the file anew then, with YOGADL_GOLDEN=write."""
    digests = {
        name: found[f"{number}"][0]
        for number, (name, program) in enumerate(PROGRAMS.items())
        # What is installed for each is of several versions.
        if "import numpy" not in program.files and name not in BY_PYTHON
    }
    if os.environ.get("YOGADL_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps(digests, indent=2) + "\n")
    assert digests == json.loads(GOLDEN.read_text())
