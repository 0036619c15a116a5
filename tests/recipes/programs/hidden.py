"""What is easily overlooked."""

# edits are easier to compare on one line

from __future__ import annotations

from programs._program import Program

PROGRAMS: dict[str, Program] = {}

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
