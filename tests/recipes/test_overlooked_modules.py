"""What modules have put into libraries that failed afterwards, are of elsewhere, or have another in
their place: it counts."""

from __future__ import annotations

import pathlib
import textwrap

import pytest
from overlooked import ASKED, CLASSES, DUMPS, PATCH, TO_B, Cases, Told, check, run, told_of, write

CASES: Cases = {
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
    "one that fails, of a package that is installed, too": (
        f"import json\ntry: import acme.gpu\nexcept ImportError: pass\n{DUMPS}"
        "=== ../site-packages/acme/__init__.py\n"
        "import pkgutil\n__path__ = pkgutil.extend_path(__path__, __name__)\n"
        f"=== ../acme/__init__.py\n=== ../acme/gpu.py\n{PATCH}import no_such_library_x\n",
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
    "another in the place of a library, for one import": (
        "import http, json.encoder, sys, types\n"
        "class Own: OK = staticmethod(lambda value: 'A')\n"
        "loaded = sys.modules\nloaded['http'] = types.SimpleNamespace(HTTPStatus=Own)\n"
        "from http import HTTPStatus\njson.encoder.encode_basestring_ascii = HTTPStatus.OK\n"
        f"loaded['http'] = http\nfrom http import HTTPStatus\n{DUMPS}",
        ("value: 'A'", "value: 'B'"),
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
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    return told_of(CASES, tmp_path_factory, "overlooked_modules")


@pytest.mark.parametrize("case", CASES)
def test_edits_that_matter_are_noticed(found: dict[str, Told], case: str) -> None:
    check(found[case])


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
