"""Pages as HTML that needs nothing else, and is readable on any background."""

from __future__ import annotations

import html

from yogadl.cards._page import Block, Page, Paragraphs, Section, Table
from yogadl.cards._text import is_link, visible

# Nothing is loaded or run, even if something were to get through.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

# Only what lies over the background of the page or notebook, in the colour of its text.
_STYLE = """\
.yogadl-card { color: inherit; font: 14px/1.5 system-ui, sans-serif; max-width: 60em; \
overflow-wrap: anywhere }
.yogadl-card a { color: inherit }
.yogadl-card h1 { font-size: 1.6em; line-height: 1.25; margin: 0 0 .6em }
.yogadl-card h2 { font-size: 1.15em; margin: 1.6em 0 .5em }
.yogadl-card p { margin: .5em 0; text-align: left }
.yogadl-card div { overflow-x: auto }
.yogadl-card table { background: none; border: 0; border-collapse: collapse; margin: .5em 0; \
color: inherit; font-size: inherit }
.yogadl-card tr, .yogadl-card tr:hover { background: none !important }
.yogadl-card th, .yogadl-card td { border: 0; border-bottom: 1px solid rgba(128, 128, 128, .35); \
padding: .3em 1.2em .3em 0; text-align: left; vertical-align: top; overflow-wrap: normal }
.yogadl-card th { font-weight: 600 }
.yogadl-card tbody th { font-weight: 400; opacity: .75; white-space: nowrap }
.yogadl-card td { overflow-wrap: anywhere; min-width: 4em; font-variant-numeric: tabular-nums }
"""


def to_html(page: Page) -> str:
    """A whole document."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_line(page.title)}</title>\n"
        "<style>\n:root { color-scheme: light dark }\nbody { margin: 2em auto; max-width: 60em; "
        f"padding: 0 1em }}\n</style>\n</head>\n<body>\n{to_fragment(page)}</body>\n</html>\n"
    )


def to_fragment(page: Page) -> str:
    """What can stand in another document, as a notebook is."""
    sections = "".join(map(_section, page.sections))
    return (
        f'<style>\n{_STYLE}</style>\n<article class="yogadl-card">\n'
        f"<h1>{_line(page.title)}</h1>\n{sections}</article>\n"
    )


def _section(section: Section) -> str:
    title = f"<h2>{_line(section.title)}</h2>\n" if section.title else ""
    return title + "".join(map(_block, section.blocks))


def _block(block: Block) -> str:
    if isinstance(block, Paragraphs):
        texts = ("<br>\n".join(map(_escaped, lines)) for lines in block.split())
        return "".join(f"<p>{text}</p>\n" for text in texts)
    return f"<div><table>\n{_table(block)}</table></div>\n"


def _table(table: Table) -> str:
    names = "".join(f'<th scope="col">{_cell(cell)}</th>' for cell in table.head)
    head = f"<thead><tr>{names}</tr></thead>\n" if names else ""
    rows = "".join(f"<tr>{_row(row, is_named=not table.head)}</tr>\n" for row in table.rows)
    return f"{head}<tbody>\n{rows}</tbody>\n"


def _row(row: tuple[str, ...], is_named: bool) -> str:
    first = f'<th scope="row">{_cell(row[0])}</th>' if is_named else f"<td>{_cell(row[0])}</td>"
    return first + "".join(f"<td>{_cell(cell)}</td>" for cell in row[1:])


def _cell(text: str) -> str:
    if is_link(text):
        to = _escaped(text)
        return f'<a href="{to}" rel="noopener noreferrer nofollow">{to}</a>'
    lines = (line.strip() for line in visible(text).split("\n"))
    return "<br>".join(_escaped(line) for line in lines if line)


def _line(text: str) -> str:
    return _escaped(visible(text).replace("\n", " "))


def _escaped(text: str) -> str:
    return html.escape(text, quote=True)
