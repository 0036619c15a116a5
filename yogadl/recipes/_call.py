"""The recipe of a call."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import types
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from yogadl.errors import InvalidArgumentError, UndeterminedError
from yogadl.recipes._call_text import call_text, value_text
from yogadl.recipes._document import Item, Recipe, digest_of, is_secret, shown_text
from yogadl.recipes._functions import own_digest_parts, unwrapped
from yogadl.recipes._inputs import item_of
from yogadl.recipes._users import is_users_class
from yogadl.recipes._walk import Walker

_ANSWERING = frozenset(
    ("__class__", "__getattr__", "__getattribute__", "__signature__", "__wrapped__")
)
"""What a class has that runs, or may, when an object of it is asked for its signature."""


def recipe_of(
    function: Callable[..., Any],
    arguments: tuple[Any, ...] = (),
    named: Mapping[str, Any] | None = None,
    *,
    key: Any = None,
    ignore: Iterable[str] = (),
    inputs: Iterable[Any] = (),
    spec: str = "",
) -> Recipe:
    """All that determines what a call of a function makes, see ``docs/recipes.md``.

    Safe for threads, as long as nobody changes what is looked at.

    Args:
        function: anything that can be called.
        arguments: by position.
        named: arguments by name.
        key: anything that JSON can hold, which counts, too.
        ignore: names that do not count.
        inputs: paths, ``FileInput`` and DataRefs.
        spec: the spec that was asked for, as text.

    Raises:
        UndeterminedError: something cannot be told.
        InvalidArgumentError: JSON cannot hold the key, or an input is not there.
    """
    declared = [item_of(given) for given in inputs]
    if isinstance(inputs, frozenset):
        declared.sort(key=lambda it: it[1].digest)
    more = [item for _, item in declared]
    if key is not None:
        text = _key_text(key)
        more.append(Item("key", "key", digest_of([text]), text if len(text) < 1000 else ""))
    if spec:
        more.append(Item("spec", "spec", digest_of([spec]), spec if len(spec) < 1000 else ""))
    paths = {path: item.digest for path, item in declared if path}
    bound = _bound(function, arguments, named or {})
    leaves_hints = False
    while True:
        walker = Walker(frozenset(ignore), paths, leaves_hints)
        try:
            root = _walk(walker, function, bound)
        except UndeterminedError:
            # Few of those whom functions are handed to look at their annotations.
            if leaves_hints or not walker.has_hints:
                raise
            leaves_hints = True
            continue
        if not walker.is_outdated:
            item = Item("call", "what is called", digest_of([root]))
            return _showing(walker.recipe([*more, item]), item, function)


def _walk(walker: Walker, function: Callable[..., Any], bound: Mapping[str, Any]) -> str:
    """Describes a function and its arguments, and all that these lead to; what is called, as text.

    Raises:
        UndeterminedError: that cannot be told.
    """
    try:
        root = walker.begin(function)
        for name, value in bound.items():
            if not walker.is_ignored(name):
                walker.item("argument", function, name, name, value)
        walker.describe_all()
    except RecursionError:
        walker.refuse_deep()
    return root


def _showing(recipe: Recipe, item: Item, function: Callable[..., Any]) -> Recipe:
    """The recipe with a text for what is called, made when it is asked for."""

    def show() -> dict[Item, str]:
        return {**recipe.show(), item: _called_text(function)}

    return dataclasses.replace(recipe, show=show)


def _called_text(function: Callable[..., Any]) -> str:
    """What a method is of, or what an object is that is called; code has items of its own."""
    if isinstance(function, types.FunctionType | type):
        return ""
    owner = function.__self__ if isinstance(function, types.MethodType) else function
    return shown_text("", value_text(owner, is_secret))


def recipe_or_nonce(made_by: Any, inputs: tuple[Any, ...] = ()) -> str:
    """The digest of what a function or class makes of some inputs; another one each time if that
    cannot be told."""
    try:
        return recipe_of(made_by, (inputs,) if inputs else ()).digest
    except UndeterminedError:
        return uuid.uuid4().hex


def _bound(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> dict[str, Any]:
    """All arguments of a call, with the defaults, by the names of the parameters."""
    try:
        bound = inspect.signature(_bare(function)).bind(*arguments, **named)
    except Exception:
        # It may take other arguments than it says, and an object may fail when it is asked. If
        # not, the call will tell.
        given = {f"argument {number}": value for number, value in enumerate(arguments)}
        return {**given, **named}
    bound.apply_defaults()
    return dict(bound.arguments)


def _bare(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function by the arguments that it takes itself, which what it wraps may not be given."""
    if isinstance(function, functools.partial):
        return functools.partial(_bare(function.func), *function.args, **function.keywords)
    if isinstance(function, types.MethodType):
        return types.MethodType(_bare(function.__func__), function.__self__)
    if not issubclass(type(function), types.FunctionType):
        called = _call_of(type(function))
        return function if called is None else types.MethodType(called, function)
    bare = types.FunctionType(
        function.__code__, {}, None, function.__defaults__, function.__closure__
    )
    bare.__kwdefaults__ = function.__kwdefaults__
    return bare


def _call_of(kind: type) -> types.FunctionType | None:
    """What calls an object of a class whose code would run if the object was asked; ``None`` of
    any other, and if it is no plain method."""
    if not any(_ANSWERING & vars(one).keys() for one in kind.__mro__ if is_users_class(one)):
        return None
    found = next((vars(one)["__call__"] for one in kind.__mro__ if "__call__" in vars(one)), None)
    return found if type(found) is types.FunctionType else None


def _key_text(key: Any) -> str:
    try:
        return json.dumps(key, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            f"key must be something that JSON can hold, and {key!r:.200} is not: {error}"
        ) from error


def checked_names(ignore: Any) -> tuple[str, ...]:
    """Names that do not count, as users give them.

    Raises:
        InvalidArgumentError: they are something else.
    """
    # As text, a single name would be as many as it has letters.
    if isinstance(ignore, str) or not isinstance(ignore, Iterable):
        raise InvalidArgumentError(f"ignore= takes a tuple of names, not {ignore!r:.100}")
    names = tuple(ignore)
    if not all(isinstance(name, str) and name for name in names):
        raise InvalidArgumentError(f"ignore= takes names, not {ignore!r:.100}")
    return names


def checked_inputs(inputs: Any) -> tuple[Any, ...] | frozenset[Any]:
    """Inputs as users give them; whether they are there is found out when it counts.

    Raises:
        InvalidArgumentError: it is no list of inputs.
    """
    if isinstance(inputs, str | bytes) or not isinstance(inputs, list | tuple | set | frozenset):
        raise InvalidArgumentError(
            f"inputs= takes a tuple of paths or DataRefs, not {inputs!r:.100}"
        )
    # Which of a set comes first depends on the process.
    return frozenset(inputs) if isinstance(inputs, set | frozenset) else tuple(inputs)


def named_call(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[str, str, str]:
    """A call for people: the name of the function, its arguments, and the digest of its own code,
    without what that reads; empty if it has none that can be told."""
    while isinstance(function, functools.partial):
        arguments = (*function.args, *arguments)
        named = {**function.keywords, **named}
        function = function.func
    if inspect.ismethod(function):
        arguments = (function.__self__, *arguments)
    function = unwrapped(function)
    coded: Any = function
    if not inspect.isroutine(function) and not inspect.isclass(function):
        # An object that can be called does what its class says.
        coded, arguments = type(function), (function, *arguments)
    parts = _own_parts(getattr(coded, "__func__", coded))
    name = f"{coded.__module__}.{coded.__qualname__}"
    return name, call_text(arguments, named), digest_of(parts) if parts else ""


def _own_parts(coded: Any) -> list[str]:
    if isinstance(coded, types.FunctionType):
        return own_digest_parts(coded)
    if not isinstance(coded, type):
        return []
    found = []
    for name, value in sorted(vars(coded).items()):
        if isinstance(value, types.FunctionType):
            found += [name, *own_digest_parts(value)]
    return found
