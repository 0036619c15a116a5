"""Which of a text's assignments to attributes surely give no library any code of the user's.

``node.next = other`` says neither what ``node`` is nor what ``other`` is, and so somebody has to
look for ``next`` in all that libraries have. That is not necessary where the text says that
``node`` is always an object of a class of its own, or that the value is something that a library
itself has, as in ``options.policy = tf.data.experimental.AutoShardPolicy.OFF``; as long as nobody
gives another value to the names by which it says so.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

CLEVER = re.compile(r"\b(?:f_)?(?:globals|locals)\b")
"""Words of texts in which names may get values that no statement gives them."""

_DEEPEST = 20
_SELF, _CLS = "self", "cls"
# Methods of classes without saying so.
_OF_CLASSES = frozenset(("__class_getitem__", "__init_subclass__", "__new__"))
# These give numbers and texts, whatever they get.
_CONVERTING = frozenset(("bool", "float", "int", "len", "str"))
# What may make other objects of what calls a class.
_MAKING = frozenset(("__bases__", "__new__"))
_OF_PROPERTIES = frozenset(("deleter", "getter", "setter"))
_Function = ast.FunctionDef | ast.AsyncFunctionDef


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
        libraries: modules at the top, all of which are libraries'.
        is_own: whether what gets the attribute is the text's own then, and nothing that answers
            when objects get one of that name.
    """

    names: frozenset[str]
    libraries: frozenset[str]
    is_own: bool


class _Import(ast.expr):
    """Stands for a value that an import statement gives a name.

    Attributes:
        level: of a relative one.
        path: the module and what is imported of it.
    """

    def __init__(self, level: int, path: str) -> None:
        super().__init__()
        self.level = level
        self.path = path


class _First(ast.expr):
    """Stands for what a method gets as ``self`` or ``cls``."""


_Binding = ast.expr | _Function | ast.ClassDef | None
BINDING = frozenset(
    (
        *(ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Import, ast.ImportFrom, ast.Name, ast.arg),
        *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler),
        *(ast.MatchAs, ast.MatchStar, ast.MatchMapping),
    )
)
"""All that gives values to names."""


class Bound:
    """What names of a text get, in whichever scope, as far as it has no word of ``CLEVER``.

    Attributes:
        by_name: all that each name gets; ``None`` is anything.
        is_told: whether these are all names.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, list[_Binding]] = {}
        self.is_told = True
        # By where they are in memory.
        self._seen: set[int] = set()

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
        elif isinstance(node, _Function):
            self._add(node.name, node)
        elif isinstance(node, ast.ClassDef):
            self._add(node.name, node)
            self._define_methods(node)
        elif isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load) and id(node) not in self._seen:
                self._add(node.id, None)
        elif isinstance(node, ast.arg):
            if id(node) not in self._seen:
                self._add(node.arg, None)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            self._add(node.name or "", None)
        elif isinstance(node, ast.MatchMapping):
            self._add(node.rest or "", None)

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
                self.is_told = False
            elif isinstance(node, ast.ImportFrom):
                path = f"{node.module or ''}.{alias.name}"
                self._add(alias.asname or alias.name, _Import(node.level, path))
            else:
                path = alias.name if alias.asname else alias.name.partition(".")[0]
                self._add(alias.asname or path, _Import(0, path))

    def _define_methods(self, kind: ast.ClassDef) -> None:
        for method in kind.body:
            if isinstance(method, _Function):
                for first in [*method.args.posonlyargs, *method.args.args][:1]:
                    if first.arg == _first_of(method, kind):
                        self._seen.add(id(first))
                        self._add(first.arg, _First())

    def _add(self, name: str, value: _Binding) -> None:
        self.by_name.setdefault(name, []).append(value)


class _Proof:
    """Shows that an assignment is harmless.

    Args:
        bound: what the names of the text get.
        store: the assignment.
    """

    def __init__(self, bound: Bound, store: Store) -> None:
        self._bound = bound
        self._store = store
        self._names: set[str] = set()
        self._libraries: set[str] = set()
        self._may_be_class = False
        # What is being shown of names: all of it has to hold, or nothing does.
        self._assumed: set[tuple[str, Callable[[_Binding, int], bool]]] = set()

    def own(self) -> Condition | None:
        """Under which condition an object, function or class of the text's own gets it."""
        holds = self._is_own(self._store.owner, _DEEPEST)
        return self._condition(holds, not self._may_be_class or self._is_no_property())

    def harmless(self) -> Condition | None:
        """Under which condition the value is a number or text, or something of a library's."""
        return self._condition(self._is_harmless(self._store.value, _DEEPEST), False)

    def _condition(self, holds: bool, is_own: bool) -> Condition | None:
        if not holds or not self._bound.is_told:
            return None
        return Condition(frozenset(self._names), frozenset(self._libraries), is_own)

    def _is_own(self, node: _Binding, deep: int) -> bool:
        if isinstance(node, ast.Name):
            return self._all_of(node.id, self._is_own, deep)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._is_own_class(node.func, deep - 1)
        if isinstance(node, _Function):
            return all(self._is_call_of(it, "functools.wraps") for it in node.decorator_list)
        self._may_be_class = True
        return isinstance(node, _First) or self._is_class_of_own(node, deep)

    def _is_no_property(self) -> bool:
        """Whether the value is surely nothing that answers when objects of a class get it."""
        value = self._store.value
        if isinstance(value, ast.Name):
            found = self._bound.by_name.get(value.id, [None])
            return all(isinstance(it, _Function) and not it.decorator_list for it in found)
        return isinstance(value, ast.Constant | ast.JoinedStr | ast.List | ast.Dict | ast.Lambda)

    def _is_own_class(self, node: ast.expr, deep: int) -> bool:
        """Whether this is a class of the text's, which makes objects of itself."""
        return isinstance(node, ast.Name) and self._all_of(node.id, self._is_class_of_own, deep)

    def _is_class_of_own(self, node: _Binding, deep: int) -> bool:
        if not isinstance(node, ast.ClassDef) or node.keywords:
            return False
        self._names.update(_MAKING)
        if self._is_answered(node, self._store.name) or any(map(_makes, node.body)):
            return False
        is_plain = all(self._is_dataclass(it) for it in node.decorator_list)
        return is_plain and all(
            self._is_builtin(base) or self._is_own_class(base, deep - 1) for base in node.bases
        )

    def _is_answered(self, kind: ast.ClassDef, name: str) -> bool:
        """Whether a class may have something by which a library answers when an object of the class
        gets an attribute."""
        is_property = False
        for statement in kind.body:
            if not isinstance(statement, _Function) or statement.name != name:
                if _binds(statement, name):
                    return True
                continue
            for decorator in statement.decorator_list:
                if isinstance(decorator, ast.Attribute):
                    if not is_property or not _is_of_property(decorator, name):
                        return True
                elif getattr(decorator, "id", "") != "property" or not self._is_builtin(decorator):
                    return True
            is_property = bool(statement.decorator_list)
        return False

    def _is_dataclass(self, node: ast.expr) -> bool:
        name = "dataclasses.dataclass"
        return self._is_path(node, name) or self._is_call_of(node, name)

    def _is_call_of(self, node: ast.expr, path: str) -> bool:
        return isinstance(node, ast.Call) and self._is_path(node.func, path)

    def _is_path(self, node: ast.expr, path: str) -> bool:
        """Whether this is what a module has under a name, both of which are in a path."""
        within = path
        if isinstance(node, ast.Attribute):
            within, _, name = path.partition(".")
            if node.attr != name:
                return False
            node = node.value
        if not isinstance(node, ast.Name):
            return False
        self._libraries.add(path.partition(".")[0])
        self._names.update((node.id, path.rpartition(".")[2]))
        found = self._bound.by_name.get(node.id, [None])
        return all(isinstance(it, _Import) and (it.level, it.path) == (0, within) for it in found)

    def _is_harmless(self, node: _Binding, deep: int) -> bool:
        if deep <= 0:
            return False
        parts: Iterable[ast.expr | None] = ()
        if isinstance(node, ast.Name | ast.Attribute):
            return self._is_librarys(node, deep)
        if isinstance(node, ast.Call):
            # Whatever it gets.
            is_told = isinstance(node.func, ast.Name) and node.func.id in _CONVERTING
            return is_told and self._is_builtin(node.func)
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            parts = node.elts
        elif isinstance(node, ast.Dict):
            parts = (*node.keys, *node.values)
        elif isinstance(node, ast.IfExp):
            parts = (node.body, node.orelse)
        elif isinstance(node, ast.BoolOp):
            parts = node.values
        elif not isinstance(node, ast.Constant | ast.JoinedStr):
            return False
        return all(self._is_harmless(it, deep - 1) for it in parts)

    def _is_librarys(self, node: ast.expr, deep: int) -> bool:
        """Whether a name, or what it has under others, is a library's, or a number or text."""
        is_chain = isinstance(node, ast.Attribute)
        # No recursion: a chain may be longer than Python's stack.
        while isinstance(node, ast.Attribute):
            self._names.add(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return False
        if self._is_builtin(node):
            return not is_chain
        holds = self._is_imported if is_chain else self._is_imported_or_harmless
        return self._all_of(node.id, holds, deep)

    def _is_imported_or_harmless(self, node: _Binding, deep: int) -> bool:
        return self._is_imported(node, deep) or self._is_harmless(node, deep)

    def _is_imported(self, node: _Binding, _deep: int) -> bool:
        if isinstance(node, ast.Constant):
            # As what could not be imported.
            return True
        if not isinstance(node, _Import) or node.level:
            return False
        path = node.path.split(".")
        self._libraries.add(path[0])
        self._names.update(path[1:])
        return True

    def _all_of(self, name: str, holds: Callable[[_Binding, int], bool], deep: int) -> bool:
        """Whether something holds for all that a name gets."""
        if (name, holds) in self._assumed:
            return True
        if deep <= 0:
            return False
        self._assumed.add((name, holds))
        self._names.add(name)
        found = self._bound.by_name.get(name)
        return found is not None and all(holds(it, deep - 1) for it in found)

    def _is_builtin(self, node: ast.expr) -> bool:
        """Whether this is what Python itself has under a name, as far as the text says."""
        if not isinstance(node, ast.Name) or node.id in self._bound.by_name:
            return False
        self._names.add(node.id)
        return hasattr(builtins, node.id)


def condition_of(store: Store, bound: Bound) -> Condition | None:
    """Under which condition an assignment of a text is harmless; ``None`` for one that may always
    give code to a library."""
    if store.name[:2] == "__":
        return None
    return _Proof(bound, store).own() or _Proof(bound, store).harmless()


def _first_of(method: _Function, kind: ast.ClassDef) -> str:
    """By which name a method of a class gets an object of that, or the class; empty if it does not
    surely get one."""
    decorators = {getattr(it, "id", getattr(it, "attr", "")) for it in method.decorator_list}
    bases = {it.id for it in kind.bases if isinstance(it, ast.Name)}
    if any("static" in it for it in decorators):
        return ""
    is_of_class = "classmethod" in decorators or method.name in _OF_CLASSES or "type" in bases
    return _CLS if is_of_class else _SELF


def _binds(statement: ast.stmt, name: str) -> bool:
    """Whether a statement of a class may bind a name to something else than a plain value."""
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        value = statement.value
        if value is None or isinstance(value, ast.Constant | ast.List | ast.Dict | ast.Set):
            return False
    if isinstance(statement, _Function):
        return statement.name == name
    return any(
        name in (getattr(it, "id", None), getattr(it, "name", None), getattr(it, "asname", None))
        for it in ast.walk(statement)
    )


def _makes(statement: ast.stmt) -> bool:
    """Whether a statement of a class may say what is made when that is called."""
    return _binds(statement, "__new__")


def _is_of_property(decorator: ast.Attribute, name: str) -> bool:
    """Whether this adds to the property of a name."""
    is_of_name = isinstance(decorator.value, ast.Name) and decorator.value.id == name
    return is_of_name and decorator.attr in _OF_PROPERTIES
