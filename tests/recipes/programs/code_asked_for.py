"""Parts of code that count only if other code asks for them."""

# edits are easier to compare on one line

from __future__ import annotations

from programs._program import Program

PROGRAMS: dict[str, Program] = {}

PROGRAMS["docstrings inside"] = Program(
    """
=== main.py
def make():
    def inner():
        "doc A"
    return inner.__doc__
""",
    (("doc A", "doc B"),),
)

PROGRAMS["another name for getdoc"] = Program(
    """
=== main.py
from inspect import getdoc as gd
def f():
    "doc A"
def make():
    return gd(f)
""",
    (("doc A", "doc B"),),
)

PROGRAMS["a docstring by name"] = Program(
    """
=== main.py
def f():
    "doc A"
def make():
    return getattr(f, "__doc__")
""",
    (("doc A", "doc B"),),
)

PROGRAMS["annotations as text"] = Program(
    """
=== main.py

def f(x: int): pass
def make():
    return repr(f.__annotations__)
""",
    (("\n\ndef f", "\nfrom __future__ import annotations\ndef f"),),
)

PROGRAMS["annotations that are added"] = Program(
    """
=== main.py
def inner(x: int): return x
def make():
    return inner.__annotations__["y"]
inner.__annotations__["y"] = 1
""",
    (('["y"] = 1', '["y"] = 2'),),
)

PROGRAMS["the source of a class"] = Program(
    """
=== main.py
import inspect
class X:
    size = 1  # comment A
def make():
    return inspect.getsource(X)
""",
    (("comment A", "comment B"),),
)

PROGRAMS["lines"] = Program(
    """
=== main.py
def make():
    return make.__code__.co_firstlineno
""",
    (("def make", "\n\ndef make"),),
)

PROGRAMS["types of generic bases"] = Program(
    """
=== main.py
import typing
T = typing.TypeVar("T")
class Base(typing.Generic[T]):
    def kind(self):
        return typing.get_args(type(self).__orig_bases__[0])[0].__name__
class Of(Base[int]): pass
def make():
    return Of().kind()
""",
    (("Base[int]", "Base[str]"),),
)

PROGRAMS["a docstring by a name that is a value"] = Program(
    """
=== main.py
class Documented:
    "doc A"
NAME = "__do" + "c__"
def make():
    return [getattr(Documented, NAME)]
""",
    (("doc A", "doc B"),),
)

PROGRAMS["a docstring by a name in many"] = Program(
    """
=== main.py
def helper():
    "doc A"
NAMES = ["x"] * 70 + ["__doc__"]
def make():
    return [getattr(helper, NAMES[70])]
""",
    (("doc A", "doc B"),),
)

PROGRAMS["a docstring by a name in an array"] = Program(
    """
=== main.py
import numpy as np
def helper():
    "doc A"
NAMES = np.array(["x", "__doc__"])
def make():
    return [getattr(helper, NAMES[1])]
""",
    (("doc A", "doc B"),),
)

PROGRAMS["docstrings in formats and patterns"] = Program(
    """
=== main.py
def f():
    "doc A"
def g():
    "doc B"
def h():
    "doc C"
FORMAT = "{0.__doc__}"
def make():
    found = ["before {0.__doc__!r:10} after".format(f), FORMAT.format(g)]
    match h:
        case object(__doc__=doc):
            return [*found, doc]
""",
    (("doc A", "doc D"), ("doc B", "doc D"), ("doc C", "doc D")),
)

PROGRAMS["formats that ask for no docstring"] = Program(
    """
=== main.py
class Named:
    "doc A"
    name = "a"
def make():
    return ["{0.name} {{}} [x]".format(Named)]
""",
    (('"a"', '"b"'),),
    (("doc A", "doc B"),),
)

PROGRAMS["tracebacks that are shown"] = Program(
    """
=== main.py
import traceback
from .parts import bad
def make():
    found = []
    for x in (1, 0, 2):
        try:
            found.append(bad(x))
        except ZeroDivisionError:
            traceback.print_exc()
            traceback.print_exc(1)
    return found
=== parts.py
def bad(x):
    return 4 // x
""",
    (("4 // x", "6 // x"),),
    (("def bad", "# more\ndef bad"), ("4 // x", "4 // x  # at last")),
)

PROGRAMS["tracebacks that are written"] = Program(
    """
=== main.py
import io
import traceback
from .parts import bad
def make():
    found = io.StringIO()
    try:
        bad(0)
    except ZeroDivisionError as error:
        traceback.print_exception(error, file=found)
    lines = found.getvalue().splitlines()
    return [line.split(",")[1:2] or line for line in lines]
=== parts.py
def bad(x):
    return 4 // x
""",
    (("def bad", "# more\ndef bad"), ("4 // x", "4 // x  # at last")),
)

PROGRAMS["lines in tracebacks"] = Program(
    """
=== main.py
import traceback
from .parts import bad, stacked
def make():
    found = stacked()
    try:
        bad(0)
    except ZeroDivisionError:
        return [found, traceback.format_exc().splitlines()[-3:-1]]
=== parts.py
import traceback
def bad(x):
    return 1 / x
def stacked():
    return traceback.extract_stack()[-1].lineno
""",
    (
        ("def bad", "# more\ndef bad"),
        ("1 / x", "1 / x  # at last"),
        ("def stacked", "# more\ndef stacked"),
    ),
)

PROGRAMS["lines of warnings"] = Program(
    """
=== main.py
import warnings
from .parts import warn
def make():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn()
    return [it.lineno for it in found]
=== parts.py
import warnings
def warn():
    warnings.warn("any")
""",
    (
        ("def warn", "# more\ndef warn"),
        ('    warnings.warn("any")', '    # more\n    warnings.warn("any")'),
    ),
)

PROGRAMS["lines of warnings that are shown"] = Program(
    """
=== main.py
import warnings
from .parts import warn
def make():
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *given: found.append(given[3])
        warn()
    return found
=== parts.py
import warnings
def warn():
    warnings.warn("any")
""",
    (('    warnings.warn("any")', '    # more\n    warnings.warn("any")'),),
)

PROGRAMS["lines of records"] = Program(
    """
=== main.py
import logging
from .parts import tell
class Keeping(logging.Handler):
    def __init__(self):
        super().__init__()
        self.found = []
    def emit(self, record):
        self.found.append(record.lineno)
def make():
    logger, keeping = logging.getLogger("shop.lines"), Keeping()
    logger.propagate = False
    logger.addHandler(keeping)
    tell(logger)
    logger.removeHandler(keeping)
    return keeping.found
=== parts.py
def tell(logger):
    logger.error("any")
""",
    (
        ("def tell", "# more\ndef tell"),
        ('    logger.error("any")', '    # more\n    logger.error("any")'),
    ),
)

PROGRAMS["lines in the format of records"] = Program(
    """
=== main.py
import io, logging
from .parts import tell
def make():
    logger, found = logging.getLogger("shop.formats"), io.StringIO()
    handler = logging.StreamHandler(found)
    handler.setFormatter(logging.Formatter("%(lineno)d: %(message)s"))
    logger.propagate = False
    logger.addHandler(handler)
    tell(logger)
    logger.removeHandler(handler)
    return found.getvalue()
=== parts.py
def tell(logger):
    logger.error("any")
""",
    (('    logger.error("any")', '    # more\n    logger.error("any")'),),
)

PROGRAMS["lines of frames and tracebacks"] = Program(
    """
=== main.py
from .parts import bad
def make():
    try:
        bad()
    except ValueError as error:
        return [error.__traceback__.tb_next.tb_lineno]
=== parts.py
def bad():
    raise ValueError
""",
    (
        ("def bad", "# more\ndef bad"),
        ("    raise ValueError", "    # more\n    raise ValueError"),
    ),
)

PROGRAMS["lines of files"] = Program(
    """
=== main.py
import inspect, linecache
from .parts import helper
def make():
    linecache.clearcache()
    return [linecache.getline(inspect.getfile(helper), 2), helper()]
=== parts.py
def helper():
    return 1
""",
    (("return 1", "return 1  # one"), ("def helper", "# more\ndef helper")),
)
