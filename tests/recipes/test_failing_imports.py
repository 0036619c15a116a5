"""Modules of the user's that a function imports, and that cannot be imported."""

from __future__ import annotations

import importlib
import pathlib
import sys
from typing import Any

import pytest

from yogadl.recipes import recipe_of

FALLBACK = """
def make():
    try:
        {statement}
    except Exception as error:
        return [type(error).__name__, *error.args]
    return [gpu.SIZE]
"""
BRANCH = """
def make(train=False):
    if train:
        {statement}
    return [1]
"""
STATEMENTS = ("from . import gpu", "from shop.gpu import SIZE", "import shop.gpu as gpu")


@pytest.fixture(name="shop")
def new_package(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Says what a function of a new package is, and what it returns."""
    monkeypatch.syspath_prepend(tmp_path)
    # No module is taken for another of the same size that was there before.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "__init__.py").touch()

    def told(main: str, gpu: str) -> tuple[str, Any]:
        (folder / "main.py").write_text(main)
        (folder / "gpu.py").write_text(gpu)
        forget()
        make = importlib.import_module("shop.main").make
        digest = recipe_of(make).digest
        assert recipe_of(make).digest == digest
        made = make()
        assert recipe_of(make).digest == digest
        return digest, made

    def forget() -> None:
        importlib.invalidate_caches()
        for name in [it for it in sys.modules if it.partition(".")[0] == "shop"]:
            del sys.modules[name]

    yield told
    forget()


@pytest.mark.parametrize("statement", [STATEMENTS[0], STATEMENTS[2]])
def test_a_module_that_fails(shop: Any, statement: str) -> None:
    main = FALLBACK.format(statement=statement)
    bodies = (
        "raise RuntimeError('no CUDA')",
        "raise RuntimeError('no driver')",
        "raise OSError('no CUDA')",
        "raise ImportError('no CUDA')",
        "SIZE = 3",
    )
    found = [shop(main, body) for body in bodies]
    assert [made[0] for _, made in found] == [*["RuntimeError"] * 2, "OSError", "ImportError", 3]
    assert len({digest for digest, _ in found}) == len(bodies)
    assert shop(main, bodies[0]) == found[0]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_script_in_a_branch_that_is_not_taken(shop: Any, statement: str) -> None:
    main = BRANCH.format(statement=statement)
    assert shop(main, "import sys\nsys.exit(0)")[1] == [1]
    assert shop(main, "class Odd(Exception): pass\nraise Odd(Odd)")[1] == [1]


def test_an_interrupt_goes_on(shop: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        shop(BRANCH.format(statement=STATEMENTS[0]), "raise KeyboardInterrupt")


@pytest.mark.parametrize(
    "body",
    [
        "def broken(:",
        "raise RuntimeError(f'no file beside {__file__}')",
        "raise FileNotFoundError(2, 'No such file', __file__)",
        "unknown",
    ],
)
def test_where_a_module_is_that_fails_does_not_count(shop: Any, body: str) -> None:
    """Nor do the texts of Python's own errors, which each version has its own of."""
    main = FALLBACK.format(statement=STATEMENTS[0]).replace(", *error.args", "")
    here, made = shop(main, body)
    folder = pathlib.Path(sys.path[0])
    (folder / "else" / "where").mkdir(parents=True)
    for name in ("__init__.py", "main.py", "gpu.py"):
        target = folder / "else" / "where" / "shop" / name
        target.parent.mkdir(exist_ok=True)
        target.write_text((folder / "shop" / name).read_text())
    for name in [it for it in sys.modules if it.partition(".")[0] == "shop"]:
        del sys.modules[name]
    sys.path.insert(0, str(folder / "else" / "where"))
    importlib.invalidate_caches()
    try:
        make = importlib.import_module("shop.main").make
        assert str(folder / "else") in make.__code__.co_filename
        assert (recipe_of(make).digest, make()) == (here, made)
    finally:
        sys.path.pop(0)
