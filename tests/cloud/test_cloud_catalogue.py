"""Lists and tags of the storages in buckets."""

from __future__ import annotations

import pathlib
import threading
from typing import Any

import pytest
from catalogued import CatalogueSuite, names
from faults import FORBIDDEN, LOSE_ANSWER

from yogadl.catalogue import Entry
from yogadl.catalogue._catalogue import _MERGE_EVERY
from yogadl.catalogue._state import FEWEST_MERGED
from yogadl.errors import StoreError, TagMovedError, UnsafeStoreError
from yogadl.format.provenance import Provenance

WRITERS = 3
COMMITS = 6


class Bucket:
    """See ``Place``."""

    def __init__(self, rig: Any, folder: pathlib.Path) -> None:
        self._rig = rig
        self._folder = folder

    def storage(self) -> Any:
        return self._rig.make_storage(self._folder)

    def put(self, path: str, data: bytes) -> None:
        self._rig.raw.put(f"data/{path}", data)

    def get(self, path: str) -> bytes:
        found: bytes = self._rig.raw.get(f"data/{path}")
        return found

    def remove(self, path: str) -> None:
        self._rig.raw.delete(f"data/{path}")

    def paths(self) -> list[str]:
        return [key.removeprefix("data/") for key in self._rig.raw.list("data/")]

    def other(self) -> Any:
        return self._rig.make_storage(self._folder, "other")


@pytest.fixture
def place(rig: Any, local: pathlib.Path) -> Bucket:
    return Bucket(rig, local)


class TestCloudCatalogue(CatalogueSuite):
    """All of it."""


def operations(requests: list[Any]) -> list[str]:
    return [request.operation for request in requests]


def test_a_list_takes_a_request_for_each_thousand_and_two(rig: Any, local: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    for number in range(3):
        storage.submit([number], "a", str(number))
    with rig.counting() as requests:
        assert len(storage.list()) == 3
    assert sorted(operations(requests)) == ["list", "read"]


def test_older_entries_are_transferred_once_to_a_machine(rig: Any, tmp_path: pathlib.Path) -> None:
    """They are in an object that never changes, also for storages that are made later."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    storage = rig.make_storage(here)
    for number in range(FEWEST_MERGED + _MERGE_EVERY):
        storage._catalogue.enter(Entry("a", str(number), 1, "tag", 1, 1, 1))

    def asked_for(folder: pathlib.Path) -> list[str]:
        storage = rig.make_storage(folder)
        with rig.counting() as requests:
            assert len(storage._catalogue.load().entries) == FEWEST_MERGED + _MERGE_EVERY
        return [request.key.rpartition(".")[2] for request in requests]

    # Who has written them does not read them at all.
    assert asked_for(here) == ["json"]
    assert asked_for(there) == ["json", "entries"]
    assert asked_for(there) == ["json"]
    (kept,) = there.glob("*/yogadl.catalogue/*")
    data = kept.read_bytes()
    for damaged in (b"", data[:-1], data[:-1] + b"?", data + b"?"):
        kept.write_bytes(damaged)
        assert asked_for(there) == ["json", "entries"]
        assert kept.read_bytes() == data


def test_older_entries_that_cannot_be_kept_are_read_each_time(
    rig: Any, local: pathlib.Path
) -> None:
    storage = rig.make_storage(local)
    storage.submit([1], "a", "1")
    (root,) = local.glob("yogadl_local_cache-*-*")
    (root / "yogadl.catalogue").touch()
    for number in range(FEWEST_MERGED + _MERGE_EVERY):
        storage._catalogue.enter(Entry("b", str(number), 1, "tag", 1, 1, 1))
    for _ in range(2):
        assert names(rig.make_storage(local).list()) == [("a", "1")]


def test_parts_are_stepped_over(rig: Any, local: pathlib.Path) -> None:
    """However many they are: they are not listed."""
    storage = rig.make_storage(local)
    for name in ("a", "a/b", "c"):
        storage.submit([1], name, "1")
    for name, count in (("a", 1005), ("a/b", 5), ("b", 5)):
        for number in range(count):
            rig.raw.put(f"data/{name}/yogadl.parts/{number:032x}.mdb", b"")
    rig.raw.put("data/a/yogadl.parts/~odd", b"")
    with rig.counting() as requests:
        assert names(storage.list()) == [("a", "1"), ("a/b", "1"), ("c", "1")]
    # One that meets the parts, one that begins behind them.
    assert operations(requests).count("list") <= 4


def test_what_is_fetched_by_its_version_takes_no_more_requests(
    rig: Any, local: pathlib.Path
) -> None:
    storage = rig.make_storage(local)
    storage.submit([1], "a", "1")
    storage.fetch("a", "1").close()
    with rig.counting() as requests:
        storage.fetch("a", "1").close()
    assert operations(requests) == ["head"]
    storage.tag("a", "prod", "1")
    with rig.counting() as requests:
        storage.fetch("a", "prod").close()
    assert operations(requests)[-2:] == ["read", "head"]


def test_tags_need_conditional_writes(
    rig: Any, local: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = rig.make_storage(local, conditional_writes=False)
    with caplog.at_level("INFO"):
        storage.submit([1], "a", "1")
    assert "a:1 is stored, and not in the catalogue" in caplog.text
    for change in (lambda: storage.tag("a", "prod", "1"), lambda: storage.untag("a", "prod")):
        with pytest.raises(UnsafeStoreError, match="conditional_writes=False"):
            change()
    assert names(storage.list()) == [("a", "1")]
    storage.delete("a", "1")
    assert storage.list() == []
    assert rig.raw.list("data/yogadl.catalogue") == []


def test_who_may_not_change_the_catalogue_can_submit(
    rig: Any, local: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = rig.make_storage(local)
    with rig.failing(FORBIDDEN, "write", key=r"yogadl\.catalogue"), caplog.at_level("INFO"):
        storage.submit([1], "a", "1")
        assert "a:1 is stored, and not in the catalogue" in caplog.text
        with pytest.raises(StoreError):
            storage.tag("a", "prod", "1")
        assert names(storage.list()) == [("a", "1")]
        storage.delete("a", "1")


def test_a_tag_whose_answer_is_lost_is_set_once(
    rig: Any, local: pathlib.Path, quick_retries: None
) -> None:
    storage = rig.make_storage(local, conditional_writes=True)
    storage.submit([1], "a", "1")
    with rig.failing(LOSE_ANSWER, "write", key=r"root\.json", times=1):
        storage.tag("a", "prod", "1", expect=None)
    with rig.failing(LOSE_ANSWER, "write", key=r"root\.json", times=1):
        storage.untag("a", "prod", expect="1")
    assert storage.tags("a") == {}


def test_commits_to_one_branch_under_faults(
    rig: Any, local: pathlib.Path, quick_retries: None
) -> None:
    """None is lost, doubled, or refused falsely."""
    failures: list[BaseException] = []

    def write(who: int) -> None:
        catalogue = rig.make_storage(local, conditional_writes=True)._catalogue
        for number in range(COMMITS):
            name = f"{who}-{number}"
            made = Entry("a", name, 1, "tag", provenance=Provenance(change=name))
            while True:
                at = catalogue.tags("a").get("main")
                try:
                    catalogue.commit(made, "main", at)
                    break
                except TagMovedError as error:
                    if error.current == at or error.current == name:
                        failures.append(error)
                    continue

    def run(who: int) -> None:
        try:
            write(who)
        except BaseException as error:
            failures.append(error)

    with rig.random_faults(7, 0.15):
        threads = [threading.Thread(target=run, args=(who,)) for who in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(200)
    assert failures == []
    entries = rig.make_storage(local)._catalogue.load().entries
    assert sorted(version for _, version in entries) == sorted(
        f"{who}-{number}" for who in range(WRITERS) for number in range(COMMITS)
    )
    assert len({entry.number for entry in entries.values()}) == WRITERS * COMMITS
