"""What users put into libraries in ways that are seldom seen: the text of their modules tells that
it may be there, and it counts."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
from made_once import made_once
from programs import Edit

HERE = pathlib.Path(__file__).parent
LONG_AGO = 1_000_000_000
PATCH = """
import json.encoder
def text(value): return "A"
json.encoder.encode_basestring_ascii = text
"""
DUMPS = """
def make(): return json.dumps({"key": "value"}, indent=1)
"""
TO_B: Edit = ('return "A"', 'return "B"')
CLASSES = """
import abc, collections.abc
class Mine: pass
"""
ASKED = """
def make(): return isinstance(Mine(), collections.abc.Sequence)
"""
FRACTION = """
import fractions
fractions.Fraction.scale = 1
ONE = fractions.Fraction(1, 2)
"""
SCALE: Edit = ("scale = 1", "scale = 3")
CONFX = """=== ../site-packages/confx.py
import collections, functools, types
__version__ = "1.0"
class Config:
    _encoder = str
    @property
    def encoder(self): return self._encoder
    @encoder.setter
    def encoder(self, value): self._encoder = value
class Named:
    def __set_name__(self, owner, name): self.private = "_" + name
    def __get__(self, owner, kind=None): return getattr(owner, self.private)
    def __set__(self, owner, value): setattr(owner, self.private, value)
def checked(put):
    @functools.wraps(put)
    def checking(self, value): return put(self, value)
    return checking
class Checked(Config):
    named = Named()
    @property
    def wrapped(self): return self._encoder
    @wrapped.setter
    @checked
    def wrapped(self, value): self._encoder = value
    @property
    def shared(self): return self._encoder
    @shared.setter
    def shared(self, value): type(self)._encoder = staticmethod(value)
class Meta(type):
    @property
    def of_class(cls): return cls._of_class
    @of_class.setter
    def of_class(cls, value): cls._of_class = staticmethod(value)
class OfMeta(metaclass=Meta): pass
config, checked = Config(), Checked()
space = types.SimpleNamespace()
table = collections.OrderedDict()
def encode(value): return config._encoder(value)
def made(value): return table.maker(value)
"""

# Programs of files below lines ``=== name``, ``main.py`` first, each with an edit that matters.
CASES: dict[str, tuple[str, Edit]] = {
    "a module that fails": (
        f"import json\ntry: from . import gpu\nexcept ImportError: gpu = None\n{DUMPS}"
        f"=== gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that raises, imported by its whole name": (
        f"import json\ntry: import shop.gpu\nexcept RuntimeError: pass\n{DUMPS}"
        f"=== gpu.py\n{PATCH}raise RuntimeError\n",
        TO_B,
    ),
    "one that fails in make": (
        "import json\ndef make():\n    try: from . import gpu\n    except ImportError: pass\n"
        f'    return json.dumps({{"key": "value"}}, indent=1)\n'
        f"=== gpu.py\n{PATCH}raise ImportError\n",
        TO_B,
    ),
    "one that fails and is suppressed": (
        "import contextlib, json\nwith contextlib.suppress(ImportError):\n    from .gpu import f\n"
        f"{DUMPS}=== gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that fails, imported by its name only": (
        "import contextlib, importlib, json\nwith contextlib.suppress(ImportError):\n"
        f'    importlib.import_module(".gpu", __package__)\n{DUMPS}'
        f"=== gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that fails, imported by a name that is put together": (
        "import contextlib, importlib, json\nfor name in ('gpu',):\n"
        "    with contextlib.suppress(ImportError):\n"
        f'        importlib.import_module(f"shop.{{name}}")\n{DUMPS}'
        f"=== gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "a package that fails": (
        f"import json\ntry: from .gpu.deep import f\nexcept ImportError: pass\n{DUMPS}"
        f"=== gpu/__init__.py\n{PATCH}import no_such_library_x\n=== gpu/deep.py\nf = 1\n",
        TO_B,
    ),
    "what a module imports that fails": (
        f"import json\ntry: from . import gpu\nexcept ImportError: pass\n{DUMPS}"
        f"=== gpu.py\nfrom . import more\n=== more.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that takes itself away": (
        f"import json\ntry: from . import gpu\nexcept KeyError: pass\n{DUMPS}"
        f"=== gpu.py\nimport sys\nloaded = sys.modules\nloaded.pop(__name__)\n{PATCH}",
        TO_B,
    ),
    "a class that is registered by one that fails": (
        f"{CLASSES}try: from . import gpu\nexcept ImportError: pass\n{ASKED}"
        "=== gpu.py\nfrom . import main\nimport collections.abc\n"
        "collections.abc.Sequence.register(main.Mine)\nimport no_such_library_x\n",
        ("collections.abc.Sequence.register(main.Mine)", "pass"),
    ),
    "a plain value by one that fails": (
        "import string\ntry: from . import gpu\nexcept ImportError: pass\n"
        'def make(): return vars(string)["WIDTH"]\n'
        "=== gpu.py\nimport string\nstring.WIDTH = 2\nimport no_such_library_x\n",
        ("WIDTH = 2", "WIDTH = 3"),
    ),
    "one that fails, for which its package has another value": (
        f"import json\n{DUMPS}=== __init__.py\ntry: from . import gpu\n"
        f"except ImportError: gpu = None\n=== gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that fails among all of a package": (
        f"import json\ntry: from shop.sub import *\nexcept ImportError: pass\n{DUMPS}"
        '=== sub/__init__.py\n__all__ = ["gpu"]\n'
        f"=== sub/gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that fails, of another package": (
        "import contextlib, importlib, json\nfrom . import sub\n"
        "with contextlib.suppress(ImportError):\n"
        f'    importlib.import_module(".gpu", "shop.sub")\n{DUMPS}'
        f"=== sub/__init__.py\n=== sub/gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that fails, imported by the function below": (
        "import contextlib, json\nwith contextlib.suppress(ImportError):\n"
        f'    __import__("gpu", globals(), None, ["x"], 1)\n{DUMPS}'
        f"=== gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that fails and has the name of one of Python's": (
        f"import json\ntry: import antigravity\nexcept ImportError: pass\n{DUMPS}"
        f"=== ../antigravity.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that fails and was elsewhere": (
        "import json, os, sys\nsys.path.insert(0, os.path.dirname(__file__) + '/plug')\n"
        "try: import plugged\nexcept ImportError: pass\n"
        f"sys.path.pop(0)\n{DUMPS}=== plug/plugged.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that fails, in the place of which there is another": (
        "import json, sys, types\ntry: from . import gpu\nexcept ImportError:\n"
        f'    gpu = sys.modules.setdefault("shop.gpu", types.ModuleType("shop.gpu"))\n{DUMPS}'
        f"=== gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that fails, in the place of which there is a library": (
        "import json, sys\ntry: import plugged\nexcept ImportError:\n"
        f"    sys.modules.setdefault('plugged', json)\n{DUMPS}"
        f"=== ../plugged.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that fails, in the place of which there is one that says whence it is": (
        "import json, sys, types\nfrom importlib.machinery import ModuleSpec\n"
        "try: from . import gpu\nexcept ImportError:\n"
        "    made = types.ModuleType('shop.gpu')\n"
        "    made.__spec__ = ModuleSpec('shop.gpu', None)\n"
        f"    sys.modules.setdefault('shop.gpu', made)\n{DUMPS}"
        f"=== gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that a walk through packages imports": (
        "import json, pkgutil\nimport shop\n"
        "NAMES = [it.name for it in pkgutil.walk_packages(shop.__path__, 'shop.')]\n"
        f"{DUMPS}=== gpu/__init__.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that puts another in its place": (
        f"import json\nfrom . import gpu\n{DUMPS}"
        f"=== gpu.py\n{PATCH}import sys\nsys.modules.update({{__name__: json}})\n",
        TO_B,
    ),
    "a class of one that puts a library in its place": (
        "import json\nfrom . import compat\ndef make(): return json.dumps({1: 2}, indent=1)\n"
        "=== compat.py\nimport json, sys\nclass Encoder(json.JSONEncoder):\n"
        '    def encode(self, o): return "A"\n'
        "json.JSONEncoder = Encoder\nsys.modules[__name__] = json\n",
        TO_B,
    ),
    "one that fails, beside a finder of somebody's": (
        "import json, sys\nclass Finder:\n"
        "    def find_spec(self, name, path, target): return None\n"
        "sys.meta_path.insert(0, Finder())\n"
        f"try: from . import gpu\nexcept ImportError: pass\n{DUMPS}"
        f"=== gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that fails, beside a finder that does": (
        "import json, sys\nclass Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        '        if "gpu" in name and hasattr(json, "ready"): raise RuntimeError(name)\n'
        "sys.meta_path.insert(0, Finder())\n"
        f"try: from . import gpu\nexcept ImportError: pass\njson.ready = 1\n{DUMPS}"
        f"=== gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that fails and was elsewhere, by another name of sys": (
        "import json, os, sys as system\n"
        "system.path.insert(0, os.path.dirname(__file__) + '/plug')\n"
        "try: import plugged\nexcept ImportError: pass\n"
        f"system.path.pop(0)\n{DUMPS}=== plug/plugged.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that fails and was elsewhere, by a value that is sys": (
        "import json, os, sys\nsystem = sys\n"
        "system.path.insert(0, os.path.dirname(__file__) + '/plug')\n"
        "try: import plugged\nexcept ImportError: pass\n"
        f"system.path.pop(0)\n{DUMPS}=== plug/plugged.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that fails and was elsewhere, by sys of another module": (
        "import json, os\nos.sys.path.insert(0, os.path.dirname(__file__) + '/plug')\n"
        "try: import plugged\nexcept ImportError: pass\n"
        f"os.sys.path.pop(0)\n{DUMPS}=== plug/plugged.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that fails and has the name of another, elsewhere": (
        "import json, os, sys\nsys.path.insert(0, os.path.dirname(__file__) + '/plug')\n"
        "try: import plugged\nexcept ImportError: pass\n"
        f"sys.path.pop(0)\n{DUMPS}=== plug/plugged.py\n{PATCH}import no_such_library_x\n"
        "=== ../plugged.py\n",
        TO_B,
    ),
    "one that fails, and another of its name that does not": (
        "import json, os, sys\nsys.path.insert(0, os.path.dirname(__file__) + '/plug')\n"
        "try: import plugged\nexcept ImportError:\n    sys.path.pop(0)\n    import plugged\n"
        f"{DUMPS}=== plug/plugged.py\n{PATCH}import no_such_library_x\n=== ../plugged.py\n",
        TO_B,
    ),
    "one that fails when it is looked for": (
        "import importlib.util, json\n"
        "try: HAS = importlib.util.find_spec('shop.gpu.kernels') is not None\n"
        f"except ImportError: HAS = False\n{DUMPS}"
        f"=== gpu/__init__.py\n{PATCH}import no_such_library_x\n=== gpu/kernels.py\n",
        TO_B,
    ),
    "one that decorates": (
        "import importlib, json\nname = 'gpu'\ntry:\n"
        "    @importlib.import_module(f'shop.{name}')\n    def f(): pass\n"
        f"except ImportError: pass\n{DUMPS}=== gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "what a property keeps": (
        'import multiprocessing\nclass Mine:\n    def tag(): return "A"\n'
        "multiprocessing.get_context().reducer = Mine\n"
        "def make(): return multiprocessing.get_context().reducer.tag()\n",
        TO_B,
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
    "one that fails, of a package that is installed, too": (
        f"import json\ntry: import acme.gpu\nexcept ImportError: pass\n{DUMPS}"
        "=== ../site-packages/acme/__init__.py\n"
        "import pkgutil\n__path__ = pkgutil.extend_path(__path__, __name__)\n"
        f"=== ../acme/__init__.py\n=== ../acme/gpu.py\n{PATCH}import no_such_library_x\n",
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
    "one that fails and was in another place of its package": (
        "import json, os, shop\nshop.__path__.insert(0, os.path.dirname(__file__) + '/plug')\n"
        "try: from . import gpu\nexcept ImportError: pass\n"
        f"shop.__path__.pop(0)\n{DUMPS}=== plug/gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that fails and has the name of another of its package": (
        "import json, os, shop\nshop.__path__.insert(0, os.path.dirname(__file__) + '/plug')\n"
        "try: from . import gpu\nexcept ImportError: pass\n"
        f"shop.__path__.pop(0)\n{DUMPS}=== plug/gpu.py\n{PATCH}import no_such_library_x\n"
        "=== gpu.py\n",
        TO_B,
    ),
    "one that fails and that a finder found": (
        "import importlib.machinery, json, os, sys\nclass Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        places = [os.path.dirname(__file__) + '/plug']\n"
        "        return importlib.machinery.PathFinder.find_spec(name, places)\n"
        "sys.meta_path.append(Finder())\ntry: import plugged\nexcept ImportError: pass\n"
        f"sys.meta_path.pop()\n{DUMPS}=== plug/plugged.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one that is taken away by another name of sys": (
        "import json, sys as system\nfrom . import gpu\nsystem.modules.pop('shop.gpu')\n"
        f"{DUMPS}=== gpu.py\n{PATCH}",
        TO_B,
    ),
    "one of any name, finally": (
        "import importlib, json\nfor name in ('gpu',):\n"
        "    while True:\n        try: importlib.import_module(f'shop.{name}')\n"
        f"        finally: break\n{DUMPS}=== gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one of any name, within what goes on": (
        "import importlib, json\nclass Going:\n    def __enter__(self): pass\n"
        "    def __exit__(self, *failed): return True\nfor name in ('gpu',):\n"
        "    with Going(): importlib.import_module(f'shop.{name}')\n"
        f"{DUMPS}=== gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one of any name, by another thread": (
        "import concurrent.futures, importlib, json\nnames = ['shop.gpu']\n"
        "with concurrent.futures.ThreadPoolExecutor() as pool:\n"
        "    pool.map(importlib.import_module, names)\n"
        f"{DUMPS}=== gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one of any name, when something is collected": (
        "import importlib, json\nclass Last:\n"
        "    def __del__(self): importlib.import_module(f'shop.{name}')\nname = 'gpu'\nLast()\n"
        f"{DUMPS}=== gpu.py\n{PATCH}import no_such_library_x\n",
        TO_B,
    ),
    "one of any name, taken away": (
        "import importlib, json, sys\nfor name in ('gpu',):\n"
        "    importlib.import_module(f'shop.{name}')\nknown = sys.modules\n"
        f"known.pop('shop.gpu')\n{DUMPS}=== gpu.py\n{PATCH}",
        TO_B,
    ),
    "one without a spec": (
        f"import json\nfrom . import gpu\ngpu.__spec__ = None\n{DUMPS}=== gpu.py\n{PATCH}",
        TO_B,
    ),
    "an object in the place of its module": (
        "import json\nfrom . import settings\n"
        'def make(): return json.dumps({"key": "value"}, indent=settings.indent)\n'
        f"=== settings.py\n{PATCH}import sys\nclass Settings: indent = 1\n"
        "sys.modules[__name__] = Settings()\n",
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


def write(folder: pathlib.Path, program: str) -> str:
    first, *others = program.split("=== ")
    files = {"__init__.py": "", "main.py": first}
    files |= {name: text for name, _, text in (it.partition("\n") for it in others)}
    for name, text in files.items():
        path = folder / "shop" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        # Not since the process began.
        os.utime(path, (LONG_AGO, LONG_AGO))
    return str(folder)


def run(folders: list[str], place: pathlib.Path) -> list[list[list[str]]]:
    """See ``run_forked``.

    Args:
        folders: of programs.
        place: where there may be a link to each.
    """
    link = str(place / "link")
    done = subprocess.run(
        [sys.executable, HERE / "run_forked.py", link],
        input="\n".join(folders),
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (f"{link}/site-packages", link, *sys.path))),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        timeout=240,
    )
    found: list[list[list[str]]] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[list[str]]]]:
    """Of each case, before and after its edit: the digest and the data, by what the text tells and
    by looking through libraries."""
    folder = tmp_path_factory.mktemp("programs")
    folders = []
    for number, (program, (old, new)) in enumerate(CASES.values()):
        assert program.count(old) == 1, (program, old)
        folders.append(write(folder / f"{number}-before", program))
        folders.append(write(folder / f"{number}-after", program.replace(old, new)))
    told = made_once(tmp_path_factory, "overlooked_stores", lambda: run(folders, folder))
    pairs = zip(told[::2], told[1::2], strict=True)
    return {name: list(pair) for name, pair in zip(CASES, pairs, strict=True)}


@pytest.mark.parametrize("case", CASES)
def test_edits_that_matter_are_noticed(found: dict[str, list[list[list[str]]]], case: str) -> None:
    (by_text, looked), (changed_by_text, changed) = found[case]
    assert by_text[1] != changed_by_text[1], "an edit that does not matter"
    assert by_text[0] != changed_by_text[0], "a false hit"
    assert (by_text, changed_by_text) == (looked, changed)
    assert not any("Error" in it[0] for it in (by_text, changed_by_text))


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


def test_modules_that_are_not_there_and_cannot_be(tmp_path: pathlib.Path) -> None:
    """Those of libraries, of nobody, and of packages that are none."""
    program = textwrap.dedent(
        """
        import contextlib, json
        with contextlib.suppress(ImportError):
            import no_such_x, no.such.y, os.path.no, json.none.more, shop.main.deep
        with contextlib.suppress(ImportError):
            from ....above import a
        with contextlib.suppress(ImportError):
            from . import nothing
        with contextlib.suppress(ImportError):
            from no_such_z import *
        def make(): return json.dumps(1)
        """
    )
    ((by_text, looked),) = run([write(tmp_path / "1", program)], tmp_path)
    assert by_text == looked
    assert "Error" not in by_text[0]
