"""Versions read from a server that misbehaves: what is delivered is right, or an error says why."""

from __future__ import annotations

import contextlib
import errno
import gc
import mmap
import os
import pathlib
import random
import resource
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xxhash
from remote_rig import Always, Answer, Asked, Never, Site, WebObject, desk, random_faults
from waiting import wait_until

import yogadl
from yogadl import backoff
from yogadl.cache.parts import PARTS_FOLDER
from yogadl.errors import (
    AccessDeniedError,
    CacheReplacedError,
    ChecksumError,
    NetworkError,
    StoreError,
    StoreUnavailableError,
    YogadlError,
)
from yogadl.format import header as headers
from yogadl.remote._fetching import connections, right_bytes
from yogadl.remote._fetching.connections import Connections
from yogadl.remote._local import sparse_file

FAULTS = 1000 if os.environ.get("YOGADL_OUTAGES") == "full" else 60
"""``make outages`` has all of them."""

FIELDS = headers._FIELDS.size
"""Bytes of a header that its checksum covers."""

SPEC = {
    "x": yogadl.spec.TensorSpec("uint8", (None,)),
    "number": yogadl.spec.TensorSpec("int64", ()),
}


def records(count: int = 300, largest: int = 20_000) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(count)
    for number in range(count):
        size = int(rng.integers(0, largest if number % 3 else 50))
        yield {"x": rng.integers(0, 256, size, dtype="u1"), "number": np.int64(number)}


def everything(found: Any) -> list[tuple[int, bytes]]:
    return [(int(record["number"]), record["x"].tobytes()) for record in found]


@pytest.mark.once
@pytest.mark.parametrize("part_bytes", [1 << 30, 400_000], ids=["file", "parts"])
@pytest.mark.parametrize("space", [Always, Never])
def test_random_faults(site: Site, space: type, part_bytes: int) -> None:
    near = site.store(records(), spec=SPEC, part_bytes=part_bytes)
    order = {"shuffle": True, "shuffle_seed": 1}
    wanted = everything(near.stream(**order))
    seed = errors = 0
    while len(site.web.asked) < FAULTS / 0.3:
        seed += 1
        site.folder = site.folder.with_name(f"kept {seed}")
        with site.twisting(random_faults(seed, 0.3)):
            try:
                with site.ref(space()) as ref:
                    found = everything(ref.stream(**order))
            except (ChecksumError, StoreError):
                # Three wrong answers in a row that would have its head, for example.
                errors += 1
                continue
        assert found == wanted
    assert errors <= seed / 4 + 1


@pytest.mark.parametrize("space", [Always, Never])
def test_batches_of_which_some_records_come_damaged(site: Site, space: type) -> None:
    """What was right stays, so that not all of a batch has to be right at once."""
    near = site.store(records(), spec=SPEC)
    roll = random.Random(1)

    def flip(_asked: Asked, made: Answer) -> Answer:
        if roll.random() < 1 / 3:
            at = roll.randrange(len(made.body))
            made.body = made.body[:at] + bytes([made.body[at] ^ 1]) + made.body[at + 1 :]
        return made

    order = {"shuffle": True, "shuffle_seed": 1}
    with site.ref(space()) as ref, site.twisting(flip):
        batches = zip(
            ref.stream(**order).batches(64), near.stream(**order).batches(64), strict=True
        )
        for found, wanted in batches:
            assert found["number"].tolist() == wanted["number"].tolist()
            assert all(map(np.array_equal, found["x"], wanted["x"]))


FIXED = {
    "x": yogadl.spec.TensorSpec("uint8", (3000,)),
    "number": yogadl.spec.TensorSpec("int64", ()),
}


def fixed(count: int = 400) -> Iterator[dict[str, Any]]:
    """Records of which any could lie where any other does."""
    return ({"x": np.full(3000, n % 251, "u1"), "number": np.int64(n)} for n in range(count))


def _files_of_a_size(site: Site) -> list[pathlib.Path]:
    """The parts of a version that are as long as others, on the server."""
    paths = sorted((site.web.folder / "a" / PARTS_FOLDER).glob("*.mdb"))
    sizes = [path.stat().st_size for path in paths]
    same = [path for path, size in zip(paths, sizes, strict=True) if sizes.count(size) > 1]
    assert len(same) > 2
    return same


@pytest.mark.parametrize("in_turn", [True, False])
def test_answers_of_other_places_and_files(site: Site, in_turn: bool) -> None:
    near = site.store(fixed(), spec=FIXED, part_bytes=400_000)
    paths = {path.name: path.read_bytes() for path in _files_of_a_size(site)}
    roll = random.Random(in_turn)
    twisted, seen = [], set()

    def twist(asked: Asked, made: Answer) -> Answer:
        name = asked.path.rpartition("/")[2].partition("?")[0]
        if name in paths and roll.random() < 0.5 and (name, asked.start) not in seen:
            # Of four times, none is right otherwise, now and then.
            seen.add((name, asked.start))
            data = paths[roll.choice(sorted(paths))]
            shift = roll.choice([0, 0, 16, -16, 48, 160])
            body = data[asked.start + shift : asked.stop + shift]
            if body != made.body and len(body) == len(made.body):
                made.body = body
                twisted.append(asked)
        return made

    with site.twisting(twist), site.ref() as ref:
        for number in () if in_turn else roll.sample(range(len(ref)), 100):
            assert everything([ref[number]]) == everything([near[number]])
        # So small a share is asked for record by record.
        for rank in range(16) if in_turn else ():
            order = {"shuffle": True, "shuffle_seed": 1, "num_shards": 64, "shard_rank": rank}
            assert everything(ref.stream(**order)) == everything(near.stream(**order))
    assert twisted


def test_a_part_that_has_become_another_of_its_size(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(right_bytes, "_PAUSE_SECONDS", 0.0)
    near = site.store(fixed(), spec=FIXED, part_bytes=400_000)
    wanted = everything(near)
    paths = _files_of_a_size(site)
    whole = [path.read_bytes() for path in paths]
    for path, data in zip(paths, [*whole[1:], whole[0]], strict=True):
        os.unlink(path)
        path.write_bytes(data)
    raised = 0
    with site.ref() as ref:
        for number in range(0, 400, 7):
            try:
                assert everything([ref[number]]) == wanted[number : number + 1]
            except ChecksumError:
                raised += 1
    assert raised > 10


@pytest.mark.parametrize("times", [1, 2])
def test_a_request_that_stalls_is_made_again(site: Site, times: int) -> None:
    """And so is that one, if it stalls."""
    near = site.store(records(200, 40_000), spec=SPEC)
    stalled: list[Asked] = []

    def twist(asked: Asked, made: Answer) -> Answer:
        # The first that come for these bytes, with all others that they ask for.
        if asked.start <= 1_500_000 < asked.stop and len(stalled) < times:
            stalled.append(asked)
            made.stalls = 25.0
        return made

    with site.twisting(twist), site.ref() as ref:
        started = time.monotonic()
        assert everything(ref.stream()) == everything(near.stream())
        # Not a matter of how fast it is: it did not wait for the answer.
        assert time.monotonic() - started < 25.0
    assert len(stalled) == times


def test_a_second_request_that_fails_is_no_matter(site: Site) -> None:
    near = site.store(records(40, 40_000), spec=SPEC)

    def twist(asked: Asked, made: Answer) -> Answer:
        made.stalls = 1.5
        is_second = any(other.start == asked.start for other in site.web.asked[:-1])
        return Answer(404, {}, b"") if asked.start and is_second else made

    with site.ref(Never()) as ref, site.twisting(twist):
        assert everything([ref[30]]) == everything([near[30]])


@pytest.mark.parametrize("status", [400, 401, 403])
def test_an_address_that_expires(site: Site, status: int) -> None:
    near = site.store(records(), spec=SPEC)

    def expire(asked: Asked, made: Answer) -> Answer:
        is_expired = "?" not in asked.path and asked.number > 3
        return Answer(status, {}, b"<Code>ExpiredToken</Code>") if is_expired else made

    with site.twisting(expire), site.ref(Never()) as ref:
        assert everything(ref.stream()) == everything(near.stream())
    assert "?" in site.web.asked[-1].path


def test_denied_for_good_says_so_at_once(site: Site) -> None:
    site.store(records(), spec=SPEC)
    with site.ref() as ref, site.twisting(lambda *_: Answer(403, {}, b"no")):
        started = time.monotonic()
        with pytest.raises(AccessDeniedError, match="403"):
            everything(ref.stream())
        assert time.monotonic() - started < backoff.LIMITS.patience


def test_an_error_is_of_what_is_waited_for_now(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    near = site.store(records(), spec=SPEC)
    monkeypatch.setattr(backoff, "LIMITS", backoff.Limits(patience=0.1, first_pause=0.01, fewest=1))
    with site.ref() as ref:
        with site.twisting(lambda *_: Answer(500, {}, b"")), pytest.raises(StoreUnavailableError):
            everything(ref.stream(shuffle=True, shuffle_seed=1))
        # The outage is over, and what was fetched ahead during it is no matter.
        order = {"shuffle": True, "shuffle_seed": 1}
        assert everything(ref.stream(**order)) == everything(near.stream(**order))


def test_what_failed_keeps_no_files_open(site: Site) -> None:
    """Though errors have the frames that they went through, and these have the files."""
    site.store(records(), spec=SPEC, part_bytes=400_000)

    def are_open() -> bool:
        folder = os.path.realpath(site.folder)
        return any(name.startswith(folder) for name in sparse_file._open)

    gc.disable()
    try:
        with site.ref() as ref:
            with site.twisting(lambda *_: Answer(403, {}, b"no")):
                for position in range(0, 300, 30):
                    with contextlib.suppress(AccessDeniedError):
                        ref[position]
            assert are_open()
        wait_until(lambda: not are_open())
    finally:
        gc.enable()


def test_what_failed_while_it_was_waited_for_briefly_is_no_error(site: Site) -> None:
    """It began long before; unless no other request would help."""
    site.store(records(10), spec=SPEC)
    with site.ref() as ref:
        file = ref.reader.files.file(0)
        outage, denial = StoreUnavailableError("it is out"), AccessDeniedError("not for you")
        file.failures += [(1000, 2000, 500.0, outage), (3000, 4000, 500.0, denial)]
        patience = backoff.LIMITS.patience
        file.raise_failure([(file, 1000, 2000)], 500.0 - 0.4 * patience)
        for at, since, error in (
            (1000, 500.0 - 0.6 * patience, StoreUnavailableError),
            (3000, 500.0, AccessDeniedError),
        ):
            with pytest.raises(error):
                file.raise_failure([(file, at + 999, at + 1001)], since)
            # Of other bytes, or from before.
            file.raise_failure([(file, at + 1000, at + 1001)], since)
            file.raise_failure([(file, at, at + 1)], 500.1)


def test_a_time_out_is_not_tried_again_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a connection is that the server has closed meanwhile."""
    site.store(records(10), spec=SPEC)
    monkeypatch.setattr(backoff, "LIMITS", backoff.Limits(answer=0.3))
    stalled: list[Asked] = []

    def stall(asked: Asked, made: Answer) -> Answer:
        stalled.append(asked)
        made.stalls = 60.0
        return made

    size = site.path().stat().st_size
    asked = WebObject(f"http://127.0.0.1:{site.web.port}/a/1/cache.mdb", "it")
    connections = Connections()
    with contextlib.closing(connections):
        connections.read(asked, size, 0, 100, lambda *_: None)
        with site.twisting(stall), pytest.raises(NetworkError, match="timed out"):
            connections.read(asked, size, 0, 100, lambda *_: None)
    assert len(stalled) == 1


def test_an_object_that_is_gone_is_not_asked_for_piece_by_piece(site: Site) -> None:
    site.store(records(500, 200_000), spec=SPEC)
    with site.ref() as ref, site.twisting(lambda *_: Answer(404, {}, b"")):
        stream = iter(ref.stream(shuffle=True, shuffle_seed=1))
        with pytest.raises(CacheReplacedError, match="was replaced or deleted while it was read"):
            everything(stream)
        wait_until(lambda: not desk(ref).queue.flying)
        before = len(site.web.asked)
        time.sleep(0.3)  # in which it would be asked for again
        # What a thread was about to ask for then is no matter.
        assert len(site.web.asked) <= before + 2


@pytest.mark.parametrize("size", [2**40, 2**45, 2**46 + 4096, 2**62, 2**63, 10**19 - 1])
def test_impossible_sizes(site: Site, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    near = site.store(records(10), spec=SPEC)
    monkeypatch.setattr(backoff, "LIMITS", backoff.Limits(patience=0.2, first_pause=0.01))
    size = size // 4096 * 4096
    data = bytearray(site.path().read_bytes())
    page = bytes(data[headers.HEADER_OFFSET : headers.BODY_OFFSET])
    header = headers.unpack(page, len(data), "it")
    page = replace(header, file_size=size).pack()
    data[headers.HEADER_OFFSET : headers.BODY_OFFSET] = page
    site.path().write_bytes(data)

    def huge(asked: Asked, made: Answer) -> Answer:
        made.headers["Content-Range"] = f"bytes {asked.start}-{asked.stop - 1}/{size}"
        return made

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with site.twisting(huge):
        try:
            ref = site.ref()
        except YogadlError:
            return
        # There is such a file, of which this is the beginning.
        assert size <= 2**46
        with ref:
            assert everything([ref[3]]) == everything([near[3]])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@pytest.mark.once
@pytest.mark.parametrize("seed", range(40))
def test_hostile_headers(site: Site, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    site.store(records(50), spec=SPEC, part_bytes=100_000 if seed % 2 else 1 << 30)
    monkeypatch.setattr(backoff, "LIMITS", backoff.Limits(patience=0.1, first_pause=0.01))
    roll = random.Random(seed)
    data = bytearray(site.path().read_bytes())
    start = headers.HEADER_OFFSET + 16
    for _ in range(roll.randrange(1, 3)):
        at = start + 16 + 8 * roll.randrange(17)
        chosen = [0, 1, 4096, 2**20, 2**31, 2**40, 2**46, 2**63, 2**64 - 1, len(data)]
        data[at : at + 8] = roll.choice(chosen).to_bytes(8, "little")
    end = start + FIELDS
    data[end : end + 8] = xxhash.xxh3_64_intdigest(data[start:end]).to_bytes(8, "little")
    site.path().write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for space in (Always(), Never()):
        with contextlib.suppress(YogadlError), site.ref(space) as ref:
            everything(ref.stream())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_threads_for_which_there_is_no_memory(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """They count no more, so that others are started once there is some; who waits is told."""
    wanted = everything(site.store(records(), spec=SPEC).stream())

    def no_memory(_nbytes: int) -> mmap.mmap:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with site.ref() as ref:
        # Those that rest have theirs.
        wait_until(lambda: desk(ref).crew.count == 0)
        monkeypatch.setattr(connections, "private_memory", no_memory)
        for number in range(4):
            with pytest.raises(OSError, match="allocate memory"):
                # What is read as a whole is not claimed by threads that cannot fetch it.
                ref[200] if number % 2 else everything(ref.stream())
            wait_until(lambda: desk(ref).crew.count == 0, 10)
        monkeypatch.undo()
        assert everything(ref.stream()) == wanted
