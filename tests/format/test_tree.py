"""The tree walker against py-lmdb, and against files that were tampered with."""

from __future__ import annotations

import pathlib
import struct
import tempfile

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yogadl.errors import (
    CacheFormatError,
    ChecksumError,
    ForeignFileError,
    TruncatedCacheError,
    UnsupportedFormatError,
)
from yogadl.format.pages import NO_PAGE
from yogadl.format.tree import Tree

PAGE = 4096
META_ENTRIES = 16 + 24 + 48 + 32
META_ROOT = META_ENTRIES + 8
META_LAST_PAGE = META_ROOT + 8
META_DEPTH = 16 + 24 + 48 + 6


def contents(buffer: np.ndarray) -> list[tuple[bytes, bytes]]:
    tree = Tree(buffer, "file")
    found = []
    for part in tree.walk():
        for key_at, key_size, at, size in zip(
            *[column.tolist() for column in vars(part).values()], strict=True
        ):
            found.append((tree.key(key_at, key_size), buffer[at : at + size].tobytes()))
    return found


def write(
    path: pathlib.Path, commits: list[dict[bytes, bytes | None]], **options: bool
) -> np.ndarray:
    """An LMDB file after some commits; ``None`` deletes a key."""
    with lmdb.open(
        str(path), subdir=False, lock=False, map_size=1 << 26, sync=False, max_dbs=2
    ) as env:
        database = env.open_db(b"inner") if options else None
        for commit in commits:
            with env.begin(write=True, db=database) as txn:
                for key, value in commit.items():
                    if value is None:
                        txn.delete(key)
                    else:
                        txn.put(key, value)
    return np.fromfile(path, "u1")


def used(buffer: np.ndarray) -> np.ndarray:
    """The file in full length: LMDB does not write pages at the end that it freed again."""
    needed = max(
        int.from_bytes(buffer[at + META_LAST_PAGE :][:8].tobytes(), "little") for at in (0, PAGE)
    )
    return np.concatenate([buffer, np.zeros(max((needed + 1) * PAGE - len(buffer), 0), "u1")])


KEYS = st.one_of(
    st.binary(min_size=1, max_size=20),
    st.integers(0, 50).map(lambda number: b"%08d" % number),
    st.integers(1, 255).map(lambda byte: bytes([byte]) * 400),
    st.integers(1, 20).map(lambda size: b"\0" * size),
)
VALUES = st.one_of(
    st.none(),
    st.integers(0, 30_000).map(lambda size: bytes([size % 251]) * size),
    st.binary(max_size=30),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=60), max_size=4))
def test_same_as_lmdb(commits: list[dict[bytes, bytes | None]]) -> None:
    expected: dict[bytes, bytes] = {}
    for commit in commits:
        expected.update({key: value for key, value in commit.items() if value is not None})
        for key, value in commit.items():
            if value is None:
                expected.pop(key, None)
    with tempfile.TemporaryDirectory() as directory:
        buffer = used(write(pathlib.Path(directory, "file.mdb"), commits))
    assert contents(buffer) == sorted(expected.items())
    tree = Tree(buffer, "file")
    assert tree.entries == len(expected)
    for key, value in expected.items():
        place = tree.find(key)
        assert place is not None
        assert buffer[place[0] : sum(place)].tobytes() == value
    for key in (b"\0\0absent", b"00000007.5", b"\xff" * 501):
        assert tree.find(key) is None


def numbered(path: pathlib.Path, count: int, size: int = 100) -> np.ndarray:
    records: dict[bytes, bytes | None] = {
        b"%08d" % number: b"%d" % number * size for number in range(count)
    }
    return write(path, [records])


def test_three_levels(tmp_path: pathlib.Path) -> None:
    buffer = write(
        tmp_path / "file.mdb",
        [{b"%0400d" % number: b"%d" % number for number in range(3000)}],
    )
    assert Tree(buffer, "file").meta.depth >= 4
    assert contents(buffer) == [(b"%0400d" % number, b"%d" % number) for number in range(3000)]
    place = Tree(buffer, "file").find(b"%0400d" % 2500)
    assert place is not None
    assert buffer[place[0] : sum(place)].tobytes() == b"2500"


@pytest.mark.parametrize("size", [512, 1024, 8192, 32768, 65536])
def test_page_sizes(size: int) -> None:
    """Files of other machines, made by hand: py-lmdb takes the page size of this one."""
    value = bytes(range(256)) * (size // 100)
    pages = overflow = -(-(16 + len(value)) // size)
    nodes = [
        struct.pack("<HHHH", 5, 0, 0, 3) + b"key" + b"value",
        struct.pack("<HHHH", len(value) & 0xFFFF, len(value) >> 16, 1, 4) + b"long",
    ]
    nodes[1] += (3).to_bytes(8, "little")
    starts = [size - len(nodes[0]), size - len(nodes[0]) - len(nodes[1])]
    leaf = struct.pack("<QHHHHHH", 2, 0, 2, 20, starts[1], *starts)
    leaf = leaf.ljust(starts[1], b"\0") + nodes[1] + nodes[0]
    file = b""
    for number in (0, 1):
        meta = struct.pack("<QHHI", number, 0, 8, 0) + struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, 0)
        meta += struct.pack("<IHHQQQQQ", size, 8, 0, 0, 0, 0, 0, NO_PAGE)
        meta += struct.pack("<IHHQQQQQ", 0, 0, 1, 0, 1, overflow, 2, 2)
        file += (meta + struct.pack("<QQ", 2 + pages, number)).ljust(size, b"\0")
    file += leaf + (struct.pack("<QHHI", 3, 0, 4, pages) + value).ljust(pages * size, b"\0")
    assert contents(np.frombuffer(file, "u1")) == [(b"key", b"value"), (b"long", value)]


def test_memoryview(tmp_path: pathlib.Path) -> None:
    buffer = numbered(tmp_path / "file.mdb", 3)
    assert Tree(memoryview(buffer.tobytes()), "file").find(b"00000001") is not None


def put(buffer: np.ndarray, at: int, number: int, size: int = 8) -> None:
    buffer[at : at + size] = np.frombuffer(number.to_bytes(size, "little"), "u1")


def put_meta(buffer: np.ndarray, at: int, number: int, size: int = 8) -> None:
    put(buffer, at, number, size)
    put(buffer, PAGE + at, number, size)


def root_of(buffer: np.ndarray) -> int:
    return Tree(buffer, "file").meta.root * PAGE


@pytest.mark.parametrize(
    ("at", "number", "size", "error"),
    [
        (16, 0xDEC0EFBE, 4, UnsupportedFormatError),
        (20, 2, 4, UnsupportedFormatError),
        (20, 999, 4, UnsupportedFormatError),
        (16, 0, 4, ForeignFileError),
        (40, 4095, 4, ChecksumError),
        (40, 0, 4, ChecksumError),
        (40, 8192, 4, CacheFormatError),
        (10, 0, 2, ChecksumError),
        (16 + 24 + 48 + 4, 0x04, 2, ForeignFileError),
        (META_DEPTH, 33, 2, ChecksumError),
        (META_DEPTH, 0, 2, ChecksumError),
        (META_DEPTH, 3, 2, ChecksumError),
        (META_DEPTH, 1, 2, ChecksumError),
        (META_ROOT, 1, 8, ChecksumError),
        (META_ROOT, 10**6, 8, ChecksumError),
        (META_ROOT, NO_PAGE, 8, ChecksumError),
        (META_ENTRIES, 7, 8, ChecksumError),
        (META_ENTRIES, 0, 8, ChecksumError),
        (META_ENTRIES, 10**7, 8, ChecksumError),
        (META_ENTRIES, 2**63 + 1, 8, ChecksumError),
        (META_LAST_PAGE, 10**6, 8, TruncatedCacheError),
        (META_LAST_PAGE, 2**64 - 1, 8, TruncatedCacheError),
        (META_LAST_PAGE, 2, 8, ChecksumError),
    ],
)
def test_hostile_meta(
    tmp_path: pathlib.Path, at: int, number: int, size: int, error: type[Exception]
) -> None:
    buffer = numbered(tmp_path / "file.mdb", 200)
    put_meta(buffer, at, number, size)
    with pytest.raises(error):
        contents(buffer)


def test_meta_of_32_bits(tmp_path: pathlib.Path) -> None:
    buffer = numbered(tmp_path / "file.mdb", 2)
    buffer[12:20] = buffer[16:24].copy()
    buffer[16:20] = 1
    with pytest.raises(UnsupportedFormatError, match="32-bit"):
        Tree(buffer, "file")


def test_older_meta_is_not_used(tmp_path: pathlib.Path) -> None:
    buffer = write(tmp_path / "file.mdb", [{b"a": b"1"}, {b"a": b"2"}, {b"a": b"3"}])
    assert contents(buffer) == [(b"a", b"3")]


@pytest.mark.parametrize("length", [0, 1, 20, 100, 4096, 4200, 8192, 20_000])
def test_short_file(tmp_path: pathlib.Path, length: int) -> None:
    buffer = numbered(tmp_path / "file.mdb", 200)
    with pytest.raises(
        TruncatedCacheError if length in (0, 100, 4096, 8192, 20_000) else CacheFormatError
    ):
        Tree(buffer[:length], "file")


def test_foreign_file() -> None:
    with pytest.raises(ForeignFileError):
        Tree(np.arange(10_000, dtype="u4").view("u1"), "file")


@pytest.mark.parametrize("depth", [2, 20, 32])
def test_cycle(tmp_path: pathlib.Path, depth: int) -> None:
    """A branch page that is its own child, two times over: 2**depth pages to walk."""
    buffer = numbered(tmp_path / "file.mdb", 200)
    root = root_of(buffer)
    pointers = buffer[root + 16 : root + 20].view("<u2").tolist()
    put(buffer, root + 12, 20, 2)
    for pointer in pointers:
        put(buffer, root + pointer, root // PAGE, 4)
    put_meta(buffer, META_DEPTH, depth, 2)
    with pytest.raises(ChecksumError):
        contents(buffer)
    with pytest.raises(ChecksumError):
        Tree(buffer, "file").find(b"00000001")


@pytest.mark.parametrize(
    ("at", "number", "size"),
    [
        (0, 99, 8),
        (10, 0x01, 2),
        (10, 0x22, 2),
        (12, 17, 2),
        (12, 16, 2),
        (12, 65535, 2),
        (14, 4098, 2),
        (14, 10, 2),
        (16, 4094, 2),
        (16, 4095, 2),
        (16, 3, 2),
        (16, 65534, 2),
    ],
)
def test_hostile_leaf(tmp_path: pathlib.Path, at: int, number: int, size: int) -> None:
    buffer = numbered(tmp_path / "file.mdb", 5, 10)
    put(buffer, root_of(buffer) + at, number, size)
    with pytest.raises(ChecksumError):
        contents(buffer)


@pytest.mark.parametrize(
    ("at", "number", "error"),
    [
        (0, 4000, ChecksumError),
        (2, 65535, ChecksumError),
        (4, 1, ChecksumError),
        (4, 2, ForeignFileError),
        (4, 4, ForeignFileError),
        (4, 8, ChecksumError),
        (6, 0, ChecksumError),
        (6, 4000, ChecksumError),
        (8, 0xFFFF, ChecksumError),
    ],
)
def test_hostile_node(tmp_path: pathlib.Path, at: int, number: int, error: type[Exception]) -> None:
    buffer = numbered(tmp_path / "file.mdb", 5, 10)
    root = root_of(buffer)
    pointer = int(buffer[root + 16 : root + 18].view("<u2")[0])
    put(buffer, root + pointer + at, number, 2)
    with pytest.raises(error):
        contents(buffer)


@pytest.mark.parametrize(
    ("at", "number", "size"), [(0, 1, 8), (10, 2, 2), (12, 1, 4), (12, 2**32 - 1, 4)]
)
def test_hostile_overflow(tmp_path: pathlib.Path, at: int, number: int, size: int) -> None:
    buffer = write(tmp_path / "file.mdb", [{b"a": b"x" * 9000}])
    place = Tree(buffer, "file").find(b"a")
    assert place is not None
    put(buffer, place[0] - 16 + at, number, size)
    with pytest.raises(ChecksumError):
        contents(buffer)


def test_overflow_outside_the_file(tmp_path: pathlib.Path) -> None:
    buffer = write(tmp_path / "file.mdb", [{b"a": b"x" * 9000}])
    root = root_of(buffer)
    pointer = int(buffer[root + 16 : root + 18].view("<u2")[0])
    for number in (0, 10**6, 2**63, 2**64 - 1):
        put(buffer, root + pointer + 9, number)
        with pytest.raises(ChecksumError):
            contents(buffer)


def test_named_databases(tmp_path: pathlib.Path) -> None:
    buffer = write(tmp_path / "file.mdb", [{b"a": b"b"}], named=True)
    with pytest.raises(ForeignFileError, match="databases inside"):
        contents(buffer)


FLIPS = st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=8)
_BASE = {b"%08d" % number: b"v" * (number * 37 % 3000) for number in range(150)}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    path = tmp_path_factory.mktemp("tree") / "file.mdb"
    return write(path, [dict(_BASE), {b"00000003": b"new", b"00000004": None}])


@settings(max_examples=300, deadline=None)
@given(flips=FLIPS, structural=st.booleans())
def test_flipped_bytes(base: np.ndarray, flips: list[tuple[int, int]], structural: bool) -> None:
    buffer = base.copy()
    for at, byte in flips:
        # Half of the runs hit only the first 64 bytes of pages, where the structure is.
        place = at // 64 % (len(buffer) // PAGE) * PAGE + at % 64 if structural else at
        buffer[place % len(buffer)] = byte
    try:
        found = contents(buffer)
        Tree(buffer, "file").find(b"00000077")
    except CacheFormatError:
        return
    # 150 if the newer meta page says it is older: then this is the tree before the last commit.
    assert len(found) in (149, 150)
