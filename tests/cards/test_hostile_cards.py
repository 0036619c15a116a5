"""Cards of files whose authors mean ill: all of it is text, whatever it is shown as."""

from __future__ import annotations

import datetime
import html.parser
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yogadl.cards import Card, ComponentSample
from yogadl.cards._content import page_of
from yogadl.cards._page import Paragraphs
from yogadl.cards._text import visible
from yogadl.catalogue import CatalogueEntry
from yogadl.recipes import Item
from yogadl.spec import TensorSpec

NASTY = [
    "<script>alert(1)</script>",
    "</style></article><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    '" style="position:fixed',
    "<!-- ",
    "<![CDATA[",
    "&lt;b&gt; &#60;b&#62; &amp",
    "javascript:alert(1)",
    "https://example.org/\" onclick='x",
    "http://example.org/a_b?c=d&e=*f*",
    "[click](javascript:alert(1))",
    "![x](http://example.org/track.png)",
    "[x]: http://example.org",
    "<http://example.org/>",
    "`` ` ``",
    "```\ncode\n```",
    "~~~\ncode\n~~~",
    "a | b \\| c \\",
    "|---|\n|---|",
    "# heading\n===\n---\n- item\n+ item\n1. one\n2) two",
    "    indented\n\tindented",
    "> quoted\n\n***bold*** __bold__ ~~gone~~",
    "{{ name }} {% x %} {#id} {role}`x`",
    "$x$ $$y$$",
    "\u202egnp.exe \u2066 \x00 \x1b[31m \ud800 \u200d",
    "two  \nlines\\\nmore\r\nlines\rand \u2028 more",
    "",
    " ",
]
texts = (
    st.sampled_from(NASTY) | st.text(max_size=12) | st.text("<>&|`*_[]()#-\\\n {}!\"'", max_size=9)
)
TAGS = {"style", "article", "h1", "h2", "p", "br", "div", "table", "thead", "tbody", "tr"}
TAGS |= {"th", "td", "a"}


@st.composite
def cards(draw: st.DrawFn) -> Card:
    """Cards that say anything wherever a file or a catalogue can."""
    said = itertools.cycle(draw(st.lists(texts, min_size=3, max_size=7)))

    def entry() -> CatalogueEntry:
        return CatalogueEntry(
            dataset_id=next(said),
            dataset_version=next(said),
            record_count=3,
            size=10**6,
            own_size=0,
            spec={next(said): TensorSpec("int64", (None, 2))},
            content_id=next(said),
            parents=((next(said), next(said)),),
            tags=(next(said),),
            created=datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
            user=next(said),
            host=next(said),
            function=next(said),
            recipe=next(said),
            message=next(said),
            change=next(said),
            duration=1.5,
        )

    log = tuple(entry() for _ in range(draw(st.sampled_from([1, 2, 12]))))
    metadata = {
        draw(st.sampled_from(["description", "class_names", "license", next(said)])): value
        for value in (next(said), [next(said), 1.5], {next(said): [next(said)]})
    }
    metadata["description"] = draw(st.sampled_from(["\n", "\n\n"])).join(
        draw(st.lists(texts, max_size=9))
    )
    return Card(
        log[0],
        metadata,
        next(said),
        tuple(Item(kind, next(said), "", next(said)) for kind in ("input", "library")),
        log,
        2,
        1,
        (ComponentSample(next(said), 0.0, 1.0, float("nan")),),
    )


def shown(card: Card) -> list[str]:
    """The words of a card, in order."""
    page = page_of(card)
    found = [page.title]
    for section in page.sections:
        found.append(section.title)
        for block in section.blocks:
            if isinstance(block, Paragraphs):
                found += [line for lines in block.split() for line in lines]
            else:
                found += [cell for row in (block.head, *block.rows) for cell in row]
    return " ".join(map(visible, found)).split()


class Parsed(html.parser.HTMLParser):
    """What a browser makes of it.

    Attributes:
        words: of the texts.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        allowed = {"a": {"href", "rel"}, "th": {"scope"}, "article": {"class"}}
        assert dict(attrs).keys() <= allowed.get(tag, set())
        if tag == "a":
            assert str(dict(attrs)["href"]).startswith(("http://", "https://"))
        if tag != "br":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words += data.split()

    def handle_comment(self, data: str) -> None:
        pytest.fail(data)

    handle_decl = unknown_decl = handle_pi = handle_comment


def entry_of(name: str = "a") -> CatalogueEntry:
    return CatalogueEntry(
        *(name, "1", 0, 0, 0, None, "", (), ()),
        datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
        *("", "", "", "", "", "", None),
    )


@pytest.mark.parametrize("between", ["\n", "\n\n", " "])
def test_known_tricks_are_text(between: str) -> None:
    for text in (between.join(NASTY), *NASTY):
        metadata = {"description": text, "license": text, "class_names": [text], text: 1}
        card = Card(entry_of(text), metadata)
        check_html(card)
        check_markdown(card)


@given(cards())
def test_all_is_text(card: Card) -> None:
    check_html(card)
    check_markdown(card)


def check_html(card: Card) -> None:
    parsed = Parsed(card._repr_html_())
    assert "".join(parsed.words) == "".join(shown(card))
    card.to_html().encode()


def check_markdown(card: Card) -> None:
    markdown_it = pytest.importorskip("markdown_it")
    text = card.to_markdown()
    text.encode()
    tokens = markdown_it.MarkdownIt("gfm-like", {"linkify": False}).disable("linkify").parse(text)
    words = [
        word
        for token in tokens
        for child in [token, *(token.children or ())]
        for word in _words(child)
    ]
    assert "".join(words) == "".join(shown(card))
    titles = [section.title for section in page_of(card).sections if section.title]
    headings = [token.tag for token in tokens if token.type == "heading_open"]
    # That of a version without any name has no text, and is one all the same.
    assert headings == ["h1", *["h2"] * len(titles)]


def _words(token: Any) -> list[str]:
    kind = token.type.removesuffix("_open").removesuffix("_close")
    if kind == "html_inline":
        assert token.content == "<br>"
    elif kind == "link":
        assert token.info == "auto"
        assert token.attrs.get("href", "http").startswith("http")
    elif kind in ("text", "text_special"):
        return token.content.split()
    else:
        known = {"inline", "softbreak", "paragraph", "heading", "table", "thead", "tbody", "tr"}
        assert kind in known | {"th", "td"}
    return []


def test_documents_load_and_run_nothing() -> None:
    text = Card(entry_of()).to_html()
    assert "default-src 'none'" in text
    assert "color-scheme: light dark" in text
    for word in ("<script", "<link", "<img", "url(", "@import", "src="):
        assert word not in text
