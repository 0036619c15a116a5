"""What users rely on of lists and tags, of whatever storage."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import getpass
import logging
import pathlib
import socket
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import pytest
from waiting import wait_until

from yogadl.errors import (
    CacheNotFoundError,
    CatalogueError,
    InvalidArgumentError,
    TagMovedError,
    UnsupportedFormatError,
)
from yogadl.spec import TensorSpec

LEGACY = pathlib.Path(__file__).parent / "golden" / "yogadl-0.1.4" / "images.mdb"


class Place(Protocol):
    """A storage, and what others may do to it behind its back."""

    def storage(self) -> Any:
        """The storage, as another process or machine opens it."""

    def put(self, path: str, data: bytes) -> None:
        """Writes a file or object in it."""

    def get(self, path: str) -> bytes: ...

    def remove(self, path: str) -> None: ...

    def paths(self) -> list[str]:
        """Of all files or objects."""

    def other(self) -> Any:
        """Another, empty storage."""


def names(entries: list[Any]) -> list[tuple[str, str]]:
    return [(entry.dataset_id, entry.dataset_version) for entry in entries]


def forget(place: Place) -> None:
    """Removes the catalogue."""
    for path in place.paths():
        if path.startswith("yogadl.catalogue/"):
            place.remove(path)


def one(storage: Any, name: str, version: str) -> Any:
    (found,) = [it for it in storage.list(name) if it.dataset_version == version]
    return found


class CatalogueSuite:
    """Derive from it, and supply the fixture ``place``."""

    def test_a_list_says_what_there_is(self, place: Place) -> None:
        storage = place.storage()

        @storage.cacheable("made", "1.0")
        def make() -> Any:
            return [{"x": np.float32(number)} for number in range(7)]

        with make() as ref:
            content_id = ref.reader.content_id
        before = datetime.datetime.now(datetime.timezone.utc)
        entry = one(place.storage(), "made", "1.0")
        assert (entry.record_count, entry.spec) == (7, {"x": TensorSpec("float32", ())})
        assert entry.size == entry.own_size == len(place.get("made/1.0/cache.mdb"))
        assert entry.content_id == content_id
        assert (entry.user, entry.host) == (getpass.getuser(), socket.gethostname())
        assert entry.function.endswith("test_a_list_says_what_there_is.<locals>.make")
        assert 0 <= entry.duration < 300
        assert abs(before - entry.created) < datetime.timedelta(minutes=5)
        assert (entry.tags, entry.parents, entry.message, entry.change) == ((), (), "", "")

    def test_what_has_no_entry_is_listed_the_same(self, place: Place) -> None:
        """By its own file: that of yogadl 1.0's first releases, and what a killed one left."""
        storage = place.storage()
        long = "x" * 5000
        storage.submit(range(10), "a", "1", metadata={"long": long})
        storage.submit([{"y": [1.5, 2.5]}], "ü/…", "2")
        storage.submit(np.arange(1000), "parts", "1", part_bytes=1000)
        listed = place.storage().list()
        assert names(listed) == [("a", "1"), ("parts", "1"), ("ü/…", "2")]
        forget(place)
        assert place.storage().list() == listed
        storage.submit([1], "b", "1")
        assert [it for it in place.storage().list() if it.dataset_id != "b"] == listed

    def test_the_size_is_that_of_all_files(self, place: Place) -> None:
        storage = place.storage()
        storage.submit(np.arange(2000), "a", "1", part_bytes=4000)
        files = [path for path in place.paths() if path.startswith("a/") and path.endswith(".mdb")]
        assert len(files) > 3
        size = sum(len(place.get(path)) for path in files)
        assert one(place.storage(), "a", "1").size == size

    def test_files_that_cannot_be_read_are_listed(self, place: Place) -> None:
        storage = place.storage()
        storage.submit([1, 2], "good", "1")
        good = place.get("good/1/cache.mdb")
        newer = bytearray(good)
        newer[8216] = 2
        files = {
            "empty": b"",
            "short": good[:9000],
            "cut": good[:-4096],
            "newer": bytes(newer),
            "foreign": b"no cache" * 5000,
            "legacy": LEGACY.read_bytes(),
        }
        for name, data in files.items():
            place.put(f"{name}/1/cache.mdb", data)
        found = {entry.dataset_id: entry for entry in place.storage().list()}
        assert found.keys() == files.keys() | {"good"}
        for name, data in files.items():
            entry = found[name]
            assert (entry.record_count, entry.spec, entry.size) == (None, None, len(data))
            assert entry.content_id == ""

    def test_what_others_replace_is_told_as_it_is(self, place: Place) -> None:
        """By hand, or by a yogadl that knows no catalogue."""
        storage = place.storage()
        storage.submit([1, 2, 3], "a", "1")
        storage.submit([1, 2], "b", "1")
        place.put("a/1/cache.mdb", place.get("b/1/cache.mdb"))
        assert one(place.storage(), "a", "1").record_count == 2
        place.remove("a/1/cache.mdb")
        assert names(place.storage().list()) == [("b", "1")]

    def test_what_cannot_be_fetched_is_left_out(self, place: Place) -> None:
        storage = place.storage()
        storage.submit([1], "a", "1")
        data = place.get("a/1/cache.mdb")
        for path in ("cache.mdb", "a/cache.mdb", "a/back\\slash/cache.mdb", "a/1/other.mdb"):
            place.put(path, data)
        assert names(place.storage().list()) == [("a", "1")]

    def test_a_list_of_one_id(self, place: Place) -> None:
        storage = place.storage()
        for name, version in (("b", "1"), ("a", "2"), ("a", "1"), ("a/c", "1"), ("ab", "1")):
            storage.submit([1], name, version)
        assert names(storage.list("a")) == [("a", "1"), ("a", "2")]
        assert names(storage.list("a/c")) == [("a/c", "1")]
        assert storage.list("nothing") == []
        assert names(storage.list()) == sorted(names(storage.list()))
        for ask in (storage.list, storage.latest, storage.tags, storage.exists):
            with pytest.raises(InvalidArgumentError):
                ask("../a")

    def test_copies_are_listed_with_what_they_were_made_of(self, place: Place) -> None:
        storage, other = place.storage(), place.other()
        storage.cacheable("a", "1")(lambda: range(10))().close()
        storage.copy("a", "1", other, new_version="2")
        entry, copied = one(storage, "a", "1"), one(other, "a", "2")
        changed = {"dataset_version": "2", "created": copied.created}
        assert dataclasses.replace(entry, **changed) == copied

    def test_the_newest(self, place: Place) -> None:
        storage = place.storage()
        with pytest.raises(CacheNotFoundError, match="no data set 'a'"):
            storage.latest("a")
        assert not storage.exists("a")
        for version in ("9", "10", "a", "1"):
            storage.submit([int(version, 16)], "a", version)
            assert place.storage().latest("a") == version
            assert list(place.storage().fetch("a").stream()) == [int(version, 16)]
        storage.submit([7], "a", "10")
        assert storage.latest("a") == "10"
        assert storage.exists("a")
        assert storage.exists("a", "9")
        assert not storage.exists("a", "11")
        assert not storage.exists("a/b")

    def test_what_is_compacted_is_no_newer(self, place: Place) -> None:
        storage = place.storage()
        storage.submit([0], "a", "1")
        for parent, version in ("12", "23", "34"):
            with storage.change("a", parent, version=version) as change:
                change.append([int(version)])
        before = one(storage, "a", "2")
        for name in "12":
            storage.compact("a", name)
            assert place.storage().latest("a") == "4"
        storage.compact("a", "2")
        after = one(place.storage(), "a", "2")
        assert (after.created, after.content_id) == (before.created, before.content_id)
        assert list(place.storage().fetch("a").stream()) == [0, 2, 3, 4]
        would = storage.gc("a", keep_last=2, older_than=datetime.timedelta(), dry_run=True)
        # In a bucket, some of what was just stored may be younger than that.
        assert {one.dataset_version for one in would.versions} <= {"1", "2"}

    @pytest.mark.parametrize("is_killed", [True, False])
    def test_nor_by_who_is_killed_or_not_alone(self, place: Place, is_killed: bool) -> None:
        storage, there, other = place.storage(), place.storage(), place.other()
        for version in "123":
            storage.submit([int(version)], "a", version)
        before = storage.list("a")
        enter = storage._enter

        def meet(*arguments: Any) -> None:
            if is_killed:
                raise KeyboardInterrupt
            there.compact("a", "1")
            enter(*arguments)

        storage._enter = meet
        for _ in range(1 + is_killed):
            with pytest.raises(KeyboardInterrupt) if is_killed else contextlib.nullcontext():
                storage.compact("a", "1")
            again = place.storage()
            after = again.list("a")
            assert [(it.dataset_version, it.created) for it in after] == [
                (it.dataset_version, it.created) for it in before
            ]
            assert again.latest("a") == "3"
            would = again.gc("a", keep_last=2, older_than=datetime.timedelta(), dry_run=True)
            assert {it.dataset_version for it in would.versions} <= {"1"}
        # Elsewhere, and here when it comes back, it is as new as what is stored then.
        again.copy("a", "1", other)
        other.submit([4], "a", "4")
        again.delete("a", "1")
        other.copy("a", "1", again)
        assert again.latest("a") == "1"
        again.compact("a", "2")
        assert again.latest("a") == "1"
        assert list(again.fetch("a", "1").stream()) == [1]

    @pytest.mark.parametrize(
        "before", ["submit killed", "submit over", "compact", "compact killed"]
    )
    @pytest.mark.parametrize("then", ["compact killed", "delete killed"])
    def test_nor_by_who_is_killed_again(self, place: Place, before: str, then: str) -> None:
        def die(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        def kill(step: str, *arguments: Any) -> None:
            killed = place.storage()
            setattr(killed, "_delete" if step == "delete" else "_enter", die)
            with pytest.raises(KeyboardInterrupt):
                getattr(killed, step)(*arguments)

        storage = place.storage()
        if before == "submit killed":
            kill("submit", [1], "a", "1")
        else:
            storage.submit([1], "a", "1")
        if before == "submit over":
            kill("submit", [1, 1], "a", "1")
        storage.submit([2], "a", "2")
        created = one(storage, "a", "1").created
        if before == "compact":
            storage.compact("a", "1")
        elif before == "compact killed":
            for _ in range(3):
                kill("compact", "a", "1")
        if then == "delete killed":
            kill("delete", "a", "1")
        else:
            kill("compact", "a", "1")
            storage.compact("a", "1")
            kill("compact", "a", "1")
        again = place.storage()
        assert one(again, "a", "1").created == created
        # Of what was never entered, and is stored in the same second, the version decides.
        assert again.latest("a") == "2"
        again.delete("a", "1")
        assert names(again.list()) == [("a", "2")]

    @pytest.mark.parametrize("how", ["submit", "compact"])
    @pytest.mark.parametrize("collects", [False, True])
    def test_what_a_killed_process_has_replaced_is_deleted(
        self, place: Place, how: str, collects: bool
    ) -> None:
        storage, killed = place.storage(), place.storage()
        storage.submit([1], "a", "1")
        storage.submit([2], "a", "2")

        def die(*_: Any) -> None:
            raise KeyboardInterrupt

        killed._enter = die
        replace = functools.partial(killed.submit, [1, 1]) if how == "submit" else killed.compact
        with pytest.raises(KeyboardInterrupt):
            replace("a", "1")
        if collects:
            storage.tag("a", "kept", "2")
            collect = functools.partial(
                storage.gc, "a", keep_last=0, older_than=datetime.timedelta()
            )
            # What a bucket has just stored is too young.
            wait_until(lambda: bool(collect(dry_run=True).versions))
            collect()
        else:
            storage.delete("a", "1")
        assert names(place.storage().list()) == [("a", "2")]
        assert list(place.storage().fetch("a").stream()) == [2]

    # Tags

    def test_a_tag_is_another_name(self, place: Place) -> None:
        storage = place.storage()
        for number in (1, 2):
            storage.submit([number], "a", str(number))
        storage.tag("a", "prod", "1")
        storage.tag("a", "täg …", "1")
        again = place.storage()
        assert list(again.fetch("a", "prod").stream()) == [1]
        assert again.exists("a", "prod")
        assert again.tags("a") == {"prod": "1", "täg …": "1"}
        assert again.tags("b") == {}
        assert one(again, "a", "1").tags == ("prod", "täg …")
        assert one(again, "a", "2").tags == ()
        again.tag("a", "prod", "2", expect="1")
        assert list(storage.fetch("a", "prod").stream()) == [2]
        for expect in ("1", None):
            with pytest.raises(TagMovedError) as error:
                storage.tag("a", "prod", "1", expect=expect)
            assert error.value.current == "2"
        storage.untag("a", "prod", expect="2")
        for ask in (storage.fetch, storage.untag):
            with pytest.raises(CacheNotFoundError, match="prod"):
                ask("a", "prod")
        storage.tag("a", "prod", "2", expect=None)

    def test_tags_of_nothing_are_refused(self, place: Place) -> None:
        storage = place.storage()
        storage.submit([1], "a", "1")
        with pytest.raises(CacheNotFoundError, match="to tag"):
            storage.tag("a", "prod", "2")
        with pytest.raises(CacheNotFoundError, match="to tag"):
            storage.tag("b", "prod", "1")
        for bad in ("", "a/b", "..", "nul\0", "yogadl.catalogue", "cache.mdb"):
            with pytest.raises(InvalidArgumentError, match="tag must"):
                storage.tag("a", bad, "1")
        with pytest.raises(InvalidArgumentError, match="dataset_version must"):
            storage.tag("a", "prod", "1", expect="")
        assert storage.tags("a") == {}

    def test_versions_and_tags_have_different_names(self, place: Place) -> None:
        storage, other = place.storage(), place.other()
        storage.submit([1], "a", "1")
        storage.submit([2], "a", "2")
        storage.tag("a", "prod", "1")
        with pytest.raises(InvalidArgumentError, match="is a version"):
            storage.tag("a", "2", "1")

        def never() -> Any:
            pytest.fail("it is built although its name is taken")

        other.submit([3], "a", "prod")
        for store in (
            lambda: place.storage().submit([3], "a", "prod"),
            lambda: other.copy("a", "prod", place.storage()),
            lambda: place.storage().build("a", "prod", spec=TensorSpec("int64")).__enter__(),
        ):
            with pytest.raises(InvalidArgumentError, match="is a tag"):
                store()
        with pytest.raises(InvalidArgumentError, match="is a tag"):
            place.storage().cacheable("a", "prod")(never)()
        assert names(storage.list()) == [("a", "1"), ("a", "2")]

    @pytest.mark.parametrize("how", ["change", "change a version", "submit", "cacheable", "copy"])
    def test_no_version_gets_the_name_of_a_tag_that_is_set_meanwhile(
        self, place: Place, how: str
    ) -> None:
        storage, there = place.storage(), place.storage()
        storage.submit([1], "a", "1")
        storage.tag("a", "main", "1")

        def tagging() -> Iterator[int]:
            yield 2
            there.tag("a", "q", "1")

        def store() -> None:
            if how.startswith("change"):
                with storage.change("a", "main" if how == "change" else "1", version="q") as change:
                    change.append(tagging())
            elif how == "submit":
                storage.submit(tagging(), "a", "q")
            elif how == "cacheable":
                storage.cacheable("a", "q")(tagging)()
            else:
                adding = storage._adding
                storage._adding = lambda *given: (list(tagging()), adding(*given))[1]
                storage.copy("a", "1", storage, new_version="q")

        with pytest.raises(InvalidArgumentError, match=r"'q' became a tag .* choose another"):
            store()
        again = place.storage()
        assert names(again.list()) == [("a", "1")]
        assert again.tags("a") == {"main": "1", "q": "1"}
        assert list(again.fetch("a", "q").stream()) == [1]
        again.untag("a", "q")
        with again.change("a", "main", version="q") as change:
            change.append([2])
        assert list(again.fetch("a", "q").stream()) == [1, 2]

    def test_no_tag_gets_the_name_of_a_version_that_comes_meanwhile(self, place: Place) -> None:
        storage, there = place.storage(), place.storage()
        storage.submit([1], "a", "1")
        check = storage._check_committed

        def meet(*given: Any) -> Any:
            there.submit([2], "a", "q")
            return check(*given)

        storage._check_committed = meet
        with pytest.raises(InvalidArgumentError, match="is a version"):
            storage.tag("a", "q", "1")
        assert storage.tags("a") == {}
        # Of what was deleted behind its back, the catalogue still has the entry.
        again = place.storage()
        place.remove("a/q/cache.mdb")
        again.tag("a", "q", "1")
        assert list(place.storage().fetch("a", "q").stream()) == [1]

    def test_where_both_have_a_name_it_is_the_version(self, place: Place) -> None:
        """As an earlier yogadl may have left it, or a catalogue that could not be changed."""
        storage = place.storage()
        storage.submit([1], "a", "1")
        unentered = place.storage()
        unentered._enter = lambda *_: None
        unentered.submit([2], "a", "q")
        storage._check_no_version = lambda _: None
        storage.tag("a", "q", "1")
        again = place.storage()
        assert list(again.fetch("a", "q").stream()) == [2]
        with again.change("a", "q", version="z") as change:
            assert list(change.base.stream()) == [2]
            change.append([3])
        assert again.tags("a") == {"q": "1"}
        assert [it.dataset_version for it in again.log("a", "z")] == ["z", "q"]
        assert again.card("a", "q").entry.dataset_version == "q"
        # Neither does compact take it for a new one.
        again.compact("a", "q")
        assert list(place.storage().fetch("a", "q").stream()) == [2]

    def test_what_is_tagged_is_not_deleted(self, place: Place) -> None:
        storage = place.storage()
        for version in ("1", "2"):
            storage.submit([int(version)], "a", version)
            storage.tag("a", f"at {version}", version)
        with pytest.raises(InvalidArgumentError, match="'at 1'"):
            place.storage().delete("a", "1")
        assert len(storage.fetch("a", "1")) == 1
        # Nor is a tag itself: it is said to be one.
        for do in (lambda: storage.delete("a", "at 2"), lambda: storage.tag("a", "x", "at 2")):
            with pytest.raises(CacheNotFoundError, match="that is a tag, which is at version '2'"):
                do()
        storage.untag("a", "at 1")
        storage.delete("a", "1")
        storage.delete("a", "2", force=True)
        assert storage.list() == []
        assert storage.tags("a") == {"at 2": "2"}
        assert not storage.exists("a", "at 2")
        with pytest.raises(CacheNotFoundError, match=r"'at 2' is at .*'2', which is not stored"):
            storage.fetch("a", "at 2")
        with pytest.raises(CacheNotFoundError, match="to delete"):
            storage.delete("a", "at 2")
        # Stored again, it can be tagged again.
        storage.submit([5], "a", "1")
        storage.tag("a", "at 2", "1")

    # Damage

    def test_a_damaged_catalogue_keeps_nobody_from_data(
        self, place: Place, caplog: pytest.LogCaptureFixture
    ) -> None:
        storage = place.storage()
        storage.submit([1], "a", "1")
        place.put("yogadl.catalogue/root.json", b"{}")
        storage = place.storage()
        storage.submit([1, 2], "b", "1")
        assert "b:1 is stored, and not in the catalogue" in caplog.text
        assert len(storage.fetch("a", "1")) == 1
        assert len(storage.cacheable("c", "1")(lambda: [1, 2])()) == 2
        for ask in (storage.list, lambda: storage.tags("a"), lambda: storage.tag("a", "x", "1")):
            with pytest.raises(CatalogueError, match="Delete it"):
                ask()
        with pytest.raises(CatalogueError, match="Delete it"):
            storage.delete("a", "1")
        storage.delete("a", "1", force=True)
        forget(place)
        assert names(place.storage().list()) == [("b", "1"), ("c", "1")]

    def test_one_of_a_newer_yogadl(self, place: Place, caplog: pytest.LogCaptureFixture) -> None:
        storage = place.storage()
        newer = b'{"checksum": "%s", "format": 2}' % (b"0" * 32)
        place.put("yogadl.catalogue/root.json", newer)
        with caplog.at_level(logging.WARNING):
            storage.submit([1], "a", "1")
        assert "not in the catalogue" in caplog.text
        with pytest.raises((UnsupportedFormatError, CatalogueError)):
            storage.list()
        assert place.get("yogadl.catalogue/root.json") == newer
