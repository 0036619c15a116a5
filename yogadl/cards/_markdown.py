"""Pages as Markdown: CommonMark with tables, as most sites and notebooks show it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from yogadl.cards._page import Block, Page, Paragraphs, Table
from yogadl.cards._text import is_link, visible

# Beside what CommonMark knows: tables, formulas, and what some add in braces.
_SPECIAL = re.compile(r"[\\`*_\[\]|~$^{}#]")
_ENTITIES = {ord("<"): "&lt;", ord(">"): "&gt;", ord("&"): "&amp;"}
# What makes a heading, a list, a rule or a definition of a line that begins with it.
_BEGINNING = re.compile(r"^(\d*)([+\-=:.)!@])")


def to_markdown(page: Page) -> str:
    """The text of a page; nothing in what it shows is taken for Markdown or HTML."""
    found = [f"# {_inline(page.title)}"]
    for section in page.sections:
        if section.title:
            found.append(f"## {_inline(section.title)}")
        found += [text for block in section.blocks for text in _block(block)]
    return "\n\n".join(found) + "\n"


def _block(block: Block) -> list[str]:
    if isinstance(block, Paragraphs):
        return ["\n".join(map(_line, lines)) for lines in block.split()]
    return [_table(block)]


def _table(table: Table) -> str:
    width = max(map(len, (table.head, *table.rows)))
    head = table.head or ("",) * width
    lines = [_row(head), "|" + "---|" * width, *map(_row, table.rows)]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "".join(f"| {_inline(cell)} " if cell else "| " for cell in cells) + "|"


def _inline(text: str) -> str:
    """A text in one line."""
    if is_link(text):
        return f"<{text}>"
    lines = [_escaped(line.strip()) for line in visible(text).split("\n")]
    return "<br>".join(line for line in lines if line)


def _line(text: str) -> str:
    """A line of a paragraph."""
    return _BEGINNING.sub(r"\1\\\2", _escaped(text))


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text).translate(_ENTITIES)
