"""Attributes that are computed when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class lazy(Generic[Value]):  # noqa: N801 # used as a decorator, as property is
    """A property computed once per object, then an attribute of it.

    As ``functools.cached_property`` is from Python 3.12 on: without a lock. Before, that has one
    lock for all objects of a class, which a fork may find held, so that the child waits for ever.
    Threads that come at once may compute more than once; all get the value that was first done.
    """

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> lazy[Value]: ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Value: ...

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        # The attribute hides this property from then on, for it has no ``__set__``.
        return vars(instance).setdefault(self._name, self._compute(instance))
