"""Whatever statement gives an attribute to something is seen in its text."""

from __future__ import annotations

import ast
import pathlib
import unicodedata

import pytest

import yogadl
from yogadl.recipes._assigned import ALL, Stored
from yogadl.recipes._stores import told_by

ROOT = pathlib.Path(yogadl.__file__).parent


def names_in(text: str) -> Stored | None:
    """What may be stored, if what is imported is a library's."""
    told = told_by(text)
    if told is None or told.registries:
        return ALL
    return {**dict.fromkeys((name for name, _ in told.members), False), **told.names}


@pytest.mark.parametrize(
    "text",
    [
        "X.a = 1",
        "X . a=1",
        "X.\\\na = 1",
        "X.a\\\n = 1",
        "(X\n.a) = 1",
        "((X.a), b) = 1, 2",
        "(lambda: X)().a = 1",
        "{'x': X}['x'].a = 1",
        "getattr(X, 'x').a = 1",
        "if x: X.a = 1",
        "def f(): X.a = 1",
        "b = 1; X.a = 2",
        "b = X.a = 1",
        "X.a = X.b = 1",
        "self.x.a = 1",
        "class A:\n    def f(self):\n        self.x.a = 1",
        "X.a: int = 1",
        "X.a += 1",
        "X.a //= 1",
        "X.a **= 1",
        "X.a >>= 1",
        "X.a @= 1",
        "X.a, b = 1, 2",
        "*X.a, b = y",
        "[X.a] = y",
        "X.a, X.b, c = y",
        "X.a, b \\\n = y",
        "(\n    X.a,\n    b,\n) = y",
        "(\n    X.a,\n    b) = y",
        "X.a, (\n    b) = y",
        "b, (c, [\n    X.a]) = y",
        "for X.a in y: pass",
        "for b, X.a in y: pass",
        "for b, (c, X.a) in y: pass",
        "for (b,\n    X.a) in y: pass",
        "for X.a \\\n in y: pass",
        "async def f():\n    async for X.a in y: pass",
        "[0 for X.a in y]",
        "with y as X.a: pass",
        "with y as b, z as X.a: pass",
        "with y as (b, X.a): pass",
        "with (y as b,\n    z as X.a): pass",
        "for X.b.a in y: pass",
        "with y as X.b.a: pass",
        "(X.a,\n    b['c']) = y",
        "X.a: Callable[[int],\n    Dict[str, int]] = y",
        "def f(self): setattr(self.owner, self.name, 1)",
        "setattr(X, 'a', 1)",
        "setattr(X,\n    'a', 1)",
        "setattr(getattr(X, 'b', None), 'a', 1)",
        "[0 for X.a in y][0].setattr(1, 'b', 2)",
        "class A:\n    X.__a = 1",
        "setattr(X, name, 1)",
        "from builtins import setattr as give",
        "X.__dict__['a'] = 1",
        "vars(X)['a'] = 1",
        "vars(X)['a'] += 1",
        "vars(X)[b], vars(X)['a'] = 1, 2",
        "vars(X).update(a=1)",
        "vars(X).setdefault('a', 1)",
        "X.__dict__.update(a=1)",
        "X.__dict__ = {'a': 1}",
        "vars(X).items.__self__['a'] = 1",
        "every = vars(X)\nevery['a'] = 1",
        "(every := vars(X))['a'] = 1",
        "f(vars(X))",
        "f(every=vars(X))",
        "[vars(X)][0]['a'] = 1",
        "vars(vars(X)['b'])['a'] = 1",
        "vars(X) == y",
        "y in [1] < vars(X)",
        "vars(b=1, *[X])['a'] = 1",
        "vars(*[X])['a'] = 1",
        "vars()['X'].a = 1",
        "get = vars\nget(X)['a'] = 1",
        "import builtins\nbuiltins.vars(X)['a'] = 1",
        "from builtins import vars as get\nget(X)['a'] = 1",
        "getattr(X, '__dict__')['a'] = 1",
        "operator.attrgetter('b.__dict__')(X)['a'] = 1",
        "match X:\n    case object(__dict__=every): every['a'] = 1",
        "for vars(X)['a'] in y: pass",
        "del vars(X)['b']",
        "def f(self): vars(self.x)['a'] = 1",
        "def f(self): self.x.__dict__['a'] = 1",
        "vars(self, X)['a'] = 1",
        "type.__dict__['__dict__'].__get__(X)['a'] = 1",
        "object.__setattr__(X, 'a', 1)",
        "exec('X.a = 1')",
        "unittest.mock.patch.object(X, 'a').start()",
        "X.register(Y)",
        "X.a, y[k == 1] = f, 2",
        "X.a, y[';'] = f, 2",
        "X.a: 'x==y' = f",
        "X.a: A[b >= 1] = f",
        "[0 for\n X.a in y]",
        "[0 for b,\n X.a in y]",
        "[0 for b, (c,\n X.a) in y]",
        "[0 for b,  # one, and\n X.a in y]",
        "[0 for X  # one\n .a in y]",
        "[0 for b['k', 1:2],\n X.a in y]",
        "[0 for " + "b, " * 200 + "\n X.a in y]",
        "'''waiting for things.\\nfor'''\n[0 for\n X.a in y]",
        "f(" + "b.c, " * 1000 + "d); X.a = f",
        "if x.ready: X.a = 1",
        "while x.ready: X.a = 1",
        "with x.lock: X.a = 1",
        "for i in x.items: i.a = 1",
        "try: x.b\nexcept x.E: X.a = 1",
        "def f() -> x.b: X.a = 1",
        "x[i.start:i.stop].a += 1",
        "if x.ready: X.a, z = 1, 2",
        "with f() as x[1:2].a: pass",
        "with (f() as # c\n  x.a): pass",
        "with (f() as x\n  .a): pass",
        'for x["in"].a in y: pass',
        "for x[[i for i in z][0]].a in y: pass",
        '(X.a,\n y["("]) = 1, 2',
        'x.a: """\n""" = 1',
        'x.a: D[\n "(", int] = 1',
        "x. self.a = 1",
        'setattr(x # , "b",\n , "a", 1)',
        'put = setattr\nput(x, "a", 1)',
        'from builtins import setattr as put\nput(x, "a", 1)',
        'getattr(builtins, "setattr")(x, "a", 1)',
        "setattr(*what)",
        "setattr(x, 'a', f(setattr(y, b, 1)))",
        "s = '\uff02'; X.a = f; t = '\uff02'\nfor x.b in y: pass",
        's = "\uff02"; X.a = f; t = "\uff02"\nfor x.b in y: pass',
        "\uff56ars(X)['a'] = f",
        "s\uff45tattr(X, name, f)",
        "X.\uff41 = f",
        "X.__class__ = Y",
        "setattr(X, '__class__', Y)",
        "run = exec\nrun('X.a = f')",
        "[*map(eval, texts)]",
        "import builtins\nbuiltins.exec('X.a = f')",
        "from builtins import eval as run\nrun('X.a = f')",
        "import builtins\nrun = builtins\nrun.exec('X.a = f')",
        "import builtins as b\nb.exec('X.a = f')",
        "functools.wraps(Y)(X)",
        "from functools import wraps as kept\nkept(Y)(X)",
        "from functools import wraps\nput = wraps(Y)\nput(X)",
        "getattr(functools, 'wraps')(Y)(X)",
        "from m import set\nset(vars(X), 'a', f)",
        "from m import *\nsorted(vars(X))",
        "def f(list): list(vars(X))",
        "import m as self\nself.a = f",
        "def put(self): self.a = f",
        "def put():\n    self = m\n    self.a = f",
        "for self in m: self.a = f",
        "class A:\n    @staticmethod\n    def put(self): self.a = f",
        "class A:\n    def put(it, self): self.a = f",
        "class A:\n    def put(self):\n        def inner(self): self.a = f",
        "match m:\n    case object() as self: self.a = f",
        "def put(self): vars(self)['a'] = f",
        "def put(self): setattr(self, name, f)",
        "def put(self): self.register(f)",
    ],
)
def test_no_statement_is_missed(text: str) -> None:
    ast.parse(text)
    found = names_in(text)
    assert found is ALL or "a" in found


@pytest.mark.parametrize(
    "text",
    [
        "def make(x: np.ndarray, y=A.b):\n    return f(x.shape, axis=1) == x.size",
        "class A:\n    def __init__(self, x):\n        self.x = x\n        self.y, self.z = x, 1",
        "for x in A.b: print(x.a <= 3, x.a == 3, x.a != 3)",
        "import a.b as c",
        "self.register_buffer('x', y)",
        "f(**vars(options))",
        "print(vars(options)['x'], options.__dict__['y'])",
        "for name, value in vars(options).items(): print(name)",
        "found = {**vars(options), **options.__dict__}",
        "found = {name: 1 for name in vars(options)}",
        "found = dict(vars(options)), sorted(options.__dict__)",
        "found = 'x' in vars(options) or vars(options) == vars(y)",
        "found = options.__dict__.get('x', vars(y).copy())",
        "class A:\n    def f(self, **more):\n        self.__dict__.update(more)",
        "class A:\n    def f(self):\n        vars(self)['x'] = 1\n        return f(vars(self))",
        "class A:\n    'Shows vars(x), and x.__dict__.'",
        "x = f(\n    A.b,\n    c=3)",
        "with open(path) as file: file.read()",
        "values = [\n    A.b(x),\n    A.c,\n]",
        "from functools import wraps\ndef f(g):\n    @wraps(g)\n    def h(*args): return g(*args)",
        "import functools\n@functools.wraps(g)\ndef h(): return g()",
        "importlib.import_module('m')",
        "importlib.import_module('.m', __package__)",
        "import sys\nm = sys.modules['m']",
        "import sys\nis_there = 'm' in sys.modules and len(sys.modules) > 3",
        "import sys\nm = sys.modules.get('m')",
        "import sys\nfor name in sys.modules: print(name, dict(sys.modules), sys.modules.keys())",
        "import builtins\nwith builtins.open(path) as file: builtins.print(file)",
        "class A:\n    async def f(self, /): self.x = 1",
    ],
)
def test_most_code_gives_attributes_to_itself_only(text: str) -> None:
    assert names_in(text) is not ALL
    assert "b" not in (names_in(text) or ())
    assert not {"x", "y", "z", "a", "size"} & (names_in(text) or {}).keys()


@pytest.mark.parametrize(
    "text",
    [
        "from sys import modules\ndel modules['m']",
        "from sys import (\n    argv,\n    modules as loaded,\n)",
        "import sys\nsys.modules['m'] = other",
        "import sys\nsys . modules['" + "m" * 600 + "'] = other",
        "import sys\nsys.modules.pop('m')",
        "import sys\nsys.modules[\n    'm'\n] = other",
        "import sys\nsys.modules['m']: object = other",
        "import sys\nfor sys.modules['m'] in [other]: pass",
        "import sys\na, sys.modules['m'] = 1, other",
        "import sys\nsys.modules |= {'m': other}",
        "import sys\nsys.modules.update(m=other)",
        "import sys\nsys.modules.setdefault('m', other)",
        "import sys\nloaded = sys.modules\nloaded['m'] = other",
        "import sys\nput(sys.modules)",
        "import sys\n'm' in sys.modules\nput(sys.modules)",
        "import sys\nsys.modules == other",
        "import sys\nlen = put\nlen(sys.modules)",
        "import sys\ndel sys.modules['m']",
        "x.y = " + "-" * 100_000 + "1",
    ],
)
def test_where_modules_go_or_nobody_can_tell_all_names_are_possible(text: str) -> None:
    assert names_in(text) is ALL


DISPATCHED = "import functools\n@functools.singledispatch\ndef f(x): pass\n"
TF = "import tensorflow as tf\n"
REGISTRY = "class Registry:\n    def register(self, name): pass\n"


@pytest.mark.parametrize(
    "text",
    [
        DISPATCHED + "@f.register\ndef _(x: int): pass\n@f.register(str)\ndef _(x): pass",
        "from functools import singledispatch as by\n@by\ndef f(x): pass\nf.register(int, len)",
        "from abc import ABC\nclass A(ABC): pass\nA.register(int)",
        "import abc\nclass A(metaclass=abc.ABCMeta): pass\nA.register(int)",
        "def register(name): return print\n@register('b')\ndef make(): pass",
        REGISTRY + "R = Registry()\n@R.register('b')\ndef make(): pass",
        REGISTRY + "Registry.register('b', f)",
        "import atexit\natexit.register(print)",
        "import atexit as at_end\n@at_end.register\ndef leave(): pass",
        "# What is registered.\ndef make():\n    'Registers it: register(it).'",
        "class A:\n    def register_all(self): self.register_buffer('b', 1)",
        "def f(x, registered=True): return x",
        "import keras\n@keras.saving.register_keras_serializable()\nclass A(keras.Layer): pass",
        TF + "@tf.keras.utils.register_keras_serializable('mine')\ndef f(x): return x",
        "from tensorflow import keras as k\nk.saving.register_keras_serializable()(A)",
        "from keras.saving import register_keras_serializable as kept\n@kept()\nclass A: pass",
        "from tensorflow.keras.utils import register_keras_serializable\n"
        "@register_keras_serializable(package='mine')\nclass A: pass",
    ],
)
def test_what_is_registered_with_ones_own_is_in_no_library(text: str) -> None:
    assert names_in(text) is not ALL


@pytest.mark.parametrize(
    "text",
    [
        "tf.keras.utils.register_keras_serializable()(A)",
        TF + "tf.register_tensor_conversion_function(A, f)",
        TF + "lib.saving.register_keras_serializable(A)",
        TF + "tf.keras.utils.register_keras_serializable.register(A)",
        TF + "tf.keras.utils = lib\ntf.keras.utils.register_keras_serializable(A)",
        TF + "tf.keras.utils.register_keras_serializable = lib.f.register",
        TF + "tf = lib\ntf.keras.utils.register_keras_serializable(A)",
        TF + "def make(tf): tf.keras.utils.register_keras_serializable(A)",
        TF + "getattr(tf.keras.utils, 'register_keras_serializable')(A)",
        "import lib as keras\nkeras.saving.register_keras_serializable(A)",
        "from .keras.saving import register_keras_serializable as kept\nkept(A)",
        "from lib import register_keras_serializable\nregister_keras_serializable(A)",
        "import lib\nlib.f.register(int, g)",
        "from lib import f\n@f.register\ndef _(x: int): pass",
        "from lib import register\n@register('b')\ndef make(): pass",
        "from lib import register_hook as hook\nhook(f)",
        "from lib import *\n" + DISPATCHED + "f.register(int, g)",
        DISPATCHED + "from lib import f\nf.register(int, g)",
        DISPATCHED + "def make(f): f.register(int, g)",
        DISPATCHED + "def make():\n    global f\n    f = lib.f\nf.register(int, g)",
        DISPATCHED + "globals()['f'] = lib.f\nf.register(int, g)",
        DISPATCHED + "import sys\nsetattr(sys.modules[__name__], 'f', lib.f)\nf.register(int, g)",
        DISPATCHED + "import m\nm.f = lib.f\nf.register(int, g)",
        DISPATCHED + "import m\nm.__dict__.update(f=lib.f)\nf.register(int, g)",
        DISPATCHED + "f.__wrapped__.register(int, g)",
        DISPATCHED + "match lib:\n    case A(f=f): f.register(int, g)",
        "import lib as functools\n" + DISPATCHED + "f.register(int)",
        "@singledispatch\ndef f(x): pass\ndef make():\n    from functools import singledispatch\n"
        "f.register(int)",
        "import functools\n@lib.kept\n@functools.singledispatch\ndef f(x): pass\nf.register(int)",
        "from lib import ABC\nclass A(ABC): pass\nA.register(int)",
        "from abc import ABC\nclass A(ABC, lib.Kept): pass\nA.register(int)",
        "class A(lib.Base): pass\nA.register(int)",
        "class A: pass\nA.register(int)",
        "class A(lib.Base):\n    def register(self): pass\nA().register(int)",
        REGISTRY + "    def __new__(cls): return lib.f\nR = Registry()\nR.register(int)",
        REGISTRY + "    def __getattr__(self, name): return lib.f\nR = Registry()\nR.register(int)",
        REGISTRY + "R = Registry()\nR = lib.f\nR.register(int)",
        REGISTRY + "Registry().x.register(int)",
        "class A:\n    @lib.property\n    def register(self): pass\nA.register(int)",
        "class A:\n    def f(self): self.x.register(int)",
        REGISTRY + "    __new__ = lambda kind: lib.f\nR = Registry()\nR.register(int)",
        REGISTRY + "Registry.__new__ = make\nR = Registry()\nR.register(int)",
        REGISTRY + "R = Registry()\nR.__class__ = lib.Kept\nR.register(int)",
        REGISTRY + "R = Registry()\nfunctools.wraps(lib.f)(R)\nR.register(int)",
        "staticmethod = f\nclass A:\n    @staticmethod\n    def register(x): pass\nA.register(int)",
        "import functools\nfunctools.singledispatch = g\n@functools.singledispatch\n"
        "def f(x): pass\nf.register(int)",
        "import sys as s\ns.modules['atexit'] = f\nimport atexit\natexit.register(g)",
        "from abc import ABC\nclass A(ABC): pass\nA.register.__func__(lib.A, int)",
        "import abc\nclass A(abc.ABC):\n    match f:\n        case register: pass\nA.register(int)",
        "_A__f = f\nclass A:\n    __f = lib.f\n    _A__f.register(int)",
        "for name in 'dispatch register'.split(): getattr(lib.f, name)(int)",
        "call(lib.f, register=(int, g))",
        "def register(): pass\ngetattr(lib.f, register.__name__)(int, g)",
        "'lib.f.register(int, g)'\nexecute(__doc__)",
        "import a\nclass A(a" + ".b" * 2000 + "): pass\nA.register(int)",
        "import atexit\nfrom lib import atexit\natexit.register(f)",
        "import lib.atexit\natexit.register(f)",
        "getattr(lib.f, 'register')(int, g)",
        "operator.attrgetter('f.register')(lib)(int, g)",
        "getattr(lib, f'register_{kind}')(g)",
        "operator.methodcaller('register', int)(lib.f)",
        "match lib.f:\n    case object(register=put): put(int, g)",
        "put = lib.f.register\nput(int, g)",
        "lib.f.\uff52egister(int, g)",
    ],
)
def test_what_may_be_registered_with_a_library_makes_all_names_possible(text: str) -> None:
    ast.parse(text)
    assert names_in(text) is ALL


@pytest.mark.parametrize("name", ["नाम", "e\u0301", "a·b", "℘", "\uff41"])
def test_names_of_any_letters_are_seen(name: str) -> None:
    found = names_in(f"x.{name} = 1")
    assert found is not ALL
    assert unicodedata.normalize("NFKC", name) in found


@pytest.mark.parametrize(
    "text",
    [
        "importlib.import_module(f'{package}.x')",
        "from importlib import import_module as load\nload('.x', __package__)",
        "[*map(importlib.import_module, names)]",
        "load = importlib.import_module",
        "getattr(importlib, 'import_module')('m')",
        "__import__(name)",
        "__import__('m', globals(), None, ['x'], 1)",
        "importlib.import_module('.m', 'package')",
        "importlib.import_module(name='m', package=p)",
        "importlib.util.find_spec(name)",
        "@importlib.import_module(name)\ndef f(): pass",
        "match importlib:\n  case ModuleType(import_module=load): pass",
    ],
)
def test_imports_of_any_name_may_do_anything(text: str) -> None:
    assert told_by(f"import importlib\n{text}") is ALL


@pytest.mark.parametrize(
    "text",
    [
        "sys.path.append(x)",
        "sys.path = []",
        "x = sys.path_hooks",
        "import sys as system",
        "from sys import path",
        "from os import sys as s",
        "from sys import *",
        "it = sys",
        "os.sys.path",
        "vars(sys)['path']",
        "getattr(sys, 'path')",
        "__import__('sys').path",
        "import site\nsite.addsitedir('/x')",
        "import os\nos.chdir('/x')",
        "match os:\n  case ModuleType(sys=system): pass",
        "package.__path__.append(x)",
    ],
)
def test_where_python_looks_for_modules_may_be_moved(text: str) -> None:
    assert told_by(text) is ALL


@pytest.mark.parametrize(
    "text",
    ["import sys\nsys.exit(main(sys.argv))", "from sys import argv, stderr", "system.path = 1"],
)
def test_what_says_nothing_of_where_python_looks(text: str) -> None:
    assert told_by(text) is not ALL


def test_what_is_imported_is_told() -> None:
    told = told_by(
        "import a.b as c, d\nfrom . import e\nfrom ..f import *\ndef g(): from h import i\n"
        "importlib.import_module('j')\nimport_module('.k', __package__)\n"
        "if TYPE_CHECKING: import p"
    )
    assert told is not ALL
    found = {(it.level, it.module, it.name) for it in told.imports}
    assert found == {
        *((0, "a.b", ""), (0, "d", ""), (1, "", "e"), (2, "f", "*"), (0, "h", "i")),
        *((0, "j", ""), (1, "k", ""), (0, "p", "")),
    }


def test_methods_may_set_what_they_like_of_themselves() -> None:
    text = (
        "class A:\n  def put(self, name):\n    setattr(self, name, 1)\n    self.a = 2  # no setattr"
    )
    assert names_in(text) == {}


@pytest.mark.parametrize(
    "text",
    [
        "X.a = 1",
        "X.a = X.b = 'text'",
        "X.a = -1.5",
        "X.a = not f",
        "X.a = f'{f}'",
        "X.a: bool = False",
        "X.a += 1",
        "X.a = 1,",
        "X.a = []",
        "setattr(X, 'a', 1)",
        "X.a -= -1",
        "def f(options): options.a = None",
    ],
)
def test_numbers_and_texts_are_no_code(text: str) -> None:
    assert (names_in(text) or {})["a"] is False


@pytest.mark.parametrize(
    "text",
    [
        "X.a = f",
        "X.a = X.b = f",
        "X.a = 1\nX.a = f",
        "X.a = f\nX.a = 1",
        "X.a, b = 1, 2",
        "X.a = -f",
        "X.a = 1 and f",
        "X.a = 1 if x else f",
        "X.a = f == 1",
        "X.a += f",
        "X.a: bool",
        "for X.a in y: pass",
        "with 1 as X.a: pass",
        "setattr(X, 'a', f)",
        "X.a = [f]",
        "X.b[0].a = f",
    ],
)
def test_all_else_may_be_code(text: str) -> None:
    assert (names_in(text) or {})["a"] is True


def test_what_python_itself_reads_may_make_something_code() -> None:
    assert (names_in("X.__module__ = 'json'") or {})["__module__"] is True


def test_all_that_this_package_gives_is_seen() -> None:
    seen = 0
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        found = names_in(text)
        if found is ALL:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
                assert is_own or node.attr in found, (path, node.lineno)
                seen += not is_own
    assert seen > 20
