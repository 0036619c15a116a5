"""No code of the user's runs while a recipe is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from yogadl.recipes import recipe_of

RUN: list[str] = []


class AnyAttribute:
    def __getattr__(self, name: str) -> Any:
        RUN.append(name)
        raise AttributeError(name)

    def __call__(self, size: int = 1) -> int:
        return size


class Signature:
    @property
    def __signature__(self) -> Any:
        RUN.append("__signature__")
        raise AttributeError

    def __call__(self, size: int = 1) -> int:
        return size


class Named:
    @property
    def __name__(self) -> str:
        RUN.append("__name__")
        raise AttributeError

    def __call__(self) -> int:
        return 1


class Proxy:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        RUN.append("__class__")
        raise AttributeError


class Equal(type):
    __hash__ = type.__hash__

    def __eq__(cls, other: object) -> bool:
        RUN.append("__eq__")
        return cls is other


class OfEqual(metaclass=Equal):
    size = 1


NAMED, PROXY, OF_EQUAL = Named(), Proxy(), OfEqual()


def named() -> Any:
    return NAMED


def proxy() -> Any:
    return PROXY


def closed(value: Any) -> Callable[[], Any]:
    return lambda: value


def of_equal() -> Any:
    return OF_EQUAL.size, OfEqual.size


MADE: dict[str, Callable[[], Any]] = {
    "any attribute": AnyAttribute,
    "signature": Signature,
    "named": lambda: named,
    "proxy": lambda: proxy,
    "closed over proxy": lambda: closed(PROXY),
    "closed over equal": lambda: closed(OF_EQUAL),
    "equal": lambda: of_equal,
}


@pytest.mark.parametrize("name", MADE)
def test_objects_that_answer_for_themselves(name: str) -> None:
    function = MADE[name]()
    RUN.clear()
    told = recipe_of(function)
    assert recipe_of(function).digest == told.digest
    # For people, too.
    assert told.show()
    assert RUN == []


@pytest.mark.parametrize("kind", [AnyAttribute, Signature])
def test_their_arguments(kind: Any) -> None:
    function = kind()
    told = [recipe_of(function, *it).digest for it in (((1,),), ((), {"size": 1}), ())]
    assert len(set(told)) == 1
    assert recipe_of(function, (2,)).digest not in told
