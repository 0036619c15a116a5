"""Modules of the user's that a function imports, and that cannot be imported."""

from __future__ import annotations

import importlib
import pathlib
import sys
from typing import Any

import pytest

from yogadl.errors import UndeterminedError
from yogadl.recipes import _owners, recipe_of

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
# What is imported is not read.
TRIED = """
def make():
    try:
        {statement}
    except BaseException as error:
        return [type(error).__name__, {told}]
    return [1]
"""
WAYS = (
    "def helper():\n    import shop.gpu\n    return 1",
    "class Helper:\n    def __call__(self):\n        from shop import gpu\n        return 1\n"
    "helper = Helper()",
    "def helper():\n    def inner():\n        from . import gpu\n    inner()\n    return 1",
    "def helper():\n    class Inner:\n        import shop.gpu as gpu\n    return 1",
)
SUPPRESSED = """
import contextlib

def make():
    with contextlib.suppress(ImportError):
        import shop.gpu as gpu
        yield 1
    yield 2
"""
STATEMENTS = ("from . import gpu", "from shop.gpu import SIZE", "import shop.gpu as gpu")


@pytest.fixture(name="shop")
def new_package(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Says what a function of a new package is, and what it makes, by the text of its module and
    that of another, which may not be there."""
    monkeypatch.syspath_prepend(tmp_path)
    # No module is taken for another of the same size that was there before.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "__init__.py").touch()

    def told(main: str, gpu: str | None) -> tuple[str, Any]:
        (folder / "main.py").write_text(main)
        (folder / "gpu.py").unlink(missing_ok=True)
        if gpu is not None:
            (folder / "gpu.py").write_text(gpu)
        forget()
        make = importlib.import_module("shop.main").make
        digest = recipe_of(make).digest
        assert recipe_of(make).digest == digest
        made = list(make())
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


@pytest.mark.parametrize("statement", [*STATEMENTS, "import shop.gpu"])
def test_an_import_that_is_only_tried(shop: Any, statement: str) -> None:
    main = TRIED.format(statement=statement, told="*map(str, error.args)")
    bodies = (
        None,
        "SIZE = 3",
        "raise ImportError",
        "raise ImportError('no CUDA')",
        "raise ModuleNotFoundError('shop.gpu')",
        "raise ValueError(1)",
        "raise ValueError(2)",
        "raise RuntimeError(1)",
        "raise RuntimeError(2)",
        "raise OSError('no a/b')",
        "raise OSError('no a/c')",
        "import sys\nsys.exit(1)",
        "import sys\nsys.exit(2)",
        "def fail(why):\n    raise ValueError(why)\nfail('here')",
        "def fail(why):\n    raise ValueError(why)\nfail('there')",
        "assert False, 'here'",
        "assert False, 'there'",
        "{}['here']",
        "{}['there']",
        "class Odd(ValueError): pass\nraise Odd(1)",
        "class Odd(ValueError): pass\nraise Odd(2)",
        "raise ValueError(int)",
        "raise ValueError(str)",
        "1 / 0",
    )
    found = [shop(main, body) for body in bodies]
    assert len({str(made) for _, made in found}) == len(bodies)
    assert len({digest for digest, _ in found}) == len(bodies)
    assert shop(main, None) == found[0]


@pytest.mark.parametrize(
    ("told", "bodies"),
    [
        (
            "error.name",
            ("import absent", "import missing", "absent", "missing", "import sys; sys.a"),
        ),
        ("error.name", ("raise ImportError(name='a')", "raise ImportError(name='b')")),
        ("error.filename", ("open('absent')", "open('missing')")),
        ("error.filename", ("raise OSError(2, '', 'a')", "raise OSError(2, '', 'b')")),
        (
            "error.size",
            ("e = OSError()\ne.size = 1\nraise e", "e = OSError()\ne.size = 2\nraise e"),
        ),
        (
            "isinstance(error, KeyError)",
            ("class E(KeyError): pass\nraise E", "class E(ValueError): pass\nraise E"),
        ),
    ],
)
def test_what_else_an_error_says(shop: Any, told: str, bodies: tuple[str, ...]) -> None:
    found = [shop(TRIED.format(statement="from . import gpu", told=told), body) for body in bodies]
    assert len({str(made) for _, made in found}) == len(bodies)
    assert len({digest for digest, _ in found}) == len(bodies)


def test_what_a_module_lacks(shop: Any) -> None:
    """Of what is imported of it, read or not, and wherever it may come from."""
    bodies = (None, "SIZE = 3", "OTHER = 3", "SIZE = OTHER = 3")
    bodies += tuple(f"def __getattr__(name):\n    raise AttributeError({n})" for n in range(2))
    for statement in ("from shop.gpu import SIZE, OTHER", "from .gpu import SIZE, OTHER"):
        main = TRIED.format(statement=statement, told="").replace("[1]", "[SIZE]")
        assert len({shop(main, body)[0] for body in bodies}) == len(bodies)
    # It fails otherwise than a module that is not there.
    for statement in ("from .gpu import SIZE", "import shop.gpu as gpu; gpu.SIZE"):
        main = TRIED.format(statement=statement, told="")
        assert len({shop(main, body)[0] for body in bodies[:3]}) == 3


@pytest.mark.parametrize("helper", WAYS)
def test_where_an_import_is_tried(shop: Any, helper: str) -> None:
    caught = "try:\n        return [helper()]\n    except ImportError:\n        return [0]\n"
    main = f"{helper}\ndef make():\n    {caught}"
    assert shop(main, None)[1] != shop(main, "")[1]
    assert shop(main, None)[0] != shop(main, "")[0]


@pytest.mark.parametrize(
    "made",
    [
        "gpu.SIZE if gpu is not None else 0",
        "gpu.SIZE if gpu else 0",
        "0 if not gpu else gpu.SIZE",
        "gpu.SIZE if True and gpu and gpu is not None else 0",
        "sum(gpu.SIZE for _ in range(1) if gpu)",
        "sum([gpu.SIZE for _ in range(1) if gpu is not None if not not gpu])",
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_whether_a_module_is_there_is_asked(shop: Any, made: str, inside: bool) -> None:
    tried = ["try:", "    from . import gpu", "except ImportError:", "    gpu = None"]
    if inside:
        main = "\n    ".join(["def make():", *tried, f"return [{made}]"])
    else:
        main = "\n".join([*tried, "def make():", f"    return [{made}]"])
    found = [shop(main, body) for body in (None, "SIZE = 1", "SIZE = 2", "SIZE = 2 # more")]
    assert [result for _, result in found] == [[0], [1], [2], [2]]
    digests = [digest for digest, _ in found]
    assert len(set(digests)) == 3
    assert digests[2] == digests[3]


def test_whether_a_module_is_there_is_asked_by_a_guard(shop: Any) -> None:
    main = (
        "try:\n    from . import gpu\nexcept ImportError:\n    gpu = None\n"
        "def make():\n    match [1]:\n"
        "        case [one] if gpu:\n            return [one, gpu.SIZE]\n"
        "        case [one]:\n            return [one]"
    )
    found = [shop(main, body) for body in (None, "SIZE = 1", "SIZE = 2", "SIZE = 2 # more")]
    assert [result for _, result in found] == [[1], [1, 1], [1, 2], [1, 2]]
    digests = [digest for digest, _ in found]
    assert len(set(digests)) == 3
    assert digests[2] == digests[3]


@pytest.mark.parametrize("used", ["(gpu is not None, gpu)", "(not gpu, str(gpu))"])
def test_a_module_that_is_tested_and_used_is_refused(shop: Any, used: str) -> None:
    main = f"from . import gpu\ndef make():\n    return [len({used})]"
    with pytest.raises(UndeterminedError, match="of which it cannot be told what is used"):
        shop(main, "SIZE = 1")


def test_a_module_that_says_itself_whether_it_is_true_is_refused(shop: Any) -> None:
    main = "from . import gpu\ndef make():\n    return [1 if gpu else 0]"
    body = (
        "import sys, types\n"
        "class Module(types.ModuleType):\n    def __bool__(self): return False\n"
        "sys.modules[__name__].__class__ = Module"
    )
    with pytest.raises(UndeterminedError, match="of which it cannot be told what is used"):
        shop(main, body)


def test_an_import_may_end_by_any_error(shop: Any) -> None:
    """As what is raised by pytest's ``importorskip``."""
    main = TRIED.format(statement="import shop.gpu", told="0")
    body = "class Skipped(BaseException): pass\nraise Skipped"
    assert shop(main, body)[1] == ["Skipped", 0]
    assert len({shop(main, it)[0] for it in (None, "", body)}) == 3


def test_imports_whose_failure_is_suppressed(shop: Any) -> None:
    found = [shop(SUPPRESSED, body) for body in (None, "", "raise ImportError")]
    assert [made for _, made in found] == [[2], [1, 2], [2]]
    assert len({digest for digest, _ in found}) == 3


def test_which_module_of_several_is_not_there(shop: Any) -> None:
    told = "error.name"
    main = TRIED.format(statement="import shop.gpu.inner.more", told=told)
    # It is no package, so that not even the first one in it is there.
    assert shop(main, None)[1] != shop(main, "")[1]
    assert shop(main, None)[0] != shop(main, "")[0]


def test_failing_imports_can_be_ignored(shop: Any) -> None:
    main = TRIED.format(statement="from . import gpu", told="")
    digests = set()
    for body in (None, "", "raise ValueError"):
        shop(main, body)
        make = importlib.import_module("shop.main").make
        digests.add(recipe_of(make, ignore=("gpu",)).digest)
        assert (
            recipe_of(make, ignore=("shop.gpu",)).digest == recipe_of(make, ignore=("gpu",)).digest
        )
    assert len(digests) == 1


def test_a_library_that_is_tried(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts by its version, and by not being there."""
    main = TRIED.format(statement="import yogadl_absent", told="")
    folder = pathlib.Path(sys.path[0])
    digests = [shop(main, None)[0]]
    for version in ("1.0", "2.0"):
        installed = folder / version / "site-packages"
        told = installed / f"yogadl_absent-{version}.dist-info" / "METADATA"
        told.parent.mkdir(parents=True)
        told.write_text(f"Metadata-Version: 2.1\nName: yogadl-absent\nVersion: {version}\n")
        (installed / "yogadl_absent.py").touch()
        with monkeypatch.context() as patch:
            patch.syspath_prepend(installed)
            _owners._version_of.cache_clear()
            digest, made = shop(main, None)
            assert made == [1]
            digests.append(digest)
            sys.modules.pop("yogadl_absent")
    _owners._version_of.cache_clear()
    assert len(set(digests)) == 3


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
