"""Of what a page consists, whatever it is written in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from yogadl.cards._text import visible

_LONGEST_PARAGRAPHS = 20_000


@dataclass(frozen=True)
class Paragraphs:
    """Text, in which empty lines part paragraphs."""

    text: str

    def split(self) -> list[list[str]]:
        """The lines of each paragraph, fit to be shown."""
        lines = visible(self.text, _LONGEST_PARAGRAPHS).split("\n")
        found: list[list[str]] = [[]]
        for line in lines:
            if line.strip():
                found[-1].append(line.strip())
            elif found[-1]:
                found.append([])
        return [paragraph for paragraph in found if paragraph]


@dataclass(frozen=True)
class Table:
    """Rows of texts, of one length each; of two columns without a head, names and what they are."""

    rows: tuple[tuple[str, ...], ...]
    head: tuple[str, ...] = ()


Block: TypeAlias = Paragraphs | Table


@dataclass(frozen=True)
class Section:
    """A part of a page; the first has no title of its own."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Page:
    """A page."""

    title: str
    sections: tuple[Section, ...]
