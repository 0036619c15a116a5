"""What is stored and would be made otherwise now is told apart from what would be made alike."""

from __future__ import annotations

import functools
import getpass
import logging
import pathlib
import re
import socket
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from yogadl.errors import (
    InvalidArgumentError,
    SpecMismatchError,
    StaleCacheWarning,
    UnsupportedTypeError,
)
from yogadl.spec import TensorSpec
from yogadl.storage import LFSStorage


@pytest.fixture
def storage(tmp_path: pathlib.Path) -> LFSStorage:
    return LFSStorage(tmp_path)


def ones(count: int = 3, label: object = None) -> list[int]:
    return [1] * count


def in_a_script(folder: pathlib.Path, make: str, call: str = "make()") -> str:
    """What a script that builds or reads says on its standard error."""
    script = folder / "script.py"
    text = f"""
        import warnings
        import yogadl.storage
        warnings.simplefilter("always")
        storage = yogadl.storage.LFSStorage({str(folder / "store")!r})

        @storage.cacheable("a", "1")
        {textwrap.indent(textwrap.dedent(make).strip(), " " * 8).strip()}

        {call}
        {call}
    """
    script.write_text(textwrap.dedent(text))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    return done.stderr


BEFORE = """
def make(n=2):
    return [1, 2]
"""


@pytest.mark.parametrize(
    ("make", "call", "said"),
    [
        (BEFORE, "make()", ""),
        ("def make(n = 2):\n\n    # two of them\n    return [1,\n     2]", "make()", ""),
        ('def make(n=2):\n    """Makes it."""\n    return [1, 2]', "make()", ""),
        ("def make(n=2):\n    return [1, 3]", "make()", "__main__.make is not the same code"),
        (BEFORE, "make(3)", "by __main__.make(), and __main__.make(3) is called"),
        (BEFORE, "make(n=3)", "by __main__.make(), and __main__.make(n=3) is called"),
    ],
    ids=[
        "the same",
        "another layout",
        "a docstring",
        "other code",
        "other arguments",
        "a named one",
    ],
)
def test_a_changed_function_is_told_once(
    tmp_path: pathlib.Path, make: str, call: str, said: str
) -> None:
    assert in_a_script(tmp_path, BEFORE) == ""
    told = in_a_script(tmp_path, make, call)
    assert said in told
    assert told.count("StaleCacheWarning: ") == (said != "")
    if said:
        assert "data set 'a' of version '1' was stored on 2" in told
        assert f"by {getpass.getuser()} on {socket.gethostname()}" in told
        # It points at the call.
        assert told.splitlines()[-1].strip() == call


def test_what_is_known_is_kept(storage: LFSStorage) -> None:
    made = storage.cacheable("a", "1", metadata={"unit": "kg"})(ones)(2, label="x")
    provenance = made.info.provenance
    assert provenance.function == f"{__name__}.ones"
    assert provenance.arguments == "2, label='x'"
    assert len(provenance.source) == 32
    assert (provenance.user, provenance.host) == (getpass.getuser(), socket.gethostname())
    assert made.metadata == {"unit": "kg"}
    storage.submit([1], "a", "2")
    stored = storage.fetch("a", "2").info.provenance
    assert (stored.function, stored.source, stored.user) == ("", "", getpass.getuser())
    storage.copy("a", "1", storage, new_version="3")
    assert storage.fetch("a", "3").info.provenance == provenance


def test_the_key_is_reserved(storage: LFSStorage) -> None:
    with pytest.raises(InvalidArgumentError, match="yogadl's own"):
        storage.submit([1], "a", "1", metadata={"__yogadl__": 1})


class Maker:
    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self) -> list[int]:
        return [1] * self.count

    def method(self) -> list[int]:
        return [1] * self.count


@pytest.mark.parametrize(
    "make",
    [
        lambda: [1],
        functools.partial(ones, 2),
        Maker(2),
        Maker(2).method,
        functools.partial(functools.partial(ones, 2), label=object()),
        eval("lambda: [2]"),
    ],
    ids=["lambda", "partial", "object", "method", "partial of a partial", "without source"],
)
def test_any_callable_twice(storage: LFSStorage, make: Callable[[], Any]) -> None:
    """The same, called again, is not said to be another."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = storage.cacheable("a", "1")(make)()
        assert len(storage.cacheable("a", "1")(make)()) == len(first)


def test_partial_arguments_count(storage: LFSStorage) -> None:
    storage.cacheable("a", "1")(functools.partial(ones, 2))()
    with pytest.warns(StaleCacheWarning, match=r"ones\(2\), and .*ones\(3\) is called"):
        storage.cacheable("a", "1")(functools.partial(ones, 3))()


def test_objects_are_not_told_apart_by_their_places(storage: LFSStorage) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for label in (object(), object()):
            storage.cacheable("a", "1")(ones)(label=label)


def changed(array: Any) -> Any:
    array = array.copy()
    array[len(array) // 2] = 1
    return array


@pytest.mark.parametrize(
    ("value", "other"),
    [
        ("x" * 10**6, "x" * 10**6 + "y"),
        (bytes(10**6), bytes(10**6 + 1)),
        (np.zeros(10**6), changed(np.zeros(10**6))),
        (np.zeros(10**6), np.zeros(10**6, "float32")),
        (np.zeros(10**6), np.zeros((10**3, 10**3))),
        (np.zeros((10, 10), "M8[s]"), np.ones((10, 10), "M8[s]").T),
        (np.array(["a"] * 300, object), np.array(["a"] * 299 + ["b"], object)),
        ([bytes(10**6)] * 100, [bytes(10**6)] * 99 + [b""]),
        (list(range(9)), [*range(8), 9]),
        (dict.fromkeys(range(9)), {**dict.fromkeys(range(9)), 8: 1}),
        (pathlib.PurePosixPath("/" + "x" * 999), pathlib.PurePosixPath("/" + "x" * 1000)),
        ("\udcff" * 300, "\udcff" * 301),
    ],
    ids=lambda value: f"{value!r:.15}",
)
def test_long_arguments_are_abbreviated(storage: LFSStorage, value: Any, other: Any) -> None:
    """And told apart by what is left out, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            made = storage.cacheable("a", "1")(ones)(1, value)
    assert 10 < len(made.info.provenance.arguments) <= 1000
    with pytest.warns(StaleCacheWarning, match="is called"):
        storage.cacheable("a", "1")(ones)(1, other)


def test_many_arguments_take_no_time(storage: LFSStorage) -> None:
    nested: Any = 0
    for _ in range(5):
        nested = [nested] * 1000
    made = storage.cacheable("a", "1")(ones)(1, nested)
    assert len(made.info.provenance.arguments) <= 1000


def test_a_method_is_of_its_object(storage: LFSStorage) -> None:
    """Of which only a digest is kept: it may hold secrets."""
    for version, make in {"1": Maker(2).method, "2": Maker(2)}.items():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                made = storage.cacheable("a", version)(make)()
        assert re.fullmatch(
            r"<test_stale\.Maker object #[0-9a-f]{16}>", made.info.provenance.arguments
        )
    with pytest.warns(StaleCacheWarning, match=r"Maker object #.* is called"):
        storage.cacheable("a", "1")(Maker(3).method)()


def test_metadata_that_is_not_what_is_stored(storage: LFSStorage) -> None:
    def make(metadata: Any) -> dict[str, Any]:
        return storage.cacheable("a", "1", metadata=metadata)(ones)().metadata

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert make({"shape": (2, 3), "unit": "kg"}) == {"shape": [2, 3], "unit": "kg"}
        make(None)
        make({"unit": "kg"})
    with pytest.warns(
        StaleCacheWarning, match=r"metadata \{'unit': 'kg'\}, and metadata= has \{'un"
    ):
        assert make({"unit": "g", "shape": [2, 3]})["unit"] == "kg"
    with pytest.warns(StaleCacheWarning, match=r"metadata \{\}, and metadata= has \{'by': 'me'\}"):
        assert make({"by": "me"}).keys() == {"shape", "unit"}
    for wrong in ({"x": object()}, ["x"]):
        with pytest.raises(InvalidArgumentError, match="a dict that JSON can hold"):
            make(wrong)


def test_every_change_of_a_function_is_told(storage: LFSStorage) -> None:
    """As one who tries things out in a notebook makes them."""
    said = []
    for number, power in enumerate((2, 3, 4, 4, 3)):
        path = storage._configurations.storage_dir_path / f"cell{number}.py"
        path.write_text(f"def make():\n    return [x**{power} for x in range(4)]\n")
        namespace: dict[str, Any] = {"__name__": "cell"}
        exec(compile(path.read_text(), str(path), "exec"), namespace)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert storage.cacheable("a", "1")(namespace["make"])()[3] == 9
        said.append(len(caught))
    assert said == [0, 1, 1, 0, 0]


def test_decorators_do_not_count(storage: LFSStorage) -> None:
    """What they say is kept for itself, or part of the key."""

    def script(metadata: object) -> str:
        return f"""
@storage.cacheable("a", "1", metadata={metadata!r})
def make():
    return [1, 2]
"""

    digests = []
    for number, metadata in enumerate(({"k": 1}, {"k": 2, "l": 3})):
        # For inspect, code has to be in a file.
        path = storage._configurations.storage_dir_path / f"script{number}.py"
        path.write_text(script(metadata))
        namespace: dict[str, Any] = {"storage": storage, "__name__": "script"}
        exec(compile(path.read_text(), str(path), "exec"), namespace)
        digests.append(namespace["make"]().info.provenance.source)
        storage.delete("a", "1")
    assert digests[0] == digests[1] != ""


def test_a_function_that_replaces_what_submit_stored(
    storage: LFSStorage, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is known of what made it, and so there is only a line in the log."""
    storage.submit([1], "a", "1")
    with warnings.catch_warnings(), caplog.at_level(logging.INFO, "yogadl"):
        warnings.simplefilter("error")
        storage.cacheable("a", "1")(ones)()
    assert f"by submit; {__name__}.ones is not called" in caplog.text


def test_what_is_no_function(storage: LFSStorage) -> None:
    with pytest.raises(InvalidArgumentError, match=r"not \[1, 2\]; .* by submit"):
        storage.cacheable("a", "1")([1, 2])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (TensorSpec("int64"), TensorSpec("float32")),
        (TensorSpec("int64"), {"x": TensorSpec("int64")}),
        (TensorSpec("int64", (2,)), TensorSpec("int64", (3,))),
        (TensorSpec("int64", (2,)), TensorSpec("int64", (2, 1))),
        (TensorSpec("int64", (2, None)), TensorSpec("int64", (None, 3))),
    ],
    ids=str,
)
def test_a_spec_that_contradicts_what_is_stored(
    storage: LFSStorage, stored: Any, wanted: Any
) -> None:
    with storage.cacheable("a", "1", spec=stored)(list)() as ref:
        assert ref.spec == stored
    with pytest.raises(SpecMismatchError, match="Store it under another version") as caught:
        storage.cacheable("a", "1", spec=wanted)(list)()
    assert "int64" in str(caught.value)
    assert "data set 'a' of version '1'" in str(caught.value)


def test_a_wider_or_narrower_spec_is_told(storage: LFSStorage) -> None:
    wide, narrow = TensorSpec("int64", (None,)), TensorSpec("int64", (2,))

    def make() -> list[Any]:
        return [np.zeros(2, "int64")]

    for number, (stored, wanted) in enumerate([(wide, narrow), (narrow, wide)]):
        storage.cacheable("a", str(number), spec=stored)(make)()
        with pytest.warns(StaleCacheWarning, match=r"with the spec .*, and spec= is "):
            made = storage.cacheable("a", str(number), spec=wanted)(make)()
        assert made.spec == stored


def test_the_order_of_keys_does_not_matter(storage: LFSStorage) -> None:
    one, other = TensorSpec("int64"), TensorSpec("float32")

    def make() -> list[Any]:
        return [{"x": 1, "y": np.float32(2)}]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        storage.cacheable("a", "1", spec={"x": one, "y": other})(make)()
        storage.cacheable("a", "1", spec={"y": other, "x": one})(make)()


def test_what_is_no_spec_is_told_when_decorating(storage: LFSStorage) -> None:
    with pytest.raises(UnsupportedTypeError, match="cannot hold a builtins"):
        storage.cacheable("a", "1", spec="int64")


def test_arguments_whose_own_code_fails_stop_nothing(storage: LFSStorage) -> None:
    class Endless:
        def __len__(self) -> int:
            raise NotImplementedError("it never ends")

        def __repr__(self) -> str:
            raise ValueError("nor can it be shown")

    @storage.cacheable("endless", "1")
    def make(_argument: Any) -> Any:
        return [1, 2]

    assert list(make(Endless()).stream()) == [1, 2]
    assert list(make(Endless()).stream()) == [1, 2]
