"""What values share, and what hangs on them."""

# edits are easier to compare on one line

from __future__ import annotations

from programs._program import Program

PROGRAMS: dict[str, Program] = {}

PROGRAMS["cells that are shared"] = Program(
    """
=== main.py
def counter():
    n = 0
    def inc():
        nonlocal n
        n += 1
    def get():
        return n
    return inc, get
inc, get = counter()
inc2, get2 = counter()
pair = [inc, get]
def make():
    pair[0]()
    return pair[1]()
""",
    (("[inc, get]", "[inc, get2]"),),
)

PROGRAMS["views of arrays"] = Program(
    """
=== main.py
import numpy as np
X = np.zeros(4)
Y = X[1:3]
def make():
    X[1] = 5
    return Y.tolist()
""",
    (("X[1:3]", "X[1:3].copy()"),),
)

PROGRAMS["views of bytes"] = Program(
    """
=== main.py
B = bytearray(b"abc")
M = memoryview(B)
def make():
    B[0] = 120
    return bytes(M)
""",
    (("memoryview(B)", "memoryview(bytearray(B))"),),
)

PROGRAMS["views of dicts"] = Program(
    """
=== main.py
import types
D = {"a": 1}
P = types.MappingProxyType(D)
def make():
    D["a"] = 2
    return P["a"]
""",
    (("Type(D)", "Type(dict(D))"),),
)

PROGRAMS["attributes of cached functions"] = Program(
    """
=== main.py
import functools
@functools.lru_cache()
def f(x): return repr(x)
f.scale = 1
def make():
    return f.scale
""",
    (("scale = 1", "scale = 2"),),
)

PROGRAMS["attributes of partial functions"] = Program(
    """
=== main.py
import functools
f = functools.partial(int)
f.scale = 1
def make():
    return f.scale
""",
    (("scale = 1", "scale = 2"),),
)

PROGRAMS["attributes of dispatchers"] = Program(
    """
=== main.py
import functools
@functools.singledispatch
def f(x): return "any"
f.k = 1
def make():
    return f.k
""",
    (("k = 1", "k = 2"),),
)

PROGRAMS["causes of errors"] = Program(
    """
=== main.py
class Err(Exception):
    code = 1
E = Err("x")
E.k = 3
def make():
    return [E.args, E.k, E.code, repr(E.__cause__)]
E.__cause__ = ValueError("a")
""",
    (
        ("code = 1", "code = 2"),
        ('"x"', '"y"'),
        ("k = 3", "k = 4"),
        ('"a"', '"b"'),
    ),
)

PROGRAMS["metadata of dtypes"] = Program(
    """
=== main.py
import numpy as np
X = np.dtype("i4", metadata={"a": 1})
def make():
    return X.metadata["a"]
""",
    (('"a": 1', '"a": 2'),),
)

PROGRAMS["code that was swapped"] = Program(
    """
=== main.py
def f(): return 1
def g(): return 2
f.__code__ = g.__code__
def make():
    return f()
""",
    (("return 2", "return 3"),),
)

PROGRAMS["cycles"] = Program(
    """
=== main.py
class N:
    def __init__(self, v): self.v = v; self.n = None
a, b, c = N(1), N(2), N(3)
a.n, b.n, c.n = b, c, a
def make():
    return a.n.n.n.v
""",
    (
        ("b, c, a", "b, a, a"),
        ("b, c, a", "b, c, b"),
    ),
)

PROGRAMS["functions with other globals"] = Program(
    """
=== main.py
import types
def f(): return X
g = types.FunctionType(f.__code__, {"X": 5}, "g")
def make():
    return g()
""",
    (("5}", "6}"),),
)

PROGRAMS["objects that are also in a set"] = Program(
    """
=== main.py
class P:
    def __init__(self, v): self.v = v
P1, P2 = P(1), P(2)
S = {P1, P2}
O = P1
def make():
    O.v += 1
    return sorted(p.v for p in S)
""",
    (("O = P1", "O = P(1)"), ("O = P1", "O = P2")),
    (("{P1, P2}", "{P2, P1}"),),
)

PROGRAMS["what objects in a set share"] = Program(
    """
=== main.py
class P:
    def __init__(self, *v): self.v = v
L, M = [1], [1]
S = {P("a", L), P("b", L), P("c", M)}
def make():
    next(p for p in S if p.v[0] == "a").v[1].append(2)
    return sorted((p.v for p in S), key=str)
""",
    (
        ('"b", L', '"b", M'),
        ('"c", M', '"c", L'),
        ('"b", L', '"b", [1]'),
    ),
    (('"c", M', '"c", [1]'),),
)

PROGRAMS["equal objects in a set"] = Program(
    """
=== main.py
A, B = object(), object()
S = {A, B}
def make():
    return [len(S), A in S, B in S, A is B]
""",
    (
        ("{A, B}", "{A, object()}"),
        ("{A, B}", "{object(), object()}"),
        ("[len(S), A in S, B in S, A is B]", "[len(S), A in S, B in S]"),
    ),
    (("{A, B}", "{B, A}"),),
)

PROGRAMS["arrays in a set of objects"] = Program(
    """
=== main.py
import numpy as np
class P:
    def __init__(self, v): self.v = v
X = np.zeros(4)
S = {P(X[1:2])}
def make():
    X[1] = 5
    return [p.v.tolist() for p in S]
""",
    (("P(X[1:2])", "P(X[2:3])"), ("P(X[1:2])", "P(X[1:2].copy())")),
)

PROGRAMS["attributes of containers"] = Program(
    """
=== main.py
import collections, functools, logging, random
ORDERED, COUNTED = collections.OrderedDict(a=1), collections.Counter("a")
RANDOM, LOG = random.Random(0), logging.getLogger("shop")
class Class:
    static = staticmethod(len)
    single = functools.singledispatchmethod(len)
    cached = functools.cached_property(len)
ORDERED.scale = 1
COUNTED.scale = 2
RANDOM.scale = 3
LOG.scale = 4
vars(Class)["static"].scale = 5
vars(Class)["single"].scale = 6
vars(Class)["cached"].scale = 7
def make():
    found = [ORDERED, COUNTED, RANDOM, LOG, *map(vars(Class).get, ["static", "single", "cached"])]
    return [it.scale for it in found]
""",
    tuple((f"scale = {number}\n", f"scale = {number + 1}\n") for number in range(1, 8)),
)

PROGRAMS["loggers of a class of one's own"] = Program(
    """
=== main.py
import logging
class Logger(logging.Logger):
    scale = 1
    def level_of(self): return 2
LOG = Logger("x")
def make():
    return [LOG.scale, LOG.level_of()]
""",
    (("scale = 1", "scale = 2"), ("return 2", "return 3")),
    (('"x"', '"y"'),),
)

PROGRAMS["members that are other than their values"] = Program(
    """
=== main.py
import enum
TABLE = {1: 10}
class Number(int, enum.Enum):
    def __new__(cls, value):
        made = int.__new__(cls, TABLE[value])
        made._value_ = value
        made._scale_ = len("abc")
        return made
    A = 1
del TABLE
def make():
    return [Number.A + 0, Number.A._scale_]
""",
    (("{1: 10}", "{1: 20}"), ('len("abc")', 'len("ab")')),
)

PROGRAMS["views of which the first is met first"] = Program(
    """
=== main.py
import numpy as np
X = np.zeros(4)
Y = X[::2]
def make():
    Y[1] = 5
    return X.tolist()
""",
    (("X[::2]", "X[:2]"), ("X[::2]", "X[2:]")),
)

PROGRAMS["views of parts of bytes"] = Program(
    """
=== main.py
import array
A, B = array.array("b", [1, 1, 1]), bytearray(3)
M, N = memoryview(A)[:1], memoryview(B)[:1]
def make():
    A[0] = B[0] = 5
    return [M.tolist(), N.tolist()]
""",
    (("(A)[:1]", "(A)[1:2]"), ("(B)[:1]", "(B)[1:2]"), ("memoryview(A)", "memoryview(A[:])")),
)
