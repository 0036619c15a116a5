"""Where names come from."""

# edits are easier to compare on one line

from __future__ import annotations

from programs._program import Program

PROGRAMS: dict[str, Program] = {}

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

PROGRAMS["one of two imports"] = Program(
    """
=== main.py
FAST = True
def make():
    if FAST:
        from .fast import f
    else:
        from .slow import f
    return f()
=== fast.py
def f(): return 1
=== slow.py
def f(): return 2
""",
    (("return 1", "return 3"),),
)

PROGRAMS["names written by others"] = Program(
    """
=== main.py
from . import a, b
X = 0
from .a import set_it
def make():
    set_it()
    return a.X
=== a.py
X = 0
def set_it():
    global X
    X = 5
=== b.py
X = 0
def set_it():
    global X
    X = 5
""",
    (("from .a import set_it", "from .b import set_it"),),
)

PROGRAMS["private names"] = Program(
    """
=== main.py
__hidden = 1
_Inner__hidden = 5
class Inner:
    def get(self):
        return __hidden
def make():
    return Inner().get()
""",
    (("= 5", "= 6"),),
)

PROGRAMS["namespaces"] = Program(
    """
=== main.py
def make():
    import shop.ns.inner.mod as m
    from shop.ns.inner import other
    return m.X + other.Y
=== ns/inner/mod.py
X = 1
=== ns/inner/other.py
Y = 1
""",
    (
        ("X = 1", "X = 2"),
        ("Y = 1", "Y = 3"),
    ),
)

PROGRAMS["packages that fail"] = Program(
    """
=== main.py
def make():
    try:
        from .nothere import f
    except ImportError:
        from .there import f
    return f()
=== there.py
def f(): return 1
""",
    (("return 1", "return 2"),),
)

PROGRAMS["names that are written out"] = Program(
    """
=== main.py
from . import h
def make():
    return getattr(h, "X", 5)
=== h.py
X = 1
""",
    (
        ("X = 1", "X = 2"),
        ("X = 1", "Y = 1"),
    ),
)

PROGRAMS["imports that nobody reads by their names"] = Program(
    """
=== main.py
def by_locals():
    import os
    from .cfg import A, B
    return "{A}".format(**locals())

def by_vars():
    from .cfg import C as c
    return vars()["c"]

def as_attribute():
    class Options:
        import os
        from .cfg import D
    return Options.D

def as_variable():
    found = None
    def load():
        nonlocal found
        from .cfg import E as found
    load()
    return found

def not_at_all():
    from .cfg import G

def make():
    return [by_locals(), by_vars(), as_attribute(), as_variable(), not_at_all()]
=== cfg.py
A, B = 1, 2
C = 3
D = 4
E = 5
G = 7
""",
    (
        ("A, B = 1", "A, B = 10"),
        ("C = 3", "C = 30"),
        ("D = 4", "D = 40"),
        ("E = 5", "E = 50"),
    ),
    (("G = 7", "G = 70"), ("import os\n    from", "import  os\n    from")),
)
