"""What several values share, and how that is called where it is met again.

What is in a set has no first: each member is looked at as if no other was there. When all were, a
member is called by what it is. Of several that are the same, the one that is met again first is
called the first.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Mark:
    """Where something was met first.

    Attributes:
        scope: an item or a member.
        number: in that.
        start: where a value begins in its memory.
        layout: of that value.
    """

    scope: str | Member
    number: int
    start: int = 0
    layout: str = ""

    def __str__(self) -> str:
        return f"{self.scope}/{self.number}"


@dataclass(eq=False)
class Member:
    """One of what has no order.

    Attributes:
        above: the item or member in which that is.
        marks: of what was met in it first.
        place: what it is called in its set, when that is known.
        same: those that are the same, if others are, in the order in which they were met again.
    """

    above: str | Member
    marks: dict[Hashable, Mark] = field(default_factory=dict)
    place: str = ""
    same: list[Member] | None = None

    def __str__(self) -> str:
        if not self.place:
            # Only what is in it knows of it.
            return f"member of {self.above}"
        if self.same is None:
            return f"{self.above}{self.place}"
        if self not in self.same:
            self.same.append(self)
        return f"{self.above}{self.place}.{self.same.index(self)}"


class Sharing:
    """What was met, and where.

    Attributes:
        scope: the item or member that is looked at.
        number: of the next value in it that may be met again.
        sets: how many there were in it.
    """

    def __init__(self) -> None:
        self.scope: str | Member = ""
        self.number = self.sets = 0
        self._marks: dict[Hashable, Mark] = {}
        self._alive: list[Any] = []

    def begin(self, scope: str | Member) -> tuple[str | Member, int, int]:
        """What comes now is of an item or member; what came before, for ``resume``."""
        before = self.scope, self.number, self.sets
        self.scope, self.number, self.sets = scope, 0, 0
        return before

    def resume(self, before: tuple[str | Member, int, int]) -> None:
        """Goes on with what came before."""
        self.scope, self.number, self.sets = before

    def mark(self, key: Hashable, value: Any, start: int = 0, layout: str = "") -> Mark | None:
        """Where something was met before; ``None`` if it is new."""
        found = self._find(key)
        if found is None:
            marks = self.scope.marks if isinstance(self.scope, Member) else self._marks
            marks[key] = Mark(self.scope, self.number, start, layout)
            self.number += 1
            self._alive.append(value)
        return found

    def _find(self, key: Hashable) -> Mark | None:
        scope = self.scope
        while isinstance(scope, Member):
            if key in scope.marks:
                return scope.marks[key]
            scope = scope.above
        return self._marks.get(key)

    def members(self, values: Sequence[Any], look: Callable[[Any], str]) -> list[str]:
        """Values that have no order, by what they are, sorted; and what several of them share.

        Args:
            values: in an order that does not depend on the process, as far as they differ.
            look: says what one is.

        Raises:
            ValueError: several that are the same share something, so that it cannot be told which
                are those that do.
        """
        above, number = self.scope, self.sets
        self.sets += 1
        found = []
        for value in values:
            member = Member(above)
            before = self.begin(member)
            found.append((look(value), member))
            self.resume(before)
        found.sort(key=lambda it: it[0])
        self._name(number, found)
        return [*(text for text, _ in found), *self._merge(above, [it for _, it in found])]

    def _name(self, number: int, found: list[tuple[str, Member]]) -> None:
        counts = collections.Counter(text for text, _ in found)
        same: dict[str, list[Member]] = {text: [] for text in counts}
        numbers = {text: place for place, text in enumerate(counts)}
        for text, member in found:
            member.place = f"{{{number}:{numbers[text]}}}"
            if counts[text] > 1:
                member.same = same[text]

    def _merge(self, above: str | Member, members: list[Member]) -> list[str]:
        """Has what was met in members be known to what comes; tells what several of them share."""
        marks = above.marks if isinstance(above, Member) else self._marks
        met: dict[Hashable, list[Mark]] = {}
        for member in members:
            for key, mark in member.marks.items():
                met.setdefault(key, []).append(mark)
        shared = []
        for key, found in met.items():
            marks[key] = found[0]
            if len(found) > 1:
                if any(_is_one_of_many(mark.scope, above) for mark in found):
                    raise ValueError("several objects in a set that are the same share others")
                marks[key] = first = min(found, key=str)
                places = sorted(
                    f"{mark},{mark.start - first.start},{mark.layout}" for mark in found
                )
                shared.append(f"shared({';'.join(places)})")
        return sorted(shared)


def _is_one_of_many(scope: str | Member, above: str | Member) -> bool:
    """Whether something is in one of several members that are the same."""
    while isinstance(scope, Member) and scope is not above:
        if scope.same is not None:
            return True
        scope = scope.above
    return False
