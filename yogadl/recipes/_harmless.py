"""Which of a text's assignments to attributes surely give no library any code of the user's.

``node.next = other`` says neither what ``node`` is nor what ``other`` is, and so somebody has to
look for ``next`` in all that libraries have. That is not necessary where the text says that
``node`` is always a function of its own or an object of a class of its own, or that the value is
something that a library itself has, as in ``options.policy = AutoShardPolicy.OFF``. A text says so
under conditions; whether these hold is asked of what there is, see ``_holding``.
"""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass, field

CLEVER = re.compile(r"\b(?:f_)?(?:globals|locals)\b")
"""Words by which names may get values that no statement gives them, also those of other texts."""

_MOST_NAMES = 50
# What Python changes in classes, or what may be two names at once.
_PRIVATE = "__"
# These give numbers and texts, whatever they get.
_CONVERTING = frozenset(("bool", "float", "int", "len", "str"))
# What decides what is made by calling a class, and what its objects have.
_MAKING = frozenset(("__bases__", "__new__"))
_WRAPS = "functools.wraps"
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Plain = ast.Constant | ast.JoinedStr
_Parts = ast.Tuple | ast.List | ast.Set | ast.Dict | ast.IfExp | ast.BoolOp


@dataclass(frozen=True)
class Store:
    """Something is given an attribute.

    Attributes:
        name: of the attribute.
        owner: what gets it.
        value: what that is, where the text says so.
    """

    name: str
    owner: ast.expr
    value: ast.expr | None


@dataclass(frozen=True)
class Condition:
    """What has to hold for an assignment to be harmless.

    Attributes:
        names: of attributes that nobody gives to anything but objects of their own.
        classes: names of the module, which are plain classes of the user's.
        paths: modules and names in them, which are things of libraries.
        is_own: whether what gets the attribute is the text's own then, and nothing that answers
            when objects get one of that name.
    """

    names: frozenset[str]
    classes: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    is_own: bool = False


@dataclass(frozen=True)
class _Import:
    """What an import statement gives a name: a module, or a module and a name in that; empty for
    what is relative."""

    path: str


_Binding = ast.expr | _Function | ast.ClassDef | _Import | None
BINDING = frozenset(
    (
        *(ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Import, ast.ImportFrom, ast.Name, ast.arg),
        *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler),
        *(ast.MatchAs, ast.MatchStar, ast.MatchMapping),
    )
)
"""All that gives values to names."""


class Bound:
    """What names of a text get, in whichever scope, as far as there is no word of ``CLEVER``."""

    def __init__(self) -> None:
        # ``None`` is anything.
        self._by_name: dict[str, list[_Binding]] = {}
        self._is_told = True
        # By where they are in memory.
        self._seen: set[int] = set()
        # Of names that were asked for.
        self._owners: dict[str, _Owner | None] = {}
        self._roots: dict[str, str] = {}
        self._plain: dict[str, bool] = {}

    def add(self, node: ast.AST) -> None:
        """Adds what a node of the text binds, if it is one of ``BINDING``; those that it is in have
        to be added before it."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value)
        elif isinstance(node, ast.AnnAssign):
            if node.value is None:
                self._seen.add(id(node.target))
            else:
                self._assign(node.target, node.value)
        elif isinstance(node, ast.NamedExpr):
            self._assign(node.target, node.value)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node)
        elif isinstance(node, _Function | ast.ClassDef):
            self._add(node.name, node)
        elif isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load) and id(node) not in self._seen:
                self._add(node.id, None)
        elif isinstance(node, ast.arg):
            self._add(node.arg, None)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            self._add(node.name or "", None)
        elif isinstance(node, ast.MatchMapping):
            self._add(node.rest or "", None)

    def condition_of(self, store: Store) -> Condition | None:
        """Under which condition an assignment of the text is harmless; ``None`` for one that may
        always give code to a library."""
        if store.name[:2] == "__" or not self._is_told:
            return None
        return self._if_own(store) or self._if_harmless(store.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._seen.add(id(target))
            self._add(target.id, value)
            return
        pairs = ast.Tuple | ast.List
        if isinstance(target, pairs) and isinstance(value, pairs):
            is_starred = any(isinstance(it, ast.Starred) for it in (*target.elts, *value.elts))
            if len(target.elts) == len(value.elts) and not is_starred:
                for one, given in zip(target.elts, value.elts, strict=True):
                    self._assign(one, given)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name == "*":
                self._is_told = False
            elif isinstance(node, ast.ImportFrom):
                path = "" if node.level else f"{node.module}.{alias.name}"
                self._add(alias.asname or alias.name, _Import(path))
            else:
                path = alias.name if alias.asname else alias.name.partition(".")[0]
                self._add(alias.asname or path, _Import(path))

    def _add(self, name: str, value: _Binding) -> None:
        known = self._by_name.setdefault(name, [])
        if value is None:
            known[:] = [None]
        elif known != [None]:
            known.append(value)

    def _if_own(self, store: Store) -> Condition | None:
        """Under which condition a function, object or class of the text's own gets it."""
        owner, made = store.owner, set[str]()
        if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name):
            made.add(owner.func.id)
            found: _Owner | None = _Owner(classes=made)
        else:
            found = self._owner(owner.id) if isinstance(owner, ast.Name) else None
        if found is None or not all(map(self._is_class, found.classes)):
            return None
        names = found.names | found.classes | (_MAKING if found.classes else frozenset())
        return Condition(
            frozenset(names),
            frozenset(found.classes),
            frozenset(found.paths),
            not found.may_be_class or self._is_no_property(store.value),
        )

    def _owner(self, name: str) -> _Owner | None:
        if name not in self._owners:
            self._owners[name] = self._followed(name)
        return self._owners[name]

    def _followed(self, first: str) -> _Owner | None:
        """What a name may get, by whichever names that goes."""
        found = _Owner()
        left = {first}
        while left:
            name = left.pop()
            found.names.add(name)
            if _PRIVATE in name or len(found.names) > _MOST_NAMES:
                return None
            for value in self._by_name.get(name, [None]):
                if isinstance(value, ast.Name):
                    left |= {value.id} - found.names
                elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
                    found.classes.add(value.func.id)
                elif isinstance(value, ast.ClassDef):
                    found.classes.add(name)
                    found.may_be_class = True
                elif not isinstance(value, _Function) or not self._is_undecorated(value, found):
                    return None
        return found

    def _is_class(self, name: str) -> bool:
        found = self._by_name.get(name, [])
        return _PRIVATE not in name and len(found) == 1 and isinstance(found[0], ast.ClassDef)

    def _is_undecorated(self, function: _Function, found: _Owner) -> bool:
        """Whether a function is what its name gets, or its decorators give it back, as far as the
        text says; adds by which names."""
        for decorator in function.decorator_list:
            chain = self._path(decorator.func) if isinstance(decorator, ast.Call) else None
            if chain is None or chain[0] != _WRAPS:
                return False
            found.paths.add(_WRAPS)
            found.names |= chain[1]
        return True

    def _is_no_property(self, value: ast.expr | None) -> bool:
        """Whether a value is surely nothing that answers when objects of a class get it."""
        if isinstance(value, ast.Name):
            found = self._by_name.get(value.id, [None])
            return all(isinstance(it, _Function) and not it.decorator_list for it in found)
        return isinstance(value, _Plain | ast.List | ast.Dict | ast.Lambda)

    def _if_harmless(self, value: ast.expr | None) -> Condition | None:
        """Under which condition a value is a number or text, or something of a library's."""
        names, paths = set[str](), set[str]()
        left = [value]
        while left:
            node = left.pop()
            if isinstance(node, _Parts):
                left += _parts(node)
            elif isinstance(node, ast.Call):
                # Whatever it gets.
                called = node.func.id if isinstance(node.func, ast.Name) else ""
                if called not in _CONVERTING or called in self._by_name:
                    return None
                names.add(called)
                paths.add(f"builtins.{called}")
            elif isinstance(node, ast.Name | ast.Attribute):
                chain = self._path(node)
                if chain is not None:
                    paths.add(chain[0])
                    names |= chain[1]
                elif isinstance(node, ast.Name) and self._is_plain(node.id):
                    names.add(node.id)
                else:
                    return None
            elif not isinstance(node, _Plain):
                return None
        return Condition(frozenset(names), paths=frozenset(paths))

    def _is_plain(self, name: str) -> bool:
        """Whether a name gets numbers and texts only."""
        if name not in self._plain:
            found = self._by_name.get(name, [None])
            self._plain[name] = all(isinstance(it, _Plain) for it in found)
        return _PRIVATE not in name and self._plain[name]

    def _path(self, node: ast.expr) -> tuple[str, set[str]] | None:
        """The path of what is imported, and the names by which the text has that."""
        attributes: list[str] = []
        # No recursion: a chain may be longer than Python's stack.
        while isinstance(node, ast.Attribute):
            attributes.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or _PRIVATE in node.id:
            return None
        if node.id not in self._roots:
            self._roots[node.id] = self._root(node.id)
        if not self._roots[node.id]:
            return None
        path = ".".join((self._roots[node.id], *reversed(attributes)))
        return path, {node.id, *path.split(".")[1:]}

    def _root(self, name: str) -> str:
        """The path of what is imported by a name; empty if it may be something else."""
        if name not in self._by_name:
            return f"builtins.{name}" if hasattr(builtins, name) else ""
        paths = set[str]()
        for it in self._by_name[name]:
            if isinstance(it, _Import):
                paths.add(it.path)
            elif not isinstance(it, ast.Constant):
                # What could not be imported may be ``None``.
                return ""
        return paths.pop() if len(paths) == 1 else ""


@dataclass
class _Owner:
    """What a name may get.

    Attributes:
        names: by which that goes.
        classes: that make objects, or that it is.
        paths: see ``Condition``.
        may_be_class: whether it may be a class, and no object.
    """

    names: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    may_be_class: bool = False


def _parts(node: _Parts) -> list[ast.expr | None]:
    """What a value is made of, or one of which it is."""
    if isinstance(node, ast.Dict):
        return [*node.keys, *node.values]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    return [*(node.values if isinstance(node, ast.BoolOp) else node.elts)]
