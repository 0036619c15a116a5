"""A data card."""

from __future__ import annotations

from dataclasses import dataclass

from yogadl.cards._content import page_of
from yogadl.cards._facts import Facts
from yogadl.cards._html import to_fragment, to_html
from yogadl.cards._markdown import to_markdown
from yogadl.cards._page import Page


@dataclass(frozen=True)
class Card(Facts):
    """What is known of a version, on a page. ``storage.card`` makes it; notebooks show it.

    Whatever the files say, it is shown as text: nothing of it is taken for HTML or Markdown, and
    nothing is loaded from elsewhere.

    Attributes:
        entry: what the catalogue says of the version.
        metadata: the user's.
        arguments: that the function was called with, as Python writes them.
        recipe: what determined the records, as far as it is known.
        log: the version and those that it was made from, each the first parent of the one before.
        file_count: of how many files it is; ``None`` if that is not known.
        sample_size: of how many records the components in ``sample`` are.
        sample: what the components are like in these.
    """

    def to_markdown(self) -> str:
        """As Markdown: CommonMark with tables."""
        return to_markdown(self._page())

    def to_html(self) -> str:
        """As an HTML document that needs no other file, in the colours that the reader prefers."""
        return to_html(self._page())

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return to_fragment(self._page())

    def _page(self) -> Page:
        return page_of(self)

    def __repr__(self) -> str:
        return f"<card of {self.entry.dataset_id!r} version {self.entry.dataset_version!r}>"
