"""What differs between processes without meaning anything, and programs that others run."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from yogadl.errors import UndeterminedError
from yogadl.recipes import recipe_of

TELL = """
from yogadl.recipes import recipe_of


def make(value=None):
    return value


def tell(value):
    print(recipe_of(make, (value,)).digest)
"""
PLACES = """
class Kept:
    def __init__(self, value, more, its_id):
        self.value, self.more, self.more_id = value, more, its_id


NOTHING = object()
for value in ("a", "b"):
    tell(Kept(value, NOTHING, id(NOTHING)))
    tell(Kept(value, NOTHING, id(NOTHING)))
tell(Kept("a", NOTHING, 5))
"""
ATTRS = """
import attr


@attr.s(frozen=True, hash=True, cache_hash=True)
class Kept:
    value = attr.ib()


for value in ("a", "b"):
    tell(Kept(value))
    one = Kept(value)
    hash(one)
    tell(one)
"""
SYMPY = """
import sympy

for value in ("x", "y"):
    tell(sympy.Symbol(value, positive=True) ** 2 + 3)
    one = sympy.Symbol(value, positive=True) ** 2 + 3
    hash(one)
    tell(one)
"""
VECTORIZERS = """
from sklearn.feature_extraction.text import TfidfVectorizer

for texts in (["one", "two"], ["one", "three"]):
    tell(TfidfVectorizer(stop_words=["and"]).fit(texts))
    one = TfidfVectorizer(stop_words=["and"]).fit(texts)
    one.transform(["two"])
    tell(one)
"""
JOBLIB = """
import joblib

memory = joblib.Memory(None)
stored = joblib.Memory("joblib", verbose=0)


def one(x):
    return x


def other(x):
    return x + 1


for function in (one, other):
    tell(stored.cache(function))
    first = stored.cache(function)
    first(1)
    tell(first)
tell(stored.cache(other, ignore=["x"]))
"""


def run(folder: pathlib.Path, program: str, seed: int, *before: str) -> list[str]:
    """What a program prints in a process of its own."""
    file = folder / "program.py"
    if not file.exists():
        file.write_text(program)
    done = subprocess.run(
        [sys.executable, *before, str(file)],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("library", "program"),
    [
        ("yogadl", PLACES),
        ("attr", ATTRS),
        ("sympy", SYMPY),
        ("sklearn", VECTORIZERS),
        ("joblib", JOBLIB),
    ],
)
def test_what_an_object_says_of_itself_does_not_count(
    tmp_path: pathlib.Path, library: str, program: str
) -> None:
    """Its hash, and where in memory it lies, are others in each process."""
    pytest.importorskip(library)
    first, second = (run(tmp_path, TELL + program, seed) for seed in (1, 2))
    assert first == second
    one, one_used, other, other_used, *more = first
    assert one == one_used
    assert other == other_used
    assert len({one, other, *more}) == 2 + len(more)


def test_expressions_of_classes_of_ones_own() -> None:
    """How they print themselves does not say what they are."""
    sympy = pytest.importorskip("sympy")

    own = type("Own", (sympy.Function,), {"__module__": __name__})
    with pytest.raises(UndeterminedError, match="Own"):
        recipe_of(lambda value: value, (own(sympy.Symbol("x")),))


PATCHING = """
    import statistics

    from yogadl.recipes import recipe_of

    was = statistics._convert


    def convert(value, kind):
        return was(value * 2, kind)


    statistics._convert = convert


    def make():
        return [statistics.mean([1.0, 2.0])]


    print(recipe_of(make, ()).digest)
"""


@pytest.mark.parametrize("runner", [("cProfile",), ("trace", "--count", "--coverdir", "covered")])
def test_programs_that_another_runs(tmp_path: pathlib.Path, runner: tuple[str, ...]) -> None:
    """A profiler is the main module then, and the text of the program is in none."""
    told = []
    for name, factor in (("one", "2"), ("other", "3")):
        folder = tmp_path / name
        folder.mkdir()
        program = textwrap.dedent(PATCHING).replace("* 2", f"* {factor}")
        alone = run(folder, program, 1)[0]
        assert run(folder, program, 1, "-m", *runner)[0] == alone
        told.append(alone)
    assert told[0] != told[1]


MOVING = """
    import types

    import one
    import two

    from yogadl.recipes import recipe_of


    def hook():
        return 5


    def make():
        return one.run() + two.run()


    def tell():
        print(recipe_of(make).digest)


    tell()
    one.odd = types.ModuleType("odd")
    one.odd.__name__ = []
    tell()
    setattr(one.last, "ho" + "ok", hook)
    tell()
    del one.last.hook
    two.first.hook = hook
    tell()
    one.last.hook = two.first.__dict__.pop("hook")
    tell()
    one.Kept.__dict__["told"].register(int)(hook)
    tell()
"""
HOOKED = """
import functools

__version__ = "1"

class Kept:
    @functools.singledispatchmethod
    def told(self, value):
        return value

first = last = Kept()

def run():
    return getattr(first, "hook", int)()
"""


def test_what_is_given_to_objects_of_libraries_one_after_the_other(tmp_path: pathlib.Path) -> None:
    libraries = tmp_path / "site-packages"
    libraries.mkdir()
    for name in ("one", "two"):
        (libraries / f"{name}.py").write_text(HOOKED)
    program = f"import sys\nsys.path.append({str(libraries)!r})\n{textwrap.dedent(MOVING)}"
    before, odd, in_one, in_two, again, registered = run(tmp_path, program, 1)
    assert before == odd
    assert in_one == again
    assert len({before, in_one, in_two, registered}) == 4


LAZY = """
    import sys

    from yogadl.recipes import recipe_of

    if "early" in sys.argv:
        import lazy
        import lazy.inner


    def make():
        import lazy
        from lazy import Kept, twice
        from lazy.inner import Other

        return [lazy.run(1), Kept(2).value, twice(3), Other().value, lazy.LIMIT]


    def own(*arguments):
        return 5


    print(recipe_of(make).digest)
    if "patch" in sys.argv:
        import lazy

        lazy.Kept.told = own
    if "partial" in sys.argv:
        import lazy

        lazy.run = __import__("functools").partial(lazy.run, more=1)
    print(make())
    print(recipe_of(make).digest)
"""
LAZY_LIBRARY = """
from .inner import Other, twice, with_partial

LIMIT = 3

class Kept:
    @with_partial
    def __init__(self, value):
        self.value = value

    def told(self):
        return self.value

def run(value, more=0):
    return value + more
"""
LAZY_INNER = """
import functools

def with_partial(method):
    return functools.partialmethod(method)

def times(factor, value):
    return factor * value

twice = functools.partial(times, 2)

class Other:
    value = 4
"""


def test_libraries_that_are_imported_when_they_are_needed(tmp_path: pathlib.Path) -> None:
    """They are the same before and after, and what the user puts into them counts."""
    library = tmp_path / "site-packages" / "lazy"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(LAZY_LIBRARY)
    (library / "inner.py").write_text(LAZY_INNER)
    installed = library.parent / "lazy-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: lazy\nVersion: 1\n")
    program = f"import sys\nsys.path.append({str(library.parent)!r})\n{textwrap.dedent(LAZY)}"
    found = []
    for word in ("late", "early", "patch", "partial"):
        folder = tmp_path / word
        folder.mkdir()
        found.append(run(folder, f"import sys\nsys.argv.append({word!r})\n{program}", 1))
    before, data, after = found[0]
    assert before == after
    assert found[1] == found[0]
    assert [it[0] for it in found] == [before] * 4
    assert len({it[2] for it in found}) == 3
    assert found[3][1] != data


PUT = """
    import sys

    from yogadl.recipes import recipe_of

    if len(sys.argv) > 2:
        import lazy

        lazy.LIMIT, lazy.Kept.size, lazy.kept.value = map(int, sys.argv[2].split(","))

    def module():
        from lazy import LIMIT
        return LIMIT

    def of_class():
        import lazy
        return lazy.Kept.size

    def of_object():
        from lazy import kept
        return kept.value

    def all_three():
        import lazy
        return lazy.LIMIT, lazy.Kept.size, lazy.kept.value

    for made in (module, of_class, of_object, all_three):
        before = recipe_of(made).digest
        data = made()
        assert recipe_of(made).digest == before
        print(before, data)
"""


def test_plain_values_that_are_put_into_libraries(tmp_path: pathlib.Path) -> None:
    """Also where a function imports them itself, which then need not be there the first time."""
    library = tmp_path / "site-packages" / "lazy"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text(
        "LIMIT = 3\n"
        "class Kept:\n    size: int = 3\n"
        "class Other:\n    size = 4\n    LIMIT = 4\n"
        "kept = Kept()\nkept.value = 3\n"
    )
    installed = library.parent / "lazy-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: lazy\nVersion: 1\n")
    program = f"import sys\nsys.path.append({str(library.parent)!r})\n{textwrap.dedent(PUT)}"
    found: list[list[str]] = []
    for number, values in enumerate(["", "3,3,3", "4,3,3", "3,4,3", "3,3,4"]):
        folder = tmp_path / str(number)
        folder.mkdir()
        more = f"import sys\nsys.argv += ['', {values!r}]\n" if values else ""
        found.append(run(folder, more + program, number))
    assert found[0] == found[1]
    for own, others in zip(zip(*found, strict=True), range(4), strict=True):
        by_data: dict[str, set[str]] = {}
        for line in own:
            digest, _, data = line.partition(" ")
            by_data.setdefault(data, set()).add(digest)
        assert len(by_data) == (4 if others == 3 else 2)
        assert all(len(digests) == 1 for digests in by_data.values())
        assert len(set().union(*by_data.values())) == len(by_data)


NAMED_MODULES = """
import functools
import logging
import multiprocessing
import sys
from dataclasses import dataclass
from typing import NewType, TypedDict

from trace import traced
from profile import run
import code
from yogadl.recipes import recipe_of

UserId = NewType("UserId", int)


class Zed:
    size = 3


class Typed(TypedDict):
    zed: "Zed"


@dataclass
class Row:
    user: UserId
    other: "UserId" = 3


@functools.singledispatch
def encode(value):
    return 0


@encode.register
def _(value: int):
    return value


@encode.register
def _(value: Zed):
    return value.size


@encode.register
def _(value: str):
    return len(value)


def make():
    logging.getLogger(__name__).info("making")
    return [encode(Zed()), Row(UserId(2)).user, Typed(zed=Zed()), traced(1), run(2), code.coded(3)]


def tell():
    print(recipe_of(make).digest, flush=True)


if __name__ == "__main__":
    tell()
    process = multiprocessing.get_context("spawn").Process(target=tell)
    process.start()
    process.join()
"""


def test_modules_are_the_same_by_whatever_name(tmp_path: pathlib.Path) -> None:
    """That of the program depends on how it is run, and others may have names of Python's."""
    told = {}
    for factor in (2, 3):
        folder = tmp_path / str(factor)
        folder.mkdir()
        (folder / "trace.py").write_text(f"def traced(x): return x * {factor}\n")
        (folder / "profile.py").write_text("def run(x): return x\n")
        (folder / "code.py").write_text("def coded(x): return x\n")
        main, spawned = run(folder, NAMED_MODULES, 1)
        (imported,) = run(folder, "", 1, "-c", "import program; program.tell()")
        assert main == spawned == imported
        told[main] = factor
    assert len(told) == 2


RUN_BY_OTHERS = """
from __future__ import annotations
from dataclasses import dataclass
from yogadl.recipes import recipe_of


class Marker:
    pass


class Error(Exception):
    pass


class Named:
    error: Error


@dataclass
class Row:
    size: int = 3
    named: Named | None = None


def make():
    return [Marker.__name__, Named.__annotations__, type(Marker()), Row()]


print(recipe_of(make).digest)
"""


@pytest.mark.parametrize("runner", ["cProfile", "profile"])
def test_classes_of_programs_that_others_run(tmp_path: pathlib.Path, runner: str) -> None:
    """Which are the main module, which the classes say that they are of."""
    before = ("-m", runner)
    (plain,) = run(tmp_path, RUN_BY_OTHERS, 1)
    assert plain in run(tmp_path, RUN_BY_OTHERS, 1, *before)
    edited = RUN_BY_OTHERS.replace("Error(Exception)", "Error(OSError)")
    (tmp_path / "program.py").write_text(edited)
    assert plain not in run(tmp_path, "", 1, *before)
