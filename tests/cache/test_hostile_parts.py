"""Tables of parts made to do harm: all of them are refused as such, or read as what was written."""

from __future__ import annotations

import os
import pathlib
import random
import subprocess
import sys
import tempfile

import hostile_parts
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yogadl.cache.parts import PARTS_FOLDER
from yogadl.dataref import LMDBDataRef
from yogadl.errors import ChecksumError


@pytest.mark.once
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**64))
def test_any_damage(seed: int) -> None:
    rng = random.Random(seed)
    intact = rng.choice(hostile_parts.originals())
    changed = hostile_parts.damage(rng, intact)
    with tempfile.TemporaryDirectory() as folder:
        path = changed.write(pathlib.Path(folder, "id"))
        hostile_parts.check_damaged(path, changed, intact)


@pytest.mark.once
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("times", [300, 3000])
@pytest.mark.long_for(3000)
def test_much_damage_in_little_memory(times: int) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", hostile_parts.__file__, str(times)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_part_that_is_a_table(tmp_path: pathlib.Path) -> None:
    """Of which the digest is right."""
    intact = hostile_parts.originals()[0]
    made = hostile_parts.naming_table(intact, 1)
    path = made.write(tmp_path / "id")
    assert len(list((tmp_path / "id" / PARTS_FOLDER).iterdir())) == len(intact.parts) + 1
    with LMDBDataRef(path) as dataref, pytest.raises(ChecksumError, match="is not the part that"):
        dataref.read([intact.first(1)])
