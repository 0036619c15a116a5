"""Ordinary programs give attributes to objects of their own, and to libraries what these have
themselves: nobody has to look through libraries for that."""

from __future__ import annotations

import importlib
import os
import pathlib
import sys

import pytest
from overlooked import LONG_AGO

from yogadl.recipes._assigned import Stored
from yogadl.recipes._missing import MissingFiles
from yogadl.recipes._stores import names_stored

# Before three dashes, what is run; the rest is only read.
NODE = "class Node: pass\nnode = Node()\n"
OWN = [
    f"{NODE}---\nnode.a = print_all",
    f"{NODE}---\nnode.a, node.b = node, f",
    f"{NODE}other = node\n---\nother.a = f",
    f"{NODE}---\none, other = Node(), node\nother.a = f",
    f"{NODE}---\n[one, (other, two)] = [1, (Node(), 2)]\nother.a = f",
    f"{NODE}---\nlast = node\nfor _ in y:\n    new = Node()\n    last.a = new\n    last = new",
    f"{NODE}---\nnode: Node\nnode.a = f",
    f"{NODE}---\nnode.a += f",
    f"{NODE}---\nfor node.a in y: pass",
    f"{NODE}---\nsetattr(node, 'a', f)",
    f"{NODE}---\nNode().a = f",
    f"{NODE}---\nNode.a = f",
    f"{NODE}---\nif (new := Node()): new.a = f",
    f"{NODE}---\nnode.a = None\nnode.a = f",
    "class Base(Exception): pass\nclass Node(Base): pass\n---\nNode(1).a = f",
    "import abc\nclass Node(abc.ABC): pass\n---\nNode(1).a = f",
    "import dataclasses\n@dataclasses.dataclass\nclass N:\n    a: object = None\n---\nN(1).a = f",
    "from dataclasses import dataclass\n@dataclass(eq=False)\nclass N:\n    a: int\n---\nN.a = f",
    "class Node:\n    a = []\n---\nNode().a = f",
    "class Node:\n    @property\n    def a(self): pass\n    @a.setter\n    def a(self, x): pass\n"
    "---\nNode().a = f",
    "def outer(f):\n    def inner(): pass\n    inner.a = f\n    return inner",
    "import functools\ndef of(f):\n    @functools.wraps(f)\n    def inner(): pass\n    inner.a = f",
    "from functools import wraps\ndef of(f):\n    @wraps(f)\n    def fn(): pass\n    fn.a = f",
]
OF_LIBRARIES = [
    "import json\nx.a = json.decoder.JSONDecoder",
    "import json.decoder\nx.a = json.decoder.JSONDecoder",
    "import json.decoder as d\nx.a = d.JSONDecoder",
    "from json import decoder as d\nx.a = d.JSONDecoder",
    "from json.decoder import JSONDecoder\nx.a = JSONDecoder",
    "def f(x):\n    import numpy as np\n    x.a = np.float32",
    "try: import numpy as np\nexcept ImportError: np = None\nx.a = np.float32",
    "x.a = len",
    "x.a = None if y else True",
    "x.a = 1 or None",
    "x.a = 1 if y else 'b'",
    "x.a = [1, ('b', {2: int, 'c': {3}})]",
    "x.a = int(y)",
    "x.a = f'{y}'",
    "SIZE = 3\nx.a = SIZE",
    "SIZE, NAME = 3, 'b'\nx.a = NAME",
    "setattr(x, 'a', float(y))",
]


def stored(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, **texts: str) -> Stored | None:
    """What some modules may give to libraries; only their functions are run."""
    monkeypatch.syspath_prepend(tmp_path)
    modules = []
    for name, text in texts.items():
        path = tmp_path / f"{name}_of_{tmp_path.name.replace('-', '_')}.py"
        run, _, read = text.rpartition("---\n")
        path.write_text(f"{run}def never():\n" + "".join(f"    {it}\n" for it in read.split("\n")))
        os.utime(path, (LONG_AGO, LONG_AGO))
        modules.append(importlib.import_module(path.stem))
    try:
        return names_stored(modules, MissingFiles())
    finally:
        for module in modules:
            del sys.modules[module.__name__]


@pytest.mark.parametrize("text", [*OWN, *OF_LIBRARIES])
def test_what_gives_libraries_no_code(
    text: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = stored(tmp_path, monkeypatch, main=text)
    assert found
    assert not any(found.values())


@pytest.mark.parametrize(
    ("text", "other"),
    [
        *((text, "main.Node = x") for text in OWN if "node = Node()" in text),
        *((text, "main.Node = 1") for text in OWN if "node = Node()" in text),
        *((text, "x.__bases__ = ()") for text in OWN if "node = Node()" in text),
        *((text, "setattr(main, 'Node', x)") for text in OWN if "node = Node()" in text),
        ("import json\nx.a = json.decoder.JSONDecoder", "json.decoder = x"),
        ("import json\nx.a = json.decoder.JSONDecoder", "x.JSONDecoder = y"),
        ("import json\nx.a = json.decoder.JSONDecoder", "x.json = y"),
        ("from json import decoder as d\nx.a = d.JSONDecoder", "x.decoder = y"),
        ("x.a = int(y)", "x.int = y"),
        ("SIZE = 3\nx.a = SIZE", "x.SIZE = y"),
        # By which another name gets other values.
        ("SIZE = 3\nx.a = SIZE", "import json\nx.SIZE = json.dumps\njson.dumps = f"),
    ],
)
def test_what_another_module_gives_to_its_names_counts(
    text: str, other: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = stored(tmp_path, monkeypatch, main=text, other=other)
    assert found
    assert found["a"]
