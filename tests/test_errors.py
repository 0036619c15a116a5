"""The tree of errors."""

from __future__ import annotations

import errno
import inspect
import pickle
import re

import pytest

from yogadl import errors

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, errors.YogadlError)
]


def _documented() -> dict[str, tuple[str | None, str | None]]:
    """Parent and built-in of every class that the docstring draws."""
    found: dict[str, tuple[str | None, str | None]] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.fullmatch(
            r" {4}((?:│   |    )*(?:[├└]── )?)(\w+Error)(?: \((\w+)\))?(  .*)?", line
        )
        if match is None:
            continue
        depth = len(match[1]) // 4
        above[depth:] = [match[2]]
        found[match[2]] = (above[depth - 1] if depth else None, match[3])
    return found


def test_the_documented_tree_is_the_real_one() -> None:
    real: dict[str, tuple[str | None, str | None]] = {}
    for made in CLASSES:
        parents = [base for base in made.__bases__ if issubclass(base, errors.YogadlError)]
        builtins = [base for base in made.__bases__ if base.__module__ == "builtins"]
        if made is errors.YogadlError:
            assert builtins == [Exception]
            real[made.__name__] = (None, None)
            continue
        assert len(parents) == 1
        builtin = builtins[0].__name__ if builtins else None
        real[made.__name__] = (parents[0].__name__, builtin)
    assert _documented() == real
    assert len(real) > 10


@pytest.mark.parametrize("made", CLASSES)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_errors_can_be_pickled(made: type[errors.YogadlError], protocol: int) -> None:
    error = made("what was wrong; what to do")
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is made
    assert str(again) == str(error) == "what was wrong; what to do"
    assert again.args == error.args


@pytest.mark.parametrize("made", CLASSES)
def test_all_say_what_they_are_for(made: type[errors.YogadlError]) -> None:
    assert made.__doc__
    assert made.__module__ == "yogadl.errors"


def test_storage_full_is_enospc() -> None:
    error = errors.StorageFullError("no room")
    assert isinstance(error, OSError)
    assert error.errno == errno.ENOSPC
    assert pickle.loads(pickle.dumps(error)).errno == errno.ENOSPC


def test_notes_are_pickled_with_an_error() -> None:
    error = errors.StorageFullError("no room")
    error.__notes__ = ["in piece 3"]  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["in piece 3"]


def test_builtins_catch_them() -> None:
    for made in CLASSES:
        for base in made.__mro__:
            if base.__module__ == "builtins" and issubclass(base, Exception):
                with pytest.raises(base):
                    raise made("x")
