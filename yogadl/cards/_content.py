"""What a card says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from yogadl.cards._elements import components
from yogadl.cards._facts import Facts
from yogadl.cards._page import Block, Page, Paragraphs, Section, Table
from yogadl.cards._sample import ComponentSample
from yogadl.cards._text import bytes_text, seconds_text, value_text
from yogadl.catalogue import CatalogueEntry

DESCRIPTION = "description"
CLASS_NAMES = "class_names"

# Of the user's keys, those that readers look for, in this order; then all others.
_FIRST = ("title", "license", "source", "homepage", "url", "author", "authors", "citation")
_MOST_ROWS = 200
_MOST_COMMITS = 10
_MOST_CLASSES = 100
# Of a recipe, what is no code, and how it is called.
_DECLARED = {
    "argument": "argument",
    "input": "input",
    "key": "key",
    "environment": "variable of the environment",
    "library": "library",
    "file": "compiled module",
}
_CODE = {"function": "function", "class": "class", "global": "global variable"}
_PLURALS = {"function": "functions", "class": "classes", "global variable": "global variables"}

_Row = tuple[str, ...]


def page_of(card: Facts) -> Page:
    """The page of a card."""
    entry = card.entry
    sections = [
        Section("", tuple(_users(card.metadata))),
        Section("Version", (Table(tuple(_version(card))),)),
        Section("Components", tuple(_components(entry))),
        Section(_sample_title(card.sample_size), tuple(_sample(card.sample))),
        Section("Classes", tuple(_classes(card.metadata.get(CLASS_NAMES)))),
        Section("Lineage", tuple(_lineage(card))),
        Section("History", tuple(_history(card.log))),
    ]
    title = f"{entry.dataset_id} {entry.dataset_version}"
    return Page(title, tuple(section for section in sections if section.blocks))


def _users(metadata: Mapping[str, Any]) -> Iterator[Block]:
    """The user's own keys."""
    description = metadata.get(DESCRIPTION)
    shown = set()
    if isinstance(description, str) and description.strip():
        yield Paragraphs(description)
        shown.add(DESCRIPTION)
    if _is_classes(metadata.get(CLASS_NAMES)):
        shown.add(CLASS_NAMES)
    names = [name for name in _FIRST if name in metadata]
    names += sorted(metadata.keys() - {*names} - shown)
    rows = [(name, value_text(metadata[name])) for name in names]
    if rows:
        yield Table(tuple(_some(rows)))


def _version(card: Facts) -> Iterator[_Row]:
    entry = card.entry
    yield "id", entry.dataset_id
    yield "version", entry.dataset_version
    if entry.tags:
        yield "tags", ", ".join(entry.tags)
    yield "stored", f"{entry.created:%Y-%m-%d %H:%M} UTC{_by(entry)}"
    if entry.record_count is None:
        yield "records", "not known: the file is of yogadl 0.1.4, or cannot be read"
    else:
        yield "records", f"{entry.record_count:,}"
    files = "" if card.file_count in (None, 1) else f", in {card.file_count:,} files"
    yield "size", f"{bytes_text(entry.size)}{files}"
    if entry.own_size is not None and entry.own_size < entry.size:
        yield "of these its own", bytes_text(entry.own_size)
        yield "shared with parents", bytes_text(entry.size - entry.own_size)
    if entry.record_count:
        yield "per record", bytes_text(round(entry.size / entry.record_count))
    if entry.content_id:
        yield "content id", entry.content_id


def _components(entry: CatalogueEntry) -> Iterator[Block]:
    if entry.spec is not None:
        rows = tuple(_some(list(components(entry.spec))))
        yield Table(rows, ("component", "dtype", "shape"))


def _sample_title(size: int) -> str:
    return f"Values of {size:,} record{'s' if size > 1 else ''}"


def _sample(sample: Sequence[ComponentSample]) -> Iterator[Block]:
    rows = [
        (it.name, _number(it.least), _number(it.mean), _number(it.greatest), _remarks(it))
        for it in sample
    ]
    if rows:
        yield Table(tuple(_some(rows)), ("component", "least", "mean", "greatest", ""))


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def _remarks(sample: ComponentSample) -> str:
    found = ["lengths in bytes"] if sample.is_of_strings else []
    if sample.missing:
        found.append(f"{sample.missing:,} missing")
    if sample.not_finite:
        found.append(f"{sample.not_finite:,} not finite")
    return ", ".join(found)


def _is_classes(found: Any) -> bool:
    """Whether metadata have names of classes as the Hugging Face adapter writes them, or a list."""
    if isinstance(found, dict):
        return bool(found) and all(_is_classes(names) for names in found.values())
    return isinstance(found, list) and bool(found) and all(isinstance(it, str) for it in found)


def _classes(found: Any) -> Iterator[Block]:
    if not _is_classes(found):
        return
    of = found if isinstance(found, dict) else {"": found}
    rows = []
    for component, names in of.items():
        told = [f"{number} {name}" for number, name in enumerate(names[:_MOST_CLASSES])]
        more = len(names) - len(told)
        told += [f"and {more:,} more"] if more else []
        rows.append((str(component), f"{len(names):,}", ", ".join(told)))
    yield Table(tuple(_some(rows)), ("component", "classes", "names"))


def _lineage(card: Facts) -> Iterator[Block]:
    rows = tuple(_origin(card))
    if rows:
        yield Table(rows)
    order = [*_DECLARED]
    items = sorted(
        (it for it in card.recipe if it.kind in order), key=lambda it: order.index(it.kind)
    )
    declared = [(_DECLARED[it.kind], it.name, it.text) for it in items]
    counts = Counter(_CODE[it.kind] for it in card.recipe if it.kind in _CODE)
    if counts:
        declared.append(("code", _counted(counts), ""))
    if declared:
        yield Table(tuple(_some(declared)), ("depends on", "", ""))


def _origin(card: Facts) -> Iterator[_Row]:
    entry = card.entry
    if entry.parents:
        yield "parents", ", ".join(" ".join(parent) for parent in entry.parents)
    if entry.change:
        yield "commit", entry.change
    if entry.duration is not None:
        yield "took", seconds_text(entry.duration)
    maker = next((it for it in card.log if it.function), None)
    if maker is None:
        return
    if maker is entry:
        yield "function", f"{maker.function}({card.arguments})"
    else:
        yield "begun as", maker.dataset_version
        yield "by function", maker.function
    if maker.recipe:
        yield "recipe", maker.recipe


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(
        f"{count:,} {name if count == 1 else _PLURALS[name]}"
        for name, count in sorted(counts.items())
    )


def _history(log: Sequence[CatalogueEntry]) -> Iterator[Block]:
    if len(log) < 2:
        return
    rows = [
        (
            it.dataset_version,
            f"{it.created:%Y-%m-%d %H:%M}",
            "" if it.record_count is None else f"{it.record_count:,}",
            it.user,
            it.message or ("changed" if it.change else "built" if it.function else "submitted"),
        )
        for it in log[:_MOST_COMMITS]
    ]
    yield Table(tuple(rows), ("version", "stored (UTC)", "records", "by", "what"))
    if len(log) > _MOST_COMMITS:
        yield Paragraphs(f"And {len(log) - _MOST_COMMITS:,} before.")


def _by(entry: CatalogueEntry) -> str:
    by = f" by {entry.user}" if entry.user else ""
    return f"{by} on {entry.host}" if entry.host else by


def _some(rows: Sequence[_Row]) -> Iterable[_Row]:
    """Not more rows than can be read."""
    if len(rows) <= _MOST_ROWS:
        return rows
    more = f"… and {len(rows) - _MOST_ROWS:,} more"
    return [*rows[:_MOST_ROWS], (more, *[""] * (len(rows[0]) - 1))]
