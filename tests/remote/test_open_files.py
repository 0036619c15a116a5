"""However many files a version from afar has, few are open at a time where the system says so."""

from __future__ import annotations

import dataclasses
import pathlib
import resource
import sys
from typing import Any

import numpy as np
import pytest
from processes_ready import READY
from remote_rig import Never, Opener, Site
from waiting import wait_until

import yogadl
from yogadl.remote._local import sparse_file

SPEC = {"n": yogadl.spec.TensorSpec("int64", ()), "x": yogadl.spec.TensorSpec("uint8", (900,))}
COUNT = 500
ORDER = {"shuffle": True, "shuffle_seed": 1}


def records() -> list[dict[str, Any]]:
    """Each is in a file of its own."""
    return [{"n": number, "x": np.full(900, number % 251, "u1")} for number in range(COUNT)]


def read(opener: Opener, batch_size: int, options: dict[str, Any], told: Any) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, most))
    try:
        with opener.ref() as ref:
            batches = list(ref.stream(**options).batches(batch_size))
            assert all((batch["x"] == batch["n"][:, None] % 251).all() for batch in batches)
            numbers = [number for batch in batches for number in batch["n"].tolist()]
            told.put((numbers, ref.reader.content_id))
    except BaseException as error:
        told.put(repr(error))
        raise


@pytest.mark.once
@pytest.mark.parametrize("batch_size", [1, 64, COUNT])
@pytest.mark.parametrize("options", [ORDER, {}, {**ORDER, "num_shards": 2}], ids=str)
@pytest.mark.long_for(64, {})
def test_batches_of_any_size_are_read(site: Site, batch_size: int, options: dict[str, Any]) -> None:
    near = site.store(records(), spec=SPEC, part_bytes=1)
    told = READY.SimpleQueue()
    child = READY.Process(target=read, args=(site.opener(), batch_size, options, told))
    child.start()
    found = told.get()
    child.join()
    assert not isinstance(found, str), found
    wanted = [record["n"] for record in near.stream(**options)]
    assert found == (wanted, near.reader.content_id)


def read_few(opener: Opener, names: list[str], limit: int, is_joined: bool, told: Any) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
    try:
        refs = [dataclasses.replace(opener, version=name).ref() for name in names]
        whole = [yogadl.concat(refs)] if is_joined else refs
        streams = [one.stream(**ORDER) for one in whole]
        told.put([batch["n"].tolist() for stream in streams for batch in stream.batches(32)])
    except BaseException as error:
        told.put(repr(error))
        raise


@pytest.mark.once
@pytest.mark.parametrize("is_joined", [False, True])
def test_many_versions_take_no_more_than_one(site: Site, is_joined: bool) -> None:
    names = [f"a/{number}" for number in range(12)]
    near = []
    for name in names:
        site.storage.submit(records()[:60], *name.split("/"), spec=SPEC, part_bytes=1)
        near.append(site.storage.fetch(*name.split("/")))
    told = READY.SimpleQueue()
    child = READY.Process(target=read_few, args=(site.opener(), names, 256, is_joined, told))
    child.start()
    found = told.get()
    child.join()
    assert not isinstance(found, str), found
    whole = [yogadl.concat(near)] if is_joined else near
    streams = [one.stream(**ORDER) for one in whole]
    assert found == [batch["n"].tolist() for stream in streams for batch in stream.batches(32)]


@pytest.mark.once
def test_what_passes_through_memory_keeps_few_files_open(site: Site) -> None:
    near = site.store(records(), spec=SPEC, part_bytes=1)
    told = READY.SimpleQueue()
    opener = site.opener(Never())
    child = READY.Process(target=read_few, args=(opener, ["a/1"], 256, False, told))
    child.start()
    found = told.get()
    child.join()
    assert not isinstance(found, str), found
    assert found == [batch["n"].tolist() for batch in near.stream(**ORDER).batches(32)]


def test_what_is_joined_is_what_was_read_together(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = site.store(records(), spec=SPEC, part_bytes=3000)
    wanted = np.random.default_rng(1).integers(0, COUNT, 300)
    with site.ref() as ref:
        monkeypatch.setattr(ref.reader.files, "_most_at_once", 3)
        found, same = ref.read(wanted), near.read(wanted)
        for name in SPEC:
            np.testing.assert_array_equal(found[name], same[name])


def test_a_disk_that_fails_for_a_while(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does not tell is fetched again, and nobody waits for ever."""
    near = site.store(records(), spec=SPEC, part_bytes=20_000)
    roll, plain = np.random.default_rng(2), sparse_file.os.pread
    failed: list[int] = []

    def pread(*args: int) -> bytes:
        if roll.random() < 0.3:
            failed.append(1)
            raise OSError(5, "Input/output error")
        return plain(*args)

    with site.ref() as ref:
        monkeypatch.setattr(sparse_file.os, "pread", pread)
        numbers = [record["n"] for record in ref.stream(**ORDER)]
        monkeypatch.setattr(sparse_file.os, "pread", plain)
        assert failed
        assert numbers == [record["n"] for record in near.stream(**ORDER)]
        assert numbers == [record["n"] for record in ref.stream(**ORDER)]


def _claims(folder: pathlib.Path) -> list[str]:
    """What this process has open of what it may still write below a folder."""
    open_files = [path.resolve() for path in pathlib.Path("/proc/self/fd").iterdir()]
    return [it.name for it in open_files if it.is_relative_to(folder) and "space." in it.name]


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")
def test_a_limit_takes_no_descriptor_when_nobody_reads(site: Site, tmp_path: pathlib.Path) -> None:
    """Of all who read with it, there is one."""
    site.store(records(), spec=SPEC)
    url = f"http://127.0.0.1:{site.web.port}/a/1/cache.mdb"
    for name in ("one", "another"):
        local = tmp_path / name
        local.mkdir()
        options: Any = {"local_cache_dir": local, "local_cache_bytes": 10**6}
        with yogadl.from_url(url, **options) as ref:
            assert ref[7]["n"] == 7
            (claim,) = _claims(local)
            with yogadl.from_url(url, **options) as same:
                assert same[300]["n"] == 300
            assert _claims(local) == [claim]
    del ref, same
    wait_until(lambda: not _claims(tmp_path))
