"""What type hints name, where libraries go by them."""

from __future__ import annotations

from programs._program import Program

PROGRAMS: dict[str, Program] = {}

_TREE = """
=== main.py
{}import typing
from dataclasses import dataclass, fields
@dataclass
class Order:
    item: {} = None
@dataclass
class Item:
    x: int = 1
def first(hint):
    return hint if isinstance(hint, type) else first(typing.get_args(hint)[0])
def make():
    # a comment
    hints = typing.get_type_hints(Order)
    return [first(hints[it.name])().x for it in fields(Order)]
"""
_FUTURE = "from __future__ import annotations\n"
_OF_TREE = (("x: int = 1", "x: int = 2"),), (("# a comment", "# another"),)

PROGRAMS["a class named within a hint"] = Program(
    _TREE.format("", 'typing.Optional["Item"]'), *_OF_TREE
)
PROGRAMS["a class named in a list"] = Program(_TREE.format("", 'typing.List["Item"]'), *_OF_TREE)
PROGRAMS["a class named in a text within a text"] = Program(
    _TREE.format(_FUTURE, 'typing.Optional["Item"]'), *_OF_TREE
)
PROGRAMS["a class named in a text within a hint in a text"] = Program(
    _TREE.format("", "\"typing.List['Item']\""), *_OF_TREE
)

PROGRAMS["texts in hints that name nothing"] = Program(
    """
=== main.py
import typing
from dataclasses import dataclass
one, two = 1, 2
@dataclass
class Order:
    item: typing.Literal["one"] = "one"
    text: "typing.Literal['one']" = "one"
    more: typing.Annotated[int, "two"] = 0
    same: "typing.Annotated[int, 'two']" = 0
def make():
    return [Order().item]
""",
    (('] = "one"\n    text', '] = "two"\n    text'),),
    (("one, two = 1, 2", "one, two = 3, 4"),),
)

PROGRAMS["a class named in a named tuple"] = Program(
    """
=== main.py
import typing
class P(typing.NamedTuple):
    a: "Q"
class Q(typing.NamedTuple):
    z: int = 1
def make():
    return [typing.get_type_hints(P)["a"]().z]
""",
    (("z: int = 1", "z: int = 2"),),
)

PROGRAMS["annotations of functions that are handed to others"] = Program(
    """
=== main.py
import functools
from . import later
One, Two, Three, Four, Five = int, int, int, int, int
def taken(function):
    @functools.singledispatch
    def f(x): return "base"
    f.register(function)
    return f(1)
def helper(x: Three): return "own"
def called(x: Four): return "own"
def make():
    @functools.singledispatch
    def f(x): return "base"
    @f.register
    def _(x: One): return "own"
    @taken
    def g(x: "Two"): return "own"
    def h(x: later.Size): return "own"
    def i(x: Five): return "own"
    return [f(1), g, taken(helper), taken(function=later.other), [taken(it) for it in (h,)],
            called(1), i(1)]
=== later.py
Size = int
Other = int
def other(x: Other): return "own"
""",
    (
        (
            "One, Two, Three, Four, Five = int, int, int",
            "One, Two, Three, Four, Five = str, int, int",
        ),
        (
            "One, Two, Three, Four, Five = int, int, int",
            "One, Two, Three, Four, Five = int, str, int",
        ),
        (
            "One, Two, Three, Four, Five = int, int, int",
            "One, Two, Three, Four, Five = int, int, str",
        ),
        ("Size = int", "Size = float"),
        ("Other = int", "Other = float"),
    ),
    (
        ("int, int\ndef taken", "float, int\ndef taken"),
        ("int, int\ndef taken", "int, float\ndef taken"),
    ),
)

PROGRAMS["hints of Python's abstract Callable"] = Program(
    """
=== main.py
import dataclasses, typing
from collections.abc import Callable
P = typing.ParamSpec("P")
Shown = Callable[[int], str]
Any = Callable[..., int]
Kept = Callable[P, int]
@dataclasses.dataclass
class Column:
    show: Callable[[int], str] = str
    other: "Any | None" = None
def make():
    hints = typing.get_type_hints(Column)
    return [Column().show(1), *map(str, (hints["show"], hints["other"], Shown, Any, Kept))]
""",
    (
        ("show: Callable[[int], str]", "show: Callable[[float], str]"),
        ("Any = Callable[..., int]", "Any = Callable[..., float]"),
        ("Shown = Callable[[int], str]", "Shown = Callable[[int, int], str]"),
    ),
    (("import dataclasses, typing", "import typing, dataclasses"),),
)

PROGRAMS["hints that are classes only on some versions of Python"] = Program(
    """
=== main.py
from __future__ import annotations
import dataclasses, typing
from typing import Annotated, Any
@dataclasses.dataclass
class Order:
    a: Annotated[int, "two"] = 0
    b: Any = 1
    c: typing.Any = 2
    d: typing.Annotated[int, "two"] = 3
def make():
    return [Order()]
""",
    (("b: Any = 1", "b: Any = 4"),),
    (("import dataclasses, typing", "import typing, dataclasses"),),
)
