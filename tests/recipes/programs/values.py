"""What constants hold."""

# ruff: noqa: E501 # edits are easier to compare on one line

from __future__ import annotations

from programs._program import Program

PROGRAMS: dict[str, Program] = {}

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
