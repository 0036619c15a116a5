"""Many who change a catalogue at once, one request after the other, in any order, with answers that
get lost: what each is told is what happened."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from catalogue_rig import ROOT_KEY, TryingStore, catalogue, entry, objects
from hypothesis import given, settings
from hypothesis import strategies as st

from yogadl.catalogue import Catalogue, NameTakenError, _state
from yogadl.errors import InvalidArgumentError, NetworkError, TagMovedError

IDS = ("a", "b")
TAGS = ("main", "prod")

pytestmark = pytest.mark.usefixtures("no_pauses")


class Writer(Catalogue):
    """One of those who change it.

    Args:
        store: that it is in.
        at_work: what each of those at work does to the model; to merge, which one does who was
            refused, too, does nothing.
    """

    def __init__(self, store: TryingStore, at_work: list[Callable[[], None] | None]) -> None:
        super().__init__(objects(store))
        self._at_work = at_work

    def _merge_if_possible(self, state: _state.State, patience: float | None) -> None:
        self._at_work.append(None)
        try:
            super()._merge_if_possible(state, patience)
        finally:
            self._at_work.pop()


@dataclass
class Model:
    """What should be stored, as one who does one thing after the other would have it."""

    entries: dict[tuple[str, str], str] = field(default_factory=dict)
    tags: dict[tuple[str, str], str] = field(default_factory=dict)

    def tagged(self, key: tuple[str, str]) -> bool:
        return any(name == key[0] and at == key[1] for (name, _), at in self.tags.items())


class World:
    """Writers who come between one another's requests.

    Args:
        seed: of what they do.
        depth: how many may be at work at once.
    """

    def __init__(self, seed: int, depth: int) -> None:
        self._roll = random.Random(seed)
        self._depth = depth
        self._store = TryingStore()
        self._store.before = self._between
        self._store.after = self._after
        # What each of those at work does to the model, once that is done to the root.
        self._at_work: list[Callable[[], None] | None] = []
        self._writers = [Writer(self._store, self._at_work) for _ in range(4)]
        self._count = 0
        self.model = Model()
        self.done: dict[str, int] = {}

    def _between(self, name: str, key: str) -> None:
        if len(self._at_work) < self._depth and self._roll.random() < 0.3:
            self.act()

    def _after(self, name: str, key: str) -> None:
        if name == "write" and key == ROOT_KEY:
            apply, self._at_work[-1] = self._at_work[-1], None
            if apply is not None:
                apply()
            if self._roll.random() < 0.2:
                self._between(name, key)
                raise NetworkError("the answer was lost")
        self._between(name, key)

    def act(self) -> None:
        """One of them does something, while others come in between."""
        acts = [
            *(self._enter, self._tag, self._untag, self._take_out),
            *(self._commit, self._commit, self._find),
        ]
        act = self._roll.choice(acts)
        self._at_work.append(None)
        try:
            act(self._roll.choice(self._writers))
        finally:
            left = self._at_work.pop()
        self.done[act.__name__] = self.done.get(act.__name__, 0) + 1
        assert left is None, "it is said to be done, and was not"

    def _new(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _known(self) -> tuple[str, str]:
        return self._roll.choice(sorted(self.model.entries) or [("a", "v0")])

    def _new_tag(self) -> str:
        """Also the name of a version that there is, or will be, or is being made."""
        return self._roll.choice(
            [*TAGS, *TAGS, f"v{max(1, self._count + self._roll.randint(-1, 2))}"]
        )

    def _expected(self, name: str, tag: str) -> Any:
        at = self.model.tags.get((name, tag))
        return self._roll.choice([..., at, at, at, None, "elsewhere"])

    def _enter(self, writer: Any) -> None:
        made = self._new()
        # Also what is there already.
        key = self._roll.choice([(self._roll.choice(IDS), made), self._known()])

        def apply() -> None:
            assert key not in self.model.tags
            self.model.entries[key] = made

        self._at_work[-1] = apply
        self._naming(lambda: writer.enter(entry(*key, made)))

    def _find(self, writer: Any) -> None:
        """Enters what was found without, and what is another file by now."""
        known, made = writer.load(), self._new()
        count = self._roll.choice([1, 2, 6])
        keys = [(self._roll.choice(IDS), f"{made}-{at}") for at in range(count)]
        keys += self._roll.sample(sorted(known.entries), min(2, len(known.entries)))

        def apply() -> None:
            for key in keys:
                before = known.entries.get(key)
                seen = None if before is None else before.provenance.change
                if self.model.entries.get(key) == seen and key not in self.model.tags:
                    self.model.entries[key] = made

        self._at_work[-1] = apply
        writer.enter_found([entry(*key, made) for key in keys], known)
        # It may have been given up.
        self._at_work[-1] = None

    def _take_out(self, writer: Any) -> None:
        key = self._known()

        def apply() -> None:
            assert not self.model.tagged(key)
            self.model.entries.pop(key, None)

        self._at_work[-1] = apply
        try:
            writer.take_out(key, f"tag of {key[1]}", is_forced=False)
        except InvalidArgumentError:
            assert self._at_work[-1] is not None
            self._at_work[-1] = None

    def _tag(self, writer: Any) -> None:
        key, tag = self._known(), self._new_tag()
        expect = self._expected(key[0], tag)

        def apply() -> None:
            at = self.model.tags.get((key[0], tag))
            assert expect in (..., at)
            assert (key[0], tag) not in self.model.entries
            self.model.tags[key[0], tag] = key[1]

        def set_tag() -> None:
            if writer.tag(key, tag, "x", expect):
                # There was such a version at some moment since it began.
                assert self._at_work[-1] is not None, "it was refused, and carried out"
                self._at_work[-1] = None

        self._moving(apply, expect, set_tag)

    def _untag(self, writer: Any) -> None:
        name, tag = self._roll.choice(IDS), self._roll.choice(TAGS)
        expect = self._expected(name, tag)

        def apply() -> None:
            assert expect in (..., self.model.tags.get((name, tag)))
            self.model.tags.pop((name, tag), None)

        def untag() -> None:
            if not writer.untag(name, tag, expect):
                self._at_work[-1] = None

        self._moving(apply, expect, untag)

    def _commit(self, writer: Any) -> None:
        name, version, branch = self._roll.choice(IDS), self._new(), self._roll.choice(TAGS)
        expect = self._expected(name, branch)

        def apply() -> None:
            assert expect in (..., self.model.tags.get((name, branch)))
            assert (name, version) not in self.model.tags
            self.model.tags[name, branch] = version
            self.model.entries[name, version] = version

        commit = entry(name, version, version)
        move = functools.partial(writer.commit, commit, branch, expect)
        self._moving(apply, expect, lambda: self._naming(move))

    def _naming(self, enter: Callable[[], Any]) -> None:
        """Enters what may have the name of a tag by now."""
        try:
            enter()
        except NameTakenError:
            assert self._at_work[-1] is not None, "it was refused, and carried out"
            self._at_work[-1] = None

    def _moving(self, apply: Callable[[], None], expect: Any, move: Callable[[], Any]) -> None:
        self._at_work[-1] = apply
        refusal = None
        try:
            move()
        except TagMovedError as error:
            refusal = error
        if refusal is not None:
            # It was so at some moment since it began; and it was not carried out.
            assert expect not in (..., refusal.current)
            assert self._at_work[-1] is not None, "it was refused, and carried out"
            self._at_work[-1] = None

    def check(self) -> None:
        """Sees that what anybody reads now is what should be stored."""
        self._depth = 0
        known = catalogue(self._store).load()
        found = {key: each.provenance.change for key, each in known.entries.items()}
        assert found == self.model.entries
        tags = {(name, tag): at for name, all_ in known.tags.items() for tag, at in all_.items()}
        assert tags == self.model.tags
        assert not tags.keys() & found.keys()


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_what_each_is_told_is_what_happened(seed: int, depth: int) -> None:
    fewest, kept = _state.FEWEST_MERGED, _state.KEPT_CHANGES
    # So that segments are made all the time, in a few steps.
    _state.FEWEST_MERGED = 4
    try:
        world = World(seed, depth)
        for _ in range(40):
            world.act()
        world.check()
        assert len(world.done) >= 3
    finally:
        _state.FEWEST_MERGED, _state.KEPT_CHANGES = fewest, kept
