"""Who turns data into records: decorators, names, entry points, and which of them counts."""

from __future__ import annotations

import importlib.metadata
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from adapter_rig import assert_same, check, stored

from yogadl import adapters
from yogadl.adapters import _registry
from yogadl.dataref._sources import from_source
from yogadl.errors import InvalidArgumentError, UnsupportedTypeError


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Registrations of a test end with it."""
    monkeypatch.setattr(_registry, "USERS", _registry.Registry())
    _registry._entry_points.cache_clear()
    yield
    _registry._entry_points.cache_clear()


class Herd:
    """Nothing that yogadl knows."""

    def __init__(self, count: int) -> None:
        self.count = count


class Flock(Herd):
    pass


def open_herd(data: Herd, spec: Any) -> adapters.Source:
    return adapters.IterableSource(range(data.count), spec)


@pytest.mark.parametrize("target", [Herd, f"{__name__}.Herd"])
def test_a_registered_class(target: Any, tmp_path: pathlib.Path) -> None:
    with pytest.raises(UnsupportedTypeError, match=r"Herd; submit .* register an adapter"):
        adapters.open_source(Herd(3))
    assert adapters.register(target)(open_herd) is open_herd
    assert_same(stored(tmp_path, Herd(3)).stream(), list(map(np.int64, range(3))))
    assert_same(stored(tmp_path, Flock(2)).stream(), list(map(np.int64, range(2))))


def test_the_most_derived_class_counts() -> None:
    adapters.register(Flock)(lambda data, spec: adapters.IterableSource([b"flock"]))
    adapters.register(Herd)(open_herd)
    assert adapters.open_source(Flock(3)).spec.is_string
    assert not adapters.open_source(Herd(3)).spec.is_string


def test_users_come_before_what_is_built_in() -> None:
    adapters.register("numpy.ndarray")(lambda data, spec: adapters.IterableSource([b"mine"]))
    assert adapters.open_source(np.zeros(3)).spec.is_string


def test_a_class_that_would_be_refused() -> None:
    adapters.register(str)(lambda data, spec: adapters.IterableSource(list(data)))
    assert adapters.open_source("abc").count == 3


def test_map_sources_of_others_are_data_sets() -> None:
    adapters.register(Herd)(lambda data, spec: adapters.ItemsSource(range(data.count), spec))
    check(from_source(Herd(5)), list(map(np.int64, range(5))))


@pytest.mark.parametrize("target", ["", "Herd", "not a.name", 3, None])
def test_what_is_no_class(target: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="class or its dotted name"):
        adapters.register(target)


def test_names_by_which_a_class_can_be_reached() -> None:
    """Classes are known by public names, though other modules define them."""
    assert _registry.is_named(importlib.metadata.EntryPoint, "importlib.metadata.EntryPoint")
    assert _registry.is_named(pathlib.Path, "pathlib.Path")
    assert not _registry.is_named(pathlib.Path, "nowhere.Path")
    assert not _registry.is_named(pathlib.Path, "pathlib.Nothing.Path")
    assert _registry.is_a(Flock(1), f"{__name__}.Herd")


PACKAGE = {
    "herds.py": """
class Herd:
    pass
class Flock(Herd):
    pass
class Other:
    pass
""",
    "herds_adapter.py": """
import yogadl.adapters
def open_herd(data, spec):
    return yogadl.adapters.IterableSource([1, 2, 3], spec)
""",
    "herds-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: herds\nVersion: 1\n",
    "herds-1.dist-info/entry_points.txt": (
        "[yogadl.adapters]\nherds.Herd = herds_adapter:open_herd\n"
    ),
}


def test_entry_points_are_loaded_when_their_class_is_met(tmp_path: pathlib.Path) -> None:
    for name, text in PACKAGE.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    program = f"""
import sys
sys.path[:0] = [{str(tmp_path)!r}]
import herds, yogadl.adapters, yogadl.errors
try:
    yogadl.adapters.open_source(herds.Other())
except yogadl.errors.UnsupportedTypeError:
    pass
assert "herds_adapter" not in sys.modules
assert yogadl.adapters.open_source(herds.Flock()).count == 3
assert "herds_adapter" in sys.modules
yogadl.adapters.register(herds.Herd)(lambda data, spec: yogadl.adapters.IterableSource([1]))
assert yogadl.adapters.open_source(herds.Flock()).count == 1
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "done", done.stderr


def test_no_framework_is_imported() -> None:
    program = """
import sys, numpy as np, yogadl.adapters, yogadl.dataref._sources as sources
yogadl.adapters.open_source({"a": np.zeros(3)})
yogadl.adapters.open_source([1, 2])
sources.from_source(np.zeros(3))
heavy = "tensorflow torch keras datasets pyarrow pandas grain tensorpack PIL jax".split()
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("data", ["abc", b"abc", {1, 2}, {"a": 1}, {}, 5, None, object()])
def test_what_has_no_records(data: Any) -> None:
    with pytest.raises(UnsupportedTypeError):
        adapters.open_source(data)
