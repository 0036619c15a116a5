"""Changes of versions are what the same changes of lists are."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yogadl.errors import CacheFormatError, InvalidArgumentError
from yogadl.versions.edits import Edits
from yogadl.versions.hunks import PARENT, Hunks, hunks_of
from yogadl.versions.matching import NEW, matched
from yogadl.versions.rebasing import OverlapError, rebased
from yogadl.versions.runs import Runs

TRIPLES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(1, 5)), max_size=8)


def told(runs: Runs) -> list[tuple[int, int]]:
    """Source and position of each record."""
    return [(source, at) for source, first, n in runs.triples() for at in range(first, first + n)]


@st.composite
def hunks(draw: Any, count: int) -> Hunks:
    bounds = draw(st.lists(st.integers(0, count), max_size=8).map(sorted))
    pairs = list(zip(bounds[0::2], bounds[1::2], strict=False))
    if draw(st.booleans()):
        # Those that touch may stay apart.
        pairs = list(itertools.pairwise(bounds))
    triples = [(start, stop, draw(st.integers(0, 3))) for start, stop in pairs]
    found = Hunks(*np.array(triples, int).reshape(-1, 3).T)
    return found.grouped() if draw(st.booleans()) else found.joined()


def changed(records: list[Any], change: Hunks, new: list[Any]) -> list[Any]:
    """What a list becomes."""
    found, at, used = [], 0, 0
    for start, stop, count in change.triples():
        found += records[at:start] + new[used : used + count]
        at, used = stop, used + count
    return found + records[at:]


@given(TRIPLES, st.data())
def test_ranges_of_runs(triples: list[tuple[int, int, int]], data: st.DataObject) -> None:
    runs = Runs.of(triples)
    records = told(runs)
    assert told(runs.joined()) == records
    bound = st.integers(0, len(records))
    ranges = [sorted(pair) for pair in data.draw(st.lists(st.tuples(bound, bound), max_size=6))]
    starts, stops = np.array(ranges, dtype=np.int64).reshape(-1, 2).T
    taken = runs.taken(starts, stops)
    assert told(taken) == [it for start, stop in ranges for it in records[start:stop]]
    assert told(runs.then(taken)) == records + told(taken)
    if records:
        positions = np.array(data.draw(st.lists(st.integers(0, len(records) - 1), max_size=9)), int)
        sources, places = runs.at(positions)
        want = [records[at] for at in positions]
        assert list(zip(sources.tolist(), places.tolist(), strict=True)) == want


@given(TRIPLES, TRIPLES, TRIPLES)
def test_runs_of_runs(
    triples: list[tuple[int, int, int]],
    one: list[tuple[int, int, int]],
    two: list[tuple[int, int, int]],
) -> None:
    wholes = {1: Runs.of(one), 3: Runs.of(two)}
    known = {number: told(whole) for number, whole in wholes.items()}
    fitting = [
        (source, first, count)
        for source, first, count in triples
        if source not in known or first + count <= len(known[source])
    ]
    found = Runs.of(fitting).through(wholes)
    want = [known[at[0]][at[1]] if at[0] in known else at for at in told(Runs.of(fitting))]
    assert told(found) == want


@given(st.integers(0, 20), st.data())
def test_hunks(count: int, data: st.DataObject) -> None:
    change = data.draw(hunks(count))
    new = [("new", number) for number in range(change.new_count)]
    records = list(range(count))
    after = changed(records, change, new)
    runs = change.applied(count, 7)
    assert [place if source == PARENT else new[place] for source, place in told(runs)] == after
    assert changed(after, change.inverted(), [it for it in records if it not in after]) == records
    again, stand_in = hunks_of(runs, count)
    assert again.triples() == change.joined().triples()
    assert again.triples() == change.grouped().joined().triples()
    assert change.grouped().inverted().inverted().triples() == change.grouped().triples()
    assert told(stand_in) == [(7, number) for number in range(change.new_count)]
    assert Hunks.from_list(change.to_list(), count).triples() == change.triples()


@given(st.integers(0, 12), st.data())
def test_hunks_of_any_records(count: int, data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.tuples(st.integers(0, count), st.integers(1, 4)), max_size=8))
    triples = [(PARENT, first, size) for first, size in pieces if first + size <= count]
    triples += [(9, 0, 2)] * data.draw(st.integers(0, 1))
    runs = Runs.of(data.draw(st.permutations(triples)))
    change, new = hunks_of(runs, count)
    records = [(PARENT, at) for at in range(count)]
    assert changed(records, change, told(new)) == told(runs)
    # As few as can be count as new.
    olds = [(first, n) for source, first, n in runs.triples() if source == PARENT]
    kept = [
        sum(n for _, n in some)
        for size in range(len(olds) + 1)
        for some in itertools.combinations(olds, size)
        if all(one + n <= two for (one, n), (two, _) in itertools.pairwise(some))
    ]
    assert count - change.old_count == max(kept)


@given(st.integers(0, 16), st.data())
def test_changes_that_do_not_meet_are_both_made(count: int, data: st.DataObject) -> None:
    ours, theirs = data.draw(hunks(count)), data.draw(hunks(count))
    touched = [
        {at for start, stop, _ in change.triples() for at in range(start, stop)}
        for change in (ours, theirs)
    ]
    if touched[0] & touched[1]:
        with pytest.raises(OverlapError) as caught:
            rebased(ours, theirs)
        first, last = caught.value.positions
        assert {first, last} <= touched[0] & touched[1]
        return
    records: list[Any] = list(range(count))
    ours_new = [("ours", number) for number in range(ours.new_count)]
    theirs_new = [("theirs", number) for number in range(theirs.new_count)]
    after = changed(records, theirs, theirs_new)
    both = changed(after, rebased(ours, theirs), ours_new)
    # Whatever anybody has added is there in order, and what anybody removed is not.
    assert [it for it in both if it in ours_new] == ours_new
    assert [it for it in both if it in theirs_new] == theirs_new
    kept = [it for it in records if it not in touched[0] | touched[1]]
    assert [it for it in both if isinstance(it, int)] == kept
    assert len(both) == len(kept) + len(ours_new) + len(theirs_new)
    # Each stands between the records that it was put between, as far as these are there.
    for change, new in ((ours, ours_new), (theirs, theirs_new)):
        used = 0
        for start, stop, size in change.triples():
            for it in new[used : used + size]:
                at = both.index(it)
                assert all(both.index(record) < at for record in kept if record < start)
                assert all(both.index(record) > at for record in kept if record >= stop)
            used += size
    _check_insertions(both, ours, ours_new, theirs, theirs_new)
    _check_insertions(both, theirs, theirs_new, ours, ours_new)


def _check_insertions(
    both: list[Any], change: Hunks, new: list[Any], other: Hunks, others: list[Any]
) -> None:
    """Sees that what one has inserted among records for each of which another one stands in is
    among the same ones of these."""
    used = 0
    for start, stop, size in change.triples():
        inserted, used = new[used : used + size], used + size
        if start < stop:
            continue
        seen = 0
        for first, last, count in other.triples():
            stand_in, seen = others[seen : seen + count], seen + count
            if count != last - first:
                continue
            for place, it in enumerate(stand_in, start=first):
                is_before = both.index(it) < both.index(inserted[0])
                assert is_before == (place < start)


@given(
    st.lists(st.integers(0, 5), max_size=20),
    st.lists(st.integers(0, 5), max_size=20),
    st.sets(st.integers(0, 19)),
)
def test_records_that_are_found_again(
    parent: list[int], version: list[int], unlike: set[int]
) -> None:
    """``unlike``: records of the version that are others in spite of their tokens."""

    def are_equal(places: np.ndarray[Any, Any], _: object) -> np.ndarray[Any, Any]:
        return ~np.isin(places, list(unlike))

    runs = matched(np.array(parent, "u8"), np.array(version, "u8"), are_equal)
    new = [it for at, it in enumerate(version) if it not in parent or at in unlike]
    assert [new[at] if source == NEW else parent[at] for source, at in told(runs)] == version
    assert sum(source == NEW for source, _ in told(runs)) == len(new)


def test_few_changes_of_much_are_few_runs() -> None:
    rng = np.random.default_rng(1)
    for parent in (rng.integers(0, 2**63, 100_000, "u8"), rng.integers(0, 10, 100_000, "u8")):
        version = parent.copy()
        places = rng.choice(len(parent), 1000, replace=False)
        version[places] = rng.integers(0, 2**63, 1000, "u8")
        version = np.delete(version, [5, 500, 5000])
        runs = matched(parent, version, lambda these, _: np.ones(len(these), bool))
        assert len(runs) <= 2100
        assert sum(count for source, _, count in runs.triples() if source == NEW) <= 1000


@pytest.mark.parametrize(
    "found",
    [None, {}, [1], [1, 2], [-1, 1, 1], [2**60, 0, 0], [1.0, 1, 1], [True, 0, 1], [9, 2, 0], "abc"],
)
def test_hunks_that_cannot_be(found: Any) -> None:
    with pytest.raises(CacheFormatError):
        Hunks.from_list(found, 10)


@given(st.integers(0, 12), st.data())
def test_edits_in_any_order(count: int, data: st.DataObject) -> None:
    edits = Edits(count)
    places = data.draw(st.permutations(range(count)))
    inserted: dict[int, list[Any]] = {}
    replaced: dict[int, list[Any]] = {}
    for source in range(1, data.draw(st.integers(1, 5))):
        kind = data.draw(st.sampled_from(["insert", "delete", "replace"]))
        if kind == "insert":
            at, size = data.draw(st.integers(0, count)), data.draw(st.integers(0, 3))
            edits.insert(at, source, size)
            inserted.setdefault(at, []).extend((source, number) for number in range(size))
            continue
        size = data.draw(st.integers(0, min(3, len(places))))
        chosen, places = places[:size], places[size:]
        if kind == "delete":
            edits.delete(np.array(chosen, int))
            replaced.update((at, []) for at in chosen)
        else:
            edits.replace(np.array(chosen, int), source)
            replaced.update((at, [(source, number)]) for number, at in enumerate(chosen))
    change, new = edits.put_together()
    want: list[Any] = []
    for at in range(count + 1):
        want += inserted.get(at, [])
        want += replaced.get(at, [at]) if at < count else []
    assert changed(list(range(count)), change, told(new)) == want


def test_no_record_is_edited_twice() -> None:
    edits = Edits(10)
    with pytest.raises(InvalidArgumentError, match="record 3 is deleted or replaced twice"):
        edits.delete(np.array([3, 3]))
    edits.delete(np.array([3]))
    edits.insert(3, 1, 1)
    edits.insert(4, 1, 1)
    with pytest.raises(InvalidArgumentError, match="record 3 is deleted or replaced twice"):
        edits.replace(np.array([5, 3]), 2)
    # Of what was refused, nothing is done.
    edits.replace(np.array([5]), 2)
    found, _ = edits.put_together()
    # What stands in for a record is known from what is inserted beside it.
    assert found.triples() == [(3, 3, 1), (3, 4, 0), (4, 4, 1), (5, 6, 1)]
    assert found.joined().triples() == [(3, 4, 2), (5, 6, 1)]
