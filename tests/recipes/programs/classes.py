"""Classes and their objects."""

# ruff: noqa: E501 # edits are easier to compare on one line

from __future__ import annotations

from programs._program import Program

PROGRAMS: dict[str, Program] = {}

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

PROGRAMS["classes of one name of which one is registered"] = Program(
    """
=== main.py
import abc
from . import a, b
class Base(abc.ABC): pass
Base.register(a.Foo)
Base.register(b.Other)
def make():
    return [isinstance(a.Foo(), Base), isinstance(b.Foo(), Base)]
=== a.py
class Foo: V = 1
=== b.py
class Foo: V = 2
class Other: V = 3
""",
    (
        ("register(a.Foo)", "register(b.Foo)"),
        ("Base.register(a.Foo)", "Base.register(a.Foo), Base.register(b.Foo)"),
    ),
    (("V = 3", "V = 4"),),
)

PROGRAMS["what typed dicts require that others derive from"] = Program(
    """
=== main.py
from typing import TypedDict
class A(TypedDict, total=False):
    x: int
class B(A):
    y: int
def make():
    return [sorted(B.__required_keys__)]
""",
    ((", total=False", ""),),
)

PROGRAMS["what is kept in classes under names of Python's kind"] = Program(
    """
=== main.py
import enum
class E(enum.Enum):
    A = 1
E._scale_ = 5
class Meta(type):
    def __new__(m, n, b, ns, req=()):
        c = super().__new__(m, n, b, ns)
        c.__required_keys__ = frozenset(req)
        return c
class A(metaclass=Meta, req=("a",)): pass
def make():
    return [E._scale_, sorted(A.__required_keys__)]
""",
    (("_scale_ = 5", "_scale_ = 6"), ('("a",)', '("b",)')),
)
