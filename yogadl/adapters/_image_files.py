"""What image files say of themselves, without being decoded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from yogadl.extras import require

pa = require("pyarrow", "arrow")
images = require("PIL.Image", "huggingface")

# EXIF's, and its value for what is not to be turned.
_ORIENTATION = 0x0112
_UPRIGHT = 1


def have_one_size(files: Iterable[Any], of_one_mode: bool) -> bool:
    """Whether images are known to have one size.

    Only the front of each file is read, until one differs.

    Args:
        files: Arrow scalars, structs of ``bytes`` and ``path``.
        of_one_mode: whether they must have the same channels as well.
    """
    first = None
    for file in files:
        found = _described(file, of_one_mode)
        first = first or found
        if found is None or found != first:
            return False
    return first is not None


def _described(file: Any, with_mode: bool) -> Any:
    """Size and mode; ``None`` if they cannot be told, or the image may be turned when decoded."""
    if not file.is_valid:
        return None
    content = file["bytes"]
    source = pa.BufferReader(content.as_buffer()) if content.is_valid else file["path"].as_py()
    try:
        with images.open(source) as image:
            if image.getexif().get(_ORIENTATION, _UPRIGHT) != _UPRIGHT:
                return None
            return image.size, image.mode if with_mode else None
    except (OSError, SyntaxError, ValueError, AttributeError):
        # What cannot be read is an error where it is decoded, which names the record.
        return None
