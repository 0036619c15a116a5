"""Whether the user's code may register anything with a library, as far as its text tells.

``register`` is what the methods are called by which abstract classes, functions of
``singledispatch`` and many libraries take what others give them, and also what users call their
own. Those that are surely of the same text are told apart here. Of what a text imports, only its
value says whose it is; see ``_registries``.
"""

from __future__ import annotations

import ast
import collections
import re
from collections.abc import Iterator, Mapping

WORD = re.compile(r"(?<!\bself\.)\bregister\w+\b|\bregister\b")
"""What texts have that may register anything, if only methods have a ``self``."""

WORD_OF_ANY = re.compile(r"\bregister\w*\b")
"""The same of any text."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef
# By which names may get other values, and objects other attributes, or what is called
# ``register`` is found by what a text says nowhere else.
_CLEVER = frozenset(
    (
        "*",
        "__class__",
        "__dict__",
        "__doc__",
        "__func__",
        "__prepare__",
        "_getframe",
        "builtins",
        "dir",
        "doctest",
        "f_locals",
        "globals",
        "locals",
        "modules",
        "setattr",
        "vars",
        "wraps",
    )
)
_NAMES_OF_CODE = frozenset(("__name__", "__qualname__"))
# Whoever has these answers for names that its text does not have.
_ANSWERING = frozenset(("__getattr__", "__getattribute__", "__new__"))
_DISPATCH = frozenset(("functools.singledispatch",))
_METHODS = frozenset(("classmethod", "staticmethod"))
# What only writes down in a dictionary how Keras calls something in the models that it stores. So
# many classes have it that they need not cost a look through all of TensorFlow.
_KEEPING = frozenset(
    f"{keras}.{place}.register_keras_serializable"
    for keras in ("keras", "tensorflow.keras", "tf_keras")
    for place in ("saving", "utils")
)


Chain = tuple[str, ...]
"""The name of something that a text imports, and of attributes: ``("registry", "register")``."""


def registries_in(tree: ast.Module, trusts_self: bool) -> frozenset[Chain] | None:
    """What a text registers anything with that it imports; ``None`` if it may do so with anything
    else that is not its own.

    Args:
        tree: of the text.
        trusts_self: whether only its methods have something of the name ``self``.
    """
    nodes = list(ast.walk(tree))
    bound = collections.Counter(name for node in nodes for name in _bound_by(node))
    if not _CLEVER.isdisjoint(bound) or any(map(_is_clever, nodes)):
        return None
    own = _Own(tree, bound, trusts_self)
    # Nobody gets the value of a docstring.
    shown = {id(it.value) for it in nodes if isinstance(it, ast.Expr)}
    found = set[Chain]()
    for node in nodes:
        is_shown = isinstance(node, ast.Constant) and id(node) in shown
        if not is_shown and _says_register(node) and not own.is_own(node):
            chain = own.imported(node)
            if chain is None:
                return None
            found.add(chain)
    return frozenset(found)


def _is_clever(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and node.attr in _NAMES_OF_CODE:
        return True
    return not _CLEVER.isdisjoint(_named_by(node))


def _says_register(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        # As for getattr(), or to be split.
        return isinstance(node.value, str) and WORD.search(node.value) is not None
    return any(WORD.match(name) for name in _named_by(node))


def _named_by(node: ast.AST) -> Iterator[str]:
    """The names in a node by which somebody may get hold of something."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.alias):
        yield from (node.name.rpartition(".")[2], node.asname or "")
    elif isinstance(node, ast.MatchClass):
        yield from node.kwd_attrs
    elif isinstance(node, ast.MatchAs | ast.MatchStar):
        yield node.name or ""
    elif isinstance(node, ast.keyword):
        yield node.arg or ""


def _bound_by(node: ast.AST) -> Iterator[str]:
    """The names that a node gives a value or takes it from, in whichever scope."""
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            yield node.id
    elif isinstance(node, ast.Attribute):
        # It may be of the module itself.
        if not isinstance(node.ctx, ast.Load):
            yield node.attr
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias):
        yield node.asname or node.name.partition(".")[0]
    elif isinstance(node, ast.MatchMapping):
        yield node.rest or ""
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names
    elif isinstance(name := getattr(node, "name", None), str):
        # Functions, classes, exceptions, patterns, and parameters of types.
        yield name


class _Own:
    """What a text makes itself, at its top, and gives one value only.

    Args:
        tree: the text.
        bound: how often names are bound in it.
        trusts_self: see ``registries_in``.
    """

    def __init__(self, tree: ast.Module, bound: Mapping[str, int], trusts_self: bool) -> None:
        self._bound = bound
        self._trusts_self = trusts_self
        # Of private names, classes make others.
        once = {name for name, times in bound.items() if times == 1 and "__" not in name}
        self._once = once
        are_plain = bound.keys().isdisjoint(_ANSWERING | _METHODS)
        self._origins: dict[str, str] = {}
        self._functions: set[str] = set()
        self._registries: set[str] = set()
        self._keeping_aliases: set[int] = set()
        # What is imported, by the alias that does it.
        self._imported: dict[int, str] = {}
        classes: set[str] = set()
        for statement in tree.body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                self._import(statement)
            elif isinstance(statement, _Function) and statement.name in once:
                self._define(statement)
            elif isinstance(statement, ast.ClassDef) and statement.name in once:
                if self._is_abstract(statement):
                    self._registries.add(statement.name)
                elif are_plain and _has_a_register(statement):
                    self._registries.add(statement.name)
                    classes.add(statement.name)
            elif isinstance(statement, ast.Assign) and _called(statement.value) in classes:
                # An object of one.
                targets = [it.id for it in statement.targets if isinstance(it, ast.Name)]
                self._registries.update(once.intersection(targets))

    def is_own(self, node: ast.AST) -> bool:
        """Whether what a node names is of the text itself, or of no consequence."""
        if isinstance(node, ast.alias):
            return id(node) in self._keeping_aliases
        if isinstance(node, ast.Name):
            return node.id in self._functions or self._origin(node) in _KEEPING
        if not isinstance(node, ast.Attribute):
            return False
        if self._origin(node) in _KEEPING:
            return True
        owner = node.value
        if not isinstance(owner, ast.Name):
            return False
        # A class may have ``register`` itself, of an abstract one that it derives from.
        is_self = owner.id == "self" and self._trusts_self
        is_self = is_self and (node.attr != "register" or node.attr in self._bound)
        return owner.id in self._registries or is_self or self._is_exit(owner)

    def imported(self, node: ast.AST) -> Chain | None:
        """By which names a node has what the text imports, if it does."""
        if isinstance(node, ast.alias):
            name = self._imported.get(id(node))
            return None if name is None else (name,)
        attributes: list[str] = []
        while isinstance(node, ast.Attribute):
            if node.attr in self._bound or node.attr[:2] == "__":
                return None
            attributes.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._imported.values():
            return None
        return (node.id, *reversed(attributes))

    def _is_exit(self, owner: ast.expr) -> bool:
        """Whether this is ``atexit``: what is done then is in no record."""
        return self._origin(owner) == "atexit"

    def _import(self, statement: ast.Import | ast.ImportFrom) -> None:
        for alias in statement.names:
            name = alias.asname or alias.name.partition(".")[0]
            if name in self._once:
                self._imported[id(alias)] = name
        if isinstance(statement, ast.ImportFrom):
            if statement.level == 0:
                for alias in statement.names:
                    origin = f"{statement.module}.{alias.name}"
                    self._origins[alias.asname or alias.name] = origin
                    if origin in _KEEPING:
                        self._keeping_aliases.add(id(alias))
            return
        for alias in statement.names:
            if alias.asname is not None or "." not in alias.name:
                self._origins[alias.asname or alias.name] = alias.name

    def _define(self, function: _Function) -> None:
        decorators = function.decorator_list
        if not decorators:
            self._functions.add(function.name)
        elif len(decorators) == 1 and self._origin(decorators[0]) in _DISPATCH:
            self._registries.add(function.name)

    def _is_abstract(self, kind: ast.ClassDef) -> bool:
        """Whether classes can be registered with a class, and nothing else."""
        if kind.decorator_list or "register" in _methods_of(kind):
            return False
        bases = [self._origin(base) for base in kind.bases]
        metaclasses = [(it.arg, self._origin(it.value)) for it in kind.keywords]
        return (bases, metaclasses) in (
            (["abc.ABC"], []),
            ([], [("metaclass", "abc.ABCMeta")]),
        )

    def _origin(self, node: ast.expr) -> str | None:
        """What an expression of imported names means, such as ``abc.ABC``."""
        attributes: list[str] = []
        # No recursion: a chain may be longer than Python's stack.
        while isinstance(node, ast.Attribute):
            if node.attr in self._bound:
                return None
            attributes.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._once:
            return None
        origin = self._origins.get(node.id)
        return None if origin is None else ".".join((origin, *reversed(attributes)))


def _has_a_register(kind: ast.ClassDef) -> bool:
    """Whether ``register`` of a class and its objects is what its text says."""
    if kind.decorator_list or kind.bases or kind.keywords:
        return False
    register = _methods_of(kind).get("register")
    if register is None:
        return False
    decorators = [it.id if isinstance(it, ast.Name) else "" for it in register.decorator_list]
    return _METHODS.issuperset(decorators)


def _methods_of(kind: ast.ClassDef) -> dict[str, _Function]:
    return {it.name: it for it in kind.body if isinstance(it, _Function)}


def _called(value: ast.expr) -> str | None:
    """The name of what an expression calls."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id
    return None
