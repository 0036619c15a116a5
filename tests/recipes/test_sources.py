"""The text and syntax of functions, as they are found faster than Python finds them itself."""

from __future__ import annotations

import argparse
import ast
import collections
import dataclasses
import enum
import functools
import importlib.util
import inspect
import json.decoder
import logging
import pathlib
import shutil
import subprocess
import sys
import tokenize
import types
import typing
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yogadl.recipes import recipe_of
from yogadl.recipes._sources import Source, source_of
from yogadl.recipes._syntax import DOCUMENTED, FUNCTIONS, Function, statements_in

MODULES = (
    *(argparse, ast, collections, dataclasses, enum, functools, inspect, json.decoder, logging),
    *(shutil, subprocess, tokenize, typing),
)
# What may follow a statement, and a function.
ENDS = ("", "  # said", ";", "; y = 2", " \\\n", "; \\\n\n")
AFTER = (
    *("", "\n\n", "    # within\n", "# without\n", "\n        # deeper\n\n"),
    *("    # within\n    z = 3\n", "\n   \n# without\n\n"),
)
BODIES = (
    "\n    return 1",
    " return 1",
    "\n    x = '''\n  # no comment\n'''",
    "\n    def inner(): pass",
    "\n    if x:\n        return 1\n    else:\n        return 2",
    "\n    return (1,\n2)",
    "\n    @dict\n    class Inner:\n        '''Said.'''\n        def g(self): return lambda: 1",
)


def source_in(node: Function, lines: list[str]) -> Source:
    decorators = [it.lineno for it in getattr(node, "decorator_list", ())]
    first = min([node.lineno, *decorators])
    return Source(node, str, lambda: lines[first - 1 :])


def lines_of(text: str) -> list[str]:
    return [f"{line}\n" for line in text.split("\n")]


def check_blocks(text: str) -> int:
    """How many functions of a text were compared, whose lines are as Python tells them."""
    lines = lines_of(text)
    functions = [it for it in ast.walk(ast.parse(text)) if isinstance(it, FUNCTIONS)]
    named = [it for it in functions if not isinstance(it, ast.Lambda)]
    for node in named:
        first = min([node.lineno, *(it.lineno for it in node.decorator_list)])
        assert source_in(node, lines).raw == "".join(inspect.getblock(lines[first - 1 :]))
    return len(named)


@pytest.mark.parametrize("module", MODULES, ids=lambda it: it.__name__)
def test_lines_are_those_that_inspect_tells(module: types.ModuleType) -> None:
    assert check_blocks(inspect.getsource(module)) > 5


@given(
    st.sampled_from(("def", "async def", "@dict\ndef", "@dict(\n1)\ndef")),
    st.sampled_from(BODIES),
    st.sampled_from(ENDS),
    st.sampled_from(AFTER),
    st.sampled_from(("", "x = 1\n", "def g(): pass\n")),
    st.booleans(),
)
def test_lines_of_functions_with_anything_behind(
    kind: str, body: str, end: str, after: str, last: str, is_method: bool
) -> None:
    text = f"{kind} f(x):{body}{end}\n{after}{last}"
    if is_method:
        text = "class C:\n" + "".join(f"    {line}" for line in text.splitlines(keepends=True))
    try:
        ast.parse(text)
    except SyntaxError:
        return
    assert check_blocks(text) > 0


@pytest.mark.parametrize("module", MODULES, ids=lambda it: it.__name__)
def test_statements_are_found_in_the_order_of_a_walk(module: types.ModuleType) -> None:
    tree = ast.parse(inspect.getsource(module))
    plain = [it for it in ast.walk(tree) if isinstance(it, DOCUMENTED)]
    assert [it for it in statements_in(tree) if isinstance(it, DOCUMENTED)] == plain


def imported(folder: pathlib.Path, text: str) -> Any:
    path = folder / "written.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("written", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bodies(functions: list[Callable[..., Any]]) -> list[str]:
    found = [source_of(it) for it in functions if isinstance(it, types.FunctionType)]
    return [it.form for it in found]


def test_functions_that_share_a_line_are_told_apart(tmp_path: pathlib.Path) -> None:
    """Also in statements that share it, inside of others, in classes, and after longer ones."""
    module = imported(
        tmp_path,
        """from __future__ import annotations
import math
TEXT = '''
'''; A, B = (lambda x: x + 1), (lambda x: x + 2); C = lambda x: x + 3
D = [lambda x: x * 1, lambda x: (lambda y: y * 2), lambda x: (
    x * 3)]; E = lambda x: '''
'''; F = lambda x: x * 4
class K:
    __slots__ = "__a",; f, g = (lambda self: self.__a + 1), (lambda self: self.__a + 2)
M = [lambda x: math.sin(x), lambda x: math.cos(x)]
def closed(a, b):
    return (lambda: a + 1), (lambda: b + 1), (lambda: a + 2)
""",
    )
    inner = module.D[1](0)
    functions = [
        *(module.A, module.B, module.C, *module.D, inner, module.E, module.F),
        *(module.K.f, module.K.g, *module.M, *module.closed(1, 2)),
    ]
    assert len(set(bodies(functions))) == len(functions)
    expected = [
        *("x + 1", "x + 2", "x + 3", "x * 1", "lambda y: y * 2", "x * 3", "y * 2", "'\\n'"),
        *(
            "x * 4",
            "self.__a + 1",
            "self.__a + 2",
            "math.sin(x)",
            "math.cos(x)",
            "a + 1",
            "b + 1",
            "a + 2",
        ),
    ]
    within = [ast.unparse(source_of(it)._node.body) for it in functions]
    assert within == expected


def expressions() -> st.SearchStrategy[str]:
    """Lambdas within all else, each with a number for ``@`` of its own, over several lines."""
    return st.recursive(
        st.sampled_from(("1", "math.pi", "x")),
        lambda inner: st.one_of(
            st.builds("(lambda x: (@, {}))".format, inner),
            st.builds("(lambda x, y={}:\n  (@, {}))".format, inner, inner),
            st.builds("math.sin({})".format, inner),
            st.builds("[{}, {}]".format, inner, inner),
            st.builds("({}\n if x else\n {})".format, inner, inner),
            st.builds("({} if True else {})".format, inner, inner),
            st.builds("({} and not {})".format, inner, inner),
            st.builds("[x for x in {} if {}]".format, inner, inner),
            st.builds("f'''{{ {} }}'''".format, inner.filter(lambda it: "'" not in it)),
        ),
        max_leaves=12,
    )


@given(st.lists(expressions(), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_lambdas_in_each_other_are_told_apart(
    tmp_path_factory: pytest.TempPathFactory,
    made: list[str],
    is_imported: bool,
    is_one_line: bool,
) -> None:
    """As they are compiled with all that is around them."""
    first = "import math" if is_imported else "math = None"
    text = f"{first}\n{('; ' if is_one_line else chr(10)).join(made)}\n"
    begun, *pieces = text.split("@")
    numbered = begun + "".join(f"{1000 + at}{it}" for at, it in enumerate(pieces))
    path = tmp_path_factory.mktemp("lambdas") / "written.py"
    path.write_text(numbered)
    pending = [compile(numbered, str(path), "exec")]
    while pending:
        code = pending.pop()
        pending += [it for it in code.co_consts if isinstance(it, types.CodeType)]
        if code.co_name == "<lambda>" and not code.co_freevars:
            body: Any = source_of(types.FunctionType(code, {}))._node.body
            assert str(body.elts[0].value) in repr(
                [it for it in code.co_consts if not isinstance(it, types.CodeType)]
            )


def test_a_file_with_what_is_nested_deeply(tmp_path: pathlib.Path) -> None:
    """Python compiles less of that of a tree than of a text."""
    terms = " + ".join(["1"] * 2 * sys.getrecursionlimit())
    module = imported(tmp_path, f"def make(): return 1\nSUM = {terms}\n")
    assert recipe_of(module.make).digest == recipe_of(module.make).digest


def test_arrays_do_not_load_modules(tmp_path: pathlib.Path) -> None:
    """Masked arrays, which few have, take NumPy longer to load than all of a recipe takes."""
    path = tmp_path / "program.py"
    path.write_text(
        """import sys, numpy as np
from yogadl.recipes import recipe_of
def make(values): return values
before = set(sys.modules)
assert "numpy.ma" not in before or np.__version__[0] == "1"
print(recipe_of(make, (np.arange(3),)).digest == recipe_of(make, (np.arange(4),)).digest)
print(sorted(it for it in set(sys.modules) - before if it.startswith("numpy.ma")))
masked = np.ma.masked_array([1, 2], [True, False])
print(recipe_of(make, (masked,)).digest == recipe_of(make, (masked.data,)).digest)
"""
    )
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["False", "[]", "False"]
