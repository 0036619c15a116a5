"""Ordinary programs give libraries members of their own enumerations: nobody has to look through
libraries for that."""

from __future__ import annotations

import importlib
import os
import pathlib
import signal
import sys
import types

import pytest
from overlooked import LONG_AGO

from yogadl.recipes._assigned import Stored
from yogadl.recipes._members import Member, is_of_library
from yogadl.recipes._missing import MissingFiles
from yogadl.recipes._stores import names_stored

ENUM = "x.a = signal.Signals.SIGINT"
OF_LIBRARIES = [
    f"import signal\n{ENUM}",
    "import signal as s\nx.a = s.Signals.SIGINT",
    "from signal import Signals\nx.a = Signals.SIGINT",
    "from signal import Signals as S\nx.a = [1, (S.SIGINT, {2: S.SIGTERM, 'c': {3}})]",
    "import email.policy, uuid\nx.a = uuid.SafeUUID.safe",
    "import concurrent.futures\nimport signal\nx.a = None if y else signal.Signals.SIGINT",
    "def f(x):\n    import signal\n    x.a = signal.Signals.SIGINT",
    "import signal\nx.a: object = signal.Signals.SIGINT",
    "import signal\nsetattr(x, 'a', signal.Signals.SIGINT)",
    "import signal\nx.a = signal.Signals.SIGINT or 1",
    "x.a = ()",
    "x.a = [1, 'b']",
    "x.a = {'b': 1}",
    "x.a = f'{y}'",
]
MAY_BE_CODE = [
    ENUM,
    f"import signal\nsignal = y\n{ENUM}",
    f"import signal\ndef f(signal): {ENUM}",
    f"import signal\nfor signal in y: {ENUM}",
    f"import signal\n[y for signal in y]\n{ENUM}",
    f"import signal\nwith y as signal: {ENUM}",
    f"import signal\ntry: pass\nexcept E as signal: {ENUM}",
    f"import signal\nmatch y:\n    case signal: {ENUM}",
    f"import signal\nmatch y:\n    case [*signal]: {ENUM}",
    f"import signal\nmatch y:\n    case {{**signal}}: {ENUM}",
    f"import signal\nif signal := y: {ENUM}",
    f"import signal\nsignal += y\n{ENUM}",
    f"import signal\ndel signal\n{ENUM}",
    f"import signal\nclass signal: pass\n{ENUM}",
    f"import signal\ndef signal(): pass\n{ENUM}",
    f"import signal\nclass A:\n    def f(signal): {ENUM}",
    "import signal\nlambda signal: setattr(x, 'a', signal.Signals.SIGINT)",
    f"import signal\nimport json as signal\n{ENUM}",
    f"import signal\nfrom . import signal\n{ENUM}",
    f"from .a import signal\n{ENUM}",
    f"import signal\nglobals()['signal'] = y\n{ENUM}",
    f"import signal\nlocals\n{ENUM}",
    f"import signal\nx.signal = 1\n{ENUM}",
    f"import signal\nx.Signals = 1\n{ENUM}",
    f"import signal\nx.SIGINT = y\n{ENUM}",
    f"import signal\nx.Signals = signal.Handlers.SIG_IGN\n{ENUM}",
    "import signal\nx.b = signal.Signals.SIGINT\nx.a = y",
    "import signal\nx.a = signal.Signals",
    "import signal\nx.a = signal.signal",
    "import signal\nx.a = signal.Signals.SIGNONE",
    "import signal\nx.a = signal.none.SIGINT",
    "import signal\nx.a = signal.Signals.SIGINT.name",
    "import signal\nx.a = signal.Signals(2)",
    "import signal\nx.a += signal.Signals.SIGINT",
    "import signal\nx.a = [signal.Signals.SIGINT, y]",
    "import signal\nx.a = y if 1 else signal.Signals.SIGINT",
    "import signal\nx.a = {**y}",
    "import signal\nx.a = [*y]",
    "import signal\nx.a, b = signal.Signals.SIGINT, 1",
    "import signal as __s\nx.a = __s.Signals.SIGINT",
    "import threading\nx.a = threading._trace_hook",
    "import json\nx.a = json.dumps",
    "import nowhere_at_all\nx.a = nowhere_at_all.A.B",
]


def stored(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, **texts: str) -> Stored | None:
    """What some modules may give to libraries; only their functions are run."""
    monkeypatch.syspath_prepend(tmp_path)
    modules = []
    for name, text in texts.items():
        path = tmp_path / f"{name}_of_{tmp_path.name.replace('-', '_')}.py"
        path.write_text("def never():\n" + "".join(f"    {it}\n" for it in text.split("\n")))
        os.utime(path, (LONG_AGO, LONG_AGO))
        modules.append(importlib.import_module(path.stem))
    try:
        return names_stored(modules, MissingFiles())
    finally:
        for module in modules:
            del sys.modules[module.__name__]


@pytest.mark.parametrize("text", OF_LIBRARIES)
def test_what_gives_libraries_no_code(
    text: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = stored(tmp_path, monkeypatch, main=text)
    assert found
    assert not any(found.values())


@pytest.mark.parametrize("text", MAY_BE_CODE)
def test_what_may_give_libraries_code(
    text: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = stored(tmp_path, monkeypatch, main=text)
    assert found
    assert found["a"]


@pytest.mark.parametrize(
    "other",
    [
        "x.signal = 1",
        "x.Signals = y",
        "setattr(x, 'SIGINT', y)",
        # What binds names of another module, with no statement there.
        "frame.f_back.f_locals['signal'] = y",
        "class Meta(type):\n        def __prepare__(name, bases): return {'signal': y}",
        "import enum; enum.global_enum(y)",
    ],
)
def test_what_another_module_gives_to_its_names_counts(
    other: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = stored(tmp_path, monkeypatch, main=f"import signal\n{ENUM}", other=other)
    assert found
    assert found["a"]


def test_what_is_put_among_members_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    members = vars(signal.Signals)["_member_map_"]
    monkeypatch.setitem(members, "OWN", lambda: 1)
    assert not is_of_library(Member("signal", ("signal",), ("Signals", "OWN")), {})
    assert is_of_library(Member("signal", ("signal",), ("Signals", "SIGINT")), {})


@pytest.mark.parametrize("top", ["signal = 1", "import json as signal"])
def test_what_the_module_has_by_a_name_counts(
    top: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "given.py").write_text(top)
    monkeypatch.syspath_prepend(tmp_path)
    given = importlib.import_module("given")
    monkeypatch.delitem(sys.modules, "given")
    member = Member("signal", ("signal",), ("Signals", "SIGINT"))
    assert not is_of_library(member, vars(given))
    assert is_of_library(member, {})


def test_whatever_is_asked_of_a_library_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(types.ModuleType):
        def __getattribute__(self, name: str) -> object:
            raise RuntimeError(name)

    def fail(_module: object) -> object:
        raise RuntimeError

    bare = type("Bare", (types.ModuleType,), {"__dict__": property(fail)})("bare")

    class OddMeta(type):
        def __getattribute__(cls, name: str) -> object:
            raise RuntimeError(name)

    class Kind(metaclass=OddMeta):
        pass

    for value in (Odd("odd"), bare, Kind):
        monkeypatch.setattr(signal, "odd", value, raising=False)
        for names in (("odd", "A"), ("odd", "A", "B")):
            assert not is_of_library(Member("signal", ("signal",), names), {})
