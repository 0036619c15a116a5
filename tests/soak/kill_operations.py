"""What processes that are killed do, at random, and note down in a journal."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from typing import Any

import kill_records as records
import numpy as np
from kill_journal import ASKED, DONE, ENDED, REFUSED, Journal
from kill_place import AT_ONCE, HERE, THERE, Place

from yogadl.errors import (
    CacheNotFoundError,
    CacheReplacedError,
    ConflictError,
    YogadlError,
)

IDS = ("a", "a/b", "ab")
BRANCH = "main"
FIRST_VERSION = "0"
FIRST_START = 5

OPERATIONS = {
    "submit": 4.0,
    "cacheable": 2.0,
    "commit": 6.0,
    "set_metadata": 2.0,
    "revert": 1.0,
    "copy": 1.0,
    "compact": 1.5,
    "delete": 6.0,
    "tag": 3.0,
    "untag": 0.5,
    "read": 5.0,
    "gc": 2.0,
    "collect_parts": 0.5,
    "sync": 1.0,
    "put_back": 0.5,
}
"""The methods of ``Worker``, and how often each is chosen."""

_ODD = ("", " ", "ü", "日本", "x.y", "CON", "~", "%2F", "main", "a", "#?", "..x", "+", "n" * 150)
_BUILT = 8
_BUILT_APART = 1000
_KEPT_THERE = 30

# What others have done meanwhile, as errors say it.
_BEING_DELETED = "being deleted"
_TAGGED = "has the tag"
_UNCOMMITTED = "deleted before it was committed"
JUST_REMOVED = "less than two days ago"
_REFUSED_COMMITS = ConflictError, CacheNotFoundError, CacheReplacedError, _UNCOMMITTED
_REFUSED_SYNCS = (
    CacheNotFoundError,
    ConflictError,
    _BEING_DELETED,
    JUST_REMOVED,
    "remove the tag",
    "to tag in",
    "meanwhile",
    "replaced",
)


def prepare(place: Place) -> None:
    """What all processes find: of each id a version, and a branch that is at it."""
    storage = place.storage(HERE)
    # One of parts, and plain files, which become parts by the first commit.
    for dataset_id, part_bytes in itertools.zip_longest(IDS, [900]):
        data = records.first_records(FIRST_START)
        storage.submit(data, dataset_id, FIRST_VERSION, part_bytes=part_bytes)
        for tag in (BRANCH, "first"):
            storage.tag(dataset_id, tag, FIRST_VERSION)


def built_start(version: str) -> int:
    """The first record of a version that ``cacheable`` builds."""
    return int(version.rpartition("-")[2]) * _BUILT_APART


class Worker:
    """One process.

    Args:
        place: where.
        journal: what it notes down.
        slot: its number, of those that are at work at the same time.
        generation: how many there were of this number before.
        chance: of what it does.
    """

    def __init__(
        self, place: Place, journal: Journal, slot: int, generation: int, chance: random.Random
    ) -> None:
        self._place = place
        self._journal = journal
        self._slot = slot
        self._name = f"{slot}.{generation}"
        self._chance = chance
        self._steps = 0
        self._open()

    def step(self) -> None:
        """Does one thing.

        Raises:
            YogadlError: what others do at the same time does not explain it.
            AssertionError: what is stored is not as it should be.
        """
        self._steps += 1
        if self._chance.random() < 0.1:
            self._open()
        (operation,) = self._chance.choices([*OPERATIONS], [*OPERATIONS.values()])
        getattr(self, operation)()
        self._journal.note(ENDED, operation)

    def _open(self) -> None:
        machine = self._slot % self._place.machines
        self._here = self._place.storage(HERE, machine)
        self._there = self._place.storage(THERE, machine)

    # What is made

    def submit(self) -> None:
        dataset_id, version = self._any_id(), self._new_version("submit")
        for _ in range(self._chance.choice((1, 1, 2))):
            start = self._chance.randrange(10**6)
            with self._asking("submit", dataset_id, version, start):
                data, size = records.first_records(start), self._chance.choice((None, 900, 10**6))
                self._here.submit(data, dataset_id, version, part_bytes=size)

    def cacheable(self) -> None:
        dataset_id, version = self._any_id(), f"built-{self._chance.randrange(_BUILT)}"
        start = built_start(version)

        def make() -> np.ndarray:
            return records.first_records(start)

        decorate = self._here.cacheable(dataset_id, version, part_bytes=900, on_change="ignore")
        # What was built may be deleted before it is opened.
        with self._asking("cacheable", dataset_id, version, start, (CacheNotFoundError,)):
            found = records.read(decorate(make)())
            assert (found.start, found.tokens) == (start, []), f"{version}: {found}"

    def commit(self) -> None:
        dataset_id, version = self._any_id(), self._new_version("commit")
        token = records.new_token(self._chance.getrandbits(44))
        with (
            self._asking("commit", dataset_id, version, token, _REFUSED_COMMITS),
            self._here.change(dataset_id, BRANCH, version=version) as change,
        ):
            change.append(records.added_records(token))

    def set_metadata(self) -> None:
        dataset_id, version = self._any_id(), self._new_version("told")
        key, value = f"told by {self._slot}", self._chance.getrandbits(44)
        with (
            self._asking("set_metadata", dataset_id, key, value, _REFUSED_COMMITS),
            self._asking("told", dataset_id, version, [key, value]),
        ):
            self._here.set_metadata(dataset_id, BRANCH, {key: value}, version=version)

    def revert(self) -> None:
        dataset_id = self._any_id()
        recent = [entry.dataset_version for entry in self._here.log(dataset_id, BRANCH)[:4]]
        commits = [version for version in recent if "commit-" in version]
        if not commits:
            return
        undone, version = self._chance.choice(commits), self._new_version("revert")
        with self._asking("revert", dataset_id, version, undone, _REFUSED_COMMITS):
            self._here.revert(dataset_id, undone, on=BRANCH, version=version)

    def copy(self) -> None:
        dataset_id, new_id = self._any_id(), self._any_id()
        new, reasons = self._new_version("copy"), (JUST_REMOVED, CacheNotFoundError)
        for version in self._some_of(self._here, dataset_id, 1):
            with (
                self._forgiving(self._here, dataset_id, version),
                self._asking("copy", new_id, new, [dataset_id, version], reasons),
            ):
                self._here.copy(dataset_id, version, self._here, new_id=new_id, new_version=new)

    # What is changed of it

    def compact(self) -> None:
        dataset_id = self._any_id()
        for version in self._some_of(self._here, dataset_id, 1):
            with (
                self._forgiving(self._here, dataset_id, version),
                # Somebody may be deleting it, and not have done so yet.
                _allowing((JUST_REMOVED, CacheNotFoundError, _BEING_DELETED)),
            ):
                size = self._chance.choice((None, 2000))
                self._here.compact(dataset_id, version, part_bytes=size)

    def delete(self) -> None:
        dataset_id = self._any_id()
        for version in self._some_of(self._here, dataset_id, 3):
            reasons = CacheNotFoundError, _TAGGED
            with self._asking("delete", dataset_id, version, None, reasons):
                self._here.delete(dataset_id, version)

    def tag(self) -> None:
        dataset_id = self._any_id()
        for version in self._some_of(self._here, dataset_id, 1):
            tag, reasons = self._own_tag(), (CacheNotFoundError, _BEING_DELETED)
            with self._asking("tag", dataset_id, tag, version, reasons):
                self._here.tag(dataset_id, tag, version)

    def untag(self) -> None:
        dataset_id, tag = self._any_id(), self._own_tag()
        with (
            self._asking("tag", dataset_id, tag, None),
            contextlib.suppress(CacheNotFoundError),
        ):
            self._here.untag(dataset_id, tag)

    # What is read

    def read(self) -> None:
        storage = self._any_storage()
        for entry in self._sample(storage.list(self._chance.choice((None, *IDS))), 1):
            key = entry.dataset_id, entry.dataset_version
            options = {}
            if self._place.remote is not None:
                options["download"] = self._chance.choice((None, True, False))
            with self._forgiving(storage, *key):
                records.read(storage.fetch(*key, **options), self._chance.random() < 0.3)
        self._read_tags(storage)

    def _read_tags(self, storage: Any) -> None:
        dataset_id = self._any_id()
        for tag, version in self._sample([*storage.tags(dataset_id).items()], 1):
            try:
                records.read(storage.fetch(dataset_id, tag))
            except CacheNotFoundError:
                is_there = storage.tags(dataset_id).get(tag) == version
                assert not is_there or storage.exists(dataset_id, version), (
                    f"the tag {tag!r} of {dataset_id!r} is at {version!r}, which is not there"
                )

    # What is collected, and copied

    def gc(self) -> None:
        storage = self._any_storage()
        # What was made here has to stay; of copies, there would be more and more.
        keep = None if storage is self._here else self._chance.choice((None, _KEPT_THERE))
        storage.gc(
            self._chance.choice((None, *IDS)),
            keep_last=keep,
            older_than=self._chance.choice((None, AT_ONCE)),
            dry_run=self._chance.random() < 0.2,
        )

    def collect_parts(self) -> None:
        self._any_storage().collect_parts(older_than=self._chance.choice((None, AT_ONCE)))

    def sync(self) -> None:
        dataset_id = self._chance.choice((None, *IDS))
        with _allowing(_REFUSED_SYNCS):
            is_dry = self._chance.random() < 0.1
            self._here.sync(self._there, dataset_id, force=True, dry_run=is_dry)

    def put_back(self) -> None:
        dataset_id = self._any_id()
        names = self._some_of(self._there, dataset_id, 3)
        with contextlib.ExitStack() as stack:
            stack.enter_context(_allowing(_REFUSED_SYNCS))
            for name in names:
                stack.enter_context(self._asking("put_back", dataset_id, name))
            self._there.sync(self._here, dataset_id, names=names)

    # What all of them need

    def _any_id(self) -> str:
        return self._chance.choice(IDS)

    def _any_storage(self) -> Any:
        return self._chance.choice((self._here, self._there))

    def _new_version(self, kind: str) -> str:
        """A name that nobody else uses."""
        return f"{self._chance.choice(_ODD)}{kind}-{self._name}.{self._steps}"

    def _own_tag(self) -> str:
        """The name of a tag that no other slot sets."""
        return f"tag {self._chance.choice(_ODD)} {self._slot}"

    def _sample(self, found: list[Any], most: int) -> list[Any]:
        return self._chance.sample(found, min(len(found), self._chance.randint(1, most)))

    def _some_of(self, storage: Any, dataset_id: str, most: int) -> list[str]:
        """Some of the versions of an id."""
        found = [entry.dataset_version for entry in storage.list(dataset_id)]
        return self._sample(found, most)

    @contextlib.contextmanager
    def _asking(
        self,
        operation: str,
        dataset_id: str,
        name: str,
        value: Any = None,
        reasons: tuple[type[Exception] | str, ...] = (),
    ) -> Iterator[None]:
        """Notes down what is asked for meanwhile, and what becomes of it.

        Args:
            operation: what.
            dataset_id: of what.
            name: likewise.
            value: what is to be there.
            reasons: errors by which it may be refused, or what they say.
        """
        about = operation, dataset_id, name, value
        self._journal.note(ASKED, *about)
        try:
            yield
        except YogadlError as error:
            if not _is_of(error, reasons):
                raise
            self._journal.note(REFUSED, *about)
        else:
            self._journal.note(DONE, *about)

    @contextlib.contextmanager
    def _forgiving(self, storage: Any, dataset_id: str, version: str) -> Iterator[None]:
        """An error is none if the version was deleted or replaced meanwhile."""
        before = _state(storage, dataset_id, version)
        try:
            yield
        except YogadlError:
            if before is not None and _state(storage, dataset_id, version) == before:
                raise


@contextlib.contextmanager
def _allowing(reasons: tuple[type[Exception] | str, ...]) -> Iterator[None]:
    """An error is none if it is of these, or says so."""
    try:
        yield
    except YogadlError as error:
        if not _is_of(error, reasons):
            raise


def _is_of(error: YogadlError, reasons: tuple[type[Exception] | str, ...]) -> bool:
    return any(
        reason in str(error) if isinstance(reason, str) else isinstance(error, reason)
        for reason in reasons
    )


def _state(storage: Any, dataset_id: str, version: str) -> str | None:
    found = storage._look(storage._version(dataset_id, version))
    return None if found is None else str(found.tag)
