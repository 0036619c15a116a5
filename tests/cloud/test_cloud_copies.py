"""Downloads are named by their contents: whom they serve, what they take, and when they go."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pathlib
import pickle
import random
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from copies import KEY, LEGACY, flip, folder, hide, records

from yogadl.dataref import LMDBDataRef, RemoteDataRef
from yogadl.errors import CacheNotFoundError, StorageFullError

NOBODY = 65534
COUNT = 100_000
SIZE = 8 * COUNT
"""Bytes of the values of a version; what says where they are takes as many."""

WAYS = pytest.mark.parametrize("part_bytes", [1 << 30, 100_000], ids=["file", "parts"])


def submit(storage: Any, name: str = "a", version: str = "1", part_bytes: int = 1 << 30) -> None:
    values = np.arange(COUNT) + sum(map(ord, name + version))
    storage.submit(values, name, version, part_bytes=part_bytes)


def check(ref: Any, name: str = "a", version: str = "1") -> None:
    first = sum(map(ord, name + version))
    with ref:
        assert len(ref) == COUNT
        for start in range(0, COUNT, COUNT // 7):
            assert int(ref[start]) == first + start
        assert int(ref[COUNT - 1]) == first + COUNT - 1


def path(local: pathlib.Path, name: str = "a", version: str = "1") -> pathlib.Path:
    """Where 0.1.4 has a copy."""
    return local / "yogadl_local_cache" / name / version / "cache.mdb"


def files(local: pathlib.Path) -> list[pathlib.Path]:
    """The versions' files that are here, named by their contents."""
    return sorted(local.glob("*/yogadl.pieces/yogadl.objects/*.mdb"))


def everything(local: pathlib.Path) -> list[pathlib.Path]:
    return [*files(local), *local.glob("*/yogadl.pieces/yogadl.parts/*.mdb")]


def used(local: pathlib.Path) -> int:
    found = 0
    for file in local.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            found += 512 * file.lstat().st_blocks if not file.is_dir() else 0
    return found


def reads(requests: Any) -> list[Any]:
    """Requests for more than the beginning of an object."""
    return [
        it for it in requests if it.operation == "read" and it.headers.get("range") != _BEGINNING
    ]


_BEGINNING = f"bytes=0-{(256 << 10) - 1}"


@WAYS
def test_the_path_of_0_1_4_leads_to_a_file_named_by_its_contents(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path, part_bytes: int
) -> None:
    submit(rig.make_storage(local), part_bytes=part_bytes)
    ref = rig.make_storage(elsewhere).fetch("a", "1", download=True)
    (file,) = files(elsewhere)
    assert file.stem == ref.info.digest
    assert path(elsewhere).is_symlink()
    assert path(elsewhere).resolve() == file.resolve()
    check(ref)
    check(LMDBDataRef(path(elsewhere)))
    # Also where the directory was moved to.
    moved = elsewhere.rename(elsewhere.with_name("moved"))
    check(LMDBDataRef(path(moved)))
    with rig.counting() as requests:
        check(rig.make_storage(moved).fetch("a", "1"))
    assert not reads(requests)


@WAYS
def test_ids_of_the_same_contents_share_a_file(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path, part_bytes: int
) -> None:
    storage, there = rig.make_storage(local), rig.make_storage(elsewhere)
    submit(storage, part_bytes=part_bytes)
    storage.copy("a", "1", storage, new_id="b", new_version="7")
    check(there.fetch("a", "1"))
    before = {file: file.stat().st_ino for file in everything(elsewhere)}
    with rig.counting() as requests:
        check(there.fetch("b", "7"))
    assert not reads(requests)
    assert {file: file.stat().st_ino for file in everything(elsewhere)} == before
    (found,) = there.local.list()
    assert [name.split("/")[-3] for name in found.names] == ["b", "a"]
    there.delete("a", "1")
    with rig.counting() as requests:
        check(there.fetch("b", "7"))
    assert not reads(requests)
    there.delete("b", "7")
    assert everything(elsewhere) == []
    assert not os.path.lexists(path(elsewhere, "b", "7"))


@WAYS
def test_what_was_read_from_afar_is_not_downloaded(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path, part_bytes: int
) -> None:
    submit(rig.make_storage(local), part_bytes=part_bytes)
    storage = rig.make_storage(elsewhere)
    with storage.fetch("a", "1", download=False) as ref:
        files, end = ref.reader.files, time.monotonic() + 60
        for _ in ref.stream(shuffle=True, shuffle_seed=1).batches(1000):
            pass
        while not files.are_complete():
            assert time.monotonic() < end
            time.sleep(0.01)
    for download in (True, None):
        with rig.counting() as requests:
            found = storage.fetch("a", "1", download=download)
        assert isinstance(found, LMDBDataRef)
        check(found)
        assert not reads(requests)


@WAYS
def test_what_was_downloaded_is_not_fetched_from_afar(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path, part_bytes: int
) -> None:
    submit(rig.make_storage(local), part_bytes=part_bytes)
    storage = rig.make_storage(elsewhere)
    storage.fetch("a", "1", download=True).close()
    with rig.counting() as requests:
        ref = storage.fetch("a", "1", download=False)
        assert isinstance(ref, RemoteDataRef)
        check(ref)
    assert not reads(requests)
    assert ref._reader is None


def test_a_table_of_which_no_part_is_here_is_not_downloaded_unasked(
    s3: Any, local: pathlib.Path
) -> None:
    """As where it was built."""
    storage = s3.make_storage(local, local_cache_bytes=100 * SIZE)
    submit(storage, part_bytes=100_000)
    assert len(files(local)) == len(everything(local)) == 1
    assert isinstance(storage.fetch("a", "1"), RemoteDataRef)


@WAYS
def test_a_download_completes_what_somebody_reads_from_afar(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path, part_bytes: int
) -> None:
    submit(rig.make_storage(local), part_bytes=part_bytes)
    storage = rig.make_storage(elsewhere)
    ref = storage.fetch("a", "1", download=False)
    assert int(ref[5]) == int(ref[4]) + 1
    inodes = {file.stat().st_ino for file in everything(elsewhere)}
    near = storage.fetch("a", "1", download=True)
    assert inodes <= {file.stat().st_ino for file in everything(elsewhere)}
    near.verify()
    with rig.counting() as requests:
        check(ref)
    assert not reads(requests)
    check(near)


@pytest.mark.parametrize("at", [8192 + 60, 100_000])
def test_a_damaged_file_that_somebody_has_open_is_mended(
    rig: Any, local: pathlib.Path, at: int
) -> None:
    storage = rig.make_storage(local)
    submit(storage)
    reader = storage.fetch("a", "1")
    (file,) = files(local)
    flip(file, at)
    # As a disk does it: nothing tells of it but the digest.
    note = file.with_name(f"{file.name}.whole")
    status = file.stat()
    fingerprint = [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
    note.write_text(json.dumps(fingerprint))
    hide(folder(local))
    check(storage.fetch("a", "1", check_records=True))
    reader.verify()
    check(reader)
    assert file.stat().st_ino == status.st_ino


# A limit


def limited(rig: Any, local: pathlib.Path, versions: float) -> Any:
    """A storage that may keep so many versions, each of some two ``SIZE``."""
    return rig.make_storage(local, local_cache_bytes=int(versions * ONE))


ONE = 4 * SIZE


@pytest.fixture
def stored(s3: Any, local: pathlib.Path, request: Any) -> Any:
    """A bucket with versions 1 to 4."""
    storage = s3.make_storage(local)
    for version in "1234":
        submit(storage, "a", version, part_bytes=getattr(request, "param", 1 << 30))
    return s3


BOTH = pytest.mark.parametrize("stored", [1 << 30, 500_000], ids=["file", "parts"], indirect=True)


def there(local: pathlib.Path, rig: Any) -> set[str]:
    found = rig.make_storage(local).local.list()
    return {version.names[0].split("/")[-2] for version in found}


@BOTH
def test_versions_that_nobody_has_open_make_room(stored: Any, elsewhere: pathlib.Path) -> None:
    size = taken(stored, elsewhere)
    storage = stored.make_storage(elsewhere, local_cache_bytes=int(2.5 * size))
    for version in "12":
        check(storage.fetch("a", version, download=True), version=version)
    check(storage.fetch("a", "1", download=True))
    assert there(elsewhere, stored) == {"1", "2"}
    # That of 2 was opened before that of 1.
    check(storage.fetch("a", "3", download=True), version="3")
    assert there(elsewhere, stored) == {"1", "3"}
    assert used(elsewhere) <= 2.5 * size + 200_000
    # What went leaves nothing that leads nowhere, nor says that it is current.
    assert not os.path.lexists(path(elsewhere, "a", "2"))
    assert not path(elsewhere, "a", "2").with_name("local_metadata.json").exists()
    storage.local.pin("a", "1")
    with storage.fetch("a", "3", download=True) as reader:
        with pytest.raises(StorageFullError) as caught:
            storage.fetch("a", "4", download=True)
        for told in (str(elsewhere), "local_cache_bytes", "local_cache_dir", "download=False"):
            assert told in str(caught.value)
        # Of a table, that itself may be here.
        assert there(elsewhere, stored) >= {"1", "3"}
        reader.verify()
    check(storage.fetch("a", "4", download=True), version="4")
    assert there(elsewhere, stored) == {"1", "4"}
    with stored.counting() as requests:
        check(storage.fetch("a", "1"))
    assert not reads(requests)


def taken(rig: Any, local: pathlib.Path) -> int:
    """The bytes that a version takes on the disk."""
    storage = rig.make_storage(local)
    storage.fetch("a", "1", download=True).close()
    (found,) = storage.local.list()
    assert storage.local.prune() >= found.nbytes - 50_000
    assert everything(local) == []
    return int(found.nbytes)


def test_one_that_is_larger_than_the_limit(stored: Any, elsewhere: pathlib.Path) -> None:
    storage = limited(stored, elsewhere, 0.1)
    with pytest.raises(StorageFullError, match="local_cache_bytes"):
        storage.fetch("a", "1", download=True)
    assert everything(elsewhere) == []
    check(storage.fetch("a", "1"))


def test_what_is_built_takes_no_more_than_the_limit(s3: Any, local: pathlib.Path) -> None:
    storage = limited(s3, local, 0.1)
    ref = storage.cacheable("a", "1")(lambda: np.arange(COUNT))()
    assert len(ref) == COUNT
    assert isinstance(ref, RemoteDataRef)
    ref.close()
    assert used(local) < 0.1 * ONE + 200_000


def test_a_copy_of_0_1_4_is_not_counted(s3: Any, local: pathlib.Path) -> None:
    s3.raw.put(KEY, LEGACY.read_bytes())
    storage = s3.make_storage(local, local_cache_bytes=1000)
    assert records(storage.fetch("a", "1", download=True)) == list(range(1000))
    assert not path(local).is_symlink()
    assert storage.local.list() == []


# To list, pin and prune


@BOTH
def test_list_pin_and_prune(stored: Any, elsewhere: pathlib.Path) -> None:
    storage = stored.make_storage(elsewhere)
    with pytest.raises(CacheNotFoundError, match="fetch it first"):
        storage.local.pin("a", "1")
    ref = storage.fetch("a", "1", download=True)
    storage.fetch("a", "2", download=True).close()
    one, two = storage.local.list()
    assert one.names[0].endswith("/a/1/cache.mdb")
    assert two.opened >= one.opened
    assert SIZE < one.nbytes < 2 * ONE
    storage.local.pin("a", "2")
    # One is open, one is pinned.
    assert storage.local.prune() == 0
    ref.verify()
    again = pickle.loads(pickle.dumps(ref))
    ref.close()
    del ref
    assert storage.local.prune() == 0
    again.verify()
    again.close()
    del again
    assert storage.local.prune() > SIZE
    assert there(elsewhere, stored) == {"2"}
    storage.local.unpin("a", "2")
    assert storage.local.prune() > SIZE
    assert everything(elsewhere) == []
    assert used(elsewhere) < 200_000
    check(storage.fetch("a", "1", download=True))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@BOTH
def test_what_another_process_has_open_stays(stored: Any, elsewhere: pathlib.Path) -> None:
    context = multiprocessing.get_context("fork")
    storage = stored.make_storage(elsewhere)
    has_opened, may_end = context.Event(), context.Event()

    def read() -> None:
        with stored.make_storage(elsewhere).fetch("a", "1", download=True) as ref:
            has_opened.set()
            assert may_end.wait(60)
            ref.verify()

    reader = context.Process(target=read)
    reader.start()
    assert has_opened.wait(60)
    assert storage.local.prune() == 0
    may_end.set()
    reader.join(60)
    assert reader.exitcode == 0
    assert storage.local.prune() > SIZE


@WAYS
def test_a_version_that_is_replaced_goes_when_nobody_reads_it(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path, part_bytes: int
) -> None:
    here, storage = rig.make_storage(local), rig.make_storage(elsewhere)
    submit(here, part_bytes=part_bytes)
    reader = storage.fetch("a", "1", download=True)
    storage.local.pin("a", "1")
    here.submit(np.arange(7), "a", "1")
    assert records(storage.fetch("a", "1", download=True)) == list(range(7))
    assert len(files(elsewhere)) == 2
    reader.verify()
    check(reader)
    del reader
    here.submit(np.arange(8), "a", "1")
    assert records(storage.fetch("a", "1", download=True)) == list(range(8))
    (left,) = everything(elsewhere)
    # That was asked of the version, not of what it was.
    (found,) = storage.local.list()
    assert found.is_pinned
    assert path(elsewhere).resolve() == left.resolve()


# What earlier yogadls have left


@pytest.mark.parametrize("part_bytes", [1 << 30, 100_000])
def test_a_copy_of_an_earlier_yogadl_is_read(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path, part_bytes: int
) -> None:
    """It stands at the path of 0.1.4 itself, and its parts in the folder of its id."""
    here, storage = rig.make_storage(local), rig.make_storage(elsewhere)
    submit(here, part_bytes=part_bytes)
    storage.fetch("a", "1", download=True).close()
    parts = folder(elsewhere).with_name("yogadl.parts")
    parts.mkdir(exist_ok=True)
    copy = path(elsewhere)
    data = copy.read_bytes()
    copy.unlink()
    copy.write_bytes(data)
    for part in elsewhere.glob("*/yogadl.pieces/yogadl.parts/*.mdb"):
        shutil.copy(part, parts / part.name)
    shutil.rmtree(next(elsewhere.glob("*/yogadl.pieces")))
    hide(folder(elsewhere))
    with rig.counting() as requests:
        reader = storage.fetch("a", "1")
        assert isinstance(reader, LMDBDataRef)
    assert [request.is_metadata for request in requests] == [True]
    assert not copy.is_symlink()
    # What replaces it is named by its contents; who reads it goes on.
    submit(here, version="1", name="b", part_bytes=part_bytes)
    here.copy("b", "1", here, new_id="a")
    check(storage.fetch("a", "1", download=True), name="b")
    assert copy.is_symlink()
    reader.verify()
    check(reader)


# Hostile neighbours


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@as_root
def test_a_link_that_another_user_has_made_is_not_followed(rig: Any, local: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    submit(storage)
    submit(storage, "b")
    planted = files(local)[0] if files(local)[0] != path(local).resolve() else files(local)[1]
    copy = path(local)
    copy.unlink()
    copy.symlink_to(planted)
    os.chown(copy, NOBODY, NOBODY, follow_symlinks=False)
    hide(folder(local))
    check(storage.fetch("a", "1"))
    assert copy.lstat().st_uid == os.geteuid()


def test_a_file_that_others_may_write_to_is_not_read(rig: Any, local: pathlib.Path) -> None:
    storage = rig.make_storage(local)
    submit(storage)
    (file,) = files(local)
    file.chmod(0o666)
    flip(file, file.stat().st_size // 2)
    hide(folder(local))
    storage.fetch("a", "1").verify()
    assert not files(local)[0].stat().st_mode & 0o002


def test_only_links_to_it_go_with_a_version(s3: Any, local: pathlib.Path) -> None:
    storage = s3.make_storage(local)
    submit(storage)
    (file,) = files(local)
    foreign = local / "mine"
    foreign.mkdir()
    (foreign / "local_metadata.json").write_text("{}")
    (foreign / "data").write_text("data")
    (foreign / "link").symlink_to(foreign / "data")
    note = file.with_name(f"{file.name}.json")
    told = json.loads(note.read_text())
    note.write_text(json.dumps({**told, "links": [*map(str, foreign.iterdir()), "/", "", 3]}))
    assert storage.local.prune() > SIZE
    assert sorted(it.name for it in foreign.iterdir()) == ["data", "link", "local_metadata.json"]


@pytest.mark.parametrize("content", ["", "0" * 32, "../" * 10 + "x" * 2, "A" * 32, "é" * 32])
def test_whatever_the_bucket_says_of_its_contents(
    gcs: Any, local: pathlib.Path, elsewhere: pathlib.Path, content: str
) -> None:
    submit(gcs.make_storage(local))
    data, metadata = gcs.raw.get(KEY), gcs.raw.metadata(KEY)
    gcs.raw.put(KEY, data, {**metadata, "yogadl-content": content})
    check(gcs.make_storage(elsewhere).fetch("a", "1", download=True))


# Kills


class Victim:
    """A process that does something again and again until it is killed."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            try:
                while True:
                    work()
            except BaseException:  # also what pytest raises, which must not go on in the child
                traceback.print_exc()
            finally:
                os._exit(1)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert os.WIFSIGNALED(os.waitpid(self.pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("stored", [1 << 30, 500_000], ids=["file", "parts"], indirect=True)
def test_killed_anywhere(stored: Any, elsewhere: pathlib.Path) -> None:
    """Downloads, and removals for them: what is left is right, and goes, or is used."""
    size = taken(stored, elsewhere)
    limit = int(2.5 * size)
    chance = random.Random(1)

    def work() -> None:
        storage = stored.make_storage(elsewhere, local_cache_bytes=limit)
        version = random.choice("1234")
        with storage.fetch("a", version, download=True) as ref:
            assert int(ref[10]) == int(ref[0]) + 10
        if random.random() < 0.3:
            storage.local.prune(random.randrange(size))

    broken = 0
    for _ in range(12):
        victim = Victim(work)
        end = time.monotonic() + 10
        while not list(elsewhere.rglob("*.partial")) and time.monotonic() < end:
            time.sleep(0.001)
        # While it downloads, or gives that its name, or somewhat later.
        time.sleep(chance.choice([0.0, 0.02, 0.1, 0.5]) * chance.random())
        victim.kill()
        broken += bool(list(elsewhere.rglob("*.partial")) + list(elsewhere.rglob("*.link")))
        storage = stored.make_storage(elsewhere, local_cache_bytes=limit)
        version = chance.choice("1234")
        with storage.fetch("a", version, download=True) as ref:
            ref.verify()
        check(storage.fetch("a", version), version=version)
        # What was left goes with the next download, or when room is made.
        storage.local.prune(0)
        assert not list(elsewhere.rglob("*.partial"))
        assert used(elsewhere) <= limit + 200_000
    storage.local.prune()
    assert everything(elsewhere) == []
    for version in "1234":
        check(storage.fetch("a", version, download=True), version=version)
    assert used(elsewhere) <= limit + 200_000
    assert not list(elsewhere.rglob("*.partial"))
    assert broken


def test_processes_that_download_and_remove_at_once(stored: Any, elsewhere: pathlib.Path) -> None:
    # Each process may have taken some more than it needs.
    limit = 3 * taken(stored, elsewhere) + 3 * (16 << 20)
    context = multiprocessing.get_context("fork")
    until = time.monotonic() + 5
    works = [
        context.Process(target=download_until, args=(stored, elsewhere, seed, limit, until))
        for seed in range(3)
    ]
    for work in works:
        work.start()
    most = 0
    while any(work.is_alive() for work in works):
        most = max(most, used(elsewhere))
        time.sleep(0.05)
    assert [work.exitcode for work in works] == [0, 0, 0]
    assert most <= limit


def download_until(rig: Any, local: pathlib.Path, seed: int, limit: int, until: float) -> None:
    chance = random.Random(seed)
    storage = rig.make_storage(local, local_cache_bytes=limit)
    while time.monotonic() < until:
        version = chance.choice("1234")
        ref = storage.fetch("a", version, download=True)
        ref.verify()
        check(ref, version=version)
        if chance.random() < 0.3:
            storage.local.prune(chance.randrange(limit))
