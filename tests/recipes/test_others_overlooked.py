"""What of other libraries' things is easily overlooked, in programs that differ in one place."""

from __future__ import annotations

import io
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from yogadl.errors import UndeterminedError
from yogadl.recipes import recipe_of

ROOT = pathlib.Path(__file__).parents[2]
TELL = """
from yogadl.recipes import recipe_of
print(recipe_of(make).digest)
print(recipe_of(make).digest)
print(make())
"""
MODEL = """
from typing import List
import pydantic
class Order(pydantic.BaseModel):
    items: List["Item"]
class Item(pydantic.BaseModel):
    x: int = {}
def make(): return Order(items=[{{}}])
"""

# A library: what is below a folder of this name is none of the user's.
SHELF = """
import functools
__version__ = "1"
STEPS = {
    "up": lambda it: it + 1,
    "down": lambda it: it - 1,
}
up, down = (lambda it: it + 1), (lambda it: it - 1)
def chosen(is_up, by):
    if is_up:
        def inner(it): return it + by
    else:
        def inner(it): return it - by
    return inner
def plain(is_up):
    def deeper():
        if is_up:
            return lambda it: it + 1
        return lambda it: it - 1
    return deeper()
@functools.singledispatch
def stepped(it): return it
@stepped.register
def _(it: int): return it + 1
@stepped.register
def _(it: str): return it * 2
def decorated(make):
    return lambda *given: make(*given)
@decorated
def hidden(is_up, by):
    if is_up:
        def inner(it): return it + by
    else:
        def inner(it): return it - by
    return inner
"""
STEP = """
import shelf
step = shelf.{}
def make(): return [step(3)]
"""


def told(folder: pathlib.Path, text: str) -> tuple[str, str]:
    """The digest of a program's recipe, at first and at a second call, and its data."""
    (folder / "program.py").write_text(text + TELL)
    library = folder / "site-packages" / "shelf.py"
    library.parent.mkdir(exist_ok=True)
    library.write_text(SHELF)
    paths = os.pathsep.join((str(ROOT), str(library.parent)))
    environment = {**os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "program.py"],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    first, second, *data = ended.stdout.splitlines()
    assert first == second
    return first, "\n".join(data)


@pytest.mark.parametrize(
    ("library", "program", "one", "other"),
    [
        ("pydantic", MODEL, "1", "2"),
        ("yogadl", STEP, "STEPS['up']", "STEPS['down']"),
        ("yogadl", STEP, "up", "down"),
        ("yogadl", STEP, "chosen(True, 1)", "chosen(False, 1)"),
        ("yogadl", STEP, "plain(True)", "plain(False)"),
        ("yogadl", STEP, "stepped.dispatch(int)", "stepped.dispatch(float)"),
        ("yogadl", STEP, "stepped.dispatch(int)", "stepped.dispatch(str)"),
        ("yogadl", STEP, "hidden(True, 1)", "hidden(False, 1)"),
    ],
)
def test_what_matters(
    tmp_path: pathlib.Path, library: str, program: str, one: str, other: str
) -> None:
    pytest.importorskip(library)
    before, after = (told(tmp_path, program.format(it)) for it in (one, other))
    assert before[1] != after[1], "an edit that does not matter"
    assert before[0] != after[0]


def make(value: Any) -> Any:
    return value


def digest(value: Any) -> str:
    """The same at a second call."""
    first = recipe_of(make, (value,)).digest
    assert recipe_of(make, (value,)).digest == first
    return first


def test_levels_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")

    def index(level: Any) -> Any:
        return pandas.MultiIndex.from_arrays([level, ["a", "b"]], names=["x", "y"])

    levels = [
        np.array([1, 2], dtype="int64"),
        np.array([1, 2], dtype="int8"),
        np.array([2, 1], dtype="int8"),
        *(pandas.Categorical(["x", "y"], categories=[*it], ordered=True) for it in ("xy", "yx")),
    ]
    values = [*map(index, levels), index(levels[0]).rename(["x", "z"])]
    told = [digest(it) for it in values]
    assert len(set(told)) == len(told)
    assert told[:-1] == [digest(index(it)) for it in levels]
    frame = pandas.DataFrame({"a": [1]}, index=pandas.MultiIndex.from_arrays([[1], [2]]))
    assert digest(frame) == digest(frame.copy())
    assert digest(frame) != digest(frame.set_flags(allows_duplicate_labels=False))
    series = frame["a"]
    assert digest(series) != digest(series.set_flags(allows_duplicate_labels=False))


def test_weak_types_of_jax() -> None:
    jax = pytest.importorskip("jax")
    weak, strong = jax.numpy.asarray(2.0), jax.numpy.float32(2.0)
    assert digest(weak) != digest(strong)
    assert digest(weak) == digest(jax.numpy.asarray(2.0))


def saved(name: str, *shades: int, **options: Any) -> bytes:
    image = pytest.importorskip("PIL.Image")
    first, *more = (image.fromarray(np.full((4, 4), it, "uint8")) for it in shades)
    file = io.BytesIO()
    if more:
        options |= {"save_all": True, "append_images": more}
    first.save(file, name, **options)
    return file.getvalue()


def opened(content: bytes) -> Any:
    image = pytest.importorskip("PIL.Image")
    return image.open(io.BytesIO(content))


@pytest.mark.parametrize("name", ["GIF", "TIFF", "PNG"])
def test_frames_of_images(name: str) -> None:
    assert digest(opened(saved(name, 1))) == digest(opened(saved(name, 1)))
    assert digest(opened(saved(name, 1))) != digest(opened(saved(name, 2)))
    with pytest.raises(UndeterminedError, match="several frames"):
        digest(opened(saved(name, 0, 200)))


def test_tags_of_images(tmp_path: pathlib.Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for text in ("left", "righ"):
        content = saved("TIFF", 0, tiffinfo={270: text, 282: 0.3, 700: text.encode()})
        (tmp_path / text).write_bytes(content)
    one, other = (digest(image.open(tmp_path / it)) for it in ("left", "righ"))
    assert one != other
    assert one == digest(image.open(tmp_path / "left"))
    # Read before, so that its file is closed.
    closed = [image.open(tmp_path / it) for it in ("left", "righ", "left")]
    for it in closed:
        it.load()
    told = [digest(it) for it in closed]
    assert told[0] == told[2] != told[1]
    given = image.Exif()
    given[271] = "maker"
    photo = saved("JPEG", 0, exif=given)
    changed, asked = opened(photo), opened(photo)
    changed.getexif()[271] = "other"
    asked.getexif()
    assert digest(asked) == digest(opened(photo)) != digest(changed)
    given[271] = "another"
    assert digest(opened(photo)) != digest(opened(saved("JPEG", 0, exif=given)))


def test_what_is_given_to_images_that_were_opened() -> None:
    named = [opened(saved("PNG", 0)) for _ in range(3)]
    named[0].label, named[1].label = 3, 4
    assert len({digest(it) for it in named}) == 3


class Hiding:
    def __init__(self, value: int) -> None:
        self.value = value

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return {}


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return {}


def test_objects_that_hide_their_attributes() -> None:
    with pytest.raises(UndeterminedError, match="has a __dict__ that is not what its objects have"):
        digest(Hiding(1))
    assert digest(Slotted(1)) != digest(Slotted(2))
