"""What two recipes differ in."""

from __future__ import annotations

import collections
import difflib
from dataclasses import dataclass

from yogadl.recipes._document import KINDS, Item, Recipe

# With which lists, dicts and sets begin as Python writes them.
_OPENING = ("[", "{", "s")
_CODE = ("function", "wrapper", "class")
_MOST_LINES = 20
_LONGEST_LINE = 160


@dataclass(frozen=True)
class RecipeChange:
    """A difference between what was stored and what is there now.

    Attributes:
        kind: of what differs, such as ``"function"``, ``"global"``, ``"argument"``, ``"library"``.
        name: of it, such as ``"package.module.helper"``.
        before: its value or source when it was stored; empty if it is not known.
        after: the same of now.
        is_new: whether it did not count before.
        is_gone: whether it does not count any more.
    """

    kind: str
    name: str
    before: str = ""
    after: str = ""
    is_new: bool = False
    is_gone: bool = False

    @property
    def is_of_container(self) -> bool:
        """Whether it is one of what a list, dict or set that the code reads holds."""
        is_read = self.kind in ("closure", "global")
        return is_read and self.before[:1] in _OPENING and self.after[:1] in _OPENING

    @property
    def lines(self) -> list[str]:
        """The lines of code that changed, as ``diff`` writes them; empty if it is no code."""
        if self.kind not in _CODE or not self.before or not self.after:
            return []
        found = difflib.unified_diff(
            self.before.splitlines(), self.after.splitlines(), lineterm="", n=0
        )
        return [_printable(line) for line in found if line[:2] not in ("--", "++", "@@")]

    def __str__(self) -> str:
        what = f"{KINDS.get(self.kind, 'the')} {_printable(self.name)}"
        if self.is_new:
            return f"{what} counts, and did not" + (
                f": {_short(self.after)}" if self._is_short else ""
            )
        if self.is_gone:
            return f"{what} does not count any more"
        lines = self.lines
        if lines:
            shown = [line[:_LONGEST_LINE] for line in lines[:_MOST_LINES]]
            more = [f"… {len(lines) - _MOST_LINES} lines more"] if len(lines) > _MOST_LINES else []
            return "\n    ".join((f"{what} changed:", *shown, *more))
        if self._is_short and self.before and self.after and self.before != self.after:
            after, before = _differing(self.after, self.before)
            return f"{what} is {after}, and was {before}"
        if self.kind in _CODE:
            return f"{what} changed, or what its names stand for"
        return f"{what} changed"

    @property
    def _is_short(self) -> bool:
        return bool(self.after) and self.kind not in _CODE


def _short(text: str) -> str:
    text = _printable(" ".join(text.split()))
    return text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 1]}…"


def _differing(one: str, other: str) -> tuple[str, str]:
    """Two texts, from a little before they begin to differ if that is far from their beginning."""
    texts = [_printable(" ".join(text.split())) for text in (one, other)]
    letters = enumerate(zip(*texts, strict=False))
    same = next((at for at, (mine, yours) in letters if mine != yours), 0)
    if same > _LONGEST_LINE // 2:
        texts = [f"…{text[same - _LONGEST_LINE // 4 :]}" for text in texts]
    return _short(texts[0]), _short(texts[1])


def _printable(text: str) -> str:
    """Text of a file that anybody may have written, for a terminal."""
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)


def changes(before: Recipe, after: Recipe) -> tuple[RecipeChange, ...]:
    """What two recipes differ in: code first, then values, then what only one of them has."""
    old, new = _by_name(before), _by_name(after)
    texts = {**before.show(), **after.show()}
    found = []
    gone: list[Item] = []
    come: list[Item] = []
    for key in {**new, **old}:
        ours, theirs = new.get(key, []), old.get(key, [])
        for number in range(max(len(ours), len(theirs))):
            if number >= len(ours):
                gone.append(theirs[number])
            elif number >= len(theirs):
                come.append(ours[number])
            elif ours[number].digest != theirs[number].digest:
                kept, now = theirs[number], ours[number]
                found.append(RecipeChange(*key, texts.get(kept, ""), texts.get(now, "")))
    # A script has another name when it is imported.
    same = collections.Counter(_nameless(it) for it in gone)
    for item in come:
        if same[_nameless(item)]:
            same[_nameless(item)] -= 1
            gone.remove(next(it for it in gone if _nameless(it) == _nameless(item)))
        elif not before.is_cut:
            found.append(RecipeChange(item.kind, item.name, "", texts.get(item, ""), is_new=True))
    found += [RecipeChange(it.kind, it.name, texts.get(it, ""), is_gone=True) for it in gone]
    if not found and before.digest != after.digest:
        found.append(_unknown(before, after))
    return tuple(sorted(found, key=_rank))


def _unknown(before: Recipe, after: Recipe) -> RecipeChange:
    """The change if all items that are known are the same."""
    if before.is_cut:
        return RecipeChange("rest", "rest of the recipe, which is too long to be kept,")
    # Such as two functions of a name that have changed places.
    kinds = {item.kind: item for item in reversed(after.items)}
    first = kinds.get("function", after.items[0])
    return RecipeChange(first.kind, first.name)


def _rank(change: RecipeChange) -> tuple[bool, bool]:
    return change.is_new or change.is_gone, change.kind not in _CODE


def _nameless(item: Item) -> tuple[str, str]:
    return item.kind, item.digest


def _by_name(recipe: Recipe) -> dict[tuple[str, str], list[Item]]:
    found: dict[tuple[str, str], list[Item]] = {}
    for item in recipe.items:
        found.setdefault((item.kind, item.name), []).append(item)
    return found
