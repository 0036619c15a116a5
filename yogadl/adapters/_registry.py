"""Who can turn data of a class into a source: found by the names of its classes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from yogadl.adapters._base import Source
from yogadl.adapters._convert import class_name
from yogadl.errors import InvalidArgumentError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Opener: TypeAlias = Callable[[Any, Any], Source]
"""Makes a source of data and of the spec that the user gave, or ``None``."""

ENTRY_POINT_GROUP = "yogadl.adapters"


class Registry:
    """Openers by class or dotted class name."""

    def __init__(self) -> None:
        self._openers: dict[str | type, Opener] = {}

    def register(self, target: str | type, opener: Opener) -> None:
        self._openers[target] = opener

    def find(self, cls: type) -> Opener | None:
        """The opener that was registered for this very class."""
        for target, opener in self._openers.items():
            if target is cls or (isinstance(target, str) and is_named(cls, target)):
                return opener
        return None


USERS = Registry()
BUILT_IN = Registry()


def register(target: str | type) -> Callable[[Opener], Opener]:
    """Registers who turns data of a class into a source of records, as a decorator::

        @yogadl.adapters.register("package.module.Class")
        def open_it(data, spec):
            return yogadl.adapters.IterableSource(data.rows(), spec)

    From then on ``submit`` and ``cacheable`` take objects of the class and of classes derived from
    it; ``yogadl.dataref.from_source`` does, too, if the source is a ``MapSource``. Of an object's
    classes, in the order of its ``__mro__``, the first that is registered counts. For one class,
    what was registered here comes before entry points, these before what yogadl brings, and what
    was registered last before what was registered earlier under the same name.

    A package can do the same without being imported, by an entry point of the group
    ``yogadl.adapters``: its name is the dotted name of the class, its value the function. It is
    loaded when an object of the class is met::

        [project.entry-points."yogadl.adapters"]
        "package.module.Class" = "package.yogadl_adapter:open_it"

    Args:
        target: a class, or its dotted name: that of the module that defines it, or any other under
            which it can be reached. A name does not import anything.

    Returns:
        A decorator of a function that takes the data and the ``spec=`` that the user gave (or
        ``None``) and returns a ``Source``.

    Raises:
        InvalidArgumentError: ``target`` is neither.
    """
    if not isinstance(target, type) and not _is_dotted(target):
        raise InvalidArgumentError(
            f"register takes a class or its dotted name 'package.Class', not {target!r:.100}"
        )

    def decorate(opener: Opener) -> Opener:
        USERS.register(target, opener)
        return opener

    return decorate


def find_opener(data: Any) -> Opener | None:
    """The opener for data, by the most derived of its classes that has one."""
    for cls in type(data).__mro__:
        opener = USERS.find(cls) or _entry_point(cls) or BUILT_IN.find(cls)
        if opener is not None:
            return opener
    return None


def _entry_point(cls: type) -> Opener | None:
    for point in _entry_points():
        if is_named(cls, point.name):
            opener: Opener = point.load()
            return opener
    return None


@functools.cache
def _entry_points() -> tuple[EntryPoint, ...]:
    # It takes as long to import as a tenth of yogadl.
    import importlib.metadata

    return tuple(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP))


def is_a(data: Any, *names: str) -> bool:
    """Whether data is of a class of one of these dotted names, or of one derived from it."""
    return any(is_named(cls, name) for cls in type(data).__mro__ for name in names)


def is_named(cls: type, name: str) -> bool:
    """Whether a class is defined under a dotted name, or can be reached under it."""
    if class_name(cls) == name:
        return True
    # What was never imported cannot have made the object.
    return name.partition(".")[0] in sys.modules and _reach(name) is cls


def _reach(name: str) -> Any:
    """What stands under a dotted name, without importing anything."""
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        found: Any = sys.modules.get(".".join(parts[:split]))
        if found is not None:
            for part in parts[split:]:
                found = vars(found).get(part) if hasattr(found, "__dict__") else None
            return found
    return None


def _is_dotted(target: Any) -> bool:
    return isinstance(target, str) and "." in target and target.replace(".", "_").isidentifier()
