"""Small programs, each with edits that change the data that it makes, and edits that do not.

A program is some files of a package ``shop``, whose ``main.make()`` makes the data. An edit is a
piece of text that is there once, and what it is replaced by.
"""

# ruff: noqa: E501 # edits are easier to compare on one line

from __future__ import annotations

import dataclasses

Edit = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Program:
    """See above.

    Attributes:
        files: the text of all files, each below a line ``=== name``.
        matter: edits that change the data.
        do_not: edits that change nothing.
    """

    files: str
    matter: tuple[Edit, ...]
    do_not: tuple[Edit, ...] = ()

    def texts(self, edit: Edit | None = None) -> dict[str, str]:
        """The files, edited."""
        text = self.files
        if edit is not None:
            assert text.count(edit[0]) == 1, edit
            text = text.replace(*edit)
        found = {"__init__.py": ""}
        for piece in text.split("=== ")[1:]:
            name, _, content = piece.partition("\n")
            found[name] = content
        return found


PROGRAMS: dict[str, Program] = {}

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

PROGRAMS["classes"] = Program(
    """
=== main.py
from .bases import Base, Unused, Mixin

class Maker(Mixin, Base):
    '''Makes numbers.'''
    size = 3
    names = ["x", "y"]
    later: int

    def __init__(self, start=1):
        self.start = start

    def one(self, number):
        return super().one(number) + self.start + self.bonus

    @property
    def bonus(self):
        return self._bonus() + 1

    @staticmethod
    def _bonus():
        return 10

    @classmethod
    def build(cls, **more):
        return cls(**more)

    def never(self):
        return "never"

def make():
    maker = Maker.build(start=2)
    return [maker.one(n) for n in range(maker.size)] + maker.names + [maker.extra()]
=== bases.py
class Base:
    weight = 2

    def one(self, number):
        return number * self.weight

    def extra(self):
        return "base"

class Mixin:
    def extra(self):
        return "mixin"

    def __getattr__(self, name):
        return name

class Unused:
    def one(self):
        return 1
""",
    (
        ("size = 3", "size = 4"),
        ('["x", "y"]', '["y", "x"]'),
        ("start=2", "start=3"),
        ("self.start = start", "self.start = -start"),
        ("self.start + self.bonus", "self.start - self.bonus"),
        ("self._bonus() + 1", "self._bonus() + 2"),
        ("return 10", "return 11"),
        ("return cls(**more)", "return cls()"),
        ("weight = 2", "weight = 3"),
        ("number * self.weight", "number ** self.weight"),
        ('return "mixin"', 'return "mixed"'),
        ("Maker(Mixin, Base)", "Maker(Base, Mixin)"),
        ("super().one(number)", "Mixin.extra(self).__len__()"),
    ),
    (
        ("'''Makes numbers.'''", "'''Makes.'''"),
        ("    '''Makes numbers.'''\n", ""),
        ("def one(self):\n        return 1", "def one(self):\n        return 2"),
        ("import Base, Unused, Mixin", "import Mixin, Unused, Base"),
        ("import Base, Unused, Mixin", "import (Base,  # first\n    Mixin)"),
        ("    size = 3\n    names", "    # its size\n    size = 3\n\n    names"),
        ("size = 3", "size = (3)"),
        ("maker = Maker.build(start=2)", "maker = Maker.build(start=(2))"),
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

PROGRAMS["values"] = Program(
    """
=== main.py
import collections, dataclasses, datetime, decimal, enum, fractions, pathlib, re, types, uuid
from typing import NamedTuple

class Color(enum.Enum):
    RED = 1
    BLUE = 2

    def shown(self):
        return self.name.lower()

class Level(enum.IntFlag):
    LOW = 1
    HIGH = 2

@dataclasses.dataclass(frozen=True)
class Options:
    size: int = 3
    name: str = "n"
    tags: tuple = ("a",)
    more: dict = dataclasses.field(default_factory=dict, compare=False)

class Point(NamedTuple):
    x: int = 1
    y: int = 2

Old = collections.namedtuple("Old", "a b")

OPTIONS = Options(size=4)
POINT = Point(5)
OLD = Old(1, b=2)
ORDER = {"first": 1, "second": 2}
SET = {"one", "two", "three", "four"}
FROZEN = frozenset([1, 2])
WHEN = datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc)
DAY = datetime.date(2021, 2, 3)
SPAN = datetime.timedelta(seconds=5)
PART = fractions.Fraction(1, 3)
MONEY = decimal.Decimal("1.10")
FOLDER = pathlib.PurePosixPath("/data/in")
PATTERN = re.compile("a+", re.I)
NAMES = types.SimpleNamespace(a=1, b=[2])
ID = uuid.UUID(int=5)
ZERO = 0.0
NUMBERS = [1, 2, 3]
DEEP = {"a": [{"b": (1, {"c"})}]}
BYTES = b"abc"
TEXT = "text"
COMPLEX = 1 + 2j
RANGE = range(1, 10, 2)
SLICE = slice(1, 3)
QUEUE = collections.deque([1, 2], maxlen=3)
COUNTS = collections.Counter("aab")
DEFAULT = collections.defaultdict(list, {"a": [1]})
FLAGS = Level.LOW
LONG = list(range(1000)) + [5]
WORDS = ["w%d" % n for n in range(200)]
RING = [1]
RING.append(RING)

def make():
    made = [repr(OPTIONS), OPTIONS.more, POINT, tuple(OLD), list(ORDER), sorted(SET), sorted(FROZEN)]
    made += [WHEN, DAY, SPAN, PART, str(MONEY), str(FOLDER), PATTERN.pattern, PATTERN.flags]
    made += [NAMES.a, NAMES.b, ID.int, str(ZERO), NUMBERS, DEEP, BYTES, TEXT, COMPLEX, RANGE]
    made += [str(SLICE), list(QUEUE), QUEUE.maxlen, COUNTS, DEFAULT["b"], DEFAULT, int(FLAGS)]
    made += [Color.RED.shown(), Color.RED.value, Color(2).name, LONG[-1], WORDS[-1], RING[0]]
    return [repr(made)]
""",
    (
        ("RED = 1", "RED = 3"),
        ("BLUE = 2", "BLUE = 4\n    GREEN = 2"),
        ("name.lower()", "name.upper()"),
        ("LOW = 1", "LOW = 4"),
        ("FLAGS = Level.LOW", "FLAGS = Level.LOW | Level.HIGH"),
        ("Options(size=4)", "Options(size=5)"),
        ('name: str = "n"', 'name: str = "m"'),
        ('tags: tuple = ("a",)', 'tags: tuple = ("a", "b")'),
        ("default_factory=dict", "default_factory=list"),
        ("    size: int = 3\n    name", "    label: int = 0\n    size: int = 3\n    name"),
        ("Point(5)", "Point(6)"),
        ("y: int = 2", "y: int = 3"),
        ("Old(1, b=2)", "Old(2, b=1)"),
        ('{"first": 1, "second": 2}', '{"second": 2, "first": 1}'),
        ('"three", "four"', '"three"'),
        ("frozenset([1, 2])", "frozenset([1, 3])"),
        ("2020, 1, 2", "2020, 1, 3"),
        (", tzinfo=datetime.timezone.utc", ""),
        ("date(2021, 2, 3)", "date(2021, 2, 4)"),
        ("seconds=5", "seconds=6"),
        ("Fraction(1, 3)", "Fraction(2, 3)"),
        ('"1.10"', '"1.1"'),
        ("/data/in", "/data/out"),
        ('"a+", re.I', '"a+"'),
        ('"a+"', '"a*"'),
        ("a=1, b=[2]", "a=1, b=[3]"),
        ("UUID(int=5)", "UUID(int=6)"),
        ("ZERO = 0.0", "ZERO = -0.0"),
        ("ZERO = 0.0", "ZERO = 0"),
        ("[1, 2, 3]", "[1, 3, 2]"),
        ("[1, 2, 3]", "[1, 2, 3.0]"),
        ("[1, 2, 3]", "(1, 2, 3)"),
        ("NUMBERS = [1, 2, 3]", "NUMBERS = [True, 2, 3]"),
        ('(1, {"c"})', '(1, {"d"})'),
        ('b"abc"', 'b"abd"'),
        ('b"abc"', '"abc"'),
        ('TEXT = "text"', 'TEXT = "Text"'),
        ("1 + 2j", "1 + 3j"),
        ("range(1, 10, 2)", "range(1, 10, 3)"),
        ("slice(1, 3)", "slice(1, 4)"),
        ("[1, 2], maxlen=3", "[1, 2], maxlen=4"),
        ('Counter("aab")', 'Counter("abb")'),
        ("defaultdict(list,", "defaultdict(tuple,"),
        ("+ [5]", "+ [6]"),
        ('"w%d" % n', '"v%d" % n'),
        ("RING = [1]", "RING = [2]"),
    ),
    (
        ('{"one", "two", "three", "four"}', '{"four", "three", "two", "one"}'),
        ("frozenset([1, 2])", "frozenset([2, 1])"),
        ("frozenset([1, 2])", "frozenset((1, 2, 1))"),
        ("Options(size=4)", "Options(4)"),
        ("Old(1, b=2)", "Old(1, 2)"),
        ("seconds=5", "milliseconds=5000"),
        ("Fraction(1, 3)", "Fraction(2, 6)"),
        ("1 + 2j", "2j + 1"),
        ("WORDS = [", "WORDS = [  # all\n    "),
        ("ID = uuid.UUID(int=5)\nZERO = 0.0", "ZERO = 0.0\nID = uuid.UUID(int=5)"),
        ('b"abc"', 'b"a" b"bc"'),
        ('TEXT = "text"', 'TEXT = "te" + "xt"'),
        ('TEXT = "text"', "TEXT = 'text'"),
        ('TEXT = "text"', 'TEXT = u"text"'),
        ("Point(5)", "Point(x=5)"),
    ),
)

PROGRAMS["syntax"] = Program(
    """
=== main.py
import asyncio
import contextlib

WIDTH = 6
log = []

def matched(value):
    match value:
        case 0 | 1:
            return "small"
        case [first, *rest] if rest:
            return f"{first}-{len(rest)}"
        case {"kind": kind, **others}:
            return kind + str(len(others))
        case str(text):
            return text
        case _:
            return None

def shown(number):
    return f"{number!r:>{WIDTH}}|{number + 1:04d}" f"{{}}{number=}"

def walrus(values):
    return [last for value in values if (last := value * 2) > 2]

async def numbers():
    for number in range(3):
        yield number * 10

async def collected():
    return [number async for number in numbers() if number != 10]

@contextlib.contextmanager
def managed():
    log.append("in")
    yield 5
    log.append("out")

def generated(count):
    yield from range(count)
    yield -1

def tried(value):
    try:
        return 10 // value
    except ZeroDivisionError as error:
        return str(type(error).__name__)
    else:
        return 1
    finally:
        log.append(value)

def looped():
    total = 0
    for number in range(5):
        if number == 3:
            continue
        total += number
    else:
        total += 100
    while total > 106:
        total -= 2
    return total

def sliced(values):
    first, *middle, last = values
    return values[1:3], values[::-1], middle, last if first else None

def unpacked(*args, **kwargs):
    return [*args, *kwargs.items()]

def make():
    made = [matched(v) for v in (0, 5, [1, 2, 3], {"kind": "k", "x": 1}, "text")]
    made += [shown(5), walrus([1, 2, 3]), asyncio.run(collected())]
    with managed() as entered:
        made.append(entered)
    made += [list(generated(2)), tried(0), tried(3), looped(), sliced([1, 2, 3, 4])]
    made += [unpacked(1, *(2, 3), a=1, **{"b": 2}), {n: n * 2 for n in (1, 2)}]
    made += [(lambda *, x=1: x)(), [x for y in [[1], [2]] for x in y], not made, 1 < 2 < 3]
    return [repr(made), repr(log[:2])]
""",
    (
        ("case 0 | 1", "case 0 | 2 | 5"),
        ("*rest] if rest", "*rest] if not rest"),
        ("return kind + str", "return str(kind) * 2 + str"),
        ('"kind": kind, **others', '"kind": kind, "x": _, **others'),
        (
            "case str(text):\n            return text",
            "case str(text):\n            return text * 2",
        ),
        ("{first}-{len", "{first}+{len"),
        ("WIDTH = 6", "WIDTH = 7"),
        ("{number!r:>{WIDTH}}", "{number!r:<{WIDTH}}"),
        (":04d", ":05d"),
        ("{{}}", "{{-}}"),
        ("{number=}", "{number = }"),
        ("(last := value * 2) > 2", "(last := value * 2) > 4"),
        ("[last for value", "[value for value"),
        ("number * 10", "number * 20"),
        ("if number != 10]", "if number != 20]"),
        ("yield 5", "yield 6"),
        ('log.append("in")', 'log.append("enter")'),
        ("yield from range(count)", "yield range(count)"),
        ("yield -1", "yield -2"),
        ("10 // value", "20 // value"),
        ("type(error).__name__)", "type(error).__name__ * 2)"),
        ("if number == 3", "if number == 2"),
        ("            continue", "            break"),
        ("total > 106", "total > 107"),
        ("total += number", "total -= number"),
        ("values[1:3]", "values[1:2]"),
        ("values[::-1]", "values[::-2]"),
        ("first, *middle, last = values", "*middle, first, last = values"),
        ("last if first else None", "last if not first else None"),
        ("[*args, *kwargs.items()]", "[*kwargs.items(), *args]"),
        ("*(2, 3), a=1", "*(3, 2), a=1"),
        ('**{"b": 2}', '**{"c": 2}'),
        ("n: n * 2 for n in (1, 2)", "n: n * 2 for n in (2, 1)"),
        ("x=1: x", "x=2: x"),
        ("for y in [[1], [2]] for x in y", "for y in [[2], [1]] for x in y"),
        ("not made", "bool(made)"),
        ("1 < 2 < 3", "1 < 2 > 3"),
    ),
    (
        ("total = 0", "total: int = 0"),
        ("total = 0", "total = 0  # type: int"),
        ("return total\n", "return (total)\n"),
        ("for number in range(5):", "for number in range(5):  # all"),
        (
            'f"{number!r:>{WIDTH}}|{number + 1:04d}" f"{{}}{number=}"',
            'f"{number!r:>{WIDTH}}|{number + 1:04d}{{}}{number=}"',
        ),
        ("|{number + 1:04d}", "|{number  +  1:04d}"),
        (
            "return [*args, *kwargs.items()]",
            "return [\n        *args,\n        *kwargs.items(),\n    ]",
        ),
        ("def looped():\n", 'def looped():\n    """Loops."""\n'),
        ("            continue\n", "            continue\n            pass\n"),
        ("with managed() as entered:", "with (managed() as entered):"),
        ("first, *middle, last = values", "(first, *middle, last) = values"),
        (
            "    else:\n        total += 100\n",
            "    else:\n\n        # After all.\n        total += 100\n",
        ),
        ("x=1: x)()", "x=(1): x)()"),
        ("1 < 2 < 3", "(1 < 2 < 3)"),
        ('return "small"', "return 'small'"),
        ("return text\n", "return text;\n"),
        ("log.append(value)", "log.append(\n            value)"),
        ("10 // value", "0xA // value"),
        ("total += 100", "total += 1_00"),
        ("case str(text):", "case (str(text)):"),
    ),
)

PROGRAMS["imports"] = Program(
    """
=== main.py
from .star import *
from . import config
from .sub.module import deep as renamed
from .facade import exported
try:
    from .fast import speed
except ImportError:
    def speed():
        return "slow"
if config.NEW:
    from .new import version
else:
    from .old import version

def make():
    from .local import inner
    import shop.later
    import string as s
    return [starred(), renamed(), exported(), speed(), version(), inner(2), shop.later.late(),
            s.digits[:3], STAR, config.shown()]
=== star.py
__all__ = ["starred", "STAR"]
STAR = 1
def starred():
    return hidden() + 1
def hidden():
    return 10
=== config.py
NEW = True
PREFIX = "p"
def shown():
    return PREFIX + str(NEW)
=== sub/__init__.py
=== sub/module.py
from ..config import PREFIX
from .. import star
def deep():
    return PREFIX * 2 + str(star.STAR)
=== facade.py
from .impl import implementation as exported
=== impl.py
def implementation():
    return "impl"
def alternative():
    return "alternative"
=== fast.py
def speed():
    return "fast"
=== new.py
def version():
    return 2
=== old.py
def version():
    return 1
=== local.py
SCALE = 3
def inner(number):
    return number * SCALE
=== later.py
def late():
    return "late"
""",
    (
        ("return hidden() + 1", "return hidden() + 2"),
        ("return 10", "return 20"),
        ("STAR = 1", "STAR = 2"),
        ("NEW = True", "NEW = False"),
        ('PREFIX = "p"', 'PREFIX = "q"'),
        ("PREFIX * 2", "PREFIX * 3"),
        ('return "impl"', 'return "implemented"'),
        ("implementation as exported", "alternative as exported"),
        ('return "fast"', 'return "faster"'),
        ('def speed():\n    return "fast"', "raise ImportError"),
        ("return 2\n", "return 3\n"),
        ("SCALE = 3", "SCALE = 4"),
        ("number * SCALE", "number + SCALE"),
        ('return "late"', 'return "later"'),
        ("s.digits[:3]", "s.digits[:4]"),
        ("import string as s", "import collections\n    class s: digits = '987'"),
        ("from .facade import exported", "from .impl import alternative as exported"),
    ),
    (
        ('return "slow"', 'return "slower"'),
        ("def version():\n    return 1", "def version():\n    return 0"),
        ('return "alternative"', 'return "another"'),
        ("from .star import *\nfrom . import config", "from . import config\nfrom .star import *"),
        ("from .facade import exported", "from shop.facade import exported"),
        ("from .facade import exported", "from .impl import implementation as exported"),
        (
            "from ..config import PREFIX\nfrom .. import star",
            "from .. import star\nfrom shop.config import PREFIX",
        ),
    ),
)

PROGRAMS["objects"] = Program(
    """
=== main.py
import abc, functools, operator
from .vector import Vector, Celsius, Plugin, Shape, Square, Circle, kinds, area

START = Vector(1, 2)
STEP = Vector(3, 4)
PIPELINE = [Celsius(3), operator.itemgetter(0), functools.partial(pow, 2)]
STEPS = {"scale": Plugin.registry["scale"](2)}

def apply(function, value):
    return function(value)

def shout(text):
    return text.upper()

def make():
    total = START + STEP
    made = [total.x, total.y, str(total), total == Vector(4, 6), len(total), total["x"]]
    made += [PIPELINE[0].degrees, PIPELINE[1]([7]), PIPELINE[2](5), apply(shout, "a")]
    made += [STEPS["scale"].run(5), area(Square(2)), area(Circle(2)), isinstance(3, Shape)]
    made += [total.missing, kinds(), list(total), total(1), bool(Vector(0, 0))]
    return [repr(made)]
=== vector.py
import abc, functools
from typing import Protocol, TypedDict, Generic, TypeVar

class Cased:
    def __set_name__(self, owner, name):
        self.name = "_" + name
    def __get__(self, instance, owner=None):
        return getattr(instance, self.name) * 2
    def __set__(self, instance, value):
        setattr(instance, self.name, value + 1)

class Celsius:
    degrees = Cased()
    def __init__(self, degrees):
        self.degrees = degrees

class Vector:
    __slots__ = ("x", "y")
    def __init__(self, x, y):
        self.x, self.y = x, y
    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)
    def __eq__(self, other):
        return self.x == other.x
    __hash__ = None
    def __str__(self):
        return f"<{self.x}, {self.y}>"
    def __len__(self):
        return 2
    def __getitem__(self, name):
        return getattr(self, name)
    def __getattr__(self, name):
        return name + "!"
    def __iter__(self):
        yield self.x
        yield self.y
    def __call__(self, number):
        return number - 1
    def __bool__(self):
        return False

class Meta(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.offset = 1
        return made

class Plugin:
    registry = {}
    def __init_subclass__(cls, name, **more):
        Plugin.registry[name] = cls

class Scale(Plugin, name="scale", metaclass=Meta):
    def __init__(self, factor):
        self.factor = factor
    def run(self, number):
        return number * self.factor + self.offset

class Shape(abc.ABC):
    @abc.abstractmethod
    def sides(self): ...

class Square(Shape):
    def __init__(self, size):
        self.size = size
    def sides(self):
        return 4

class Circle(Square):
    def sides(self):
        return 0

Shape.register(int)

@functools.singledispatch
def area(shape):
    return None

@area.register
def _(shape: Square):
    return shape.size ** 2

@area.register(Circle)
def _(shape):
    return shape.size * 3

class Record(TypedDict, total=False):
    a: int
    b: str

class Runs(Protocol):
    def run(self) -> int: ...

T = TypeVar("T")

class Box(Generic[T]):
    def __init__(self, item: T):
        self.item = item

def kinds():
    return [sorted(Record.__annotations__), Record.__total__, Box(1).item]
""",
    (
        ("START = Vector(1, 2)", "START = Vector(2, 2)"),
        ("self.x + other.x", "self.x - other.x"),
        ("return self.x == other.x", "return self.x != other.x"),
        ('f"<{self.x}, {self.y}>"', 'f"({self.x}, {self.y})"'),
        ("return 2\n    def __getitem__", "return 3\n    def __getitem__"),
        ("return getattr(self, name)", "return getattr(self, name) * 2"),
        ('name + "!"', 'name + "?"'),
        ("yield self.x\n        yield self.y", "yield self.y\n        yield self.x"),
        ("number - 1", "number - 2"),
        ("return False", "return True"),
        ("* 2\n    def __set__", "* 3\n    def __set__"),
        ("value + 1", "value + 2"),
        ("degrees = Cased()", "degrees = None"),
        ("Celsius(3)", "Celsius(4)"),
        ("partial(pow, 2)", "partial(pow, 3)"),
        ("operator.itemgetter(0)", "operator.itemgetter(slice(0, 1))"),
        ("text.upper()", "text.upper() * 2"),
        ("made.offset = 1", "made.offset = 2"),
        ("Plugin.registry[name] = cls", "Plugin.registry[name] = lambda f: cls(f + 1)"),
        ("* self.factor + self", "* self.factor - self"),
        ('registry["scale"](2)', 'registry["scale"](3)'),
        ("Shape.register(int)\n", ""),
        ("return shape.size ** 2", "return shape.size ** 3"),
        ("return shape.size * 3", "return shape.size * 4"),
        ("@area.register(Circle)", "@area.register(str)"),
        ("total=False", "total=True"),
        ("    b: str\n", "    c: str\n"),
        ("self.item = item", "self.item = [item]"),
        ("return function(value)", "return function(value) * 2"),
        ("setattr(instance, self.name, value", "setattr(instance, self.name, -value"),
    ),
    (
        ("import abc, functools, operator", "import operator, functools, abc"),
        (
            "    def __len__(self):\n        return 2\n    def __getitem__(self, name):\n        return getattr(self, name)\n",
            "    def __getitem__(self, name):\n        return getattr(self, name)\n    def __len__(self):\n        return 2\n",
        ),
        (
            "class Runs(Protocol):\n    def run(self) -> int: ...",
            "class Runs(Protocol):\n    def run(self) -> str: ...",
        ),
        ("def run(self) -> int: ...", "def walk(self) -> int: ..."),
        ("class Meta(type):", "class Meta(type):\n    '''Makes classes.'''\n"),
        ("def sides(self): ...", "def sides(self):\n        '''How many.'''"),
        (
            "import Protocol, TypedDict, Generic, TypeVar",
            "import Generic, Protocol, TypedDict, TypeVar",
        ),
    ),
)

PROGRAMS["recursion, patches and state"] = Program(
    """
=== main.py
from . import patches, other
from .other import pong, Target

def ping(number):
    return [number] if number <= 0 else [number] + pong(number - 1)

def fold(values, depth=0):
    return sum(fold(v, depth + 1) if isinstance(v, list) else v * 10 ** depth for v in values)

SHARED = [1, 2]
BOTH = {"a": SHARED, "b": SHARED}

def changed():
    BOTH["a"].append(3)
    try:
        return list(BOTH["b"])
    finally:
        BOTH["a"].pop()

def make():
    target = Target()
    made = [ping(4), fold([1, [2, [3]]]), target.method(), target.value, other.plain()]
    made += [changed(), other.State.current, other.helper.attribute]
    return [repr(made)]
=== other.py
from . import main

class Target:
    value = 1
    def method(self):
        return "original"

class State:
    current = "none"

def helper():
    return 1
helper.attribute = 5

def plain():
    return "plain"

def pong(number):
    return ["pong"] + main.ping(number - 1)
=== patches.py
from . import other

def patched(self):
    return "patched"

other.Target.method = patched
other.Target.value = 2
other.State.current = "patched"
""",
    (
        ('return "patched"', 'return "patched again"'),
        ("other.Target.method = patched\n", ""),
        ("Target.value = 2", "Target.value = 3"),
        ('State.current = "patched"', 'State.current = "set"'),
        ("helper.attribute = 5", "helper.attribute = 6"),
        ("number <= 0", "number <= 2"),
        ('["pong"]', '["PONG"]'),
        ("main.ping(number - 1)", "main.ping(number - 2)"),
        ("10 ** depth", "11 ** depth"),
        ("fold(v, depth + 1)", "fold(v, depth + 2)"),
        ('"b": SHARED', '"b": list(SHARED)'),
        ('return "plain"', 'return "plane"'),
        ("depth=0", "depth=1"),
    ),
    (
        ('return "original"', 'return "never seen"'),
        ("from . import patches, other\n", "from . import other, patches\n"),
        ("SHARED = [1, 2]\n", "SHARED = [1,\n          2]\n"),
    ),
)

PROGRAMS["text only"] = Program(
    """
=== main.py
\"\"\"A module.\"\"\"
import os
import sys

__version__ = "1"
DEBUG = False

# The size.
SIZE = 2


class Config(object):
    # Of everything.
    size = SIZE
    depth: "int" = 1

    def total(self):
        # type: () -> int
        return self.size * self.depth

    def spare(self):
        return None


def helper(value):  # type: (int) -> int
    result: int = value + 1
    return result


def main():
    print(make(), DEBUG, __version__, file=sys.stderr)


def make():
    config = Config()
    total = config.total()
    if total: return [helper(total), "a" "b"]
    else: return []


if __name__ == "__main__":
    main()
""",
    (
        ("SIZE = 2", "SIZE = 3"),
        ('depth: "int" = 1', 'depth: "int" = 2'),
        ("value + 1", "value + 3"),
        ('"a" "b"', '"a", "b"'),
    ),
    (
        ('"""A module."""', '"""Another."""'),
        ('__version__ = "1"', '__version__ = "2"'),
        ("DEBUG = False", "DEBUG = True"),
        ("# The size.\n", ""),
        ("# Of everything.", "# Of all."),
        ("# type: () -> int", "# type: () -> float"),
        ("  # type: (int) -> int", ""),
        ("if total: return", "if total:\n        return"),
        ("    else: return []", "    else:\n        return []"),
        ("    main()\n", "    main()\n    main()\n"),
        ("print(make(), DEBUG, __version__, file=sys.stderr)", "print(make())"),
        ('"a" "b"', '"ab"'),
        ("import os\nimport sys", "import sys"),
        ("class Config(object):", "class Config:"),
        ("SIZE = 2\n", "SIZE = 2\nfor _number in range(3):\n    del _number\n"),
        ("result: int =", "result: float ="),
        ("result: int =", "result ="),
        ("value + 1\n", "value + 1\n\n\n\n"),
        ("def main():", "async def another():\n    return SIZE\n\n\ndef main():"),
    ),
)

PROGRAMS["what hides"] = Program(
    """
=== main.py
import collections
import dataclasses
import functools
import inspect
import json
import string
import types
import typing

import shop
from . import lazy, patching, tools
from .tools import first as one
from .more import first as two

def by_name(thing, name):
    return getattr(thing, name)()

def takes(function=tools.doubled, scale=tools.Scale(2)):
    return function(3) + scale.apply(1)

Dynamic = type("Dynamic", (tools.Base,), {"run": lambda self: self.inherited() + 1})
swapped = tools.Before()
swapped.__class__ = tools.After
bound = [tools.Scale(3).apply, tools.Scale.named]
f, g = (lambda x: x + 1), (lambda x: x + 2)
h, i = (lambda x: [x, 0.5]), (lambda x: [x, 0.25])

class Word(str):
    def shout(self):
        return self.upper() + "!"

WORD = Word("word")

class Outer:
    class Inner:
        def value(self):
            return __hidden() + 1

def _Inner__hidden():
    return 5

@dataclasses.dataclass
class Made:
    a: int = 1
    b: list = dataclasses.field(default_factory=lambda: [7])
    c: dataclasses.InitVar[int] = 4

    def __post_init__(self, c):
        self.d = self.a + c

class Nested:
    def build(self):
        class Local:
            def run(self):
                from .late import late
                return late() + tools.CONSTANT
        return [Local().run() for _ in range(1)]

def documented():
    '''Kept as data.'''

def sourced():
    return 1  # a comment that counts

tools.renamed.__name__ = "other name"

def tagged(tag):
    def inner():
        return tag
    return inner

TAGS = {tagged("a"), tagged("b")}
len = tools.length

class Injected:
    amount = 3

def wants(injected: Injected, other: "Injected" = None):
    return injected.amount

def inject(function):
    hints = typing.get_type_hints(function)
    return function(hints["injected"]())

def effects():
    import shop.effect
    return tools.REGISTRY["effect"]

def nothing():
    try:
        import shop.absent
    except ImportError:
        return "absent"

def annotated():
    Special: int = 3
    return Special

def make():
    made = [by_name(tools.Scale(4), "named"), takes(), Dynamic().run(), swapped.run()]
    made += [bound[0](2), bound[1](), f(1), h(1), WORD.shout(), Outer.Inner().value()]
    made += [Made().b, Made().d, Nested().build(), documented.__doc__]
    made += [inspect.getsource(sourced).split("#")[1], tools.renamed.__name__]
    made += [sorted(tag() for tag in TAGS), len([1, 2]), inject(wants), effects(), nothing()]
    made += [json.dumps([1]), string.Formatter().get_value(0, [5], {}), lazy.attribute]
    made += [one() - two(), tools.Auto.second.value, tools.Cell().area, tools.Single().shown(1)]
    made += [tools.Partial().added(1), tools.ordered < tools.larger, annotated()]
    made += [tools.nested.inner.value, list(vars(tools.Ordered))[1:3], shop.lazy.attribute]
    return [repr(made)]
=== tools.py
import enum
import functools
import types

CONSTANT = 1
REGISTRY = {}

def doubled(number):
    return number * 2

def first():
    return 10

def length(values):
    return sum(1 for _ in values) + 100

def renamed():
    return 1

class Scale:
    def __init__(self, factor):
        self.factor = factor
    def apply(self, number):
        return number * self.factor
    @classmethod
    def named(cls):
        return "scale"

class Base:
    def inherited(self):
        return 3

class Before:
    def run(self):
        return "before"

class After:
    def run(self):
        return "after"

class Auto(enum.Enum):
    first = enum.auto()
    second = enum.auto()

class Cell:
    @functools.cached_property
    def area(self):
        return 12

class Single:
    @functools.singledispatchmethod
    def shown(self, value):
        return "any"
    @shown.register
    def _(self, value: int):
        return "int"

class Partial:
    def add(self, one, other):
        return one + other
    added = functools.partialmethod(add, 5)

@functools.total_ordering
class Sorted:
    def __init__(self, key):
        self.key = key
    def __eq__(self, other):
        return self.key == other.key
    def __lt__(self, other):
        return self.key < other.key

ordered, larger = Sorted(1), Sorted(2)
nested = types.SimpleNamespace(inner=types.SimpleNamespace(value=8))

class Ordered:
    alpha = 1
    beta = 2
=== more.py
def first():
    return 4
=== late.py
def late():
    return 20
=== effect.py
from . import tools
tools.REGISTRY["effect"] = "registered"
=== patching.py
import json, string

def patched(value):
    return "patched" + str(value)

def get_value(self, key, args, kwargs):
    return args[key] + 1

json.dumps = patched
string.Formatter.get_value = get_value
=== lazy.py
def __getattr__(name):
    if name == "attribute":
        return name * 2
    raise AttributeError(name)
""",
    (
        ('return "scale"', 'return "scaled"'),
        ("number * 2\n", "number * 3\n"),
        ("scale=tools.Scale(2)", "scale=tools.Scale(5)"),
        ("number * self.factor", "number - self.factor"),
        ("self.inherited() + 1", "self.inherited() + 2"),
        ("return 3\n", "return 4\n"),
        ("swapped.__class__ = tools.After", "pass"),
        ('return "after"', 'return "afterwards"'),
        ("tools.Scale(3).apply", "tools.Scale(6).apply"),
        ("f, g =", "g, f ="),
        ("h, i =", "i, h ="),
        ("[x, 0.5]", "[x, 0.125]"),
        ('self.upper() + "!"', 'self.upper() + "?"'),
        ('Word("word")', 'Word("words")'),
        ("return 5\n", "return 6\n"),
        ("lambda: [7]", "lambda: [8]"),
        ("self.a + c", "self.a - c"),
        ("[int] = 4", "[int] = 5"),
        ("return 20", "return 21"),
        ("CONSTANT = 1", "CONSTANT = 2"),
        ("'''Kept as data.'''", "'''Used as data.'''"),
        ("# a comment that counts", "# another comment"),
        ('__name__ = "other name"', '__name__ = "name"'),
        ('tagged("b")', 'tagged("c")'),
        ("len = tools.length\n", ""),
        ("+ 100", "+ 200"),
        ("amount = 3", "amount = 4"),
        ('= "registered"', '= "effective"'),
        ('return "patched"', 'return "replaced"'),
        ("args[key] + 1", "args[key] + 2"),
        ("name * 2", "name * 3"),
        (
            "import first as one\nfrom .more import first as two",
            "import first as two\nfrom .more import first as one",
        ),
        ("    first = enum.auto()\n", ""),
        ("return 12", "return 13"),
        ("value: int", "value: str"),
        ('return "int"', 'return "integer"'),
        ("partialmethod(add, 5)", "partialmethod(add, 6)"),
        ("Sorted(1), Sorted(2)", "Sorted(2), Sorted(1)"),
        ("self.key < other.key", "self.key > other.key"),
        ("value=8", "value=9"),
        ("    alpha = 1\n    beta = 2", "    beta = 2\n    alpha = 1"),
    ),
    (('return "before"', 'return "never"'),),
)
