"""Which folder a copy is in: several buckets and several users share a local cache directory."""

from __future__ import annotations

import concurrent.futures
import itertools
import os
import pathlib
import shutil
import stat
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from copies import KEY, LEGACY, ROOT, flip, folder, folders, hide, load_note, records, write_note

from yogadl.errors import LocalDirectoryError

# It is about the copies here, and all buckets are alike to them.
pytestmark = pytest.mark.long_for("s3")

NOBODY = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def requests_of(rig: Any, work: Callable[[], Any]) -> list[str]:
    with rig.counting() as requests:
        work()
    return [request.operation for request in requests]


# Several objects of one id and version


def test_each_object_has_a_copy_of_its_own(rig: Any, local: pathlib.Path) -> None:
    prefixes = ["data", "more", "a/b", ""]
    storages = [rig.make_storage(local, prefix) for prefix in prefixes]
    for number, storage in enumerate(storages):
        storage.submit([number] * 10, "a", "1")
    assert len(folders(local)) == len(storages)
    for _, (number, storage) in itertools.product(range(2), enumerate(storages)):
        with rig.counting() as requests:
            assert records(storage.fetch("a", "1")) == [number] * 10
        assert [request.is_metadata for request in requests] == [True]
    assert [int(value) for value in storages[0].fetch("a", "1").stream()] == [0] * 10
    # The first keeps the folder that 0.1.4 knows.
    assert load_note(folder(local))["source"].endswith(f"{rig.bucket}/data/a/1/cache.mdb")


def test_deleting_one_leaves_the_others(rig: Any, local: pathlib.Path) -> None:
    one, other = rig.make_storage(local), rig.make_storage(local, "more")
    for order in ([one, other], [other, one]):
        one.submit([1], "a", "1")
        other.submit([2], "a", "1")
        order[0].delete("a", "1")
        assert len(folders(local)) == 1
        with rig.counting() as requests:
            order[1].fetch("a", "1").close()
        assert [request.is_metadata for request in requests] == [True]
        order[1].delete("a", "1")
        assert folders(local) == []


def test_ids_that_lie_below_one_another(rig: Any, local: pathlib.Path) -> None:
    """``a/b`` in one folder of the bucket is ``b`` in another, and the same object."""
    outer, inner = rig.make_storage(local, "data"), rig.make_storage(local, "data/a")
    outer.submit([1], "a/b", "1")
    inner.submit([2], "b", "1")
    assert records(outer.fetch("a/b", "1")) == [2]
    assert records(inner.fetch("b", "1")) == [2]


def test_the_same_name_at_another_endpoint(rig: Any, local: pathlib.Path, monkeypatch: Any) -> None:
    """Also if only the environment says so."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", rig.proxy.url)
    options = {"endpoint_url": None} if rig.dialect == "s3" else {}
    rig.make_storage(local, **options).submit([1], "a", "1")
    with rig.another_way() as (proxy, _):
        for name in ("AWS_ENDPOINT_URL_S3", "STORAGE_EMULATOR_HOST"):
            monkeypatch.setenv(name, proxy.url)
        again = rig.make_storage(local, **options)
        assert records(again.fetch("a", "1")) == [1]
    sources = [load_note(path)["source"] for path in folders(local)]
    assert len(set(sources)) == 2
    assert all("127.0.0.1:" in source for source in sources)


def test_no_secret_is_in_the_note(s3: Any, local: pathlib.Path) -> None:
    url = s3.proxy.url.replace("//", "//user:hushhush@")
    s3.make_storage(local, endpoint_url=url).submit([1], "a", "1")
    assert "hush" not in (folder(local) / "local_metadata.json").read_text()


def test_racing_for_the_first_use(rig: Any, local: pathlib.Path, elsewhere: pathlib.Path) -> None:
    for number in range(2):
        rig.make_storage(elsewhere, f"data-{number}").submit([number] * 100, "a", "1")
    for attempt in range(3):
        directory = local / str(attempt)
        directory.mkdir()
        storages = [rig.make_storage(directory, f"data-{number % 2}") for number in range(4)]
        barrier = threading.Barrier(len(storages))

        def fetch(number: int, storages: Any = storages, barrier: Any = barrier) -> None:
            barrier.wait(30)
            for _ in range(3):
                assert records(storages[number].fetch("a", "1")) == [number % 2] * 100

        with concurrent.futures.ThreadPoolExecutor(len(storages)) as pool:
            list(pool.map(fetch, range(len(storages))))
        assert len(folders(directory)) == 2
        for storage in storages:
            assert requests_of(rig, lambda s=storage: s.fetch("a", "1").close()) == ["head"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_racing_processes(rig: Any, local: pathlib.Path, elsewhere: pathlib.Path) -> None:
    storages = [rig.make_storage(local, f"data-{number}") for number in range(2)]
    for number in range(2):
        rig.make_storage(elsewhere, f"data-{number}").submit([number] * 100, "a", "1")

    def use(number: int) -> None:
        for _ in range(3):
            assert records(storages[number].fetch("a", "1")) == [number] * 100
        storages[number].submit([number] * 100, "a", "1")
        assert records(storages[number].fetch("a", "1")) == [number] * 100

    in_children([lambda number=number: use(number % 2) for number in range(4)])
    assert len(folders(local)) == 2
    for number, storage in enumerate(storages):
        with rig.counting() as requests:
            assert records(storage.fetch("a", "1")) == [number] * 100
        assert not [request for request in requests if request.operation != "head"][1:]


def test_a_copy_of_0_1_4_is_of_whom_it_serves_first(rig: Any, local: pathlib.Path) -> None:
    rig.raw.put(KEY, LEGACY.read_bytes())
    where = folder(local)
    where.mkdir(parents=True)
    shutil.copy(LEGACY, where / "cache.mdb")
    write_note(where, {"time_created": rig.raw.created(KEY).timestamp()})
    one, other = rig.make_storage(local), rig.make_storage(local, "more")
    with rig.counting() as requests:
        assert records(one.fetch("a", "1")) == list(range(1000))
    assert [request.is_metadata for request in requests] == [True]
    other.submit([2], "a", "1")
    assert records(other.fetch("a", "1")) == [2]
    assert records(one.fetch("a", "1")) == list(range(1000))
    assert (where / "cache.mdb").read_bytes() == LEGACY.read_bytes()


# Whose word counts


def planted(rig: Any, local: pathlib.Path) -> pathlib.Path:
    """A copy that has everything right but its records; its root."""
    rig.make_storage(local).submit([1] * 50, "a", "1")
    other = local.with_name("other")
    other.mkdir()
    rig.make_storage(other, "more").submit([6] * 50, "a", "1")
    made = folder(local) / "cache.mdb"
    data = next(other.rglob("cache.mdb")).read_bytes()
    assert len(data) == made.stat().st_size
    made.write_bytes(data)
    hide(folder(local))
    assert records(rig.make_storage(local).fetch("a", "1")) == [6] * 50
    return local / ROOT


def check_not_used(rig: Any, local: pathlib.Path, moved: bool) -> None:
    before = {path: path.lstat().st_mtime_ns for path in (local / ROOT).rglob("*")}
    storage = rig.make_storage(local)
    for _ in range(2):
        assert records(storage.fetch("a", "1")) == [1] * 50
        assert records(storage.cacheable("a", "1")(lambda: pytest.fail("built"))()) == [1] * 50
    assert requests_of(rig, lambda: storage.fetch("a", "1").close()) == ["head"]
    if moved:
        assert {path: path.lstat().st_mtime_ns for path in (local / ROOT).rglob("*")} == before
        assert len(folders(local)) == 2


@pytest.mark.parametrize("name", ["", "a", "a/1"])
def test_a_folder_that_others_may_write_to(name: str, rig: Any, local: pathlib.Path) -> None:
    root = planted(rig, local)
    (root / name).chmod(0o777)
    check_not_used(rig, local, moved=True)


@pytest.mark.parametrize("name", ["cache.mdb", "local_metadata.json"])
def test_a_file_that_others_may_write_to(name: str, rig: Any, local: pathlib.Path) -> None:
    planted(rig, local)
    file = folder(local) / name
    file.chmod(0o666)
    if name == "cache.mdb":
        hide(folder(local))
    check_not_used(rig, local, moved=False)


@as_root
@pytest.mark.parametrize("name", ["", "a", "a/1", "a/1/cache.mdb", "a/1/local_metadata.json"])
def test_what_is_another_users(name: str, rig: Any, local: pathlib.Path) -> None:
    root = planted(rig, local)
    os.chown(root / name, NOBODY, NOBODY)
    if name == "a/1/cache.mdb":
        hide(folder(local))
    check_not_used(rig, local, moved=not name.startswith("a/1/"))


@as_root
def test_a_link_that_is_another_users(rig: Any, local: pathlib.Path) -> None:
    """As one can put into /tmp."""
    root = planted(rig, local)
    target = local / "target"
    root.rename(target)
    root.symlink_to(target)
    os.chown(root, NOBODY, NOBODY, follow_symlinks=False)
    check_not_used(rig, local, moved=False)
    assert not (target / "a" / "1" / "new").exists()
    assert len(folders(local)) == 2


def test_a_link_of_ones_own_is_followed(rig: Any, local: pathlib.Path) -> None:
    """To a larger disk, say."""
    (local / "large").mkdir()
    (local / ROOT).symlink_to(local / "large")
    rig.make_storage(local).submit([1], "a", "1")
    assert folders(local) == [folder(local)]
    assert requests_of(rig, lambda: rig.make_storage(local).fetch("a", "1").close())[-1] == "head"


def test_a_root_with_the_sticky_bit(rig: Any, local: pathlib.Path) -> None:
    (local / ROOT).mkdir()
    (local / ROOT).chmod(0o1777)
    rig.make_storage(local).submit([1], "a", "1")
    assert folders(local) == [folder(local)]


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_whatever_the_umask(umask: int, rig: Any, local: pathlib.Path) -> None:
    """What yogadl itself makes can be trusted."""
    before = os.umask(umask)
    try:
        storages = [rig.make_storage(local), rig.make_storage(local, "more")]
        for storage in storages:
            storage.submit([1], "a", "1")
            assert requests_of(rig, lambda s=storage: s.fetch("a", "1").close()) == ["head"]
        for path in folders(local):
            flip(path / "cache.mdb", 20_000)
        for storage in storages:
            storage.fetch("a", "1").close()
            assert requests_of(rig, lambda s=storage: s.fetch("a", "1").close()) == ["head"]
    finally:
        os.umask(before)
    assert len(folders(local)) == 2
    for path in local.rglob("*"):
        # Whoever may read a lock can hold it; what is in it is nothing.
        assert path.suffix == ".lock" or not path.stat().st_mode & stat.S_IWOTH


# Another user


def in_children(works: list[Callable[[], Any]], uid: int | None = None) -> None:
    """Does works in processes of their own, at the same time; of another user."""
    children = []
    for work in works:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            told = b""
            try:
                os.close(read)
                if uid is not None:
                    os.setgroups([])
                    os.setresgid(uid, uid, uid)
                    os.setresuid(uid, uid, uid)
                work()
            except BaseException:  # also what pytest raises, which must not go on in the child
                told = traceback.format_exc().encode()
            os.write(write, told[-60_000:])
            os._exit(0)
        os.close(write)
        children.append((pid, read))
    for pid, read in children:
        with open(read, "rb") as pipe:
            told = pipe.read().decode()
        os.waitpid(pid, 0)
        assert not told, told


def as_nobody(work: Callable[[], Any]) -> None:
    in_children([work], NOBODY)


@pytest.fixture
def shared() -> Iterator[pathlib.Path]:
    """A directory like /tmp, to which all users get; they do not get to pytest's."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        directory.chmod(0o1777)
        yield directory


def use(rig: Any, directory: pathlib.Path) -> None:
    """All that a user does."""
    storage = rig.make_storage(directory)
    storage.fetch("a", "1", check_records=True).close()
    storage.submit([7] * 20, "a", "1")
    assert records(storage.fetch("a", "1")) == [7] * 20
    assert records(storage.cacheable("b", "1")(lambda: [1, 2])()) == [1, 2]
    storage.delete("b", "1")


@as_root
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.long_for("s3")
def test_another_user_has_copies_of_his_own(
    rig: Any, shared: pathlib.Path, local: pathlib.Path
) -> None:
    rig.make_storage(local).submit([7] * 20, "a", "1")
    use(rig, local)  # so that all modules are there
    for order in ([use, None], [None, use]):
        directory = shared / str(len(os.listdir(shared)))
        directory.mkdir()
        directory.chmod(0o1777)
        for mine in order:
            if mine is None:
                as_nobody(lambda directory=directory: use(rig, directory))
            else:
                use(rig, directory)
        assert len(folders(directory)) == 2
        assert {path.stat().st_uid for path in folders(directory)} == {0, NOBODY}
        for work in (
            lambda directory=directory: as_nobody(
                lambda: rig.make_storage(directory).fetch("a", "1").close()
            ),
            lambda directory=directory: rig.make_storage(directory).fetch("a", "1").close(),
        ):
            work()
            operations = requests_of(rig, work)
            assert "read" not in operations


@as_root
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_copy_that_root_has_prepared_is_read(
    rig: Any, shared: pathlib.Path, local: pathlib.Path
) -> None:
    rig.make_storage(local).submit([7] * 20, "a", "1")
    rig.make_storage(local).fetch("a", "1").close()
    rig.make_storage(shared).fetch("a", "1").close()
    shared.chmod(0o755)

    def read() -> None:
        assert records(rig.make_storage(shared).fetch("a", "1")) == [7] * 20

    assert "read" not in requests_of(rig, lambda: as_nobody(read))
    # Its note is out of date, as after the folder was copied: its digest tells.
    os.utime(folder(shared) / "cache.mdb")
    assert "read" not in requests_of(rig, lambda: as_nobody(read))
    # It is of an old state.
    rig.make_storage(local).submit([8] * 20, "a", "1")

    def fail() -> None:
        with pytest.raises(LocalDirectoryError, match="local_cache_dir"):
            rig.make_storage(shared).fetch("a", "1")
        with pytest.raises(LocalDirectoryError, match="local_cache_dir"):
            rig.make_storage(shared).submit([8] * 20, "a", "1")

    as_nobody(fail)


@as_root
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_root_of_ones_own_that_another_has_made(rig: Any, shared: pathlib.Path) -> None:
    storage = rig.make_storage(shared)
    storage.submit([1], "a", "1")
    as_nobody(lambda: rig.make_storage(shared).submit([1], "a", "1"))
    (own,) = shared.glob(f"{ROOT}-{NOBODY}-*")
    for path in [own, *own.rglob("*")]:
        os.chown(path, 12345, 12345)

    def fail() -> None:
        with pytest.raises(LocalDirectoryError, match="another user's"):
            rig.make_storage(shared).fetch("a", "1")

    as_nobody(fail)


def test_a_path_that_is_too_long_for_this_machine(rig: Any, local: pathlib.Path) -> None:
    directory = local
    while len(str(directory)) < 3900:
        directory /= "x" * min(200, 3950 - len(str(directory)))
    os.makedirs(directory)
    storage = rig.make_storage(directory)
    for _ in range(2):
        with pytest.raises(LocalDirectoryError, match="too long"):
            storage.submit([1], "a" * 200, "1")
