"""What functions, decorators and closures are."""

# edits are easier to compare on one line

from __future__ import annotations

from programs._program import Program

PROGRAMS: dict[str, Program] = {}

PROGRAMS["a class in a function that reads a global of the name it binds"] = Program(
    """
=== main.py
X = 1
def make():
    X = 2
    class A:
        X = X
    return A.X + X
""",
    (("X = 1", "X = 3"), ("    X = 2", "    X = 4")),
)

PROGRAMS["helpers, two modules away"] = Program(
    """
=== main.py
from shop import far
from .near import scaled as s, UNUSED
import shop.consts
import json, math

def make():
    # Makes it.
    return [far.shift(s(n)) + shop.consts.BIAS for n in range(3)]

def unused():
    return 1
=== near.py
from . import consts
UNUSED = 1

def scaled(number):
    '''Scales.'''
    return number * consts.FACTOR  # of all
=== far.py
from shop.near import scaled
from .deep import rest

def shift(number: int) -> int:
    return number + rest() + 1

def other(number):
    return number - 1
=== deep.py
OFFSET = 5
TABLE = {"a": 1, "b": 2}

def rest():
    return OFFSET + TABLE["a"]
=== consts.py
FACTOR = 3
BIAS = 7
SPARE = 1
""",
    (
        ("FACTOR = 3", "FACTOR = 4"),
        ("FACTOR = 3", "FACTOR = 3.0"),
        ("BIAS = 7", "BIAS = 8"),
        ("OFFSET = 5", "OFFSET = 6"),
        ('"a": 1', '"a": 3'),
        ("rest() + 1", "rest() - 1"),
        ("number * consts", "number ** consts"),
        ("range(3)", "range(4)"),
        ("far.shift(s(n))", "far.other(s(n))"),
        ("far.shift(s(n))", "s(far.shift(n))"),
        ('TABLE["a"]', 'TABLE["b"]'),
        ("return OFFSET + TABLE", "return OFFSET * TABLE"),
    ),
    (
        ("# Makes it.", "# Makes all of it."),
        ("    # Makes it.\n", ""),
        ("  # of all", ""),
        ("'''Scales.'''", "'''Scales numbers.'''"),
        ("    '''Scales.'''\n", ""),
        ("def unused():\n    return 1", "def unused():\n    return 2"),
        ("def unused():\n    return 1\n", ""),
        ("SPARE = 1", "SPARE = 2"),
        ("UNUSED = 1", "UNUSED = 2"),
        ("import json, math", "import math, json"),
        ("import json, math\n", ""),
        ("return number - 1", "return number - 2"),
        ("return OFFSET + TABLE", "return OFFSET  +  TABLE"),
        ("BIAS = 7\nSPARE = 1", "SPARE = 1\nBIAS = 7"),
        ("OFFSET = 5\n", "\n\n\nOFFSET = 5\n"),
        ("BIAS = 7", "BIAS = 3 + 4"),
        ("from . import consts\nUNUSED = 1", "UNUSED = 1\nfrom . import consts"),
        ("def make():\n", "def make():\n    pass\n"),
        ("def make():\n", "def make():\n    'Makes all.'\n"),
        ("FACTOR = 3", "FACTOR: int = 3"),
    ),
)

PROGRAMS["defaults and keywords"] = Program(
    """
=== main.py
LIMIT = 2

def scale(number, factor=2, *, shift=1, **more):
    return number * factor + shift + len(more)

def pair(first, second):
    return first - second

def make(count=3, *, step=LIMIT):
    return [scale(n * step, shift=4) + pair(n, 3) for n in range(count)] + [scale(1)]
""",
    (
        ("factor=2", "factor=3"),
        ("shift=1, **more", "shift=2, **more"),
        ("shift=4", "shift=5"),
        ("count=3", "count=4"),
        ("LIMIT = 2", "LIMIT = 3"),
        ("pair(n, 3)", "pair(3, n)"),
        ("def pair(first, second)", "def pair(second, first)"),
        ("len(more)", "2 * len(more) + 1"),
        ("step=LIMIT", "step=1"),
        ("+ [scale(1)]", "+ [scale(1, shift=0)]"),
        ("+ [scale(1)]", "+ [scale(1, a=1)]"),
    ),
    (
        ("factor=2, *, shift=1", "factor=2,\n          *,\n          shift=1"),
        ("factor=2", "factor=1 + 1"),
        ("n * step, shift", "(n * step), shift"),
    ),
)

PROGRAMS["decorators"] = Program(
    """
=== main.py
import functools
from .deco import times, plus, register, REGISTRY

@times(2)
def one(number):
    return number + 1

@plus
@times(3)
def other(number):
    return number - 1

@register("a")
def first():
    return 1

@register("b")
def second():
    return 2

@functools.lru_cache(maxsize=None)
def kept(number):
    return number * 7

def make():
    found = [one(n) + other(n) + kept(n) for n in range(3)]
    return found + [REGISTRY[name]() for name in ("a", "b")]
=== deco.py
import functools
AMOUNT = 100
REGISTRY = {}

def times(factor):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args) * factor
        return wrapper
    return decorate

def plus(function):
    def wrapper(*args):
        return function(*args) + AMOUNT
    return wrapper

def register(name):
    def decorate(function):
        REGISTRY[name] = function
        return function
    return decorate
""",
    (
        ("@times(2)", "@times(4)"),
        ("@times(3)", "@times(5)"),
        ("@times(2)\n", ""),
        ("@plus\n", ""),
        ("@plus\n@times(3)", "@times(3)\n@plus"),
        ("number + 1", "number + 2"),
        ("number - 1", "number - 2"),
        ("number * 7", "number * 8"),
        ("AMOUNT = 100", "AMOUNT = 101"),
        ("(*args) * factor", "(*args) * -factor"),
        ("(*args) + AMOUNT", "(*args) - AMOUNT"),
        ("return 1\n", "return 11\n"),
        ("return 2\n", "return 22\n"),
        ('("a", "b")', '("b", "a")'),
        ("REGISTRY[name] = function\n", "REGISTRY[name] = lambda: function() + 5\n"),
    ),
    (
        (
            "        return wrapper\n    return decorate\n\ndef plus",
            "        return wrapper\n\n    return decorate  # that\n\n\ndef plus",
        ),
        ("import functools\nfrom .deco", "import functools\n\nfrom .deco"),
    ),
)

PROGRAMS["closures"] = Program(
    """
=== main.py
def counter(step, offsets):
    scale = step * 2
    def inner(number):
        def deep(other):
            nonlocal scale
            return other * scale + offsets[0] + step
        return deep(number) + 1
    return inner

by_two = counter(2, [5])
several = [lambda n: n + 1, lambda n: n + 2, lambda n, k=3: n * k]
chosen = several[0]
table = {"double": lambda n: n * 2, "square": lambda n: n ** 2}
adders = [lambda n, k=k: n + k for k in range(3)]

def make():
    return [by_two(1), chosen(1), several[2](4), table["square"](3), adders[1](1)]
""",
    (
        ("step * 2", "step * 3"),
        ("counter(2, [5])", "counter(3, [5])"),
        ("counter(2, [5])", "counter(2, [6])"),
        ("offsets[0] + step", "offsets[0] - step"),
        ("deep(number) + 1", "deep(number) + 2"),
        ("several[0]", "several[1]"),
        ("lambda n: n + 1,", "lambda n: n + 9,"),
        ("k=3: n * k", "k=4: n * k"),
        ("n ** 2", "n ** 3"),
        ("n + k for k", "n - k for k"),
        ("range(3)", "range(1, 4)"),
        ('table["square"](3)', 'table["double"](3)'),
        ("nonlocal scale\n            return", "scale = 1\n            return"),
    ),
    (
        ("lambda n: n + 1,", "(lambda n: n + 1),"),
        ("scale = step * 2\n", "# Twice.\n    scale = step * 2\n"),
        ("several = [lambda", "several = [\n    lambda"),
    ),
)

PROGRAMS["functions that have names of Python's"] = Program(
    """
=== main.py
class A:
    x = 1
def getattr(thing, name): return 3
def outer(hasattr):
    return hasattr(A, "x")
def made():
    def hasattr(thing, name): return 5
    def inner():
        return hasattr(A, "x")
    return inner
inner = made()
def make():
    return [getattr(A, "x"), outer(lambda thing, name: 4), inner()]
""",
    (("return 3", "return 4"), ("name: 4", "name: 5"), ("return 5", "return 6")),
)
