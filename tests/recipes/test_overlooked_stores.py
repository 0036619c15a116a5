"""What users put into libraries in ways that are seldom seen: the text of their modules tells that
it may be there, and it counts."""

from __future__ import annotations

import pathlib

import pytest
from overlooked import ASKED, CLASSES, CONFX, DUMPS, TO_B, Cases, Told, check, run, told_of, write
from programs import Edit

FRACTION = """
import fractions
fractions.Fraction.scale = 1
ONE = fractions.Fraction(1, 2)
"""
SCALE: Edit = ("scale = 1", "scale = 3")

CASES: Cases = {
    "what a property keeps": (
        'import multiprocessing\nclass Mine:\n    def tag(): return "A"\n'
        "multiprocessing.get_context().reducer = Mine\n"
        "def make(): return multiprocessing.get_context().reducer.tag()\n",
        TO_B,
    ),
    "the name of an enumeration, in a class": (
        "import json.encoder\nfrom http import HTTPStatus\n"
        "class Own: OK = staticmethod(lambda value: 'A')\n"
        "class Meta(type):\n    def __prepare__(name, bases): return {'HTTPStatus': Own}\n"
        "class Body(metaclass=Meta):\n"
        f"    json.encoder.encode_basestring_ascii = HTTPStatus.OK\n{DUMPS}",
        ("value: 'A'", "value: 'B'"),
    ),
    "before a method of the name setattr": (
        "import json.encoder\ndef text(value): return 'A'\n"
        "class Tool:\n    def setattr(self, *what): pass\n"
        "[Tool() for json.encoder.encode_basestring_ascii in [text]][0].setattr(1, 'x', 2)\n"
        f"{DUMPS}",
        ("return 'A'", "return 'B'"),
    ),
    "a class that is registered by a class of its own": (
        f"{CLASSES}class Meta(abc.ABCMeta):\n    def add(self, kind): self.register(kind)\n"
        f"class Rows(collections.abc.Sequence, metaclass=Meta): pass\nRows.add(Mine)\n{ASKED}",
        ("Rows.add(Mine)", "pass"),
    ),
    "what a property of a library's keeps": (
        'import confx\ndef text(value): return "A"\nconfx.config.encoder = text\n'
        f"def make(): return confx.encode(1)\n{CONFX}",
        TO_B,
    ),
    "what a property keeps whose setter is wrapped": (
        'import confx\ndef text(value): return "A"\nconfx.checked.wrapped = text\n'
        f"def make(): return confx.checked.wrapped(1)\n{CONFX}",
        TO_B,
    ),
    "what a property keeps with its class": (
        'import confx\ndef text(value): return "A"\nconfx.checked.shared = text\n'
        f"def make(): return confx.checked.shared(1)\n{CONFX}",
        TO_B,
    ),
    "what a descriptor keeps under another name": (
        'import confx\ndef text(value): return "A"\nconfx.checked.named = text\n'
        f"def make(): return confx.checked.named(1)\n{CONFX}",
        TO_B,
    ),
    "what a property of a class of its own keeps": (
        'import confx\ndef text(value): return "A"\nconfx.checked.field = text\n'
        f"def make(): return confx.checked.field(1)\n{CONFX}",
        TO_B,
    ),
    "what is kept by what cannot be asked": (
        'import confx\ndef text(value): return "A"\nconfx.checked.odd = text\n'
        f"def make(): return confx.checked.odd(1)\n{CONFX}",
        TO_B,
    ),
    "what a property of a class of classes keeps": (
        'import confx\ndef text(value): return "A"\nconfx.OfMeta.of_class = text\n'
        f"def make(): return confx.OfMeta.of_class(1)\n{CONFX}",
        TO_B,
    ),
    "what a namespace of a library's has": (
        'import confx\ndef text(value): return "A"\nconfx.space.maker = text\n'
        f"def make(): return confx.space.maker(1)\n{CONFX}",
        TO_B,
    ),
    "what a dictionary of a library's has": (
        'import confx\ndef text(value): return "A"\nconfx.table.maker = text\n'
        f"def make(): return confx.made(1)\n{CONFX}",
        TO_B,
    ),
    "what a function is made of": (
        'import fnmatch, posixpath\ndef normcase(s): return "A"\n'
        "posixpath.normcase.__code__ = normcase.__code__\n"
        "def make(): return fnmatch.filter(['A'], 'A')\n",
        TO_B,
    ),
    "a text that is timed": (
        'import json.encoder, timeit\ndef text(value): return "A"\n'
        "PATCHING = 'json.encoder.encode_basestring_ascii = text'\n"
        f"timeit.timeit(PATCHING, globals=globals(), number=1)\n{DUMPS}",
        TO_B,
    ),
    "another class of an object": (
        'import json\nclass Encoder(json.JSONEncoder):\n    def encode(self, o): return "A"\n'
        'json._default_encoder.__class__ = Encoder\ndef make(): return json.dumps({"key": 1})\n',
        TO_B,
    ),
    "a function that is called as one of Python's": (
        "import json.encoder\ndef set(space, name, value): space[name] = value\n"
        'def text(value): return "A"\n'
        f'set(vars(json.encoder), "encode_basestring_ascii", text)\n{DUMPS}',
        TO_B,
    ),
    "a library that is called self": (
        'import json\nimport json.encoder as self\ndef text(value): return "A"\n'
        f"self.encode_basestring_ascii = text\n{DUMPS}",
        TO_B,
    ),
    "a function with self": (
        'import json.encoder\ndef text(value): return "A"\n'
        "def patch(self): self.encode_basestring_ascii = text\n"
        f"patch(json.encoder)\n{DUMPS}",
        TO_B,
    ),
    "a static method with self": (
        'import json.encoder\ndef text(value): return "A"\nclass Patches:\n    @staticmethod\n'
        '    def put(self): setattr(self, "encode_basestring_" + "ascii", text)\n'
        f"Patches.put(json.encoder)\n{DUMPS}",
        TO_B,
    ),
    "a function that registers with self": (
        f"{CLASSES}def put(self, kind): self.register(kind)\n"
        f"put(collections.abc.Sequence, Mine)\n{ASKED}",
        ("put(collections.abc.Sequence, Mine)", "pass"),
    ),
    "exec by another name": (
        'import json.encoder\ndef text(value): return "A"\nrun = exec\n'
        f'run("json.encoder.encode_basestring_ascii = text")\n{DUMPS}',
        TO_B,
    ),
    "exec that is handed on": (
        'import json.encoder\ndef text(value): return "A"\n'
        f'for _ in map(exec, ["json.encoder.encode_basestring_ascii = text"]): pass\n{DUMPS}',
        TO_B,
    ),
    "eval of the builtins": (
        'import builtins, json.encoder\ndef text(value): return "A"\n'
        "builtins.eval(\"setattr(json.encoder, 'encode_basestring_ascii', text)\")\n"
        f"{DUMPS}",
        TO_B,
    ),
    "wraps that decorates nothing": (
        "import functools, json.encoder, types\n"
        'def text(value): return "A"\n'
        "made = types.SimpleNamespace(encode_basestring_ascii=text)\n"
        f"functools.wraps(made)(json.encoder)\n{DUMPS}",
        TO_B,
    ),
    "a class that is registered through another": (
        f"{CLASSES}class Rows(abc.ABC): pass\ncollections.abc.Sequence.register(Rows)\n"
        f"Rows.register(Mine)\n{ASKED}",
        ("Rows.register(Mine)", "pass"),
    ),
    "a class that is registered with one that derives": (
        f"{CLASSES}class Rows(collections.abc.Sequence): pass\nRows.register(Mine)\n{ASKED}",
        ("Rows.register(Mine)", "pass"),
    ),
    "a value in a class by a name that is a value": (
        f'{FRACTION}FIELD = "scale"\ndef make(): return getattr(ONE, FIELD)\n',
        SCALE,
    ),
    "a value in a class by a name that is a default": (
        f'{FRACTION}def make(field="scale"): return getattr(ONE, field)\n',
        SCALE,
    ),
    "lambdas that are called in other ways": (
        "F = (lambda *a: str(a), lambda **a: str(a))[0]\ndef make(): return F()\n",
        ("[0]", "[1]"),
    ),
    "lambdas with constants that are equal": (
        "F = (lambda: [str(i) for i in {1}], lambda: [str(i) for i in {1.0}])[0]\n"
        "def make(): return F()\n",
        ("[0]", "[1]"),
    ),
    "the class of what is masked": (
        "import numpy as np\nclass Sub(np.ndarray):\n"
        '    def tag(self): return "A"\n'
        "A = np.ma.array(np.array([1, 2]).view(Sub), mask=[0, 1])\n"
        "def make(): return A.data.tag()\n",
        TO_B,
    ),
    "the text of a lambda within a text": (
        "import inspect\nF = {}\nX = f'''\n"
        '{F.setdefault("a", lambda: 2)}\'\'\'\nG = F["a"]\n'
        "def helper(): return 1\ndef make(): return [G(), inspect.getsource(helper)]\n",
        ("lambda: 2", "lambda: 3"),
    ),
}
UTF_7 = (
    """# coding: utf-7
import json.encoder
def text(value): return "A"
json.encoder.encode_basestring_ascii +AD0- text
"""
    + DUMPS
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    return told_of(CASES, tmp_path_factory, "overlooked_stores")


@pytest.mark.parametrize("case", CASES)
def test_edits_that_matter_are_noticed(found: dict[str, Told], case: str) -> None:
    check(found[case])


def test_what_runs_the_programs_says_nothing_itself(tmp_path: pathlib.Path) -> None:
    program = (
        "from yogadl.recipes import _patches\nTOLD = _patches.names_put()\n"
        "def make(): return TOLD\n"
    )
    ((_, names), _) = run([write(tmp_path / "1", program)], tmp_path)[0]
    assert names == "{'_BEGUN': False}"


def test_files_are_read_in_the_encoding_that_they_have(tmp_path: pathlib.Path) -> None:
    (before, _), (after, _) = run(
        [write(tmp_path / "1", UTF_7), write(tmp_path / "2", UTF_7.replace(*TO_B))], tmp_path
    )
    assert before[1] != after[1]
    assert before[0] != after[0]
