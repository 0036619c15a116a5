"""How a file came to be, as it is written and read."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yogadl.format.provenance import MOST_PARENTS, UNKNOWN, Provenance, with_duration

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(
    TEXT, TEXT, TEXT, st.lists(st.tuples(TEXT, TEXT), max_size=4), st.none() | st.floats(0, 1e12)
)
def test_what_is_written_is_read(
    function: str, message: str, change: str, parents: list[Any], duration: float | None
) -> None:
    given_one = Provenance(
        function=function,
        message=message,
        change=change,
        parents=tuple(parents),
        duration=duration,
    )
    assert Provenance.from_json(json.loads(json.dumps(given_one.to_json()))) == given_one


def test_an_old_file_says_less() -> None:
    old = {"function": "f", "arguments": "1", "source": "s", "host": "h", "user": "u"}
    found = Provenance.from_json(old)
    assert (found.function, found.arguments, found.source) == ("f", "1", "s")
    assert (found.parents, found.message, found.change, found.recipe) == ((), "", "", "")
    assert found.duration is None
    assert found.to_json() == old


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        {"function": 5, "user": None, "message": "\ud800", "change": ["x"]},
        {"duration": "1"},
        {"duration": True},
        {"duration": -1},
        {"duration": math.inf},
        {"duration": math.nan},
        {"duration": 10**400},
        {"parents": "ab"},
        {"parents": [["a"]]},
        {"parents": [["a", 1]]},
        {"parents": [["a", "\udfff"]]},
        {"parents": {"a": "b"}},
        {"parents": [["a", "1"]] * (MOST_PARENTS + 1)},
    ],
)
def test_what_makes_no_sense_is_not_known(found: Any) -> None:
    assert Provenance.from_json(found) == UNKNOWN


def test_the_duration_is_added_to_a_document() -> None:
    document = b'{"__yogadl__": {"host": "h"}, "mine": [1, 2.5, "\\u00fc"]}'
    found = json.loads(with_duration(document, 1.5))
    assert found == {"__yogadl__": {"host": "h", "duration": 1.5}, "mine": [1, 2.5, "ü"]}
    assert with_duration(b'{"mine": 1}', 1.5) == b'{"mine": 1}'
