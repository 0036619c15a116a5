"""A walk through all that determines the data that a function makes."""

from __future__ import annotations

import collections
import functools
import os
import pathlib
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from typing import Any

from yogadl.core import Storage
from yogadl.errors import UndeterminedError
from yogadl.recipes import _classes, _foreign, _libraries
from yogadl.recipes._call_text import value_text
from yogadl.recipes._document import Item, Recipe, is_secret
from yogadl.recipes._functions import (
    describe_function,
    describe_wrapper,
    home_of,
    label_of,
    name_of,
    place_of,
    source_text,
)
from yogadl.recipes._inputs import FileInput, measured
from yogadl.recipes._ledger import Ledger
from yogadl.recipes._library_classes import describe_library_class, is_library_class
from yogadl.recipes._lookups import Lookups
from yogadl.recipes._names import follow
from yogadl.recipes._objects import has_hidden_state, kept, told, without_hash
from yogadl.recipes._owners import (
    PYTHON,
    YOGADL,
    is_library,
    is_library_file,
    is_library_module,
    is_of_yogadl,
    name_of_module,
    version_of,
)
from yogadl.recipes._patched import Patched
from yogadl.recipes._special import (
    CACHED,
    HINTS,
    WHOLE_ENVIRONMENT,
    forbidden_mention,
    forbidden_together,
    holds_forbidden,
)
from yogadl.recipes._trail import Trail
from yogadl.recipes._values import EXACT, PATCHABLE, derived_rule, member_name, named_member

_MOST_VALUES = 2_000_000
# Of what is in nothing else.
_WITH_REFERENCES = ("argument", "patch")
_OF_OWNERS = ("attribute", "closure", "default")

# Functions whose data is stored, of which one calls the next, if need be itself.
_under_way: ContextVar[tuple[Any, ...]] = ContextVar("_under_way", default=())


class Walker(Trail):
    """A walk, for one recipe; see ``Walk`` for what rules use of it.

    Args:
        ignore: names that do not count.
        inputs: that are declared, by the text of their paths.
    """

    def __init__(
        self, ignore: frozenset[str], inputs: Mapping[str, str], leaves_hints: bool = False
    ) -> None:
        super().__init__()
        self._ignore = ignore
        self._inputs = inputs
        self._ledger = Ledger()
        self._tokens: dict[Any, str] = {}
        self._alive: list[Any] = []
        # With the steps and the names that led there.
        self._queue: collections.deque[tuple[str, Any, list[str], list[str]]] = collections.deque()
        self._mentioned: set[str] = set()
        self._left = _MOST_VALUES
        self._lookups = Lookups()
        self.texts = self._lookups.texts
        self.leaves_hints = leaves_hints
        self.has_hints = False
        self.failed: dict[str, str] = {}
        self.annotated: dict[int, Any] = {}
        self._patched = Patched()
        self._home: Any = None
        self._begun = ""
        self._is_within = False
        self.is_outdated = False

    def begin(self, function: Any) -> str:
        """What the walk begins with."""
        self._begun, self._home = home_of(function)
        return self.token(function)

    # What rules use

    def token(self, value: Any) -> str:
        """See ``Walk``."""
        self._left -= 1
        if self._left < 0:
            self.refuse("one of more values than can be looked at")
        kind = type(value)
        if found := without_hash(value):
            self.refuse(found)
        rule = EXACT.get(kind)
        if rule is not None:
            if kind in PATCHABLE:
                self.meet(kind)
            if kind is types.MethodType and (name := _libraries.library_function(self, value)):
                return name
            return rule(self, value)
        # Not isinstance, since an object may say that it is of any class.
        if issubclass(kind, types.FunctionType | type):
            return self.reference(value)
        if issubclass(kind, types.ModuleType):
            name = name_of_module(value)
            if not is_library_module(value) or holds_forbidden(name):
                self.refuse_module(value, name)
            self.meet_module(value)
            return self.library(name, "")
        return self._token_of_object(value)

    def _token_of_object(self, value: Any) -> str:
        kind = type(value)
        self.meet(kind)
        if _classes.is_disguised(kind):
            return self.again(value) or _classes.describe_object(self, value)
        if found := _libraries.by_name(self, value):
            return found
        if value.__class__ is not kind:
            self.refuse(f"{told(value)}, which says that it is something else")
        rule = derived_rule(value)
        if rule is not None:
            return rule(self, value)
        rule = _foreign.rule_of(value)
        if rule is not None:
            return f"{rule(self, value)}{_classes.added_to(self, value)}"
        if issubclass(kind, _libraries.BUILTIN):
            return _libraries.builtin(self, value)
        if issubclass(kind, FileInput):
            return f"input({measured(value).digest})"
        # An abstract class would ask a metaclass which classes are equal.
        if any(one is Storage for one in kind.__mro__):
            return "storage"
        if value is os.environ:
            if not self.is_ignored("os.environ"):
                self.refuse(WHOLE_ENVIRONMENT, "os.environ")
            return "ignored"
        if is_library(kind.__module__):
            found = _libraries.wrapping(self, value)
            if not found and next(kept(value), None) is None:
                found = _libraries.singleton(self, value)
            if found:
                return found
        if has_hidden_state(kind):
            self.refuse(f"{told(value)}, which has a state that cannot be seen")
        return self.again(value) or _classes.describe_object(self, value)

    def inside(self, step: str, value: Any) -> str:
        """See ``Walk``."""
        self.steps.append(step)
        found = self.token(value)
        self.steps.pop()
        return found

    def again(self, value: Any) -> str:
        """See ``Walk``."""
        known = self._ledger.sharing.mark(id(value), value)
        return "" if known is None else f"same({known})"

    def alone(self, values: Iterable[Any]) -> list[str]:
        """See ``Walk``."""
        given = list(values)
        if not all(type(value) in EXACT for value in given):
            # The first one met of several of a name is called the first.
            content_of = functools.partial(self._content_of, {})
            given = sorted(given, key=place_of if self._is_within else content_of)
        try:
            return self._ledger.sharing.members(given, lambda value: self.inside("{…}", value))
        except ValueError as error:
            self.refuse(f"a set of which it cannot be told what is what: {error}")

    def _content_of(self, known: dict[int, tuple[str, str]], value: Any) -> str:
        """Puts values in an order that does not depend on where in memory they are.

        Args:
            known: what the same was told of, by where it is in memory.
            value: one of them.
        """
        name = "" if _classes.is_disguised(type(value)) else member_name(value)
        # All members of an enumeration are told by that.
        of = type(value) if name else value
        found = known.get(id(of))
        if found is None:
            within = Walker(self._ignore, self._inputs)
            within._is_within = True
            root = within.begin(of)
            within.describe_all()
            found = known[id(of)] = root, within.recipe([]).digest
        root, digest = found
        return f"{named_member(root, name) if name else root} {digest}"

    def meet(self, kind: type) -> None:
        """See ``Walk``."""
        self._patched.meet(kind)

    def meet_imported(self, kind: type) -> None:
        """See ``Walk``."""
        self._patched.meet_imported(kind)

    def meet_module(self, module: types.ModuleType) -> None:
        """See ``Walk``."""
        self._patched.meet_module(module)

    def is_put(self, module: str, owner: str, name: str, value: Any) -> bool:
        """See ``Walk``."""
        return self._patched.is_put(module, owner, name, value)

    def library(self, module: str, name: str) -> str:
        """See ``Walk``."""
        # By whatever name the user has imported it.
        self.mention([f"{module}.{name}", *module.split("."), *name.split(".")])
        distribution, version = version_of(module)
        self._patched.use(module)
        if version:
            self._ledger.library(distribution, version)
        elif distribution == PYTHON:
            # Where Python keeps its own things depends on its version.
            first, *more = module.split(".")
            parts = [first.lstrip("_"), *(part for part in more if not part.startswith("_"))]
            module = ".".join(parts)
        elif distribution != YOGADL and module and not self.is_ignored(module):
            self.refuse(f"of the library {module}, whose version cannot be told", module)
        return f"library({module}.{name})"

    def compiled(self, module: types.ModuleType, name: str) -> str:
        """See ``Walk``."""
        file = vars(module).get("__file__")
        if not isinstance(file, str):
            self.refuse(f"of the module {module.__name__}, which has no file")
        token = self._tokens.get((id(module), "", "file"))
        if token is None:
            content = measured(FileInput(file)).digest
            token = self._ledger.new(
                "file", module.__name__.rpartition(".")[2], module.__name__, str
            )
            self._tokens[id(module), "", "file"] = token
            self._ledger.describe(token, [content])
        return f"{token}.{name}"

    def memory(self, owner: object, place: int, start: int, layout: str) -> str:
        """See ``Walk``."""
        known = self._ledger.sharing.mark(("memory", place), owner, start, layout)
        if known is None:
            return ""
        return f"memory({known},{start - known.start},{known.layout},{layout})"

    def met(self, space: object, name: str) -> None:
        """See ``Walk``."""
        self._ledger.met(space, name)

    def writes(self, space: object, name: str) -> None:
        """See ``Walk``."""
        self._ledger.writes(space, name)

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

    def home(self, module: str) -> dict[str, Any] | None:
        """See ``Walk``."""
        space = self._home
        return space if space is not None and space.get("__name__") == module else None

    def begin_again(self) -> None:
        """See ``Walk``."""
        self.is_outdated = True

    def looks_up(self, function: types.FunctionType, cells: dict[str, Any]) -> None:
        """See ``Walk``."""
        self._lookups.add(self._ledger.current, function, cells)

    def mention(self, names: Collection[str]) -> None:
        """See ``Walk``."""
        self._mentioned.update(names)
        self._refuse(forbidden_mention(names))

    def _refuse(self, found: list[tuple[str, str]]) -> None:
        for name, why in found:
            if not self.is_ignored(name):
                self.refuse(f"code that uses {name}, which {why}", name)

    def later(self, flag: str, make: Callable[[], str]) -> None:
        """See ``Walk``."""
        self.has_hints |= flag == HINTS
        if not (flag == HINTS and self.leaves_hints):
            self._ledger.later(flag, make)

    # What has items of its own

    def item(self, kind: str, owner: object, name: str, label: str, value: Any) -> str:
        """See ``Walk``."""
        if kind == "global":
            self.met(owner, name)
        is_reference = issubclass(type(value), types.FunctionType | type | types.ModuleType)
        # Which of these is a class depends on the version of Python.
        is_reference = is_reference or value is typing.Any or value is typing.Annotated
        if is_reference and kind not in _WITH_REFERENCES:
            # Whoever asks has it in what it describes.
            with self.named(label, label):
                return self.token(value)
        known = self._tokens.get((id(owner), name, kind))
        if known is not None:
            return known
        short = label.rpartition(".")[2] if kind == "global" else name
        if kind == "patch" and isinstance(owner, type):
            short = f"{owner.__qualname__}.{name}"
        if kind in _OF_OWNERS and isinstance(owner, types.FunctionType | type):
            # So that one more of a name makes no other names of those that were there.
            short = f"{name_of(owner)}.{name}"
        token = self._ledger.new(kind, short, label, lambda: _value_text(kind, value))
        self._tokens[id(owner), name, kind] = token
        self._alive += (owner, value)
        ledger = self._ledger
        current, before = ledger.current, ledger.sharing.begin(token)
        ledger.current = token
        try:
            with self.named(label, label):
                ledger.describe(token, [self.token(value)])
        except UndeterminedError:
            # Who goes on without it has not told it to others.
            del self._tokens[id(owner), name, kind]
            raise
        finally:
            ledger.current = current
            ledger.sharing.resume(before)
        return token

    def reference(self, value: Any) -> str:
        """See ``Walk``."""
        known = self._tokens.get(id(value))
        if known is not None:
            return known
        self._alive.append(value)
        show: Callable[[], str]
        if isinstance(value, type):
            if is_library_class(value):
                _libraries.refuse_forbidden(self, value)
                found = self._tokens[id(value)] = describe_library_class(self, value)
                return found
            kind, show = "class", functools.partial(_classes.shown, value)
        else:
            cached = vars(value).get(CACHED)
            # What wraps it may have got its attributes.
            if cached is not None and is_of_yogadl(value):
                return self._cached(value, cached)
            if is_library_file(value.__code__.co_filename):
                found = _libraries.library_function(self, value)
                if found:
                    return found
                kind, show = "wrapper", str
            else:
                kind, show = "function", functools.partial(source_text, value)
        token = self._ledger.new(kind, name_of(value), label_of(value), show)
        self._tokens[id(value)] = token
        self._queue.append((token, value, [*self.steps], [*self.names]))
        return token

    def describe_all(self) -> None:
        """Describes what was met, and what is met by that."""
        while True:
            self._describe_queue()
            is_more = self._ledger.add_due(self._mentioned) or self._look_up()
            # Which of equal values comes first does not depend on what libraries have.
            if not is_more and (self._is_within or not self._patched.add(self, self._ledger)):
                break
        if not self._is_within:
            self._patched.add_namesakes(self._ledger)
            self._patched.add_constants(self, self._mentioned, self.texts)
            self._patched.add_values(self, self._mentioned, self.texts)
        self.restart(self._begun)
        self._refuse(forbidden_together(self._mentioned))
        self._ledger.add_writes()

    def _look_up(self) -> bool:
        """Adds what functions may read by texts that they are given; whether there was any."""
        due = self._lookups.due()
        for token, function, cells, read in due:
            # What is met for that is told from all else of the item.
            self._ledger.begin(f"{token} looks up {read}")
            self.restart(label_of(function))
            self._ledger.add(token, f"{read}={follow(self, function, cells, read)}")
        return bool(due)

    def _describe_queue(self) -> None:
        while self._queue:
            token, value, steps, names = self._queue.popleft()
            name = label_of(value)
            self._ledger.begin(token)
            # What is of no module is ignored by what it is in.
            self.steps, self.names = [*steps, name][-8:], [name] if value.__module__ else names
            if isinstance(value, type):
                self._patched.kinds[value] = token
                parts = _classes.describe_class(self, value)
            elif token.startswith("wrapper"):
                parts = describe_wrapper(self, value)
            else:
                self._patched.meet_code(value.__globals__)
                parts = describe_function(self, value)
            self._ledger.describe(token, parts)

    def recipe(self, more: Iterable[Item]) -> Recipe:
        """The recipe of all that was described, and of some items more."""
        return self._ledger.recipe(more)

    def _cached(self, function: Any, cached: Any) -> str:
        """A function that has its data stored: by the names of that, and by its own recipe."""
        above = _under_way.get()
        known = [number for number, it in enumerate(above) if it is cached]
        if known:
            return f"cached by {known[0]} of those that it is in"
        entered = _under_way.set((*above, cached))
        try:
            inner = cached.recipe_if_told((), {})
        finally:
            _under_way.reset(entered)
        if inner is not None:
            self._ledger.include(inner)
        found = self._tokens[id(function)] = (
            f"cached({self.token(cached.dataset_id)},{self.token(cached.dataset_version)},"
            f"{'' if inner is None else inner.digest})"
        )
        return found


def _value_text(kind: str, value: Any) -> str:
    return "" if kind == "environment" else value_text(value, is_secret)
