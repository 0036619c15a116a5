"""docs/api.md describes what users are meant to use."""

from __future__ import annotations

import pathlib
import re

import yogadl

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "api.md"


def test_every_public_name_is_described() -> None:
    described = re.findall(
        r"^(?:\.\. (?:autoclass|autofunction|py:data):: |`)yogadl\.(\w+)\b(?!\.)",
        PAGE.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert set(yogadl.__all__) - set(described) == set()
