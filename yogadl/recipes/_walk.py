"""A walk through all that determines the data that a function makes."""

from __future__ import annotations

import builtins
import collections
import contextlib
import functools
import inspect
import pathlib
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from yogadl.core import Storage
from yogadl.errors import UndeterminedError
from yogadl.recipes import _classes, _foreign
from yogadl.recipes._call_text import call_text
from yogadl.recipes._document import Item, Recipe, digest_of, shown_text
from yogadl.recipes._functions import (
    describe_function,
    describe_wrapper,
    follow,
    label_of,
    name_of,
    source_text,
)
from yogadl.recipes._inputs import FileInput, measured
from yogadl.recipes._owners import is_library, is_library_file, is_library_module, version_of
from yogadl.recipes._reads import reads_of_expression
from yogadl.recipes._values import EXACT, derived_rule, has_hidden_state, kept, pairs, text, told

FLAGS: dict[str, frozenset[str]] = {
    "order": frozenset(("vars", "__dict__", "getmembers", "get_annotations", "get_type_hints")),
    "module": frozenset(("__module__",)),
    "doc": frozenset(("__doc__", "getdoc", "cleandoc")),
    "source": frozenset(
        [
            "getsource",
            "getsourcelines",
            "getcomments",
            "findsource",
            "__code__",
            "co_firstlineno",
            "linecache",
        ]
    ),
    "annotations": frozenset(
        [
            "__annotations__",
            "get_type_hints",
            "get_annotations",
            "signature",
            "getfullargspec",
            "getargspec",
        ]
    ),
}
"""What counts only if code uses one of some names."""

CACHED = "__yogadl_cached__"
"""The attribute of what ``cacheable`` returns that says what it caches."""

_BUILTIN = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_WRAPPED = ("__wrapped__", "python_function", "py_func")
_MOST_VALUES = 2_000_000


class Walker:
    """A walk, for one recipe; see ``Walk`` for what rules use of it.

    Args:
        ignore: names that do not count.
        inputs: that are declared, by the text of their paths.
    """

    def __init__(self, ignore: frozenset[str], inputs: Mapping[str, str]) -> None:
        self._ignore = ignore
        self._inputs = inputs
        self._contents: dict[str, list[str]] = {}
        self._shown: dict[str, tuple[str, str, Callable[[], str]]] = {}
        self._tokens: dict[Any, str] = {}
        self._alive: list[Any] = []
        self._counts: collections.Counter[str] = collections.Counter()
        self._queue: collections.deque[tuple[str, Any, tuple[str, ...]]] = collections.deque()
        self._libraries: dict[str, str] = {}
        self._mentioned: set[str] = set()
        self._later: dict[tuple[str, str], Callable[[], str]] = {}
        self._shared: dict[int, str] = {}
        self._steps: list[str] = []
        self._names: list[str] = []
        self._current = ""
        self._number = 0
        self._left = _MOST_VALUES
        self._inner: dict[Item, str] = {}
        self._home: Any = None
        self._is_within = False
        self.is_outdated = False

    def begin(self, function: Any) -> str:
        """What the walk begins with."""
        inner: Any = function
        while isinstance(inner, functools.partial):
            inner = inner.func
        inner = inspect.unwrap(getattr(inner, "__func__", inner))
        self._home = getattr(inner, "__globals__", None)
        if self._home is None:
            kind = inner if isinstance(inner, type) else type(inner)
            self._home = vars(sys.modules.get(kind.__module__, builtins))
        return self.token(function)

    # What rules use

    def token(self, value: Any) -> str:
        """See ``Walk``."""
        self._left -= 1
        if self._left < 0:
            self.refuse("one of more values than can be looked at")
        rule = EXACT.get(type(value))
        if rule is not None:
            if type(value) is types.MethodType and (found := self._of_library(value)):
                return found
            return rule(self, value)
        if isinstance(value, types.FunctionType | type):
            return self.reference(value)
        if isinstance(value, types.ModuleType):
            if not is_library_module(value):
                self.refuse_module(value, value.__name__)
            return self.library(value.__name__, "")
        return self._token_of_object(value)

    def _token_of_object(self, value: Any) -> str:
        if _is_disguised(type(value)):
            return self.again(value) or _classes.describe_object(self, value)
        rule = derived_rule(value) or _foreign.rule_of(value)
        if rule is not None:
            return rule(self, value)
        if isinstance(value, _BUILTIN):
            return self._builtin(value)
        if isinstance(value, FileInput):
            return f"input({measured(value).digest})"
        if isinstance(value, Storage):
            return "storage"
        kind = type(value)
        if found := self._by_name(value):
            return found
        if is_library(kind.__module__):
            is_bare = next(kept(value), None) is None
            found = self._wrapping(value) or (self._singleton(value) if is_bare else "")
            if found:
                return found
        if has_hidden_state(kind):
            self.refuse(f"{told(value)}, which has a state that cannot be seen")
        return self.again(value) or _classes.describe_object(self, value)

    def inside(self, step: str, value: Any) -> str:
        """See ``Walk``."""
        self._steps.append(step)
        found = self.token(value)
        self._steps.pop()
        return found

    def again(self, value: Any) -> str:
        """See ``Walk``."""
        known = self._shared.get(id(value))
        if known is not None:
            return f"same({known})"
        self._shared[id(value)] = f"{self._current}/{self._number}"
        self._number += 1
        self._alive.append(value)
        return ""

    def alone(self, values: Iterable[Any]) -> list[str]:
        """See ``Walk``."""
        found, shared, number = [], self._shared, self._number
        given = list(values)
        if not all(type(value) in EXACT for value in given):
            # The first one met of several of a name is called the first.
            given = sorted(given, key=_place_of if self._is_within else self._content_of)
        for value in given:
            # Of what has no order, none is the first.
            self._shared, self._number = dict(shared), 0
            found.append(self.inside("{…}", value))
        self._shared, self._number = shared, number
        return sorted(found)

    def _content_of(self, value: Any) -> str:
        """Puts values in an order that does not depend on where in memory they are."""
        within = Walker(self._ignore, self._inputs)
        within._is_within = True
        root = within.begin(value)
        within.describe_all()
        return f"{root} {within.recipe([]).digest}"

    def library(self, module: str, name: str) -> str:
        """See ``Walk``."""
        distribution, version = version_of(module)
        if version:
            self._libraries[distribution] = version
        elif distribution == "python":
            # Where Python keeps its own things depends on its version.
            first, *more = module.split(".")
            parts = [first.lstrip("_"), *(part for part in more if not part.startswith("_"))]
            module = ".".join(parts)
        return f"library({module}.{name})"

    def declared(self, path: pathlib.PurePath) -> str:
        """See ``Walk``."""
        found = self._inputs.get(str(path))
        return "" if found is None else f"input({found})"

    def is_ignored(self, *names: str) -> bool:
        """See ``Walk``."""
        return not self._ignore.isdisjoint(names)

    def is_home(self, space: dict[str, Any]) -> bool:
        """See ``Walk``."""
        return space is self._home

    def begin_again(self) -> None:
        """See ``Walk``."""
        self.is_outdated = True

    def mention(self, names: Iterable[str]) -> None:
        """See ``Walk``."""
        self._mentioned.update(names)

    def later(self, flag: str, make: Callable[[], str]) -> None:
        """See ``Walk``."""
        self._later[self._current, flag] = make

    def refuse(self, what: str, name: str = "") -> typing.NoReturn:
        """See ``Walk``."""
        name = name or (self._names[-1] if self._names else "")
        where = "".join(f" → {it}" if it[:1] not in ".[{" else it for it in self._steps)
        advice = f"leave it out with ignore=({name!r},), and " if name else ""
        raise UndeterminedError(
            f"what determines the data cannot be told: {where.removeprefix(' → ')} is {what}. "
            f"To go on, {advice}say with key= what it stands for, or give a version"
        )

    def refuse_module(self, module: types.ModuleType, name: str) -> typing.NoReturn:
        """The same of a module of the user's that is more than the beginning of a name."""
        with self._named(name):
            self.refuse(
                f"the module {module.__name__} itself, of which it cannot be told what is used; "
                "name what you use, or put it into a dict"
            )

    @contextlib.contextmanager
    def _named(self, *names: str) -> Iterator[None]:
        """What can be ignored by a name, inside."""
        depth, named = len(self._steps), len(self._names)
        self._names += names[:1]
        self._steps += names[1:]
        yield
        del self._steps[depth:], self._names[named:]

    def annotation(self, kind: type, annotation: str) -> str:
        """An annotation that is text, with the classes that it names, as far as they are there."""
        form, expression = _classes.annotation_form(annotation)
        module = sys.modules.get(kind.__module__)
        if expression is None or module is None:
            return form
        stand_in = types.FunctionType((lambda: None).__code__, vars(module))
        found = []
        for read in reads_of_expression(expression).names:
            try:
                found.append(f"{read}={follow(self, stand_in, {}, read)}")
            except UndeterminedError:
                continue
        return f"{form}{{{','.join(found)}}}"

    # What has items of its own

    def item(self, kind: str, owner: object, name: str, label: str, value: Any) -> str:
        """See ``Walk``."""
        is_reference = isinstance(value, types.FunctionType | type | types.ModuleType)
        if is_reference and kind != "argument":
            # Whoever asks has it in what it describes; arguments are in nothing else.
            with self._named(label, label):
                return self.token(value)
        known = self._tokens.get((id(owner), name, kind))
        if known is not None:
            return known
        short = label.rpartition(".")[2] if kind == "global" else name
        token = self._new(kind, short, label, lambda: _value_text(kind, value))
        self._tokens[id(owner), name, kind] = token
        self._alive += (owner, value)
        before = self._current, self._number
        self._current, self._number = token, 0
        with self._named(label, label):
            self._contents[token] = [self.token(value)]
        self._current, self._number = before
        return token

    def _new(self, kind: str, short: str, label: str, show: Callable[[], str]) -> str:
        """The token of a new item. It does not depend on the names of modules."""
        count = self._counts[f"{kind} {short}"]
        self._counts[f"{kind} {short}"] += 1
        token = f"{kind} {short}#{count}"
        self._shown[token] = kind, label, show
        return token

    def reference(self, value: Any) -> str:
        """See ``Walk``."""
        known = self._tokens.get(id(value))
        if known is not None:
            return known
        self._alive.append(value)
        show: Callable[[], str]
        if isinstance(value, type):
            if _classes.is_library_class(value):
                found = self._tokens[id(value)] = _classes.describe_library_class(self, value)
                return found
            kind, show = "class", _nothing
        else:
            cached = vars(value).get(CACHED)
            if cached is not None:
                return self._cached(value, cached)
            if is_library_file(value.__code__.co_filename):
                found = self._of_library(value)
                if found:
                    return found
                kind, show = "wrapper", _nothing
            else:
                kind, show = "function", functools.partial(source_text, value)
        token = self._new(kind, name_of(value), label_of(value), show)
        self._tokens[id(value)] = token
        self._queue.append((token, value, tuple(self._steps)))
        return token

    def describe_all(self) -> None:
        """Describes what was met, and what is met by that."""
        while True:
            self._describe_queue()
            flags = {flag for flag, names in FLAGS.items() if not names.isdisjoint(self._mentioned)}
            due = [key for key in self._later if key[1] in flags]
            if not due:
                return
            for token, flag in due:
                make = self._later.pop((token, flag))
                self._current, self._number = token, 0
                self._contents[token].append(f"{flag}: {make()}")

    def _describe_queue(self) -> None:
        while self._queue:
            token, value, steps = self._queue.popleft()
            name = label_of(value)
            self._current, self._number = token, 0
            self._steps, self._names = [*steps, label_of(value)][-8:], [name]
            if isinstance(value, type):
                self._contents[token] = _classes.describe_class(self, value)
            elif token.startswith("wrapper"):
                self._contents[token] = describe_wrapper(self, value)
            else:
                self._contents[token] = describe_function(self, value)

    def recipe(self, more: Iterable[Item]) -> Recipe:
        """The recipe of all that was described, and of some items more."""
        items, lines = [], []
        shows: dict[Item, Callable[[], str]] = {}
        for token, parts in self._contents.items():
            kind, label, show = self._shown[token]
            item = Item(kind, label, digest_of(parts))
            items.append(item)
            lines.append(f"{token} {item.digest}")
            shows[item] = functools.partial(_show, label, show)
        for name, version in sorted(self._libraries.items()):
            items.append(Item("library", name, digest_of([version]), version))
        lines += [f"library {it.name} {it.digest}" for it in items[len(lines) :]]
        for number, it in enumerate(more):
            items.append(it)
            # Where an input is does not count.
            lines.append(f"{it.kind} {number if it.kind == 'input' else it.name} {it.digest}")

        known = set(items)
        items += [it for it in self._inner if it not in known]

        def show_all() -> dict[Item, str]:
            texts = {it: shows[it]() if it in shows else it.text for it in items}
            return {**texts, **self._inner}

        return Recipe(digest_of(sorted(lines)), tuple(items), show_all)

    def _cached(self, function: Any, cached: Any) -> str:
        """A function that has its data stored: by the names of that, and by its own recipe."""
        inner = cached.recipe_if_told((), {})
        if inner is not None:
            self._inner.update(inner.show())
        found = self._tokens[id(function)] = (
            f"cached({self.token(cached.dataset_id)},{self.token(cached.dataset_version)},"
            f"{'' if inner is None else inner.digest})"
        )
        return found

    # Things of libraries

    def _of_library(self, value: Any) -> str:
        """A function of a library; empty for one that a library made for the user."""
        function = value.__func__ if isinstance(value, types.MethodType) else value
        module, name = str(value.__module__), str(value.__qualname__)
        if is_library(module):
            found: Any = sys.modules.get(module)
            for part in name.split("."):
                space = vars(found) if hasattr(found, "__dict__") else {}
                found = space.get(part)
            found = getattr(found, "__func__", found)
            if found is function and not isinstance(value, types.MethodType):
                return self.library(module, name)
            bound = vars(sys.modules.get(module, types)).get(function.__name__)
            if isinstance(value, types.MethodType) and bound == value:
                return self.library(module, function.__name__)
        is_plain = not value.__closure__ and "__wrapped__" not in vars(function)
        if is_plain and not isinstance(value, types.MethodType):
            if not function.__defaults__ and not function.__kwdefaults__:
                return self.library(function.__globals__.get("__name__", module), name)
        return ""

    def _builtin(self, value: Any) -> str:
        owner = getattr(value, "__self__", None)
        kind = getattr(value, "__objclass__", None)
        if kind is not None and (owner is None or owner is kind):
            return f"method({self.token(kind)}.{value.__name__})"
        if owner is None or isinstance(owner, types.ModuleType):
            module = str(value.__module__ or "builtins")
            found = sys.modules.get(module)
            if found is not None and not is_library_module(found):
                return self._compiled(found, value.__qualname__)
            return self.library(module, value.__qualname__)
        if not isinstance(owner, type) and (known := self._singleton(owner)):
            return f"method({known}.{value.__name__})"
        return f"method({self.token(owner)}.{value.__name__})"

    def _compiled(self, module: types.ModuleType, name: str) -> str:
        """Something of a module of the user's that was compiled: all of that counts."""
        file = vars(module).get("__file__")
        if not isinstance(file, str):
            self.refuse(f"of the module {module.__name__}, which has no file")
        token = self._tokens.get((id(module), "", "file"))
        if token is None:
            content = measured(FileInput(file)).digest
            token = self._new("file", module.__name__.rpartition(".")[2], module.__name__, _nothing)
            self._tokens[id(module), "", "file"] = token
            self._contents[token] = [content]
        return f"{token}.{name}"

    def _wrapping(self, value: Any) -> str:
        """An object that a library has made around a function of the user's."""
        if not callable(value):
            return ""
        for name in _WRAPPED:
            found = getattr(value, name, None)
            if isinstance(found, types.FunctionType):
                self.mention(["__annotations__"])
                kind = type(value)
                more = pairs(self, getattr(value, "targetoptions", {}).items())
                return (
                    f"{self.library(kind.__module__, kind.__qualname__)}"
                    f"({self.inside(f'.{name}', found)}{more})"
                )
        return ""

    def _by_name(self, value: Any) -> str:
        """A function that was not written in Python."""
        if "__name__" not in vars(type(value)):
            return ""
        module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
        if not isinstance(module, str) or not isinstance(name, str):
            return ""
        home = sys.modules.get(module, types)
        if vars(home).get(name) is not value:
            return ""
        return self.library(module, name) if is_library(module) else self._compiled(home, name)

    def _singleton(self, value: Any) -> str:
        """An object that is a name in the module of its class, as libraries have constants."""
        kind = type(value)
        module = sys.modules.get(kind.__module__)
        if not isinstance(module, types.ModuleType):
            return ""
        for name, found in vars(module).items():
            if found is value:
                return self.library(kind.__module__, name)
        return ""


def _place_of(value: Any) -> tuple[str, int]:
    """The same as far as names and lines of code tell."""
    if isinstance(value, types.FunctionType):
        return value.__qualname__, value.__code__.co_firstlineno
    return (value.__qualname__, 0) if isinstance(value, type) else ("", 0)


def _value_text(kind: str, value: Any) -> str:
    if kind == "environment":
        return ""
    return call_text((value,), {})


def _is_disguised(kind: type) -> bool:
    """Whether objects of a class of the user's are not asked what they are: they may say
    anything."""
    if is_library(kind.__module__) or has_hidden_state(kind):
        return False
    own = [one for one in kind.__mro__ if not is_library(one.__module__)]
    return any("__getattribute__" in vars(one) or "__class__" in vars(one) for one in own)


def _nothing() -> str:
    return ""


def _show(label: str, show: Callable[[], str]) -> str:
    return shown_text(label, show())


__all__ = ["CACHED", "FLAGS", "Walker", "text"]
