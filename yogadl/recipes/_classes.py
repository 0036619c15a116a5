"""What classes and their objects are. A class counts as a whole: nobody can tell which methods are
called of an object."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import inspect
import linecache
import re
import types
import typing
from collections.abc import Container, Iterator
from typing import Any

from yogadl.recipes import _attrs, _pydantic
from yogadl.recipes._abstract import name_among, registered_with
from yogadl.recipes._annotations import text_of
from yogadl.recipes._call_text import value_text
from yogadl.recipes._defaults import changed_defaults
from yogadl.recipes._document import is_secret
from yogadl.recipes._foreign import hooks_in_order, rule_of
from yogadl.recipes._functions import name_of, unwrapped
from yogadl.recipes._library_classes import (
    BOOKKEEPING,
    OF_TYPED_DICTS,
    is_library_class,
    is_typed_dict,
    is_users_value,
)
from yogadl.recipes._objects import (
    attributes_of,
    contents,
    has_hidden_state,
    hides_attributes,
    is_of_process,
    kept,
    told,
)
from yogadl.recipes._owners import is_library, is_library_file
from yogadl.recipes._protocol import Walk, pairs
from yogadl.recipes._sources import class_text
from yogadl.recipes._special import MARKS
from yogadl.recipes._users import is_of_library

_OF_NAMED_TUPLES = frozenset(
    [
        "__new__",
        "_make",
        "_replace",
        "__replace__",
        "__repr__",
        "_asdict",
        "__getnewargs__",
        "_fields",
        "_field_defaults",
        "_field_types",
    ]
)
_OF_DATACLASSES = frozenset(
    [
        "__init__",
        "__repr__",
        "__eq__",
        "__lt__",
        "__le__",
        "__gt__",
        "__ge__",
        "__hash__",
        "__setattr__",
        "__delattr__",
        "__replace__",
        "__getstate__",
        "__setstate__",
    ]
)
_OF_ENUMS = frozenset(("__new__", "__new_member__", "__reduce_ex__"))
_IN_ANY = frozenset(vars(enum.Enum("Any", "member")))
_OF_MEMBERS = frozenset(
    ("__objclass__", "_inverted_", "_name_", "_sort_order_", "_value_", "__dict__", "__weakref__")
)
_OF_PYTHON = re.compile(r"\b_[a-z]\w*_\b")
_PARAMETERS = ("init", "repr", "eq", "order", "unsafe_hash", "frozen")
_FIELD = ("init", "repr", "hash", "compare", "kw_only", "metadata", "default_factory", "default")


def function_of(value: Any) -> types.FunctionType | None:
    """The function of what is in the ``__dict__`` of a class."""
    value = getattr(value, "__func__", value) if type(value) in _WRAPPERS else value
    return value if isinstance(value, types.FunctionType) else None


_WRAPPERS = (staticmethod, classmethod)


def is_users(value: Any) -> bool:
    """Whether what is in the ``__dict__`` of a class has code of the user's."""
    if type(value) is property:
        return any(is_users(it) for it in (value.fget, value.fset, value.fdel))
    function = function_of(value)
    return function is not None and not is_library_file(function.__code__.co_filename)


def describe_class(walk: Walk, kind: type) -> list[str]:
    """All that a class of the user's is.

    Raises:
        UndeterminedError: that cannot be told.
    """
    _pydantic.complete(kind)
    _attrs.meet_fields(walk, kind)
    parts = [name_of(kind)]
    parts += [f"base {walk.token(base)}" for base in kind.__bases__]
    meta = type(kind)
    if not is_library_class(meta):
        parts.append(f"metaclass {walk.token(meta)}")
    parts.append(f"slots {walk.token(vars(kind).get('__slots__', ...))}")
    parts += _annotations(walk, kind)
    parts += _generic_bases(walk, kind)
    parts += sorted(f"registered {name_among(it)}" for it in registered_with(kind))
    parts += _required(kind)
    if any("__dataclass_fields__" in vars(one) for one in kind.__mro__):
        parts += _dataclass(walk, kind)
    if isinstance(kind, enum.EnumMeta):
        parts += _members(walk, kind)
    parts += changed_defaults(walk, kind)
    parts += _pydantic.validators(walk, kind)
    entries = dict(_entries(kind))
    # Where methods stand does not matter.
    for name in sorted(entries):
        if not walk.is_ignored(*_names(kind, name)):
            parts.append(f"{name}={_entry(walk, kind, name, entries[name])}")
    walk.later("order", lambda: ",".join(entries))
    walk.later("marks", lambda: str(sorted(MARKS & vars(kind).keys())))
    walk.later("module", lambda: kind.__module__)
    walk.later("doc", lambda: _doc(kind))
    walk.later("source", lambda: class_text(kind))
    return parts


def shown(kind: type) -> str:
    """What a class is for people, without what has items of its own."""
    lines = [f"class {name_of(kind)}({', '.join(it.__qualname__ for it in kind.__bases__)}):"]
    for name, annotation in inspect.get_annotations(kind).items():
        of = annotation.__qualname__ if type(annotation) is type else annotation
        lines.append(f"    {name}: {of}")
    if isinstance(kind, enum.EnumMeta):
        members: dict[str, Any] = {**kind.__members__}
        for name, member in members.items():
            value = "…" if is_secret(name) else value_text(member.value, is_secret)
            lines.append(f"    {name} = {value}")
    return "\n".join(lines)


def _doc(kind: type) -> str:
    found = vars(kind).get("__doc__")
    # What Python 3.10 writes for those that have none.
    return "" if found in (None, "An enumeration.") else inspect.cleandoc(str(found))


def _names(kind: type, name: str) -> tuple[str, str]:
    """What an attribute may be ignored by."""
    return f"{kind.__qualname__}.{name}", f"{kind.__module__}.{kind.__qualname__}.{name}"


def _entry(walk: Walk, kind: type, name: str, value: Any) -> str:
    if name == "_generate_next_value_" and isinstance(value, staticmethod):
        # Which Python 3.13 makes of it.
        value = value.__func__
    if isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
        return "slot"
    if _is_of_attrs(kind, value):
        # It follows from the attributes, and its text has numbers that depend on the process.
        return "generated"
    label = f"{kind.__module__}.{kind.__qualname__}.{name}"
    if isinstance(value, types.FunctionType | type | staticmethod | classmethod | property):
        return walk.inside(f".{name}", value)
    return walk.item("attribute", kind, name, label, value)


def _entries(kind: type) -> Iterator[tuple[str, Any]]:
    """What is in a class that Python or a library has not put there for every such class."""
    is_dataclass = "__dataclass_fields__" in vars(kind)
    is_named_tuple = issubclass(kind, tuple) and "_fields" in vars(kind)
    members: Any = kind.__members__ if isinstance(kind, enum.EnumMeta) else None
    for name, value in vars(kind).items():
        is_kept_apart = name in BOOKKEEPING or (name in OF_TYPED_DICTS and is_typed_dict(kind))
        if is_kept_apart or name in MARKS or _pydantic.is_compiled(kind, name):
            continue
        if _attrs.is_left_out(kind, name):
            continue
        if name == "_new_member_" and "__new_member__" in vars(kind):
            # From Python 3.11 on, it has two names.
            continue
        if name == "__init__" and _is_kept_by_protocol(kind, value):
            continue
        if is_users(value) and not _is_made_of_text(value):
            yield name, value
        elif is_dataclass and name in _OF_DATACLASSES:
            if not _is_generated_by(value, dataclasses):
                yield name, value
        elif is_named_tuple and (name in _OF_NAMED_TUPLES or name in kind._fields):  # type: ignore[attr-defined]
            is_field = name in kind._fields  # type: ignore[attr-defined]
            if not is_field and not _is_generated_by(value, collections, typing):
                yield name, value
        elif _is_of_protocol(name, value) or (
            members is not None and _is_of_enum(kind, name, value)
        ):
            continue
        else:
            yield name, value


def _is_of_enum(kind: type, name: str, value: Any) -> bool:
    """Whether what is in an enumeration is there because it is one."""
    if name in kind.__members__ or name in _OF_ENUMS:  # type: ignore[attr-defined]
        return True
    if name[:1] == name[-1:] == "_" and name[:2] != "__":
        return (name in _IN_ANY or name in _names_of_enums()) and not is_users_value(value)
    # Python puts those of what it derives from into each.
    bases = (one for one in kind.__mro__[1:] if isinstance(one, enum.EnumMeta))
    return any(vars(one).get(name) is value for one in bases)


@functools.lru_cache(maxsize=1)
def _names_of_enums() -> Container[str]:
    """The names that Python's own code has for what it keeps in enumerations, and others."""
    return set(_OF_PYTHON.findall("".join(linecache.getlines(enum.__file__))))


def _is_generated_by(value: Any, *modules: types.ModuleType) -> bool:
    """Whether a method was made by a library for the user, and not by the user."""
    function = function_of(value)
    inner = None if function is None else unwrapped(function)
    if not isinstance(inner, types.FunctionType):
        return False
    return _is_made_of_text(inner) or any(inner.__globals__ is vars(it) for it in modules)


def _is_made_of_text(value: Any) -> bool:
    """Whether a function was compiled from text that a library has written."""
    function = function_of(value)
    return function is not None and function.__code__.co_filename in ("<string>", "<generated>")


def _is_of_attrs(kind: type, value: Any) -> bool:
    """Whether attrs has compiled a method from text that it has written."""
    function = function_of(value)
    if function is None or "__attrs_attrs__" not in vars(kind):
        return False
    return function.__code__.co_filename.startswith("<attrs generated ")


def _is_of_protocol(name: str, value: Any) -> bool:
    """Whether Python has put a method into a protocol, or into a class that is one."""
    function = function_of(value)
    is_its = name in ("__init__", "__subclasshook__") and function is not None
    return is_its and function.__globals__ is vars(typing)  # type: ignore[union-attr]


def _is_kept_by_protocol(kind: type, value: Any) -> bool:
    """Whether an ``__init__`` is what a class that derives from a protocol inherits, which Python
    puts into the class when the first object is made."""
    if not any(one is typing.Protocol for one in kind.__mro__):
        return False
    found = (vars(one).get("__init__") for one in kind.__mro__[1:])
    inherited = (it for it in found if it is not None and not _is_of_protocol("__init__", it))
    return next(inherited, None) is value


def _annotations(walk: Walk, kind: type) -> list[str]:
    return [
        f"{name}: {text_of(walk, kind, annotation)}"
        for name, annotation in inspect.get_annotations(kind).items()
    ]


def _generic_bases(walk: Walk, kind: type) -> list[str]:
    """What the types of generic bases are, which code can ask for."""
    found = vars(kind).get("__orig_bases__", ())
    return [f"of {text_of(walk, kind, it)}" for it in found if typing.get_origin(it) is not None]


def _required(kind: type) -> list[str]:
    """Which keys of a TypedDict are required, if that does not follow from its own ``total=``: it
    does not derive from what it is said to derive from."""
    if not is_typed_dict(kind):
        return []
    required = vars(kind)["__required_keys__"]
    found = required if vars(kind).get("__total__", True) else vars(kind).get("__optional_keys__")
    names = inspect.get_annotations(kind).keys() - (found or ())
    return [f"not as total says {sorted(names)}"] if names else []


def _dataclass(walk: Walk, kind: type) -> list[str]:
    given = getattr(kind, "__dataclass_params__", None)
    parts = [f"{name}={getattr(given, name, None)}" for name in _PARAMETERS]
    for field in dataclasses.fields(kind):
        values = ",".join(walk.inside(f".{field.name}", getattr(field, it)) for it in _FIELD)
        parts.append(f"field {field.name}({values})")
    return parts


def _members(walk: Walk, kind: enum.EnumMeta) -> list[str]:
    parts = [f"boundary {boundary}"] if (boundary := _boundary(kind)) else []
    members: dict[str, Any] = {**kind.__members__}
    for name, member in members.items():
        more = [it for it in kept(member) if it[0] not in _OF_MEMBERS]
        value = walk.inside(f".{name}", member._value_)
        parts.append(f"member {name}={value}{pairs(walk, more)}{_content(walk, member, value)}")
    return parts


def _content(walk: Walk, member: Any, value: str) -> str:
    """What a member is beside its value: a class of one's own may make other numbers of values."""
    found = rule_of(member)
    if found is not None:
        return f" is {found(walk, member)}"
    if has_hidden_state(type(member)):
        walk.refuse(f"{told(member)}, which has a state that cannot be seen")
    content = contents(member)
    told_as = value if content is None else walk.token(content)
    return "" if told_as == value else f" is {told_as}"


def _boundary(kind: enum.EnumMeta) -> str:
    """What becomes of bits that have no name, if that is other than of the base."""
    own, *others = (vars(one).get("_boundary_") for one in kind.__mro__)
    inherited = next((it for it in others if it is not None), None)
    return "" if own is inherited else str(own.name if own is not None else "")


def describe_object(walk: Walk, value: Any) -> str:
    """An object by its class, and all that it has."""
    kind = type(value)
    if hides_attributes(kind):
        walk.refuse(f"{told(value)}, whose class has a __dict__ that is not what its objects have")
    attributes, hooks = [], hooks_in_order(value)
    for name, own in kept(value):
        if name == "type" and id(value) in walk.annotated:
            continue
        attribute = hooks.get(name, own)
        if not (walk.is_ignored(*_names(kind, name)) or is_of_process(value, name, attribute)):
            attributes.append(f"{name}={walk.inside(f'.{name}', attribute)}")
    content = contents(value)
    inner = "" if content is None else walk.token(content)
    return f"object({walk.token(kind)},{inner},{','.join(attributes)})"


def added_to(walk: Walk, value: Any) -> str:
    """What the user has added to an object of a library's class that is known."""
    if is_library_class(type(value)):
        return ""
    return f"{walk.token(type(value))}{pairs(walk, attributes_of(value).items())}"


def is_disguised(kind: type) -> bool:
    """Whether objects of a class of the user's are not asked what they are: they may say
    anything."""
    if is_of_library(kind) or has_hidden_state(kind):
        return False
    own = [one for one in kind.__mro__ if not is_library(one.__module__)]
    return any("__getattribute__" in vars(one) or "__class__" in vars(one) for one in own)
