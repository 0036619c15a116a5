"""Every operation of a storage in a bucket outlives an outage, or ends in a clear error.

Local storage has no network to lose; what a disk does to it is tested in ``tests/storage``. It
takes part where it is copied to and from.

All operations meet one outage together, each in a thread of its own. Outages, pauses and time-outs
are twenty times as short as they say, unless ``YOGADL_OUTAGES=full``, see ``make
outages``.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import json
import pathlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import outages
import pytest
from waiting import wait_until

from yogadl import backoff
from yogadl.errors import StoreError
from yogadl.storage import LFSConfigurations, LFSStorage
from yogadl.storage._objects import gcs_files, gcs_store, s3_store, s3_upload

MEGABYTE = 1 << 20
PATIENCE = 200
RECORDS = 11
TABLE_PART_BYTES = 4 * MEGABYTE

pytestmark = [
    pytest.mark.filterwarnings(r"ignore:unclosed <socket\.socket.*127\.0\.0\.1:ResourceWarning"),
    pytest.mark.timeout(600),
]


@pytest.fixture(autouse=True)
def scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks as short as the outages; parts as small as S3 takes."""
    monkeypatch.setattr(backoff, "LIMITS", outages.scaled_limits())
    monkeypatch.setattr(s3_upload, "SINGLE_BYTES", 5 * MEGABYTE)
    monkeypatch.setattr(s3_upload, "PART_BYTES", 5 * MEGABYTE)
    monkeypatch.setattr(s3_store.S3Store, "range_bytes", 2 * MEGABYTE)
    monkeypatch.setattr(gcs_store.GCSStore, "range_bytes", 2 * MEGABYTE)
    for module in (gcs_files, gcs_store):
        monkeypatch.setattr(module, "UPLOAD_BYTES", 5 * MEGABYTE)


def small(version: int) -> Any:
    return np.arange(100) + version


def large(version: int) -> Any:
    return np.random.default_rng(version).integers(0, 255, (RECORDS, MEGABYTE), "uint8")


def same(ref: Any, expected: Any) -> bool:
    with ref:
        return np.array_equal(np.stack(list(ref.stream())), expected)


class Scene:
    """A bucket with something in it, and everything that can be done with that.

    Args:
        rig: the bucket.
        folder: an empty one.
        lease_seconds: of all builders.

    Attributes:
        builds: how often what one builds and another waits for was built.
    """

    def __init__(
        self, rig: Any, folder: pathlib.Path, lease_seconds: float = outages.LEASE_SECONDS
    ) -> None:
        self._lease_seconds = lease_seconds
        self.builds = 0
        self._rig = rig
        self._folder = folder
        self._may_finish = threading.Event()
        self._here = self._storage("here")
        self._there = self._storage("there")
        self._afar = self._storage("afar")
        self._disk = LFSStorage(LFSConfigurations(str(self._made("disk"))))
        self._here.submit(large(1), "large", "1")
        self._here.submit(large(7), "in parts", "1", part_bytes=TABLE_PART_BYTES)
        for number, name in enumerate(("small", "deleted")):
            self._here.submit(small(number), name, "1")
        self._disk.submit(small(2), "local", "1")

    def _made(self, name: str) -> pathlib.Path:
        path = self._folder / name
        path.mkdir()
        return path

    def _storage(self, name: str) -> Any:
        # Other tests tell of the trial of conditional writes.
        return self._rig.make_storage(
            self._made(name), lease_seconds=self._lease_seconds, conditional_writes=True
        )

    def operations(self) -> dict[str, Callable[[], bool]]:
        """What is done, and says whether it came out right."""
        return {
            "open": self._open,
            "submit": lambda: self._submit("submitted", small(3)),
            "submit in parts": lambda: self._submit("submitted in parts", large(4)),
            "submit a table": lambda: self._submit("table", large(8), TABLE_PART_BYTES),
            "fetch": lambda: same(self._there.fetch("large", "1"), large(1)),
            "fetch parts": lambda: same(self._there.fetch("in parts", "1"), large(7)),
            "read afar": lambda: same(self._far("large"), large(1)),
            "read parts afar": lambda: same(self._far("in parts"), large(7)),
            "fetch current": lambda: same(self._here.fetch("small", "1"), small(0)),
            "build": lambda: self._build("built", small(5), None),
            "build parts": lambda: self._build("built in parts", large(9), TABLE_PART_BYTES),
            "wait": self._wait,
            "list": self._list,
            "delete": self._delete,
            "copy to": self._copy_to,
            "copy from": self._copy_from,
        }

    def _open(self) -> bool:
        storage = self._rig.make_storage(self._folder / "there")
        return same(storage.fetch("small", "1"), small(0))

    def _far(self, name: str) -> Any:
        return self._afar.fetch(name, "1", download=False)

    def _submit(self, name: str, records: Any, part_bytes: int | None = None) -> bool:
        self._here.submit(records, name, "1", part_bytes=part_bytes)
        return same(self._here.fetch(name, "1"), records)

    def _build(self, name: str, records: Any, part_bytes: int | None) -> bool:
        build = self._here.cacheable(name, "1", part_bytes=part_bytes)(lambda: records)
        return same(build(), records)

    def _wait(self) -> bool:
        """One builds, and another waits for it."""
        is_building = threading.Event()

        def build() -> Any:
            self.builds += 1
            is_building.set()
            assert self._may_finish.wait(PATIENCE)
            return small(6)

        def cacheable(storage: Any) -> bool:
            return same(storage.cacheable("waited", "1")(build)(), small(6))

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            builder = pool.submit(cacheable, self._here)
            try:
                wait_until(lambda: is_building.is_set() or builder.done(), PATIENCE)
                waiter = pool.submit(cacheable, self._there)
                wait_until(lambda: self._may_finish.is_set() or waiter.done(), PATIENCE)
                return builder.result() and waiter.result()
            finally:
                self._may_finish.set()

    def _list(self) -> bool:
        return [stored.dataset_version for stored in self._here.list("small")] == ["1"]

    def _delete(self) -> bool:
        self._here.delete("deleted", "1")
        return "data/deleted/1/cache.mdb" not in self._rig.raw.list()

    def _copy_to(self) -> bool:
        self._disk.copy("local", "1", to=self._here)
        return same(self._here.fetch("local", "1"), small(2))

    def _copy_from(self) -> bool:
        self._there.copy("small", "1", to=self._disk)
        return same(self._disk.fetch("small", "1"), small(0))

    def let_finish(self) -> None:
        """Builders need not hold their leases any longer."""
        self._may_finish.set()

    def leftovers(self) -> list[str]:
        """What should not be there at the end."""
        found = [f"an upload of {key}" for key in self._rig.raw.uploads()]
        found += [str(path) for path in self._folder.rglob("*.partial")]
        for key in self._rig.own_keys():
            if key.endswith("yogadl.lease"):
                if json.loads(self._rig.raw.get(key))["holder"] is not None:
                    found.append(f"{key}, held")
            elif not key.endswith("cache.mdb") and "/yogadl.parts/" not in key:
                found.append(key)
        return found


@contextlib.contextmanager
def running(operations: dict[str, Callable[[], bool]]) -> Iterator[dict[str, Any]]:
    """Does all at once; at the end, the outcome of each is known: whether it came out right, or
    its error."""
    outcomes: dict[str, Any] = {}

    def do(name: str) -> None:
        try:
            outcomes[name] = operations[name]()
        except Exception as error:
            outcomes[name] = error

    threads = [threading.Thread(target=do, args=(name,), name=name) for name in operations]
    for thread in threads:
        thread.start()
    try:
        yield outcomes
    finally:
        for thread in threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in threads), [t.name for t in threads]


@pytest.mark.parametrize("kind", outages.KINDS)
@pytest.mark.parametrize(("moment", "seconds"), outages.MOMENTS)
@pytest.mark.long_for("refused", "reset", "no name", "429")
def test_an_outage_is_outlived(
    moment: str, seconds: int, kind: str, rig: Any, tmp_path: pathlib.Path
) -> None:
    """By every operation, whether it begins within the outage or is caught by it."""
    scene = Scene(rig, tmp_path)
    with contextlib.ExitStack() as out:
        if moment == "at the start":
            out.enter_context(outages.outage(rig, kind))
        begun = len(rig.proxy.log)
        with running(scene.operations()) as outcomes:
            if moment == "in the middle":
                wait_until(lambda: len(rig.proxy.log) > begun + 15, PATIENCE)
                out.enter_context(outages.outage(rig, kind))
            time.sleep(seconds * outages.SCALE)  # how long it lasts
            out.close()
            scene.let_finish()
    assert outcomes == dict.fromkeys(scene.operations(), True)
    assert scene.builds == 1
    # A thread notes what it has compared, a moment later.
    wait_until(lambda: not scene.leftovers(), 10)


@pytest.mark.long
@pytest.mark.parametrize("kind", outages.KINDS)
def test_an_outage_without_end_is_a_clear_error(
    kind: str, rig: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every operation, after its patience. Nothing is left on this machine, nor in the bucket
    once the next has been there, as if a day later."""
    scene = Scene(rig, tmp_path, lease_seconds=60 * outages.SCALE)
    monkeypatch.setattr(backoff, "LIMITS", outages.scaled_limits(patience=10, answer=5))
    with outages.outage(rig, kind), running(scene.operations()) as outcomes:
        scene.let_finish()
    for name, outcome in outcomes.items():
        assert isinstance(outcome, StoreError), (name, outcome)
        assert outcome.is_transient, (name, outcome)
    assert list(tmp_path.rglob("*.partial")) == []
    monkeypatch.setattr(backoff, "LIMITS", outages.scaled_limits())
    monkeypatch.setattr(s3_upload, "ABANDONED_SECONDS", 0.0)
    with running(scene.operations()) as outcomes:
        scene.let_finish()
    assert outcomes == dict.fromkeys(scene.operations(), True)
    assert scene.leftovers() == []


@pytest.fixture
def may_end(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """No upload ends before this is set, so that none is quicker than the outage it is to meet."""
    event, complete = threading.Event(), s3_upload.S3Upload._complete

    def later(self: Any, upload: Any, proofs: Any) -> Any:
        assert event.wait(PATIENCE)
        return complete(self, upload, proofs)

    monkeypatch.setattr(s3_upload.S3Upload, "_complete", later)
    return event


@pytest.mark.parametrize("kind", outages.KINDS)
def test_an_upload_that_gives_up_removes_its_parts(
    kind: str,
    s3: Any,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    may_end: threading.Event,
) -> None:
    """If the store is back before it gives that up, too."""
    monkeypatch.setattr(backoff, "LIMITS", outages.scaled_limits(patience=10, answer=10))
    storage = s3.make_storage(tmp_path)
    gave_up = threading.Event()
    abort = s3_upload.S3Upload._abort

    def told(self: Any, upload: Any) -> None:
        gave_up.set()
        abort(self, upload)

    monkeypatch.setattr(s3_upload.S3Upload, "_abort", told)
    outcomes: dict[str, Any]
    with contextlib.ExitStack() as out:

        def submit() -> bool:
            storage.submit(large(1), "a", "1")
            return True

        with running({"submit": submit}) as outcomes:
            wait_until(lambda: any(asked.operation == "part" for asked in s3.proxy.log), PATIENCE)
            out.enter_context(outages.outage(s3, kind))
            may_end.set()
            assert gave_up.wait(PATIENCE)
            out.close()
    assert isinstance(outcomes["submit"], StoreError)
    assert s3.raw.uploads() == []
    assert list(tmp_path.rglob("*.partial")) == []


def test_waiting_can_be_interrupted(
    s3: Any, tmp_path: pathlib.Path, may_end: threading.Event
) -> None:
    """Also where other threads wait; the parts are removed all the same."""
    storage = s3.make_storage(tmp_path)
    here = threading.get_ident()

    def interrupt() -> None:
        wait_until(lambda: any(asked.operation == "part" for asked in s3.proxy.log), PATIENCE)
        with outages.outage(s3, "refused"):
            may_end.set()
            # Then, some wait for their second or third try.
            time.sleep(5 * outages.SCALE)
            signal.pthread_kill(here, signal.SIGINT)
            time.sleep(5 * outages.SCALE)  # so that the end of it falls into the outage, too

    thread = threading.Thread(target=interrupt)
    # What a shell runs in the background ignores the signal.
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            storage.submit(large(1), "a", "1")
    finally:
        thread.join(PATIENCE)
        signal.signal(signal.SIGINT, usual)
    assert s3.own_keys() == []
    assert s3.raw.uploads() == []


UPLOADS = 10
UPLOAD_MEGABYTES = 60 if outages.IS_FULL_LENGTH else 16


def test_a_second_without_connections_loses_no_uploads(
    s3: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second as long as any, with yogadl's own limits."""
    monkeypatch.setattr(backoff, "LIMITS", backoff.Limits())
    storages = []
    for number in range(UPLOADS):
        (tmp_path / str(number)).mkdir()
        storages.append(s3.make_storage(tmp_path / str(number)))
    records = np.random.default_rng(1).integers(0, 255, (UPLOAD_MEGABYTES, MEGABYTE), "uint8")

    def submit(number: int) -> bool:
        storages[number].submit(records, "a", str(number))
        return True

    works = {str(n): functools.partial(submit, n) for n in range(UPLOADS)}
    parts = UPLOADS * UPLOAD_MEGABYTES // 5
    with running(works) as outcomes:
        wait_until(
            lambda: sum(asked.operation == "part" for asked in s3.proxy.log) > parts // 2, PATIENCE
        )
        with outages.outage(s3, "refused"):
            time.sleep(1.0)  # how long it lasts
    assert outcomes == dict.fromkeys(works, True)
    assert s3.raw.uploads() == []
    assert s3.own_keys() == [f"data/a/{number}/cache.mdb" for number in range(UPLOADS)]
