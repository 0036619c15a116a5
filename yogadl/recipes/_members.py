"""Which values surely are no code of the user's, although they are more than numbers and texts.

``options.policy = AutoShardPolicy.OFF`` is what many programs have, and the attribute is a
property of TensorFlow's, so that all of that would be looked through for what it keeps. That is not
necessary for members of enumerations that a library has, and for lists and the like of such values.
Which names mean them, a text says; whether they are what it says is asked of what there is.
"""

from __future__ import annotations

import ast
import enum
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from yogadl.recipes._loaded import names_of
from yogadl.recipes._missing import is_librarys
from yogadl.recipes._owners import is_library
from yogadl.recipes._scopes import imports_of

_PLAIN = ast.Constant | ast.JoinedStr
_MISSING = object()
_space_of_class = vars(type)["__dict__"].__get__


@dataclass(frozen=True)
class Member:
    """What a text takes for a member of an enumeration.

    Attributes:
        root: the name that begins it.
        imported: a module at the top, and names in that, which the text imports by that name.
        names: of attributes, the last of which is that of the member.
    """

    root: str
    imported: tuple[str, ...]
    names: tuple[str, ...]


class Roots:
    """What is imported by names of a text, and nothing else gets them in whichever scope."""

    def __init__(self) -> None:
        # Empty if it may be something else.
        self._paths: dict[str, tuple[str, ...]] = {}

    def add(self, statement: ast.Import | ast.ImportFrom) -> None:
        """Adds what a statement imports."""
        for alias, found in zip(statement.names, imports_of(statement), strict=True):
            path = found.module.split(".")
            if isinstance(statement, ast.ImportFrom):
                path = [] if found.level else [*path, found.name]
            elif alias.asname is None:
                path = path[:1]
            name = alias.asname or alias.name.partition(".")[0]
            known = self._paths.setdefault(name, tuple(path))
            if known != tuple(path):
                self.add_other(name)

    def add_other(self, name: str) -> None:
        """Says that a name gets something else, too."""
        self._paths[name] = ()

    def members_in(self, value: ast.expr | None) -> frozenset[Member] | None:
        """What a value consists of, beside numbers and texts; ``None`` if that is anything else."""
        found = set[Member]()
        left = [value]
        while left:
            node = left.pop()
            if isinstance(node, ast.Attribute):
                member = self._member(node)
                if member is None:
                    return None
                found.add(member)
            elif not isinstance(node, _PLAIN):
                parts = _parts(node)
                if parts is None:
                    return None
                left += parts
        return frozenset(found)

    def _member(self, node: ast.expr) -> Member | None:
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        path = self._paths.get(node.id, ()) if isinstance(node, ast.Name) else ()
        # What has two underscores may be another name in a class.
        if not isinstance(node, ast.Name) or not path or "__" in node.id or "*" in self._paths:
            return None
        return Member(node.id, path, tuple(reversed(names)))


def _parts(node: ast.expr | None) -> list[ast.expr | None] | None:
    """What a value is made of, or one of which it is; ``None`` if that cannot be told."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return list(node.elts)
    if isinstance(node, ast.Dict):
        return [*node.keys, *node.values]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    return list(node.values) if isinstance(node, ast.BoolOp) else None


def is_of_library(member: Member, space: Mapping[str, Any]) -> bool:
    """Whether what a text takes for one is a member of an enumeration that a library has.

    Args:
        member: by a text.
        space: what the module of the text has.
    """
    if not is_librarys(member.imported[0]):
        return False
    found: Any = sys.modules[member.imported[0]]
    for name in member.imported[1:]:
        found = _attribute(found, name)
    # Another may have the name by now; that of a function's own is not there.
    if found is not space.get(member.root, found):
        return False
    *owners, last = member.names
    for name in owners:
        found = _attribute(found, name)
    if not issubclass(type(found), enum.EnumMeta):
        return False
    within = _space_of_class(found)
    members = within.get("_member_map_")
    # Other things may have been put there.
    is_member = type(members) is dict and type(members.get(last)) is found
    return is_member and is_library(within.get("__module__"))


def _attribute(owner: Any, name: str) -> Any:
    """What a module or class has itself under a name, whatever it does when it is asked."""
    if issubclass(type(owner), types.ModuleType):
        space = names_of(owner)
        found = space.get(name, _MISSING)
        return sys.modules.get(f"{space.get('__name__')}.{name}") if found is _MISSING else found
    return _space_of_class(owner).get(name) if issubclass(type(owner), type) else None


def names_in(members: frozenset[Member]) -> Iterator[str]:
    """The names of attributes by which members are found."""
    for each in members:
        yield from (each.root, *each.imported[1:], *each.names)
