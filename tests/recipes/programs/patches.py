"""What the user has put into libraries that only these, or objects of theirs, say that they use."""

# edits are easier to compare on one line

from __future__ import annotations

from programs._program import Program

PROGRAMS: dict[str, Program] = {}

PROGRAMS["a method of the class of a value"] = Program(
    """
=== main.py
import fractions
def half(self): return SCALE
fractions.Fraction.half = half
SCALE = 1
ONE = fractions.Fraction(1, 2)
def make():
    return ONE.half()
""",
    (("return SCALE", "return SCALE + 1"), ("SCALE = 1", "SCALE = 2")),
    (("def half(self)", "# A comment.\ndef half(self)"),),
)

PROGRAMS["a method of a class that only a library names"] = Program(
    """
=== main.py
import email, email.message
def half(self): return 1
email.message.Message.half = half
def make():
    return email.message_from_string("a: b").half()
""",
    (("return 1", "return 2"),),
)

PROGRAMS["a patch of what a library calls"] = Program(
    """
=== main.py
import json, json.encoder
def text(value): return "A"
def make():
    return json.dumps({"key": "value"}, indent=1)
json.encoder.encode_basestring_ascii = text
""",
    (('"A"', '"B"'),),
)

PROGRAMS["patches that are wrapped"] = Program(
    """
=== main.py
import contextlib, fractions, functools, string
from fractions import Fraction
class Shown:
    def __init__(self, function):
        self.function = function
    def __get__(self, value, kind):
        return self.function(value)
Shown.__module__ = "string"
@contextlib.contextmanager
def entered(self): yield 1
@functools.wraps(string.capwords)
@contextlib.contextmanager
def words(text): yield "two"
Fraction.entered = entered
Fraction.cached = functools.lru_cache(lambda self: 3)
Fraction.part = property(lambda self: 4)
Fraction.bound = functools.partialmethod(lambda self, n: n + 5, 0)
Fraction.later = functools.cached_property(lambda self: 6)
Fraction.later.__set_name__(Fraction, "later")
Fraction.shown = Shown(lambda self: 7)
string.capwords = functools.lru_cache(lambda text: "eight")
string.capital = contextlib.contextmanager(lambda text: iter(["nine"]))
def make():
    one = Fraction(1, 2)
    with one.entered() as x, string.capital("x") as y:
        return [x, y, one.cached(), one.part, one.bound(), one.shown, string.capwords("x")]
""",
    (
        ("yield 1", "yield 2"),
        ("self: 3", "self: 4"),
        ("self: 4", "self: 5"),
        ("n + 5", "n + 6"),
        ("self: 7", "self: 8"),
        ('"eight"', '"seven"'),
        ('"nine"', '"seven"'),
    ),
)

PROGRAMS["what is registered with abstract classes"] = Program(
    """
=== main.py
import collections.abc
class Mine: pass
collections.abc.Sequence.register(Mine)
def make():
    return isinstance(Mine(), collections.abc.Sequence)
""",
    (("collections.abc.Sequence.register(Mine)", "pass"),),
)

PROGRAMS["how objects are copied"] = Program(
    """
=== main.py
import copy, copyreg
class P: pass
copyreg.pickle(P, lambda value: (int, (1,)))
def make():
    return copy.copy(P())
""",
    (
        ("(1,)", "(2,)"),
        (
            "copyreg.pickle(P, lambda value: (int, (1,)))",
            "P.__copy__ = lambda value: 1 if isinstance(value, int) else 2",
        ),
    ),
)

PROGRAMS["what is registered with a function of a library"] = Program(
    """
=== main.py
import pkgutil
class P: pass
@pkgutil.iter_importer_modules.register(P)
def found(value, prefix=""): return ["one"]
def make():
    return pkgutil.iter_importer_modules(P())
""",
    (('"one"', '"two"'),),
)

PROGRAMS["what is registered with what another module has of a library"] = Program(
    """
=== registry.py
import pkgutil
library = pkgutil.iter_importer_modules
=== main.py
import pkgutil
from .registry import library
class P: pass
@library.register(P)
def found(value, prefix=""): return ["one"]
def make():
    return pkgutil.iter_importer_modules(P())
""",
    (('"one"', '"two"'),),
)

PROGRAMS["what is registered with other modules of one's own"] = Program(
    """
=== registry.py
KEPT = {}
def register(name):
    def put(function):
        KEPT[name] = function
        return function
    return put
class Registry:
    def __init__(self):
        self.kept = []
    def register(self, function):
        self.kept.append(function)
        return function
STEPS = Registry()
=== main.py
from . import registry
from .registry import KEPT, STEPS, register
@register("add")
def add(value): return value + 1
@STEPS.register
def twice(value): return 2 * value
@registry.STEPS.register
def halved(value): return value / 2
def make():
    return [KEPT["add"](3), *[step(3) for step in STEPS.kept]]
""",
    (
        ("value + 1", "value + 2"),
        ("2 * value", "3 * value"),
        ("value / 2", "value / 4"),
        ("KEPT[name] = function", "KEPT[name] = lambda value: value"),
        ("self.kept.append(function)", "self.kept.insert(0, function)"),
    ),
    (("(value): return 2 * value", "(value):\n    # Both.\n    return 2 * value"),),
)

PROGRAMS["plain values in classes of libraries"] = Program(
    """
=== main.py
import fractions, json
fractions.Fraction.scale = 1
json.JSONEncoder.width = 2
ONE = fractions.Fraction(1, 2)
def make():
    return [ONE.scale, fractions.Fraction.scale, json.JSONEncoder().width]
""",
    (("scale = 1", "scale = 3"), ("width = 2", "width = 3")),
    (("width = 2", "width = 2; json.JSONEncoder.height = 3"),),
)

PROGRAMS["what objects of libraries have"] = Program(
    """
=== main.py
import json
class Other: pass
json._default_encoder.default = lambda value: "one"
def make():
    return json.dumps(Other())
""",
    (('"one"', '"two"'),),
)

PROGRAMS["values in modules of libraries that are used as values"] = Program(
    """
=== main.py
import decimal
import string
from . import names
string.ONE = 1
string.TWO = 2
string.THREE = 3
string.FOUR = 4
string.FIVE = 5
string.MANY = list(range(2000))
string.DEEP = {"a": {"b": {"c": {"d": 1}}}}
string.EXACT = decimal.Decimal("1.0")
def read(module):
    return module.TWO
def make():
    s = string
    return [s.ONE, read(string), vars(string)["THREE"], string.__dict__["FOUR"],
            sum(string.MANY), str(string.DEEP), str(string.EXACT),
            [getattr(it, name) for it, name in names.PLACES]]
=== names.py
import string
PLACES = [(string, "FIVE")]
""",
    (
        ("ONE = 1", "ONE = 10"),
        ("TWO = 2", "TWO = 20"),
        ("THREE = 3", "THREE = 30"),
        ("FOUR = 4", "FOUR = 40"),
        ("FIVE = 5", "FIVE = 50"),
        ("range(2000)", "range(2001)"),
        ('"d": 1', '"d": 2'),
        ('"1.0"', '"1.00"'),
    ),
    (("string.ONE", "string.UNUSED = 1\nstring.ONE"),),
)
