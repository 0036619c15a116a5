"""Versions read from a bucket that is out for a while: who reads goes on, or is told why not.

Outages, pauses and time-outs are twenty times as short as they say, unless ``YOGADL_OUTAGES=full``,
see ``make outages``; only then is a minute among them.
"""

from __future__ import annotations

import contextlib
import functools
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import outages
import pytest
from test_far import arrays, everything

from yogadl import backoff
from yogadl.errors import CacheReplacedError, StoreError

COUNT, SIZE, SHARDS = 120, 20_000, 4
PATIENCE = 200
READ_AHEAD = 128 << 10
"""So little that nobody has all records before the outage."""

pytestmark = [
    pytest.mark.filterwarnings(r"ignore:unclosed <socket\.socket.*127\.0\.0\.1:ResourceWarning"),
    pytest.mark.timeout(600),
]


@pytest.fixture(autouse=True)
def scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks as short as the outages."""
    monkeypatch.setattr(backoff, "LIMITS", outages.scaled_limits())


class Readers:
    """Ways to read a shard of a version of one file and of one of parts: all of it is kept, or
    nothing is.

    Attributes:
        wanted: what each way is to deliver.
    """

    def __init__(self, rig: Any, folder: pathlib.Path) -> None:
        self._stack = contextlib.ExitStack()
        self._streams: dict[str, Callable[[], Any]] = {}
        self.wanted: dict[str, list[tuple[int, bytes]]] = {}
        near = rig.make_storage(_made(folder / "near"))
        for name, part_bytes in (("file", 1 << 30), ("parts", 400_000)):
            near.submit(arrays(COUNT, SIZE), name, "1", part_bytes=part_bytes)
            for kept, limit in (("kept", None), ("passing", 0)):
                way = f"{name}, {kept}"
                far = rig.make_storage(_made(folder / way), local_cache_bytes=limit)
                order = {"shuffle": True, "shuffle_seed": 1, "num_shards": SHARDS}
                ref = self._stack.enter_context(far.fetch(name, "1", download=False))
                self._streams[way] = functools.partial(ref.stream, read_ahead=READ_AHEAD, **order)
                with near.fetch(name, "1", download=True) as same:
                    self.wanted[way] = everything(same.stream(**order))

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[tuple[dict[str, Any], Callable[[], None]]]:
        """All ways at once, each in a thread, which stops after some records.

        Yields:
            What each has delivered in the end, or its error; and what has them go on.
        """
        outcomes: dict[str, Any] = {}
        begun = threading.Barrier(len(self._streams) + 1)
        goes_on = threading.Event()

        def read(way: str) -> None:
            records = iter(self._streams[way]())
            try:
                found = [next(records) for _ in range(4)]
                begun.wait(PATIENCE)
                assert goes_on.wait(PATIENCE)
                outcomes[way] = everything([*found, *records])
            except Exception as error:
                outcomes[way] = error
                begun.abort()

        threads = [threading.Thread(target=read, args=(way,)) for way in self._streams]
        for thread in threads:
            thread.start()
        try:
            begun.wait(PATIENCE)
            yield outcomes, goes_on.set
        finally:
            goes_on.set()
            for thread in threads:
                thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in threads)


def _made(path: pathlib.Path) -> pathlib.Path:
    path.mkdir()
    return path


@pytest.mark.parametrize("kind", outages.READING_KINDS)
@pytest.mark.parametrize("seconds", [1, 60] if outages.IS_FULL_LENGTH else [1])
@pytest.mark.long_for("reset", "no name", "429", "503", "cut body", "slow body")
def test_an_outage_is_outlived(seconds: int, kind: str, rig: Any, tmp_path: pathlib.Path) -> None:
    """In the middle of an epoch; every record comes, once and in its place."""
    with (
        Readers(rig, tmp_path) as readers,
        readers.reading() as (outcomes, go_on),
        outages.outage(rig, kind),
    ):
        go_on()
        time.sleep(seconds * outages.SCALE)
    assert outcomes == readers.wanted


@pytest.mark.parametrize("kind", ["refused", "black hole", "503", "broken body"])
@pytest.mark.long_for("refused")
def test_an_outage_without_end_is_a_clear_error(
    kind: str, rig: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the patience; once the bucket is back, the same versions can be read on."""
    with Readers(rig, tmp_path) as readers:
        # The outage ends when all have given up.
        with contextlib.ExitStack() as out, readers.reading() as (outcomes, go_on):
            monkeypatch.setattr(backoff, "LIMITS", outages.scaled_limits(patience=10, answer=5))
            out.enter_context(outages.outage(rig, kind))
            go_on()
        for way, outcome in outcomes.items():
            assert isinstance(outcome, StoreError), (way, outcome)
            assert outcome.is_transient, (way, outcome)
        monkeypatch.setattr(backoff, "LIMITS", outages.scaled_limits())
        with readers.reading() as (outcomes, go_on):
            go_on()
        assert outcomes == readers.wanted


@pytest.mark.parametrize("what", ["replaced", "lost"])
def test_replaced_or_lost_during_an_outage(what: str, rig: Any, tmp_path: pathlib.Path) -> None:
    """Who reads the one file is told once the bucket is back; parts stay as long as they do."""
    with (
        Readers(rig, tmp_path) as readers,
        readers.reading() as (outcomes, go_on),
        outages.outage(rig, "refused"),
    ):
        go_on()
        for key in rig.raw.list():
            if what == "lost":
                rig.raw.delete(key)
            elif key.endswith("cache.mdb"):
                data = rig.raw.get(key)
                rig.raw.put(key, data[:-1] + bytes([data[-1] ^ 1]), rig.raw.metadata(key))
        time.sleep(outages.SCALE)
    for way, outcome in outcomes.items():
        if what == "replaced" and way.startswith("parts"):
            assert outcome == readers.wanted[way]
        else:
            assert isinstance(outcome, CacheReplacedError), (way, outcome)
            assert "fetch it again" in str(outcome)
