"""What the conformance suite of loaders leaves as it found it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def start_method_of_others() -> Iterator[None]:
    """Some frameworks start workers as the whole process does."""
    before = multiprocessing.get_start_method(allow_none=True)
    yield
    multiprocessing.set_start_method(before, force=True)
