"""What people write every day, by small examples."""

# ruff: noqa: E501 # edits are easier to compare on one line

from __future__ import annotations

from programs._program import Program

PROGRAMS: dict[str, Program] = {}

PROGRAMS["methods of dataclasses that a library has wrapped"] = Program(
    """
=== main.py
import dataclasses, functools, reprlib
@dataclasses.dataclass
class Node:
    value: int
    @reprlib.recursive_repr()
    def __repr__(self):
        return f"N{self.value}"
def make():
    return [repr(Node(1))]
""",
    (('f"N{self', 'f"M{self'),),
    (),
)

PROGRAMS["methods of named tuples that a library has wrapped"] = Program(
    """
=== main.py
import reprlib, typing
class Node(typing.NamedTuple):
    value: int
    @reprlib.recursive_repr()
    def __repr__(self):
        return f"N{self.value}"
def make():
    return [repr(Node(1))]
""",
    (('f"N{self', 'f"M{self'),),
    (),
)

PROGRAMS["classes that say they are of a protocol"] = Program(
    """
=== main.py
import contextlib, typing
class Node(typing.Protocol):
    size = 1
    @contextlib.contextmanager
    def run(self):
        yield self.size + 1
class Real(Node):
    pass
def make():
    with Real().run() as n:
        return [n]
""",
    (
        ("size + 1", "size + 2"),
        ("size = 1", "size = 5"),
    ),
    (),
)

PROGRAMS["classes of one's own of Python's"] = Program(
    """
=== main.py
import collections, datetime, decimal, fractions, random, types, functools
class Registry(collections.OrderedDict):
    def get2(self, k):
        return self[k] * 2
class Nested(collections.defaultdict):
    def first(self): return next(iter(self))
class Ring(collections.deque):
    def last(self): return self[-1]
class NS(types.SimpleNamespace):
    def total(self): return self.a + 1
class Day(datetime.date):
    def shown(self): return self.isoformat() + "!"
class classproperty(property):
    def __get__(self, i, o=None): return self.fget(o)
class Rnd(random.Random):
    def two(self): return [self.random(), 2]
R = Registry(a=1); N = Nested(list, {"x": 1}); Q = Ring([1, 2], maxlen=5); S = NS(a=1)
D = Day(2020, 1, 2); G = Rnd(5)
class K:
    size = 3
    @classproperty
    def double(cls): return cls.size * 2
def make():
    return [R.get2("a"), N.first(), N["y"], Q.last(), Q.maxlen, S.total(), D.shown(), K.double, Rnd(5).two()]
""",
    (
        ("self[k] * 2", "self[k] * 3"),
        ("R = Registry(a=1)", "R = Registry(a=2)"),
        ('Nested(list, {"x": 1})', 'Nested(tuple, {"x": 1})'),
        ("Ring([1, 2], maxlen=5)", "Ring([1, 3], maxlen=5)"),
        ("Ring([1, 2], maxlen=5)", "Ring([1, 2], maxlen=6)"),
        ("NS(a=1)", "NS(a=2)"),
        ("Day(2020, 1, 2)", "Day(2020, 1, 3)"),
        ("cls.size * 2", "cls.size * 5"),
        ("self.fget(o)", "self.fget(o) + 1"),
        ("self.random(), 2", "self.random(), 3"),
        ("next(iter(self))", "list(self)"),
    ),
    (
        ("R = Registry(a=1)", "R = Registry({'a': 1})"),
        ("Ring([1, 2], maxlen=5)", "Ring((1, 2), maxlen=5)"),
    ),
)

PROGRAMS["methods that are called as those that look up names"] = Program(
    """
=== main.py
class M:
    def eval(self): return 1
    def train(self): return 2
model = M()
def train(): return 3
def lr(): return 1
def make():
    return [[model.eval(), 'train', {'lr': 3}]]
""",
    (("return 1\n    def", "return 5\n    def"),),
    (
        ("return 3", "return 4"),
        ("def lr(): return 1", "def lr(): return 2"),
    ),
)

PROGRAMS["classes made by functions"] = Program(
    """
=== main.py
def outer(k):
    class Inner:
        size = k
        def get(self): return self.size + k
    return Inner
A, B = outer(1), outer(2)
def make():
    return [[A().get(), B().get()]]
""",
    (
        ("outer(1), outer(2)", "outer(2), outer(1)"),
        ("size = k", "size = k + 1"),
        ("self.size + k", "self.size - k"),
    ),
    (("outer(1), outer(2)", "(outer(1)), outer(k=2)"),),
)

PROGRAMS["descriptors with defaults"] = Program(
    """
=== main.py
class D:
    def __init__(self, default): self.default = default
    def __set_name__(self, o, n): self.n = n
    def __get__(self, i, o=None): return i.__dict__.get(self.n, self.default) if i else self
    def __set__(self, i, v): i.__dict__[self.n] = v * 2
class A:
    a = D(1)
    b = D(2)
X = A()
X.a = 5
def make():
    return [[X.a, X.b]]
""",
    (
        ("D(2)", "D(3)"),
        ("X.a = 5", "X.a = 6"),
        ("v * 2", "v * 3"),
    ),
    (),
)

PROGRAMS["generators that are sent to"] = Program(
    """
=== main.py
import itertools, collections
def gen(n):
    while (n := n - 1) > 0:
        got = yield n
        if got: n += got
def run():
    g = gen(4); out = [next(g)]
    out.append(g.send(2)); out += list(g)
    return out
def make():
    return [run()]
""",
    (
        ("n - 1) > 0", "n - 1) > 1"),
        ("n += got", "n += 2 * got"),
        ("g.send(2)", "g.send(1)"),
        ("yield n", "yield n * 2"),
    ),
    (
        ("if got: n += got", "if got:\n            n += got"),
        ("while (n := n - 1) > 0", "while ((n := n - 1) > 0)"),
    ),
)

PROGRAMS["decorators with and without arguments"] = Program(
    """
=== main.py
import functools
def debug(f=None, *, times=1):
    if f is None: return functools.partial(debug, times=times)
    @functools.wraps(f)
    def inner(*a, **k):
        return [f(*a, **k)] * times
    return inner
@debug
def one(x): return x
@debug(times=2)
def two(x): return x + 1
def make():
    return [[one(1), two(1)]]
""",
    (
        ("times=2", "times=3"),
        ("return x\n", "return -x\n"),
        ("times=1", "times=4"),
        ("x + 1", "x + 3"),
        ("@debug\n", ""),
        ("[f(*a, **k)] * times", "[f(*a, **k)] * times * 2"),
    ),
    (
        ("@debug\n", "@debug # it\n"),
        ("@debug(times=2)", "@debug(\n    times=2,\n)"),
    ),
)

PROGRAMS["dates, paths and patterns"] = Program(
    r"""
=== main.py
import re, datetime as dt, decimal, fractions
from pathlib import Path
DATE = re.compile(r'(\d+)-(\d+)')
START = dt.date(2020, 1, 1)
STEP = dt.timedelta(days=2)
ROOT = Path('data') / 'raw'
PRICE = decimal.Decimal('1.5')
Z = dt.timezone(dt.timedelta(hours=1))
def make():
    return [[DATE.match('1-2').groups(), str(START + STEP), str(ROOT / 'x'), str(PRICE * 2), str(dt.datetime(2020, 1, 1, tzinfo=Z))]]
""",
    (
        ("(\\d+)-(\\d+)", "(\\d)-(\\d+)()"),
        ("2020, 1, 1)\nSTEP", "2020, 1, 2)\nSTEP"),
        ("days=2", "days=3"),
        ("'raw'", "'new'"),
        ("'1.5'", "'1.50'"),
        ("hours=1", "hours=2"),
    ),
    (
        ("r'(\\d+)-(\\d+)'", "'(\\\\d+)-(\\\\d+)'"),
        ("dt.date(2020, 1, 1)", "dt.date.fromisoformat('2020-01-01')"),
        ("days=2", "hours=48"),
        ("Path('data') / 'raw'", "Path('data/raw/')"),
        ("hours=1", "minutes=60"),
    ),
)

PROGRAMS["matching by many patterns"] = Program(
    """
=== main.py
def f(x):
    match x:
        case {'op': 'add', 'args': [a, b]}: return a + b
        case {'op': 'neg', 'args': [a]}: return -a
        case K.LOW: return 'low'
        case P(x=0, y=v): return v
        case int() | float() as n if n > LIM: return n
        case _: return None
import enum
class K(enum.Enum):
    LOW = 1
class P:
    def __init__(self, x, y): self.x, self.y = x, y
LIM = 3
def make():
    return [[f({'op': 'add', 'args': [1, 2]}), f({'op': 'neg', 'args': [1]}), f(K.LOW), f(P(0, 5)), f(4), f(3.5)]]
""",
    (
        ("a + b", "a - b"),
        ("LIM = 3", "LIM = 4"),
        ("return 'low'", "return 'LOW'"),
        ("x=0", "x=1"),
        ("self.x, self.y = x, y", "self.x, self.y = x, y + 1"),
        ("int() | float()", "int()"),
    ),
    (
        ("case _: return None", "case _:\n            return None"),
        ("int() | float() as n", "(int() | float()) as n"),
        ("LIM = 3", "LIM = 1 + 2"),
    ),
)

PROGRAMS["classes that know their subclasses"] = Program(
    """
=== main.py
class Base:
    kinds = []
    def __init_subclass__(cls, **k):
        Base.kinds.append(cls.__name__)
        cls.tag = k.get('tag', 0)
class A(Base, tag=1): pass
class B(A, tag=2): pass
def make():
    return [[Base.kinds, A.tag, B.tag, [c.__name__ for c in B.__mro__]]]
""",
    (
        ("class A(Base, tag=1)", "class A(Base, tag=3)"),
        ("class B(A, tag=2): pass", "class B(Base, tag=2): pass"),
        ("class B(A, tag=2): pass", "class B(A, tag=2): pass\nclass C(B): pass"),
        ("k.get('tag', 0)", "k.get('tag', 0) + 1"),
    ),
    (("class A(Base, tag=1): pass", "class A(Base, tag=1):\n    '''A.'''"),),
)

PROGRAMS["partial functions of partial functions"] = Program(
    """
=== main.py
from operator import itemgetter, attrgetter, methodcaller
from functools import partial
BY = itemgetter('b', 'a')
UP = methodcaller('replace', 'a', 'b')
def scale(x, k, off=0): return x * k + off
DOUBLE = partial(scale, k=2)
SHIFT = partial(DOUBLE, off=1)
def make():
    return [[BY({'a': 1, 'b': 2}), UP('aa'), DOUBLE(3), SHIFT(3)]]
""",
    (
        ("'b', 'a')\nUP", "'a', 'b')\nUP"),
        ("'replace', 'a', 'b'", "'replace', 'a', 'c'"),
        ("k=2", "k=3"),
        ("off=1", "off=2"),
        ("x * k + off", "x + k + off"),
        ("off=0", "off=5"),
    ),
    (
        ("partial(DOUBLE, off=1)", "partial(scale, k=2, off=1)"),
        ("import partial", "import partial as partial, wraps"),
    ),
)

PROGRAMS["enumerations with aliases"] = Program(
    """
=== main.py
import enum
class C(enum.Enum):
    A = 'a'
    B = 'a'
    C = 'c'
    def __call__(self): return self.value * 2
    @classmethod
    def of(cls, t): return cls[t.upper()]
def make():
    return [[c.name for c in C] + [C.of('c')()]]
""",
    (
        ("B = 'a'", "B = 'b'"),
        ("* 2", "* 3"),
        ("t.upper()", "t.upper().replace('C', 'A')"),
        ("    A = 'a'\n    B = 'a'\n    C = 'c'", "    C = 'c'\n    A = 'a'\n    B = 'a'"),
    ),
    (("B = 'a'", "B = A"),),
)

PROGRAMS["fields of dataclasses"] = Program(
    """
=== main.py
from dataclasses import dataclass, field, asdict, fields, replace
@dataclass
class A:
    x: int = field(default=1, repr=False, metadata={'u': 'cm'})
    y: float = 2.0
    def __post_init__(self): self.z = self.x * 2
@dataclass
class B(A):
    w: 'str' = 'w'
def make():
    return [[repr(B()), asdict(B()), fields(A)[0].metadata['u'], replace(B(), x=4).z]]
""",
    (
        ("repr=False", "repr=True"),
        ("'cm'", "'mm'"),
        ("self.x * 2", "self.x * 3"),
        ("w: 'str' = 'w'", "w: 'str' = 'v'"),
        ("class B(A):", "class B(A):\n    x: int = 9"),
        ("@dataclass\nclass B", "@dataclass(repr=False)\nclass B"),
        ("y: float = 2.0", "y: float = 3.0"),
    ),
    (("metadata={'u': 'cm'})", "metadata=dict(u='cm'))"),),
)

PROGRAMS["objects that compose functions"] = Program(
    """
=== main.py
class T:
    def __init__(self, *fs): self.fs = fs
    def __or__(self, o): return T(*self.fs, o)
    def __call__(self, x):
        for f in self.fs: x = f(x)
        return x
def inc(x, by=1): return x + by
def dbl(x): return x * 2
PIPE = T(inc) | dbl | inc
def make():
    return [PIPE(3)]
""",
    (
        ("T(inc) | dbl | inc", "T(dbl) | inc | inc"),
        ("by=1", "by=2"),
        ("x * 2", "x * 3"),
    ),
    (
        ("T(inc) | dbl | inc", "(T(inc) | dbl) | inc"),
        ("T(inc) | dbl | inc", "T(inc, dbl, inc)"),
    ),
)

PROGRAMS["decorators that are classes"] = Program(
    """
=== main.py
import functools
from .deco import Memo, add
@Memo
def f(x):
    '''Doc A.'''
    return x + 1
@Memo
@Memo
def g(x):
    '''Doc B.'''
    return x + 2
h = functools.update_wrapper(functools.partial(add, 1), add)
def make():
    return [f(1), g(2), h(2)]
=== deco.py
import functools
class Memo:
    def __init__(self, f): functools.update_wrapper(self, f); self.f = f; self.n = 2
    def __call__(self, *a): return self.f(*a) * self.n
def add(x, y):
    '''Adds.'''
    return x + y
""",
    (
        ("x + 1", "x + 3"),
        ("x + 2", "x + 3"),
        ("partial(add, 1)", "partial(add, 2)"),
        ("self.n = 2", "self.n = 3"),
    ),
    (
        ("Doc A", "Doc C"),
        ("Doc B", "Doc D"),
        ("Adds.", "Adds up."),
        ("def f(x):", "\n\ndef f(x):"),
    ),
)

PROGRAMS["marks that only some versions of Python leave"] = Program(
    """
=== main.py
import enum
import typing

@typing.final
class Final:
    size: typing.Any = 1
    label: typing.Annotated[int, "x"] = 2

    @typing.final
    def get(self):
        return self.size

class Named(enum.Enum):
    def _generate_next_value_(name, start, count, last):
        return name.lower()

    FIRST = enum.auto()

def make():
    return [Final().get(), Named.FIRST.value]
""",
    (("size: typing.Any = 1", "size: typing.Any = 2"), ("name.lower()", "name.title()")),
    (("@typing.final\nclass", "class"), ("    @typing.final\n", "")),
)

PROGRAMS["variables of the environment that are set"] = Program(
    """
=== main.py
import os

def make():
    os.environ["YOGADL_TEST_SET"] = "1"
    os.environ.setdefault("YOGADL_TEST_DEFAULT", "2")
    return ["YOGADL_TEST_NONE" in os.environ, os.environ["YOGADL_TEST_SET"]]
""",
    (('SET"] = "1"', 'SET"] = "3"'),),
)

PROGRAMS["what wraps functions that are cached or dispatch"] = Program(
    """
=== main.py
import functools
def timed(f):
    @functools.wraps(f)
    def inner(*args): return f(*args)
    return inner
class Called:
    def __init__(self, f):
        functools.update_wrapper(self, f)
        self.f = f
    def __call__(self, n): return self.f(n)
@timed
@timed
@functools.lru_cache(maxsize=None)
def load(n):
    "doc A"
    return n + 1
@timed
@Called
@timed
def called(n):
    "doc B"
    return n + 2
@timed
@Called
@timed
@functools.singledispatch
def shown(n):
    "doc C"
    return n + 3
@shown.register(str)
def _(n): return n + "4"
def make():
    return [load(1), called(1), shown(1), shown("1")]
""",
    (
        ("n + 1", "n + 5"),
        ("n + 2", "n + 5"),
        ("n + 3", "n + 5"),
        ('n + "4"', 'n + "5"'),
    ),
    (
        ("doc A", "doc D"),
        ("doc B", "doc D"),
        ("doc C", "doc D"),
    ),
)
