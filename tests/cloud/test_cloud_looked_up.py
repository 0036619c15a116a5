"""What had to be looked up in the objects of versions is entered, and not looked up again."""

from __future__ import annotations

import contextlib
import datetime
import logging
import pathlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from catalogued import LEGACY, names
from faults import FORBIDDEN, SLOW_DOWN
from waiting import wait_until

from yogadl.catalogue._state import FEWEST_MERGED
from yogadl.storage import LFSStorage, _kept_versions, _listing

COUNT = FEWEST_MERGED + 6
AT_ONCE = datetime.timedelta(0)
DAY = datetime.timedelta(days=1)
ROOT = "data/yogadl.catalogue/root.json"


@pytest.fixture(autouse=True)
def _nothing_is_young(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_listing, "_YOUNG", -DAY)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Many versions, some of parts, some by commits, some compacted, some tagged."""
    folder = tmp_path_factory.mktemp("origin")
    storage = LFSStorage(folder)
    for number in range(COUNT - 4):
        storage.submit(np.arange(number), "abc"[number % 3], str(number))
    storage.submit(np.arange(2000), "parts", "1", part_bytes=4000)
    storage.tag("parts", "main", "1")
    for number in (2, 3):
        with storage.change("parts", "main", version=str(number)) as change:
            change.append([number])
    storage.compact("parts", "2")
    storage.compact("a", "3")
    # Of this one, not all that is known is kept.
    storage.submit({str(number): np.zeros(2) for number in range(700)}, "wide", "1")
    return folder


def put_by_hand(rig: Any, folder: pathlib.Path, with_catalogue: bool = True) -> None:
    def put(path: pathlib.Path) -> None:
        rig.raw.put(f"data/{path.relative_to(folder).as_posix()}", path.read_bytes())

    files = [path for path in folder.rglob("*") if path.is_file()]
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                put,
                [path for path in files if with_catalogue or "yogadl.catalogue" not in path.parts],
            )
        )


def told(storage: Any) -> Any:
    """All that can depend on entries, and is not in a list of one moment only."""
    ids = ("a", "b", "c", "parts", "wide")
    return (
        storage.list(),
        [storage.latest(name) for name in ids],
        [[it.dataset_version for it, _ in storage._newest_first(name)] for name in ids],
        storage.log("parts", "main"),
        storage.card("parts").log,
    )


@contextlib.contextmanager
def looking_only(storage: Any) -> Iterator[None]:
    """Nothing is entered meanwhile."""
    enter = storage._enter_found
    storage._enter_found = lambda *_: None
    yield
    storage._enter_found = enter


def asked(rig: Any, ask: Callable[[], object]) -> list[str]:
    """The requests that something takes: of versions, and of the catalogue."""
    with rig.counting() as requests:
        ask()
    return sorted(it.operation for it in requests)


@pytest.mark.parametrize(
    ("how", "with_catalogue"), [("list", True), ("list", False), ("latest", True), ("sync", True)]
)
@pytest.mark.long_for("latest", "sync")
def test_what_another_program_has_copied_is_looked_up_once(
    rig: Any,
    origin: pathlib.Path,
    local: pathlib.Path,
    elsewhere: pathlib.Path,
    tmp_path: pathlib.Path,
    how: str,
    with_catalogue: bool,
) -> None:
    """On any machine; and everything is as it was."""
    put_by_hand(rig, origin, with_catalogue)
    storage = rig.make_storage(local)
    if not with_catalogue:
        rig.make_storage(local).tag("parts", "main", "3")
    with looking_only(storage):
        before = told(storage)
        first = asked(rig, storage.list)
    assert len(first) > COUNT
    if how == "list":
        assert storage.list() == before[0]
    elif how == "latest":
        for name in ("a", "b", "c", "parts", "wide"):
            storage.latest(name)
    else:
        storage.sync(LFSStorage(tmp_path / "to"))
    # Of what has too much to be kept as a whole, the object is read each time.
    assert asked(rig, rig.make_storage(local).list).count("read") <= 4
    assert asked(rig, rig.make_storage(elsewhere).list).count("read") <= 5
    assert len(asked(rig, rig.make_storage(elsewhere).list)) <= 8
    for folder in (local, elsewhere):
        assert told(rig.make_storage(folder)) == before
    known = rig.make_storage(local)._catalogue.load()
    # Those of the disk are replaced, and not left beside them.
    assert len(known.entries) == len(before[0]) == COUNT
    # What is stored now is newer, and what is compacted is not.
    for name in ("a", "parts"):
        storage.submit([1], name, "now")
        storage.compact(name, "3")
        assert storage.latest(name) == "now"
        storage.delete(name, "now")
    again = [(it.key, it.created) for it in map(_Told, storage.list())]
    assert again == [(it.key, it.created) for it in map(_Told, before[0])]


class _Told:
    def __init__(self, entry: Any) -> None:
        self.key = entry.dataset_id, entry.dataset_version
        self.created = entry.created


def test_what_was_read_once_is_not_written_again(
    rig: Any, origin: pathlib.Path, local: pathlib.Path
) -> None:
    """Whatever it is: 0.1.4's are entered, those that are damaged are read each time."""
    put_by_hand(rig, origin)
    good = rig.raw.get("data/a/3/cache.mdb")
    newer = bytearray(good)
    newer[8216] = 2
    flipped = good[:8208] + bytes([good[8208] ^ 1]) + good[8209:]
    surely = {"empty": b"", "foreign": b"no cache" * 5000, "legacy": LEGACY.read_bytes()}
    maybe = {"short": good[:9000], "cut": good[:-4096], "newer": bytes(newer), "flip": flipped}
    for name, data in (surely | maybe).items():
        rig.raw.put(f"data/{name}/1/cache.mdb", data)
    storage = rig.make_storage(local)
    with looking_only(storage):
        before = storage.list()
    assert storage.list() == before
    known = storage._catalogue.load()
    assert {(name, "1") for name in surely} <= known.entries.keys()
    assert not {(name, "1") for name in maybe} & known.entries.keys()
    root = rig.raw.get(ROOT)
    for _ in range(2):
        assert rig.make_storage(local).list() == before
        assert rig.raw.get(ROOT) == root
    # What is put there in their place is told as it is.
    for name in (*surely, *maybe):
        rig.raw.put(f"data/{name}/1/cache.mdb", good)
    for _ in range(2):
        counts = {it.dataset_id: it.record_count for it in rig.make_storage(local).list()}
        assert {counts[name] for name in (*surely, *maybe)} == {3}


def test_who_may_only_read_lists_all_the_same(
    rig: Any, origin: pathlib.Path, local: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    put_by_hand(rig, origin)
    storage = rig.make_storage(local)
    with looking_only(storage):
        before = told(storage)
    with (
        rig.failing(FORBIDDEN, "write", "delete"),
        caplog.at_level(logging.DEBUG, "yogadl.storage._listing"),
        rig.counting() as requests,
    ):
        for _ in range(2):
            assert told(storage) == before
    assert "files are read each time" in caplog.text
    assert not [it for it in caplog.records if it.levelno > logging.INFO]
    # Nor does it ask for it each time.
    assert [it.operation for it in requests].count("write") == 1


def test_a_bucket_that_does_not_write_lists_all_the_same(
    rig: Any, origin: pathlib.Path, local: pathlib.Path, quick_retries: None
) -> None:
    put_by_hand(rig, origin)
    storage = rig.make_storage(local)
    with rig.failing(SLOW_DOWN, "write"):
        assert len(storage.list()) == COUNT
    assert len(storage.list()) == COUNT
    assert asked(rig, storage.list).count("read") <= 4


def test_without_conditional_writes_nothing_is_entered(
    rig: Any, origin: pathlib.Path, local: pathlib.Path
) -> None:
    put_by_hand(rig, origin)
    storage = rig.make_storage(local, conditional_writes=False)
    for _ in range(2):
        assert "write" not in asked(rig, storage.list)


def test_what_only_tells_what_would_be_done_writes_nothing(
    rig: Any, origin: pathlib.Path, local: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    put_by_hand(rig, origin)
    storage, other = rig.make_storage(local), LFSStorage(tmp_path / "other")
    root = rig.raw.get(ROOT)

    for do in (
        lambda: storage.gc(keep_last=1, dry_run=True),
        lambda: storage.sync(other, dry_run=True),
        lambda: other.sync(storage, dry_run=True),
        lambda: storage.exists("a"),
        lambda: storage.fetch("a", "3").close(),
        lambda: storage.why(storage.cacheable("a", "new")(lambda: [1])),
    ):
        do()
        assert rig.raw.get(ROOT) == root
    storage.gc(keep_last=COUNT)
    assert rig.raw.get(ROOT) != root
    assert asked(rig, storage.list).count("read") <= 4


class KilledError(BaseException):
    """Stands for the end of the process."""


def test_what_was_not_committed_is_not_entered(
    rig: Any, origin: pathlib.Path, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor what is being deleted."""
    put_by_hand(rig, origin)
    storage, killed = rig.make_storage(local), rig.make_storage(local)

    def die(*_: Any, **__: Any) -> None:
        raise KilledError

    killed._catalogue.commit = die
    killed._delete = die
    with pytest.raises(KilledError), killed.change("parts", "main", version="never") as change:
        change.append([4])
    storage.submit([1], "b", "gone")
    with pytest.raises(KilledError):
        killed.delete("b", "gone")
    before = names(storage.list())
    assert ("parts", "never") not in before
    keys = storage._catalogue.load().entries.keys()
    assert len(keys) == COUNT
    assert not keys & {("parts", "never"), ("b", "gone")}
    assert names(rig.make_storage(local).list()) == before
    assert storage.latest("b") != "gone"
    monkeypatch.setattr(_kept_versions, "GRACE", AT_ONCE)

    def unfinished() -> set[str]:
        done = rig.make_storage(local).gc(older_than=AT_ONCE, dry_run=True)
        return {it.dataset_version for it in done.unfinished}

    # The clock of the bucket may have seconds for its finest unit.
    wait_until(lambda: unfinished() == {"never", "gone"})
    assert storage.latest("parts") == "3"


def test_what_is_replaced_or_deleted_amid_that_is_told_as_it_is(
    rig: Any, origin: pathlib.Path, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    put_by_hand(rig, origin)
    storage, there = rig.make_storage(local), rig.make_storage(elsewhere)
    enter = storage._catalogue.enter_found

    def meet(*given: Any) -> None:
        there.submit(np.arange(500), "a", "3")
        there.delete("a", "6")
        rig.raw.put("data/a/9/cache.mdb", rig.raw.get("data/b/1/cache.mdb"))
        rig.raw.delete("data/a/12/cache.mdb")
        enter(*given)

    storage._catalogue.enter_found = meet
    storage.list()
    storage._catalogue.enter_found = enter
    for _ in range(2):
        counts = {it.dataset_version: it.record_count for it in there.list("a")}
        assert (counts["3"], counts["9"]) == (500, 1)
        assert not counts.keys() & {"6", "12"}
    assert "read" not in asked(rig, lambda: there.list("a"))[2:]
    keys = there._catalogue.load().entries.keys()
    assert ("a", "6") not in keys
    # As what is deleted by hand always has; it is in nobody's way.
    assert ("a", "12") in keys
    there.tag("a", "12", "3")
    there.untag("a", "12")
    there.submit([1], "a", "12")
    assert there.latest("a") == "12"


def test_who_has_just_stored_something_enters_it_himself(
    rig: Any, local: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_listing, "_YOUNG", DAY)
    storage, slow = rig.make_storage(local), rig.make_storage(local)
    storage.submit([1], "a", "1")
    enter = slow._enter
    seen = []

    def meet(*given: Any) -> Any:
        seen.append(asked(rig, lambda: names(storage.list())))
        return enter(*given)

    slow._enter = meet
    slow.submit([1], "a", "2")
    assert "write" not in seen[0]
    # But who was killed does not.
    slow._enter = lambda *_: True
    slow.submit([1], "a", "3")
    assert "write" not in asked(rig, storage.list)
    newest = storage.latest("a")
    monkeypatch.setattr(_listing, "_YOUNG", -DAY)
    assert "write" in asked(rig, storage.list)
    assert asked(rig, storage.list) == ["list", "read"]
    assert storage.latest("a") == newest
