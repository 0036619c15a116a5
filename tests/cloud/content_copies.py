"""Copies that are named by their contents."""

from __future__ import annotations

import contextlib
import pathlib
from typing import Any

import numpy as np
import pytest

COUNT = 100_000
SIZE = 8 * COUNT
"""Bytes of the values of a version; what says where they are takes as many."""

WAYS = pytest.mark.parametrize("part_bytes", [1 << 30, 100_000], ids=["file", "parts"])


def submit(storage: Any, name: str = "a", version: str = "1", part_bytes: int = 1 << 30) -> None:
    values = np.arange(COUNT) + sum(map(ord, name + version))
    storage.submit(values, name, version, part_bytes=part_bytes)


def check(ref: Any, name: str = "a", version: str = "1") -> None:
    first = sum(map(ord, name + version))
    with ref:
        assert len(ref) == COUNT
        for start in range(0, COUNT, COUNT // 7):
            assert int(ref[start]) == first + start
        assert int(ref[COUNT - 1]) == first + COUNT - 1


def path(local: pathlib.Path, name: str = "a", version: str = "1") -> pathlib.Path:
    """Where 0.1.4 has a copy."""
    return local / "yogadl_local_cache" / name / version / "cache.mdb"


def files(local: pathlib.Path) -> list[pathlib.Path]:
    """The versions' files that are here, named by their contents."""
    return sorted(local.glob("*/yogadl.pieces/yogadl.objects/*.mdb"))


def everything(local: pathlib.Path) -> list[pathlib.Path]:
    return [*files(local), *local.glob("*/yogadl.pieces/yogadl.parts/*.mdb")]


def used(local: pathlib.Path) -> int:
    found = 0
    for file in local.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            found += 512 * file.lstat().st_blocks if not file.is_dir() else 0
    return found


def reads(requests: Any) -> list[Any]:
    """Requests for more than the beginning of an object."""
    return [
        it for it in requests if it.operation == "read" and it.headers.get("range") != _BEGINNING
    ]


_BEGINNING = f"bytes=0-{(256 << 10) - 1}"


ONE = 4 * SIZE
"""At least what a version takes, with what says where its values are."""

BOTH = pytest.mark.parametrize("stored", [1 << 30, 500_000], ids=["file", "parts"], indirect=True)


def limited(rig: Any, local: pathlib.Path, versions: float) -> Any:
    """A storage that may keep so many versions, each of some two ``SIZE``."""
    return rig.make_storage(local, local_cache_bytes=int(versions * ONE))


def there(local: pathlib.Path, rig: Any) -> set[str]:
    found = rig.make_storage(local).local.list()
    return {version.names[0].split("/")[-2] for version in found}
