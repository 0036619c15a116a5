"""Texts that others wrote, made fit to be shown."""

from __future__ import annotations

import json
import re
from typing import Any

LONGEST = 1000
"""Characters of a value that are shown."""

_CUT = "…"
# No spaces, quotes, brackets or bars.
_LINK = re.compile(r"https?://[A-Za-z0-9][A-Za-z0-9._~:/?#@!$()*+,;=%&-]*")
# They join letters of some scripts, and emoji.
_JOINERS = "\u200c\u200d"
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def visible(text: str, longest: int = LONGEST) -> str:
    """A text of which nothing is hidden: what cannot be seen, or turns other text around, is shown
    as Python writes it. Lines stay lines."""
    cut = text if len(text) <= longest else f"{text[: longest - 1]}{_CUT}"
    lines = cut.replace("\r\n", "\n").replace("\r", "\n").replace("\t", " ").split("\n")
    return "\n".join("".join(map(_visible, line)) for line in lines)


def _visible(letter: str) -> str:
    if letter.isprintable() or letter in _JOINERS:
        return letter
    return letter.encode("unicode_escape").decode()


def is_link(text: str) -> bool:
    """Whether a text is an address on the web and nothing else, so that it may be followed."""
    return len(text) <= LONGEST and _LINK.fullmatch(text) is not None


def value_text(value: Any) -> str:
    """A value of metadata, in words."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(it, str | int | float) for it in value):
        return ", ".join(map(value_text, value))
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return _CUT


def bytes_text(size: int) -> str:
    """A number of bytes, in the unit that fits and, if that is another, in bytes."""
    if size < 1000:
        return f"{size} bytes"
    scaled, unit = float(size), 0
    while scaled >= 999.5 and unit < len(_UNITS) - 1:
        scaled, unit = scaled / 1000, unit + 1
    return f"{scaled:.3g} {_UNITS[unit]} ({size:,} bytes)"


def seconds_text(seconds: float) -> str:
    """A duration."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
