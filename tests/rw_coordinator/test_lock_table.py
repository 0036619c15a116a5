"""The lock core, without sockets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yogadl.rw_coordinator._lock_table import LockCounts, LockTable

RESOURCES = [b"a", b"b"]
# Ask for a resource, shared or not; or give back what the so-many-th of those alive has.
STEPS = st.one_of(
    st.tuples(st.just("request"), st.sampled_from(RESOURCES), st.booleans()),
    st.tuples(st.just("release"), st.integers(0, 20), st.just(False)),
)
HISTORIES = st.lists(STEPS, max_size=60)


class _History:
    """Runs steps, knows who asked for what, and checks after each what must always be so."""

    def __init__(self) -> None:
        self.table: LockTable[int] = LockTable()
        self.alive: dict[int, tuple[bytes, bool]] = {}
        self.held: set[int] = set()
        self.count = 0

    def request(self, resource: bytes, shared: bool) -> list[int]:
        holder = self.count
        self.count += 1
        before = self._of(resource)
        granted = self.table.request(resource, holder, shared=shared)
        self.alive[holder] = resource, shared
        writers = [other for other in before if not self.alive[other][1]]
        if shared:
            assert granted == ([] if writers else [holder]), "readers wait for writers, only"
        else:
            assert granted == ([] if before else [holder]), "writers wait for everybody"
        self._grant(granted)
        return granted

    def release(self, holder: int) -> list[int]:
        resource, _ = self.alive.pop(holder)
        self.held.discard(holder)
        waiting = [other for other in self._of(resource) if other not in self.held]
        writers = [other for other in waiting if not self.alive[other][1]]
        granted = self.table.release(resource, holder)
        if granted and not self.alive[granted[0]][1]:
            assert granted == writers[:1], "the first writer to come is the first to be served"
        elif granted:
            assert not writers, "no reader goes before a writer"
            assert granted == waiting, "all waiting readers go at once"
        self._grant(granted)
        return granted

    def _of(self, resource: bytes) -> list[int]:
        return [other for other, (its, _) in self.alive.items() if its == resource]

    def _grant(self, granted: list[int]) -> None:
        assert not self.held.intersection(granted)
        self.held.update(granted)
        for resource in RESOURCES:
            everybody = self._of(resource)
            holders = [other for other in everybody if other in self.held]
            writers = [other for other in holders if not self.alive[other][1]]
            assert len(holders) == 1 or not writers, "a writer is alone"
            assert holders or not everybody, "nobody waits for nothing"
        shared = [self.alive[holder][1] for holder in self.held]
        waiting = len(self.alive) - len(self.held)
        assert self.table.counts() == LockCounts(sum(shared), len(shared) - sum(shared), waiting)
        assert len(self.table) == len({resource for resource, _ in self.alive.values()})


def _run(history: _History, steps: list[tuple[str, object, bool]]) -> None:
    for name, what, shared in steps:
        if name == "request":
            assert isinstance(what, bytes)
            history.request(what, shared)
        elif history.alive:
            assert isinstance(what, int)
            history.release(list(history.alive)[what % len(history.alive)])


@given(HISTORIES)
def test_any_history_keeps_the_rules_and_serves_everybody(
    steps: list[tuple[str, object, bool]],
) -> None:
    history = _History()
    _run(history, steps)
    while history.alive:
        assert history.held
        history.release(min(history.held))
    assert len(history.table) == 0
    assert history.table.counts() == LockCounts(0, 0, 0)


@given(HISTORIES, HISTORIES, st.sampled_from(RESOURCES), st.booleans())
def test_a_waiter_that_gives_up_leaves_no_trace(
    before: list[tuple[str, object, bool]],
    after: list[tuple[str, object, bool]],
    resource: bytes,
    shared: bool,
) -> None:
    one, other = _History(), _History()
    _run(one, before)
    _run(other, before)
    if not other.request(resource, shared):
        assert other.release(other.count - 1) == []
    else:
        other.release(other.count - 1)
    one.count = other.count
    _run(one, after)
    _run(other, after)
    assert (one.alive, one.held) == (other.alive, other.held)


def test_readers_behind_a_writer_that_gives_up_go_on() -> None:
    table: LockTable[str] = LockTable()
    assert table.request(b"x", "reading", shared=True) == ["reading"]
    assert table.request(b"x", "writer", shared=False) == []
    assert table.request(b"x", "first", shared=True) == []
    assert table.request(b"x", "second", shared=True) == []
    assert table.release(b"x", "writer") == ["first", "second"]


def test_resources_do_not_know_each_other() -> None:
    table: LockTable[str] = LockTable()
    assert table.request(b"x", "me", shared=False) == ["me"]
    assert table.request(b"y", "me", shared=False) == ["me"]
    assert len(table) == 2


def test_wrong_use() -> None:
    table: LockTable[str] = LockTable()
    with pytest.raises(KeyError):
        table.release(b"x", "nobody")
    table.request(b"x", "me", shared=True)
    with pytest.raises(ValueError, match="once"):
        table.request(b"x", "me", shared=False)
    with pytest.raises(KeyError):
        table.release(b"x", "nobody")
    assert table.counts() == LockCounts(1, 0, 0)
