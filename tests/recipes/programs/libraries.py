"""What the user has from a library, or has put into one."""

# ruff: noqa: E501 # edits are easier to compare on one line

from __future__ import annotations

from programs._program import Program

PROGRAMS: dict[str, Program] = {}

PROGRAMS["a wrapper that looks like what it wraps"] = Program(
    """
=== main.py
import functools, tempfile
import yogadl.storage
storage = yogadl.storage.LFSStorage(tempfile.mkdtemp())
AMOUNT = 1
def plus(f):
    @functools.wraps(f)
    def w(*a):
        return [int(x) + AMOUNT for x in f(*a).stream()] if False else [AMOUNT]
    return w
@plus
@storage.cacheable("inner")
def inner():
    return [1]
def make():
    return inner()
""",
    (("AMOUNT = 1", "AMOUNT = 2"),),
)

PROGRAMS["a method of enumerations"] = Program(
    """
=== main.py
import enum
class E(str, enum.Enum):
    A = "a"
    __str__ = enum.Enum.__str__
def make():
    return str(E.A)
""",
    (
        ("enum.Enum.__str__", "str.__str__"),
        ("__str__ = enum.Enum.__str__", "__str__ = str.__str__"),
    ),
)

PROGRAMS["private names of enumerations"] = Program(
    """
=== main.py
import enum
class E(enum.Enum):
    A = "a"
    __scale = 5
    def get(self):
        # A member, before Python 3.11.
        return getattr(self.__scale, "value", self.__scale)
def make():
    return str(E.A.get())
""",
    (("= 5", "= 6"),),
)

PROGRAMS["matching"] = Program(
    """
=== main.py
import dataclasses
@dataclasses.dataclass
class P:
    x: int
    y: int
    __match_args__ = ("x", "y")
def make():
    match P(1, 2):
        case P(a, b):
            return [a, b]
""",
    (('("x", "y")', '("y", "x")'),),
)

PROGRAMS["bounds of types"] = Program(
    """
=== main.py
import typing
T = typing.TypeVar("T", bound=int)
def make():
    return T.__bound__.__name__
""",
    (("bound=int", "bound=str"),),
)

PROGRAMS["new types"] = Program(
    """
=== main.py
import typing
T = typing.NewType("T", int)
def make():
    return T.__supertype__.__name__
""",
    (("int)", "str)"),),
)

PROGRAMS["paths of a class of one's own"] = Program(
    """
=== main.py
import pathlib
class P(type(pathlib.Path())):
    def shown(self):
        return "1" + str(self)
X = P("a")
def make():
    return X.shown()
""",
    (('"1"', '"2"'),),
)

PROGRAMS["kinds of paths"] = Program(
    """
=== main.py
import pathlib
X = pathlib.PurePosixPath("a")
def make():
    return str(X / "b")
""",
    (("PurePosixPath", "PureWindowsPath"),),
)

PROGRAMS["generators of a class of one's own"] = Program(
    """
=== main.py
import numpy as np
class G(np.random.Generator):
    def normal(self):
        return 1
X = G(np.random.PCG64(1))
def make():
    return X.normal()
""",
    (("return 1", "return 2"),),
)

PROGRAMS["vectorized functions"] = Program(
    """
=== main.py
import numpy as np
def f(x): return x + 1
g = np.vectorize(f, otypes=[float])
def make():
    return repr(g([1]))
""",
    (
        ("[float]", "[int]"),
        ("x + 1", "x + 2"),
    ),
    (("def f(x): return", "def f(x):\n    'Adds.'\n    return"),),
)

PROGRAMS["classes made by a library"] = Program(
    """
=== main.py
import types
X = types.new_class("X", (), {}, lambda ns: ns.update(size=3))
def make():
    return X.size
""",
    (("size=3", "size=4"),),
)

PROGRAMS["classes made by a library of the user's"] = Program(
    """
=== main.py
import abc, collections.abc, json, types
class Reader(abc.ABC):
    scale = 3
    def read(self, x): return x * self.scale
class Data(collections.abc.Sequence):
    size = 2
    def __len__(self): return self.size
    def __getitem__(self, i): return [5, 6, 7][:self.size][i]
class Base:
    added = 1
    def __getattribute__(self, name):
        if name == "more": return 4
        return object.__getattribute__(self, name)
Cat = type("Cat", (Reader,), {})
READERS = {name: type(name, (Reader,), {"__doc__": name}) for name in ("Dog",)}
Part = type("Part", (Data,), {})
New = types.new_class("New", (Base,))
NEW = New()
class Coder(abc.ABC):
    def code(self): return 7
json.Coder = type("Coder", (Coder,), {})
def make():
    return [Cat().read(2), READERS["Dog"]().read(5), list(Part()), New().added, NEW.more, json.Coder().code()]
""",
    (
        ("scale = 3", "scale = 4"),
        ("x * self.scale", "x + self.scale"),
        ("size = 2", "size = 3"),
        ("[5, 6, 7]", "[5, 8, 7]"),
        ("added = 1", "added = 2"),
        ("return 4", "return 3"),
        ("return 7", "return 8"),
    ),
)

PROGRAMS["a partial function as a patch"] = Program(
    """
=== main.py
import json
import functools
from . import p
def make():
    return json.dumps([1])
=== p.py
import json, functools
json.dumps = functools.partial(json.dumps, indent=1)
""",
    (("indent=1", "indent=2"),),
)

PROGRAMS["an object as a patch"] = Program(
    """
=== main.py
import json
from . import p
def make():
    return json.dumps([1])
=== p.py
import json
class C:
    def __call__(self, x): return 1
json.dumps = C()
""",
    (("return 1", "return 2"),),
)

PROGRAMS["a method as a patch"] = Program(
    """
=== main.py
import json
from . import p
def make():
    return json.JSONEncoder().encode([1])
=== p.py
import json, functools
def enc(self, x, o): return str(K)
K = 1
json.JSONEncoder.encode = functools.partialmethod(enc, o=1)
""",
    (("K = 1", "K = 2"),),
)
