"""Downloads are named by their contents: whom they serve, and whom they are kept from."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import time
from typing import Any

import pytest
from content_copies import (
    SIZE,
    WAYS,
    check,
    everything,
    files,
    path,
    reads,
    submit,
)
from copies import KEY, flip, folder, hide

from yogadl.dataref import LMDBDataRef, RemoteDataRef

# It is about the copies here, and all buckets are alike to them.
pytestmark = pytest.mark.long_for("s3")

NOBODY = 65534


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


@pytest.mark.parametrize("way", ["fetch", "delete", "gc"])
def test_what_who_was_killed_left_beside_a_copy_goes(
    s3: Any, local: pathlib.Path, way: str
) -> None:
    """What he wrote of the note, and the link that was to be the copy."""
    storage = s3.make_storage(local, conditional_writes=True)
    submit(storage)
    link = path(local).with_name("cache.mdb.link")
    link.symlink_to(files(local)[0])
    note = path(local).with_name(f"local_metadata.json.{'0' * 32}.partial")
    note.touch()
    if way == "fetch":
        flip(files(local)[0], SIZE)
        check(storage.fetch("a", "1"))
        assert not os.path.lexists(link)
    elif way == "delete":
        storage.delete("a", "1")
        assert not os.path.lexists(link)
    else:
        # The link could be one that is just being made.
        storage.gc()
    assert not note.exists()


def test_what_who_was_killed_left_before_he_had_a_folder_goes(
    s3: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    submit(s3.make_storage(elsewhere))
    own = path(local).parent
    own.mkdir(parents=True)
    (own / f"local_metadata.json.{'0' * 32}.partial").touch()
    s3.make_storage(local).delete("a", "1")
    assert not list(own.iterdir())
