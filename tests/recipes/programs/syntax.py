"""All that code is written with."""

# edits are easier to compare on one line

from __future__ import annotations

from programs._program import Program

PROGRAMS: dict[str, Program] = {}

PROGRAMS["syntax"] = Program(
    """
=== main.py
import asyncio
import contextlib

WIDTH = 6
log = []

def matched(value):
    match value:
        case 0 | 1:
            return "small"
        case [first, *rest] if rest:
            return f"{first}-{len(rest)}"
        case {"kind": kind, **others}:
            return kind + str(len(others))
        case str(text):
            return text
        case _:
            return None

def shown(number):
    return f"{number!r:>{WIDTH}}|{number + 1:04d}" f"{{}}{number=}"

def walrus(values):
    return [last for value in values if (last := value * 2) > 2]

async def numbers():
    for number in range(3):
        yield number * 10

async def collected():
    return [number async for number in numbers() if number != 10]

@contextlib.contextmanager
def managed():
    log.append("in")
    yield 5
    log.append("out")

def generated(count):
    yield from range(count)
    yield -1

def tried(value):
    try:
        return 10 // value
    except ZeroDivisionError as error:
        return str(type(error).__name__)
    else:
        return 1
    finally:
        log.append(value)

def looped():
    total = 0
    for number in range(5):
        if number == 3:
            continue
        total += number
    else:
        total += 100
    while total > 106:
        total -= 2
    return total

def sliced(values):
    first, *middle, last = values
    return values[1:3], values[::-1], middle, last if first else None

def unpacked(*args, **kwargs):
    return [*args, *kwargs.items()]

def make():
    made = [matched(v) for v in (0, 5, [1, 2, 3], {"kind": "k", "x": 1}, "text")]
    made += [shown(5), walrus([1, 2, 3]), asyncio.run(collected())]
    with managed() as entered:
        made.append(entered)
    made += [list(generated(2)), tried(0), tried(3), looped(), sliced([1, 2, 3, 4])]
    made += [unpacked(1, *(2, 3), a=1, **{"b": 2}), {n: n * 2 for n in (1, 2)}]
    made += [(lambda *, x=1: x)(), [x for y in [[1], [2]] for x in y], not made, 1 < 2 < 3]
    return [repr(made), repr(log[:2])]
""",
    (
        ("case 0 | 1", "case 0 | 2 | 5"),
        ("*rest] if rest", "*rest] if not rest"),
        ("return kind + str", "return str(kind) * 2 + str"),
        ('"kind": kind, **others', '"kind": kind, "x": _, **others'),
        (
            "case str(text):\n            return text",
            "case str(text):\n            return text * 2",
        ),
        ("{first}-{len", "{first}+{len"),
        ("WIDTH = 6", "WIDTH = 7"),
        ("{number!r:>{WIDTH}}", "{number!r:<{WIDTH}}"),
        (":04d", ":05d"),
        ("{{}}", "{{-}}"),
        ("{number=}", "{number = }"),
        ("(last := value * 2) > 2", "(last := value * 2) > 4"),
        ("[last for value", "[value for value"),
        ("number * 10", "number * 20"),
        ("if number != 10]", "if number != 20]"),
        ("yield 5", "yield 6"),
        ('log.append("in")', 'log.append("enter")'),
        ("yield from range(count)", "yield range(count)"),
        ("yield -1", "yield -2"),
        ("10 // value", "20 // value"),
        ("type(error).__name__)", "type(error).__name__ * 2)"),
        ("if number == 3", "if number == 2"),
        ("            continue", "            break"),
        ("total > 106", "total > 107"),
        ("total += number", "total -= number"),
        ("values[1:3]", "values[1:2]"),
        ("values[::-1]", "values[::-2]"),
        ("first, *middle, last = values", "*middle, first, last = values"),
        ("last if first else None", "last if not first else None"),
        ("[*args, *kwargs.items()]", "[*kwargs.items(), *args]"),
        ("*(2, 3), a=1", "*(3, 2), a=1"),
        ('**{"b": 2}', '**{"c": 2}'),
        ("n: n * 2 for n in (1, 2)", "n: n * 2 for n in (2, 1)"),
        ("x=1: x", "x=2: x"),
        ("for y in [[1], [2]] for x in y", "for y in [[2], [1]] for x in y"),
        ("not made", "bool(made)"),
        ("1 < 2 < 3", "1 < 2 > 3"),
    ),
    (
        ("total = 0", "total: int = 0"),
        ("total = 0", "total = 0  # type: int"),
        ("return total\n", "return (total)\n"),
        ("for number in range(5):", "for number in range(5):  # all"),
        (
            'f"{number!r:>{WIDTH}}|{number + 1:04d}" f"{{}}{number=}"',
            'f"{number!r:>{WIDTH}}|{number + 1:04d}{{}}{number=}"',
        ),
        ("|{number + 1:04d}", "|{number  +  1:04d}"),
        (
            "return [*args, *kwargs.items()]",
            "return [\n        *args,\n        *kwargs.items(),\n    ]",
        ),
        ("def looped():\n", 'def looped():\n    """Loops."""\n'),
        ("            continue\n", "            continue\n            pass\n"),
        ("with managed() as entered:", "with (managed() as entered):"),
        ("first, *middle, last = values", "(first, *middle, last) = values"),
        (
            "    else:\n        total += 100\n",
            "    else:\n\n        # After all.\n        total += 100\n",
        ),
        ("x=1: x)()", "x=(1): x)()"),
        ("1 < 2 < 3", "(1 < 2 < 3)"),
        ('return "small"', "return 'small'"),
        ("return text\n", "return text;\n"),
        ("log.append(value)", "log.append(\n            value)"),
        ("10 // value", "0xA // value"),
        ("total += 100", "total += 1_00"),
        ("case str(text):", "case (str(text)):"),
    ),
)

PROGRAMS["text only"] = Program(
    """
=== main.py
\"\"\"A module.\"\"\"
import os
import sys

__version__ = "1"
DEBUG = False

# The size.
SIZE = 2


class Config(object):
    # Of everything.
    size = SIZE
    depth: "int" = 1

    def total(self):
        # type: () -> int
        return self.size * self.depth

    def spare(self):
        return None


def helper(value):  # type: (int) -> int
    result: int = value + 1
    return result


def main():
    print(make(), DEBUG, __version__, file=sys.stderr)


def make():
    config = Config()
    total = config.total()
    if total: return [helper(total), "a" "b"]
    else: return []


if __name__ == "__main__":
    main()
""",
    (
        ("SIZE = 2", "SIZE = 3"),
        ('depth: "int" = 1', 'depth: "int" = 2'),
        ("value + 1", "value + 3"),
        ('"a" "b"', '"a", "b"'),
    ),
    (
        ('"""A module."""', '"""Another."""'),
        ('__version__ = "1"', '__version__ = "2"'),
        ("DEBUG = False", "DEBUG = True"),
        ("# The size.\n", ""),
        ("# Of everything.", "# Of all."),
        ("# type: () -> int", "# type: () -> float"),
        ("  # type: (int) -> int", ""),
        ("if total: return", "if total:\n        return"),
        ("    else: return []", "    else:\n        return []"),
        ("    main()\n", "    main()\n    main()\n"),
        ("print(make(), DEBUG, __version__, file=sys.stderr)", "print(make())"),
        ('"a" "b"', '"ab"'),
        ("import os\nimport sys", "import sys"),
        ("class Config(object):", "class Config:"),
        ("SIZE = 2\n", "SIZE = 2\nfor _number in range(3):\n    del _number\n"),
        ("result: int =", "result: float ="),
        ("result: int =", "result ="),
        ("value + 1\n", "value + 1\n\n\n\n"),
        ("def main():", "async def another():\n    return SIZE\n\n\ndef main():"),
    ),
)

PROGRAMS["nothing as a key"] = Program(
    """
=== main.py
def make():
    a = {"x": 1}
    return len({None: a}) and str({None: a})
""",
    (("len({None: a}) and str({None: a})", "len({None: a}) and str({**a})"),),
)

PROGRAMS["nothing as a default"] = Program(
    """
=== main.py
def make():
    f = lambda *, x=None: x
    try:
        return [f()]
    except TypeError:
        return ["no"]
""",
    (("*, x=None: x", "*, x: x"),),
)

PROGRAMS["annotations that bind nothing"] = Program(
    """
=== main.py
X = 1
def make():
    (X): int
    try:
        return [X]
    except UnboundLocalError:
        return ["local"]
""",
    (("(X): int", "X: int"), ("X = 1", "X = 2"), ("(X): int", "(X): int = 5")),
    (("(X): int", "(X): float"),),
)
