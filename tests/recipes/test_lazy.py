"""What libraries load when it is used first is told the same before and after, and what users put
there counts."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

LIBRARY = {
    "__init__.py": """
        import importlib

        from later import first

        def __getattr__(name):
            if name in ("inner", "plain"):
                return importlib.import_module(f"later.{name}")
            if name == "Given":
                from later.inner import Given as found
                globals()[name] = found
                return found
            raise AttributeError(name)
    """,
    "first.py": "class First:\n    value = 1\n",
    "inner.py": """
        from ._deep import *
        from ._deep import Kept

        class Given:
            value = 5
    """,
    "_deep.py": """
        LIMIT = 3

        class Kept:
            size = 3

            def told(self):
                return self.size

        class Odd(Kept):
            def told(self):
                return 7
    """,
    "plain.py": "class Sub:\n    value = 8\n",
    "other.py": "class Sub:\n    value = 9\n",
}
PROGRAM = """
    import sys

    import later
    from yogadl.recipes import recipe_of

    word = sys.argv[1]
    if word == "early":
        import later.plain
        later.inner, later.Given

    # MORE

    class Mine:
        value = 6

    def make():
        of_inner = later.inner.Kept().told(), later.inner.Kept.size, later.inner.LIMIT
        return [*of_inner, later.Given.value, later.plain.Sub.value, later.first.First.value]

    print(recipe_of(make).digest)
    if word == "users":
        later.Given = Mine
    if word == "method":
        later.inner.Kept.told = lambda self: 4
    if word == "constant":
        later.inner.LIMIT = 4
    if word == "attribute":
        later.inner.Kept.size = 4
    if word == "another":
        later.inner.Kept = later.inner.Odd
    if word == "module":
        import later.other
        later.plain = later.other
    print(make())
    print(recipe_of(make).digest)
"""
OF_PYTHON = """
    import sys

    import concurrent.futures
    import email
    import logging
    from yogadl.recipes import recipe_of

    if sys.argv[1] == "early":
        concurrent.futures.ProcessPoolExecutor, concurrent.futures.process
        import email.mime.text
        import logging.handlers

    def load():
        import email.mime.text
        import logging.handlers

    def make():
        load()
        kinds = logging.handlers.RotatingFileHandler, concurrent.futures.ProcessPoolExecutor
        return [email.mime.text.MIMEText("a").get_content_type(), *(it.__name__ for it in kinds)]

    print(recipe_of(make).digest)
    make()
    print(recipe_of(make).digest)
"""
OF_OTHERS = """
    import os
    import sys

    import {library}
    from yogadl.recipes import recipe_of

    if sys.argv[1] == "early":
        {used}

    # MORE

    def make():
        return {used}

    print(recipe_of(make).digest)
    {used}
    print(recipe_of(make).digest)
"""


def run(folder: pathlib.Path, program: str, word: str) -> list[str]:
    """What a program prints in a process of its own that is told a word."""
    file = folder / "program.py"
    file.write_text(textwrap.dedent(program))
    path = os.pathsep.join([str(folder / "site-packages"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(file), word],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""},
    )
    return done.stdout.splitlines()


# A word by which anything may be put anywhere.
@pytest.mark.parametrize("more", ["", "exec('')"])
def test_what_users_put_where_a_library_loads_it_later(tmp_path: pathlib.Path, more: str) -> None:
    library = tmp_path / "site-packages" / "later"
    library.mkdir(parents=True)
    for name, content in LIBRARY.items():
        (library / name).write_text(textwrap.dedent(content))
    installed = library.parent / "later-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: later\nVersion: 1\n")
    words = ("late", "early", "users", "method", "constant", "attribute", "another", "module")
    program = PROGRAM.replace("# MORE", more)
    found = {word: run(tmp_path, program, word) for word in words}
    before, data, after = found["late"]
    assert before == after
    assert found["early"] == found["late"]
    assert {it[0] for it in found.values()} == {before}
    others = [found[word] for word in words[2:]]
    assert all(it[1] != data for it in others)
    assert len({before, *(it[2] for it in others)}) == len(words) - 1


def test_what_python_loads_later(tmp_path: pathlib.Path) -> None:
    assert len({*run(tmp_path, OF_PYTHON, "late"), *run(tmp_path, OF_PYTHON, "early")}) == 1


@pytest.mark.parametrize("more", ["", "exec('')"])
@pytest.mark.parametrize(
    ("library", "used"),
    [
        ("scipy", "scipy.interpolate.interp1d"),
        ("sklearn", "sklearn.linear_model.LinearRegression"),
        ("tensorflow", "tensorflow.keras.layers.Rescaling"),
    ],
)
@pytest.mark.long_for("tensorflow")
def test_what_libraries_load_later(
    tmp_path: pathlib.Path, library: str, used: str, more: str
) -> None:
    pytest.importorskip(library)
    program = OF_OTHERS.format(library=library, used=used).replace("# MORE", more)
    assert len({*run(tmp_path, program, "late"), *run(tmp_path, program, "early")}) == 1
