"""What images of Pillow are."""

from __future__ import annotations

import functools
import operator
import struct
import sys
import types
from collections.abc import Iterator
from typing import Any

from yogadl.recipes._objects import attributes_of
from yogadl.recipes._protocol import Rule, Walk, digest, each, pairs

# Of the camera, and of the place, which are kept apart from other tags.
_INNER_TAGS = (0x8769, 0x8825)
_UNREADABLE = (
    AssertionError,
    AttributeError,
    EOFError,
    KeyError,
    OSError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
)


def of_pillow(value: Any, _pillow: Any) -> Rule | None:
    """The rule of an image."""
    image = sys.modules.get("PIL.Image")
    return _image if image is not None and isinstance(value, image.Image) else None


def _image(walk: Walk, value: Any) -> str:
    if again := walk.again(value):
        return again
    image = sys.modules["PIL.Image"]
    is_opened = type(value) is not image.Image
    if is_opened and getattr(value, "is_animated", False):
        walk.refuse(
            "an image of several frames, of which only one is read; give the path as a "
            "yogadl.FileInput, and open it inside of the function"
        )
    # To read the image closes its file.
    tags = _tags_of_file(value) if is_opened else []
    content = f"{value.mode},{value.size},{digest(value.tobytes())}"
    content = f"{content},{each(walk, (value.getpalette(), value.info))}"
    if is_opened:
        kind: Any = type(value)
        given = [it for it in attributes_of(value).items() if it[0] not in _names_in(kind)]
        more = f",{walk.token(tags)}" if tags else ""
        return f"image({content}{more}{f'+{pairs(walk, given)}' if given else ''})"
    known, usual = attributes_of(value), vars(image.Image())
    exif = [*known["_exif"].items()] if known.get("_exif") is not None else []
    others = ((name, it) for name, it in known.items() if name not in usual)
    return f"image({content},{walk.token(exif)},{pairs(walk, others)})"


def _tags_of_file(value: Any) -> list[Any]:
    """Those of an image that was opened, as far as they can be read."""
    before, parts = attributes_of(value).get("_exif"), []
    try:
        # Of TIFF.
        parts = [getattr(value, "tag_v2", {})]
        exif = value.getexif()
        parts += [exif, *map(exif.get_ifd, _INNER_TAGS)]
    except _UNREADABLE:
        # Its file is closed, or bad. Pillow would take it for one without tags from now on.
        value._exif = before
    return [sorted(it.items(), key=operator.itemgetter(0)) for it in parts if it]


@functools.lru_cache(maxsize=64)
def _names_in(kind: type) -> frozenset[str]:
    """The names that Pillow's own code has for attributes of images of a class."""
    homes = (sys.modules.get(one.__module__, types) for one in kind.__mro__)
    values = [value for it in (*kind.__mro__, *homes) for value in list(vars(it).values())]
    return frozenset(name for it in values for name in _used_by(it))


def _used_by(value: Any) -> Iterator[str]:
    value = getattr(value, "fget", getattr(value, "__func__", value))
    pending = [getattr(value, "__code__", None)]
    while pending:
        code = pending.pop()
        if isinstance(code, types.CodeType):
            yield from code.co_names
            pending += code.co_consts
