"""The versions that a thread is building."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from yogadl.errors import YogadlError
from yogadl.storage._version import Version

_building = threading.local()


@contextlib.contextmanager
def building_alone(version: Version) -> Iterator[None]:
    """Tells a function that calls itself, which would wait for itself for ever."""
    names: set[str] = _building.__dict__.setdefault("names", set())
    if version.name in names:
        raise YogadlError(
            f"the function that makes {version} calls itself through cacheable; it would wait for "
            "itself for ever"
        )
    names.add(version.name)
    try:
        yield
    finally:
        names.discard(version.name)
