"""``python -m yogadl``."""

from __future__ import annotations

import getpass
import os
import pathlib
import re
import socket
import subprocess
import sys

import numpy as np
import pytest

import yogadl.storage


def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "yogadl", *arguments]
    env = {**os.environ, "PYTHONIOENCODING": "utf-8", **environment}
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=60, check=False, env=env
    )
    return done.returncode, done.stdout, done.stderr


def test_info_and_verify(storage_dir: pathlib.Path) -> None:
    storage = yogadl.storage.LFSStorage(yogadl.storage.LFSConfigurations(storage_dir))
    storage.submit([1, 2, 3], "numbers", "1", metadata={"source": "here"})
    path = storage_dir / "numbers/1/cache.mdb"
    status, printed, _ = run("info", str(path))
    assert status == 0
    assert "records:  3\n" in printed
    assert "int64" in printed
    assert "{'source': 'here'}" in printed
    assert f"stored:   by {getpass.getuser()} on {socket.gethostname()}\n" in printed
    assert "made by:" not in printed
    storage.cacheable("numbers", "2")(lambda count: [1] * count)(2)
    _, printed, _ = run("info", str(storage_dir / "numbers/2/cache.mdb"))
    assert "<lambda>(2)\n" in printed
    assert run("verify", str(path)) == (0, f"{path} is whole: 3 records.\n", "")


def test_a_storage_is_listed(storage_dir: pathlib.Path) -> None:
    storage = yogadl.storage.LFSStorage(storage_dir)
    storage.submit([1, 2, 3], "numbers", "1")
    storage.submit([1], "others", "1")
    storage.tag("numbers", "best", "1")
    (storage_dir / "others" / "1" / "cache.mdb").write_bytes(b"")
    status, printed, _ = run("list", str(storage_dir))
    assert status == 0
    first, second = printed.splitlines()
    assert first.startswith("numbers 1 [best]: 3 records, ")
    assert first.endswith(f"UTC by {getpass.getuser()} on {socket.gethostname()}")
    assert second.startswith("others 1: ? records, 0 bytes, ")
    assert run("list", storage_dir.as_uri(), "numbers") == (0, first + "\n", "")
    status, _, complaint = run("list", str(storage_dir / "none" / "there"))
    assert (status, complaint.partition(":")[0]) == (1, "InvalidArgumentError")
    assert run("info", str(storage_dir), "more")[0] == 2


@pytest.mark.once
def test_versions_are_told_of(storage_dir: pathlib.Path) -> None:
    storage = yogadl.storage.LFSStorage(storage_dir)
    storage.submit([1, 2, 3], "numbers", "1")
    storage.submit([1, 2, 3], "numbers", "other")
    storage.tag("numbers", "main", "1")
    with storage.change("numbers", "main", version="2", message="more") as change:
        change.append([4, 5])
    with storage.change("numbers", "main", version="3") as change:
        change.delete([0])
    where = str(storage_dir)
    listed = run("list", where, "numbers")[1].splitlines()
    by_name = {line.split()[1].rstrip(":"): line for line in listed if line.startswith("numbers")}
    log = [by_name["3"], by_name["2"], "    more", by_name["1"]]
    assert run("log", where, "numbers", "main") == (0, "\n".join(log) + "\n", "")
    assert run("log", where, "numbers") == run("log", where, "numbers", "3")
    assert run("log", where, "numbers", "2")[1].splitlines() == log[1:]
    assert run("diff", where, "numbers", "1", "main") == (
        0,
        f"{storage.diff('numbers', '1', 'main')}\n",
        "",
    )
    for command in (("log",), ("log", "none"), ("diff", "1", "none")):
        status, printed, complaint = run(command[0], where, "nmbers", *command[1:])
        assert (status, printed) == (1, "")
        assert complaint.startswith("CacheNotFoundError: ")


@pytest.mark.once
def test_tags_are_moved(storage_dir: pathlib.Path) -> None:
    storage = yogadl.storage.LFSStorage(storage_dir)
    for version in "12":
        storage.submit([int(version)], "numbers", version)
    where = (str(storage_dir), "numbers")
    assert run("tag", *where, "main", "1") == (0, "set numbers [main] to 1\n", "")
    assert run("tag", *where, "main") == (0, "1\n", "")
    assert run("tag", *where, "best", "main", "--new")[1] == "set numbers [best] to 1\n"
    for refused in (["best", "2", "--new"], ["best", "2", "--expect", "2"]):
        status, _, complaint = run("tag", *where, *refused)
        assert (status, complaint.partition(":")[0]) == (1, "TagMovedError")
    assert run("tag", *where, "best", "2", "--expect", "1")[0] == 0
    assert storage.tags("numbers") == {"best": "2", "main": "1"}
    assert run("untag", *where, "best", "--expect", "1")[0] == 1
    assert run("untag", *where, "best", "--expect", "2")[1] == "took numbers [best] away\n"
    for missing in (["untag", "best"], ["tag", "best"], ["tag", "best", "3"]):
        status, _, complaint = run(missing[0], *where, *missing[1:])
        assert (status, complaint.partition(":")[0]) == (1, "CacheNotFoundError")
    for refused in (["main", "--new"], ["main", "--expect", "1"], ["2", "1"]):
        status, _, complaint = run("tag", *where, *refused)
        assert (status, complaint.partition(":")[0]) == (1, "InvalidArgumentError")
    assert storage.tags("numbers") == {"main": "1"}


@pytest.mark.once
def test_commits_are_taken_back_and_versions_deleted(storage_dir: pathlib.Path) -> None:
    storage = yogadl.storage.LFSStorage(storage_dir)
    storage.submit([1, 2, 3], "numbers", "1")
    storage.tag("numbers", "main", "1")
    with storage.change("numbers", "main", version="2") as change:
        change.append([4, 5])
    where = (str(storage_dir), "numbers")
    status, printed, _ = run("revert", *where, "2", "main", "--message", "too many")
    made = storage.tags("numbers")["main"]
    assert (status, printed) == (0, f"set numbers [main] to {made}, without what 2 changed\n")
    assert storage.log("numbers", "main")[0].message == "too many"
    assert run("compact", *where, "main") == (0, f"compacted numbers {made}\n", "")
    content = [storage.fetch("numbers", it).reader.content_id for it in ("1", made)]
    assert content[0] == content[1]
    status, printed, complaint = run("delete", *where, made)
    assert (status, printed, complaint.partition(":")[0]) == (1, "", "InvalidArgumentError")
    assert "--force" in complaint
    assert run("delete", *where, "2") == (0, "deleted numbers 2\n", "")
    first, second = run("delete", *where, made, "--force")[1].splitlines()
    assert first == f"deleted numbers {made}"
    assert second.startswith("[main] is at nothing now")
    assert [it.dataset_version for it in storage.list("numbers")] == ["1"]
    for missing in (["delete", "2"], ["compact", "2"], ["revert", "2", "main"]):
        status, printed, complaint = run(missing[0], *where, *missing[1:])
        assert (status, printed, complaint.partition(":")[0]) == (1, "", "CacheNotFoundError")


@pytest.mark.once
def test_what_is_not_there_is_not_made(tmp_path: pathlib.Path) -> None:
    missing = str(tmp_path / "mistyped")
    url = (tmp_path / "mistyped").as_uri()
    for arguments in (
        ["list"],
        ["gc"],
        ["card", "a"],
        ["compact", "a", "1"],
        ["delete", "a", "1"],
        ["revert", "a", "1", "main"],
        ["sync", "there"],
        ["tag", "a", "b", "c"],
    ):
        for where in (missing, url):
            status, printed, complaint = run(arguments[0], where, *arguments[1:])
            assert (status, printed) == (1, "")
            assert "there is no directory" in complaint
    assert not list(tmp_path.iterdir())


@pytest.mark.once
def test_storages_are_synced_and_collected(tmp_path: pathlib.Path) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    storage = yogadl.storage.LFSStorage(one)
    for version in "123":
        storage.submit([int(version)], "numbers", version)
    storage.tag("numbers", "best", "1")
    status, printed, _ = run("sync", one, two, "numbers", "best", "2")
    assert (status, printed) == (
        0,
        f"made a new storage {two}\ncopied numbers 1\ncopied numbers 2\nset numbers [best] to 1\n",
    )
    assert run("sync", one, two, "--dry-run") == (0, "would copy numbers 3\n", "")
    assert run("sync", one, two)[1] == "copied numbers 3\n"
    assert run("sync", one, two) == (0, "there is nothing to copy\n", "")
    what = ("gc", two, "numbers", "--keep-last", "1", "--older-than", "0")
    status, printed, _ = run(*what, "--dry-run")
    assert (status, printed.splitlines()[0]) == (0, "would delete numbers 2")
    assert run(*what)[1].startswith("deleted numbers 2\ndeleted 0 parts, ")
    assert len(yogadl.storage.LFSStorage(two).list()) == 2
    status, _, complaint = run("gc", two, "--keep-last", "-1")
    assert (status, complaint.partition(":")[0]) == (1, "InvalidArgumentError")


@pytest.mark.once
def test_a_dry_sync_makes_nothing(storage_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    storage = yogadl.storage.LFSStorage(storage_dir)
    storage.submit([1], "numbers", "1")
    storage.tag("numbers", "best", "1")
    for to in (str(tmp_path / "a new one"), (tmp_path / "a new one").as_uri()):
        assert run("sync", str(storage_dir), to, "--dry-run") == (
            0,
            f"would make a new storage {to}\nwould copy numbers 1\nwould set numbers [best] to 1\n",
            "",
        )
    status, _, complaint = run("sync", str(storage_dir), str(tmp_path / "no" / "b"), "--dry-run")
    assert (status, complaint.partition(":")[0]) == (1, "InvalidArgumentError")
    assert [path.name for path in tmp_path.iterdir() if path != storage_dir] == []


@pytest.mark.once
def test_an_unknown_id_is_an_error(storage_dir: pathlib.Path) -> None:
    storage = yogadl.storage.LFSStorage(storage_dir)
    storage.submit([1], "numbers", "1", part_bytes=1)
    for command in (("list",), ("gc",), ("gc", "--dry-run")):
        status, printed, complaint = run(command[0], str(storage_dir), "nubmers", *command[1:])
        assert (status, printed) == (1, "")
        assert complaint.startswith("CacheNotFoundError: there is no data set 'nubmers' in ")
    # Of one that has no version any more, there may be parts.
    storage.submit(np.arange(9), "numbers", "2", part_bytes=8)
    storage._catalogue.take_out(("numbers", "2"), "any", is_forced=True)
    for version in "12":
        (storage_dir / "numbers" / version / "cache.mdb").unlink()
    status, printed, _ = run("gc", str(storage_dir), "numbers", "--older-than", "0")
    assert (status, printed[:15]) == (0, "deleted 9 parts")


@pytest.mark.once
def test_times_that_there_are_not(storage_dir: pathlib.Path) -> None:
    yogadl.storage.LFSStorage(storage_dir).submit([1], "numbers", "1")
    for days in ("inf", "nan", "1e12", "-1"):
        status, _, complaint = run("gc", str(storage_dir), f"--older-than={days}")
        assert (status, complaint.partition(":")[0]) == (1, "InvalidArgumentError")
        assert len(complaint.splitlines()) == 1
    assert run("gc", str(storage_dir), "--older-than=1e8", "--keep-last=0")[0] == 0


def test_whatever_others_have_written_is_one_line(storage_dir: pathlib.Path) -> None:
    storage = yogadl.storage.LFSStorage(storage_dir)
    storage.submit([1, 2], "ä", "1\x1b[2J")
    storage.tag("ä", "main", "1\x1b[2J")
    said = "ü \x1b[31mred\x1b[0m\nforged 9: 1 records \u202e"
    with storage.change("ä", "main", version="2", message=said) as change:
        change.delete([0])
    status, printed, complaint = run("list", str(storage_dir))
    assert (status, complaint) == (0, "")
    lines = printed.splitlines()
    assert lines[0].startswith(r"ä 1\x1b[2J: 2 records")
    assert lines[2:] == [r"    ü \x1b[31mred\x1b[0m\nforged 9: 1 records \u202e"]
    path = storage_dir / "ä" / "2" / "cache.mdb"
    assert r" ü \x1b[31mred\x1b[0m\nforged" in run("info", str(path))[1]
    # A terminal may have fewer letters.
    status, printed, complaint = run("list", str(storage_dir), PYTHONIOENCODING="ascii")
    assert (status, complaint) == (0, "")
    assert printed.splitlines()[2:] == [r"    \xfc \x1b[31mred\x1b[0m\nforged 9: 1 records \u202e"]
    assert "\x1b" not in run("list", str(storage_dir), "\x1b[2J")[2]


@pytest.mark.once
def test_urls_are_told_from_paths(storage_dir: pathlib.Path) -> None:
    for command in ("info", "verify"):
        for url in ("s3://bucket/a/1/cache.mdb", storage_dir.as_uri()):
            status, _, complaint = run(command, url)
            assert (status, complaint.partition(":")[0]) == (1, "InvalidArgumentError")
            assert "is a URL: give the path of a file" in complaint
    status, _, complaint = run("list", "s3://")
    assert (status, complaint.partition(":")[0]) == (1, "InvalidArgumentError")
    assert "has no bucket" in complaint


def test_a_sync_of_an_unknown_id_is_an_error(
    storage_dir: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    yogadl.storage.LFSStorage(storage_dir).submit([1], "numbers", "1")
    for names in ((), ("1",)):
        status, printed, complaint = run(
            "sync", str(storage_dir), str(tmp_path / "other"), "nubmers", *names
        )
        assert (status, printed) == (1, "")
        assert complaint.startswith("CacheNotFoundError: there is no data set 'nubmers' in ")
    assert not (tmp_path / "other").exists()


def test_the_help_says_what_each_command_does() -> None:
    status, printed, _ = run("-h")
    assert status == 0
    for name in ("info", "verify", "list", "card", "revert", "compact", "delete", "gc", "sync"):
        assert re.search(rf"^    {name} +[a-z]", printed, re.MULTILINE)
        assert ".\n" in run(name, "-h")[1].split("\n\n")[1] + "\n"
    assert run("--version") == (0, f"yogadl {yogadl.__version__}\n", "")


def test_a_directory_is_no_file_of_a_version(storage_dir: pathlib.Path) -> None:
    yogadl.storage.LFSStorage(storage_dir).submit([1], "numbers", "1")
    for command in ("info", "verify"):
        status, _, complaint = run(command, str(storage_dir))
        assert status == 1
        assert f"{storage_dir}/ID/VERSION/cache.mdb" in complaint
        assert "yogadl list" in complaint
        complaint = run(command, str(storage_dir / "numbers" / "1"))[2]
        assert f"{storage_dir}/numbers/1/cache.mdb" in complaint


def test_a_reader_that_goes_away_ends_it_quietly(storage_dir: pathlib.Path) -> None:
    storage = yogadl.storage.LFSStorage(storage_dir)
    storage.submit([1], "numbers", "1")
    command = [sys.executable, "-m", "yogadl", "list", str(storage_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_damage_is_told(storage_dir: pathlib.Path) -> None:
    storage = yogadl.storage.LFSStorage(yogadl.storage.LFSConfigurations(storage_dir))
    storage.submit([1, 2, 3], "numbers", "1")
    path = storage_dir / "numbers/1/cache.mdb"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    status, printed, complaint = run("verify", str(path))
    assert (status, printed) == (1, "")
    assert complaint.startswith("ChecksumError: ")


def test_a_missing_file_is_told(tmp_path: pathlib.Path) -> None:
    status, _, complaint = run("info", str(tmp_path / "none.mdb"))
    assert status == 1
    assert complaint.startswith("CacheNotFoundError: ")
