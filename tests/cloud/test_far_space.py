"""Limits of what is kept on this machine of versions that are read without downloading them."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import shutil
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from disk_use import disk_bytes
from test_far import arrays, data_requests, everything, far, length
from waiting import wait_until

from yogadl.dataref import RemoteDataRef
from yogadl.errors import CacheNotFoundError, InvalidArgumentError

SIZE = 20_000
COUNT = 200


@pytest.fixture
def stored(s3: Any, local: pathlib.Path) -> Any:
    storage = s3.make_storage(local)
    for version in ("1", "2", "3"):
        storage.submit(numbered(int(version)), "a", version, part_bytes=500_000)
    return s3


def numbered(version: int) -> Iterator[dict[str, Any]]:
    for record in arrays(COUNT, SIZE):
        yield {**record, "number": record["number"] + 1000 * version}


def opened(rig: Any, local: pathlib.Path, version: str, limit: int | None) -> RemoteDataRef:
    storage = rig.make_storage(local, local_cache_bytes=limit)
    found = storage.fetch("a", version, download=False)
    assert isinstance(found, RemoteDataRef)
    return found


def used(local: pathlib.Path) -> int:
    return disk_bytes(local.rglob("*"))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_a_version_larger_than_the_limit(
    stored: Any, elsewhere: pathlib.Path, share: float
) -> None:
    limit = int(share * COUNT * SIZE)
    wanted = everything(numbered(1))
    with opened(stored, elsewhere, "1", limit) as ref:
        for seed in range(3):
            with stored.counting() as requests:
                stream = ref.stream(shuffle=True, shuffle_seed=seed)
                assert sorted(everything(stream)) == wanted
            got = sum(map(length, data_requests(requests)))
            assert used(elsewhere) <= limit + (2 << 20)
        # The same share of it stays.
        assert got <= 1.1 * COUNT * SIZE - 0.5 * limit
        records = ref.stream().batches(64)
        assert [len(batch["number"]) for batch in records] == [64, 64, 64, 8]


def test_versions_that_nobody_has_open_go_first(stored: Any, elsewhere: pathlib.Path) -> None:
    size = COUNT * SIZE
    limit = int(2.5 * size)
    with opened(stored, elsewhere, "1", limit) as first:
        everything(first.stream())
        opened(stored, elsewhere, "2", limit).close()
        with opened(stored, elsewhere, "2", limit) as second:
            everything(second.stream())
        with opened(stored, elsewhere, "3", limit) as third:
            assert everything(third.stream()) == everything(numbered(3))
        assert used(elsewhere) <= limit + (2 << 20)
        with stored.counting() as requests:
            assert everything(first.stream()) == everything(numbered(1))
        assert not data_requests(requests)
    names = [version.names[0].split("/")[-2] for version in kept(stored, elsewhere)]
    assert names == ["1", "3"]


def kept(rig: Any, local: pathlib.Path) -> Any:
    return rig.make_storage(local).local.list()


def test_list_pin_and_prune(stored: Any, elsewhere: pathlib.Path) -> None:
    storage = stored.make_storage(elsewhere)
    assert storage.local.list() == []
    assert storage.local.prune() == 0
    with pytest.raises(CacheNotFoundError, match="fetch it first"):
        storage.local.pin("a", "1")
    with far(stored, elsewhere) as ref:
        everything(ref.stream())
        (found,) = storage.local.list()
        assert found.names[0].endswith("/a/1/cache.mdb")
        assert found.nbytes >= COUNT * SIZE
        # It is open.
        assert storage.local.prune() == 0
    storage.local.pin("a", "1")
    assert storage.local.list()[0].is_pinned
    assert storage.local.prune() == 0
    storage.local.unpin("a", "1")
    assert storage.local.prune(0) == 0
    freed = []

    def is_freed() -> bool:
        freed.append(storage.local.prune())
        return used(elsewhere) < 100_000

    # The threads that brought and compare it may take a moment to let go of it, or of a part of it.
    wait_until(is_freed)
    assert sum(freed) >= COUNT * SIZE
    assert storage.local.list() == []
    with far(stored, elsewhere) as ref:
        assert everything(ref.stream()) == everything(numbered(1))
    with pytest.raises(InvalidArgumentError, match="-1"):
        storage.local.prune(-1)


def test_one_limit_for_all_processes(stored: Any, elsewhere: pathlib.Path) -> None:
    limit = int(1.3 * COUNT * SIZE)
    context = multiprocessing.get_context("fork")
    until = time.monotonic() + 6
    readers = [
        context.Process(target=read_until, args=(stored, elsewhere, seed, limit, until))
        for seed in range(3)
    ]
    for reader in readers:
        reader.start()
    most = 0
    while any(reader.is_alive() for reader in readers):
        most = max(most, used(elsewhere))
        time.sleep(0.05)
    assert [reader.exitcode for reader in readers] == [0, 0, 0]
    # What is in flight, and what each process may hold.
    assert most <= limit + 3 * (8 << 20)


def read_until(rig: Any, local: pathlib.Path, seed: int, limit: int, until: float) -> None:
    rng = np.random.default_rng(seed)
    while time.monotonic() < until:
        version = int(rng.integers(1, 4))
        with opened(rig, local, str(version), limit) as ref:
            stream = ref.stream(shuffle=True, shuffle_seed=seed)
            assert sorted(everything(stream)) == everything(numbered(version))


@pytest.mark.parametrize("given", [-1, 1.5, "10 GB"])
def test_impossible_limits(s3: Any, local: pathlib.Path, given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="local_cache_bytes"):
        s3.make_storage(local, local_cache_bytes=given)


@pytest.mark.parametrize("given", [-1, 1.5, "10 GB", True])
def test_impossible_room(s3: Any, local: pathlib.Path, given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="nbytes"):
        s3.make_storage(local).local.prune(given)


@pytest.fixture
def victim(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder of somebody's with files that are named like what may be removed."""
    folder = tmp_path / "victim"
    folder.mkdir()
    for name in ("0123.mdb", "0123.mdb.json", "0123.mdb.cells"):
        (folder / name).write_bytes(b"precious" * 10_000)
    return folder


def lay_trap(root: pathlib.Path, victim: pathlib.Path) -> None:
    """What others can make in a directory that all may write to, such as /tmp."""
    shutil.rmtree(root, ignore_errors=True)
    pieces = root / "yogadl.pieces"
    pieces.mkdir(parents=True)
    for name in ("yogadl.objects", "yogadl.parts"):
        (pieces / name).symlink_to(victim)
    root.chmod(0o777)


def test_room_is_not_made_in_folders_of_others(
    stored: Any, elsewhere: pathlib.Path, victim: pathlib.Path
) -> None:
    lay_trap(elsewhere / f"yogadl_local_cache-{os.geteuid()}-0123456789abcdef", victim)
    before = sorted(path.read_bytes() for path in victim.iterdir())
    for version in ("1", "2"):
        with opened(stored, elsewhere, version, int(1.2 * COUNT * SIZE)) as ref:
            assert everything(ref.stream()) == everything(numbered(int(version)))
    assert sorted(path.read_bytes() for path in victim.iterdir()) == before


def test_nothing_is_pruned_or_pinned_in_folders_of_others(
    stored: Any, elsewhere: pathlib.Path, victim: pathlib.Path
) -> None:
    far(stored, elsewhere).close()
    (root,) = elsewhere.glob(f"yogadl_local_cache-{os.geteuid()}-*")
    lay_trap(root, victim)
    before = sorted(path.read_bytes() for path in victim.iterdir())
    storage = stored.make_storage(elsewhere)
    assert storage.local.list() == []
    assert storage.local.prune() == 0
    with pytest.raises(CacheNotFoundError):
        storage.local.pin("a", "1")
    assert sorted(path.read_bytes() for path in victim.iterdir()) == before


def test_what_is_pinned_and_replaced_can_be_let_go(stored: Any, elsewhere: pathlib.Path) -> None:
    storage = stored.make_storage(elsewhere)
    with far(stored, elsewhere):
        storage.local.pin("a", "1")
        storage.submit(numbered(7), "a", "1")
        far(stored, elsewhere).close()
        # The old one stays since it is open, and its pin goes on to the new one.
        assert sorted(kept.is_pinned for kept in storage.local.list()) == [False, True]
        storage.local.unpin("a", "1")
    wait_until(lambda: storage.local.prune() > 0)
    assert storage.local.list() == []
