"""A reader of cache files written from docs/format.md alone, with ranged reads only.

It shares no code with yogadl. If this file has to change, then so has the format.
"""

from __future__ import annotations

import collections
import json
import math
import pathlib
import re
import struct
from collections.abc import Callable
from typing import Any

import lmdb
import numpy as np
import pytest
import xxhash
from versioned import write_groups, write_parts, write_runs

import yogadl.storage
from yogadl import spec as specs

INT64 = specs.TensorSpec("int64")
Read = Callable[[int, int], bytes]
Array = tuple[Any, Any]
"""Item type (``None`` for the bytes of strings), and shape if it is fixed, else ``None``."""

BLOCK = 4096
NUMPY_NAMES = {"bool": "?", "qint8": "i1", "quint8": "u1", "qint16": "i2", "quint16": "u2"}


def align(number: int, to: int) -> int:
    return (number + to - 1) // to * to


def scatter(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) % 2**64
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31


class SpecReader:
    def __init__(self, read: Read, file_size: int) -> None:
        self.read = read
        page = read(8192, 4096)
        assert struct.unpack_from("<QHHI", page) == (2, 0, 4, 1)
        magic, version, page_size = struct.unpack_from("<8sII", page, 16)
        assert (magic, version, page_size) == (b"\x89YOGADL\n", 1, 4096)
        assert struct.unpack_from("<Q", page, 240)[0] == xxhash.xxh3_64_intdigest(page[16:240])
        self.copies = page[248:]
        fields = struct.unpack_from("<5Q", page, 32)
        self.count, self.alignment, self.value_size, size, self.created = fields
        assert size == file_size
        sections = struct.unpack_from("<12Q", page, 72)
        self.spec_at, self.metadata_at, self.index_at, self.sums_at = (
            sections[start : start + 3] for start in (0, 3, 6, 9)
        )
        for offset, length, _ in (self.spec_at, self.metadata_at, self.index_at, self.sums_at):
            assert offset >= 12288
            assert offset + length <= file_size
        self.release = page[168:200].rstrip(b"\0").decode("ascii")
        self.parts, *self.token_sums = struct.unpack_from("<3Q", page, 200)
        self.digest = page[224:240]
        self.file_size = file_size
        self.spec = json.loads(self.copy_or_section())
        self.sums: Any = None
        self.known_blocks: dict[int, Any] = {}

    def copy_or_section(self) -> bytes:
        """The spec, without another read if there is a copy."""
        _, length, checksum = self.spec_at
        copy = self.copies[:length]
        return copy if xxhash.xxh3_64_intdigest(copy) == checksum else self.section(self.spec_at)

    def check_copies(self) -> None:
        copies = self.section(self.spec_at) + self.section(self.metadata_at)
        assert self.copies == (copies if len(copies) <= 3848 else b"").ljust(3848, b"\0")

    def section(self, place: tuple[int, int, int]) -> bytes:
        offset, length, checksum = place
        data = self.read(offset, length)
        assert xxhash.xxh3_64_intdigest(data) == checksum
        return data

    def entry(self, position: int) -> tuple[int, int, int]:
        if self.sums is None:
            self.sums = np.frombuffer(self.section(self.sums_at), "<u8")
            assert len(self.sums) == math.ceil(self.count / BLOCK)
        number, within = divmod(position, BLOCK)
        if number not in self.known_blocks:
            first = number * BLOCK
            raw = self.read(self.index_at[0] + 16 * first, 16 * min(BLOCK, self.count - first))
            assert xxhash.xxh3_64_intdigest(raw) == self.sums[number]
            self.known_blocks[number] = raw
        offset, length, mixed = struct.unpack_from("<QII", self.known_blocks[number], 16 * within)
        assert 12288 <= offset <= offset + length <= self.file_size
        assert self.value_size in (0, length)
        return offset, length, mixed ^ (position * 0x9E3779B1 + self.token_sums[0]) % 2**32

    def content(self, position: int) -> bytes:
        offset, length, checksum = self.entry(position)
        value = self.read(offset, length)
        lead = 48 if length > 2000 else 0
        assert xxhash.xxh3_64_intdigest(value[lead:]) & 0xFFFFFFFF == checksum
        assert value[:lead] == bytes(lead)
        assert (offset + lead) % self.alignment == 0
        return value[lead:]

    def record(self, position: int) -> Any:
        return decode(self.spec, self.content(position))

    def check_token_sums(self) -> None:
        sums = [0, 0]
        for position in range(self.count):
            _, length, checksum = self.entry(position)
            scattered = (length - 48 if length > 2000 else length) << 32 | checksum
            for number, factor in enumerate((0x9E6C63D0876A9A4D, 0xC2B2AE3D27D4EB4D)):
                scattered = scatter(scattered)
                sums[number] += scattered * pow(factor, position, 2**64)
        assert [found % 2**64 for found in sums] == self.token_sums

    def check_digest(self) -> None:
        front = self.read(0, 12288)
        digest = xxhash.xxh3_128(self.read(12288, self.file_size - 12288))
        digest.update(front[:8192])
        digest.update(front[8192:8416] + bytes(24) + front[8440:])
        assert digest.digest() == self.digest


def item_type(dtype: str) -> np.dtype[Any]:
    return np.dtype(NUMPY_NAMES.get(dtype, dtype)).newbyteorder("<")


def components(node: Any) -> list[tuple[str, Any]]:
    """Dtype and shape of each component below a node of the spec."""
    kind = node["kind"]
    if kind == "tensor":
        return [(node["dtype"], node["shape"])]
    if kind == "ragged":
        rank, shape = node["ragged_rank"], node["shape"]
        inner = None if shape is None else [None, *shape[rank + 1 :]]
        return [(node["dtype"], inner), *[(node["row_splits_dtype"], [None])] * rank]
    if kind == "sparse":
        rank = None if node["shape"] is None else len(node["shape"])
        return [("int64", [None, rank]), (node["dtype"], [None]), ("int64", [rank])]
    if kind == "optional":
        return [("bool", []), *components(node["value"])]
    if kind == "none":
        return []
    children = [pair[1] for pair in node["items"]] if kind == "dict" else node["items"]
    return [part for child in children for part in components(child)]


def arrays_of(dtype: str, shape: Any) -> list[Array]:
    known = shape is not None and None not in shape
    numbers = None if dtype == "string" else item_type(dtype)
    if dtype == "string" and shape == []:
        return [(None, None)]
    if dtype == "string" and known:
        return [(np.dtype("<i8"), shape), (None, None)]
    if known:
        return [(numbers, shape)]
    if dtype != "string" and shape is not None and shape.count(None) == 1 and 0 not in shape:
        return [(numbers, None)]
    dims: Array = (np.dtype("<i8"), None if shape is None else [len(shape)])
    if numbers is None:
        return [dims, (np.dtype("<i8"), None), (None, None)]
    return [dims, (numbers, None)]


def places(parts: list[tuple[str, Any]], content: bytes) -> list[list[tuple[int, int]]]:
    """Offset and size of every array of every component."""
    flat = [array for part in parts for array in arrays_of(*part)]
    slots = sum(1 for _, shape in flat if shape is None)
    found: dict[int, tuple[int, int]] = {}
    end = 8 * slots
    fixed = [(number, *array) for number, array in enumerate(flat) if array[1] is not None]

    def alignment(array: tuple[int, Any, Any]) -> int:
        size = array[1].itemsize
        return 64 if size * math.prod(array[2]) >= 64 else min(size, 8)

    for array in sorted(fixed, key=alignment, reverse=True):
        number, item, shape = array
        start = align(end, alignment(array))
        end = start + item.itemsize * math.prod(shape)
        found[number] = (start, end - start)
    position = align(end, 8)
    if not slots:
        assert len(content) == max(position, 8)
    sizes = iter(struct.unpack_from(f"<{slots}q", content))
    for number, (_, shape) in enumerate(flat):
        if shape is None:
            size = next(sizes)
            found[number] = (position, size)
            position += align(size, 8)
    if slots:
        assert len(content) == position
    numbers = iter(range(len(flat)))
    return [[found[next(numbers)] for _ in arrays_of(*part)] for part in parts]


def component(dtype: str, shape: Any, spots: list[tuple[int, int]], content: bytes) -> Any:
    raw = [content[start : start + size] for start, size in spots]
    if dtype == "string" and shape == []:
        return raw[0]
    kinds = arrays_of(dtype, shape)
    if len(kinds) == 1 and shape is not None and None in shape:
        return np.frombuffer(raw[0], kinds[0][0]).reshape([-1 if d is None else d for d in shape])
    dims = shape
    if shape is None or None in shape:
        dims = np.frombuffer(raw[0], "<i8").tolist()
        raw = raw[1:]
    if dtype != "string":
        return np.frombuffer(raw[0], item_type(dtype)).reshape(dims)
    lengths = np.frombuffer(raw[0], "<i8")
    ends = np.cumsum(lengths).tolist()
    strings = [raw[1][end - size : end] for end, size in zip(ends, lengths.tolist(), strict=True)]
    return np.array([*strings, None], object)[:-1].reshape(dims)


def decode(spec: Any, content: bytes) -> Any:
    parts = components(spec)
    spots = places(parts, content)
    values = collections.deque(
        component(*part, at, content) for part, at in zip(parts, spots, strict=True)
    )
    return build(spec, values)


def build(node: Any, values: collections.deque[Any]) -> Any:
    kind = node["kind"]
    if kind == "tensor":
        return values.popleft()
    if kind == "none":
        return None
    if kind == "dict":
        found = {key: build(child, values) for key, child in node["items"]}
        return {key: found[key] for key in node.get("order", found)}
    if kind == "optional":
        present, value = values.popleft(), build(node["value"], values)
        return value if present else None
    if kind in ("ragged", "sparse"):
        return tuple(values.popleft() for _ in components(node))
    items = [build(child, values) for child in node["items"]]
    if kind == "namedtuple":
        return collections.namedtuple(node["name"], node["fields"])(*items)  # type: ignore[misc]
    assert kind == "tuple"
    return tuple(items)


class RangedReads:
    def __init__(self, path: pathlib.Path) -> None:
        self.data = path.read_bytes()
        self.reads: list[tuple[int, int]] = []

    def __call__(self, offset: int, length: int) -> bytes:
        assert offset + length <= len(self.data)
        self.reads.append((offset, length))
        return self.data[offset : offset + length]


def store(
    folder: pathlib.Path, records: list[Any], spec: Any = None, metadata: Any = None
) -> tuple[SpecReader, RangedReads]:
    storage = yogadl.storage.LFSStorage(yogadl.storage.LFSConfigurations(folder))
    storage.submit(records, "data", "1", spec=spec, metadata=metadata)
    read = RangedReads(folder / "data" / "1" / "cache.mdb")
    return SpecReader(read, len(read.data)), read


Point = collections.namedtuple("Point", "x y")


def test_fixed_size(tmp_path: pathlib.Path) -> None:
    records = [
        (bool(n % 2), np.arange(n, n + 33, dtype="int16"), np.int64(-n)) for n in range(5000)
    ]
    reader, read = store(tmp_path, records)
    assert reader.value_size == 88
    flag, array, number = reader.record(4999)
    assert len(read.reads) == 4
    assert flag
    assert array.tolist() == list(range(4999, 5032))
    assert number == -4999
    reader.record(4998)
    assert len(read.reads) == 5
    reader.record(0)
    assert len(read.reads) == 7
    reader.check_digest()
    reader.check_copies()
    reader.check_token_sums()


def test_content_on_pages_of_its_own(tmp_path: pathlib.Path) -> None:
    reader, read = store(tmp_path, [np.full((30, 30), n, "float32") for n in range(3)])
    assert (reader.alignment, reader.value_size) == (64, 48 + 3600)
    assert (reader.record(2) == 2).all()
    assert len(read.reads) == 4
    offset = reader.entry(2)[0]
    assert offset % 4096 == 16
    assert struct.unpack_from("<QHHI", read.data, offset - 16) == (offset // 4096, 0, 4, 1)
    reader.check_token_sums()


def test_a_table_of_parts(tmp_path: pathlib.Path) -> None:
    storage = yogadl.storage.LFSStorage(tmp_path)
    storage.submit(np.arange(5000), "some/data", "1", metadata={"a": 1}, part_bytes=100_000)
    read = RangedReads(tmp_path / "some" / "data" / "1" / "cache.mdb")
    table = SpecReader(read, len(read.data))
    table.check_digest()
    metadata = json.loads(table.section(table.metadata_at))
    assert metadata["a"] == 1
    assert (table.count, table.parts > 1, table.value_size) == (5000, True, 8)
    assert table.index_at[1] == 64 * table.parts
    found: list[int] = []
    checksums = b""
    sums = [0, 0]
    for number in range(table.parts):
        entry = read(table.index_at[0] + 64 * number, 64)
        size, count, index, *part_sums, zero = struct.unpack_from("<6Q", entry, 16)
        assert zero == 0
        path = tmp_path / "some" / "data" / "yogadl.parts" / f"{entry[:16].hex()}.mdb"
        read_part = RangedReads(path)
        part = SpecReader(read_part, len(read_part.data))
        assert (part.digest, part.file_size, part.count) == (entry[:16], size, count)
        assert (part.index_at[0], part.token_sums, part.parts) == (index, part_sums, 0)
        assert (part.spec, part.spec_at[2], part.created) == (table.spec, table.spec_at[2], 0)
        assert part.section(part.metadata_at) == b"{}"
        part.check_digest()
        checksums += part.section(part.sums_at)
        for at, factor in enumerate((0x9E6C63D0876A9A4D, 0xC2B2AE3D27D4EB4D)):
            sums[at] += part_sums[at] * pow(factor, len(found), 2**64)
        found += [part.record(position) for position in range(count)]
    assert found == list(range(5000))
    assert table.section(table.sums_at) == checksums
    assert table.token_sums == [found % 2**64 for found in sums]


def runs_of(index: bytes, at: int, count: int) -> tuple[list[tuple[int, int, int]], int]:
    """Runs from a place on, and where they end."""
    columns = []
    for _ in range(3):
        widths = index[at : at + -(-count // 1024)]
        at += len(widths)
        numbers: list[int] = []
        for width in widths:
            for _ in range(min(1024, count - len(numbers))):
                numbers.append(int.from_bytes(index[at : at + width], "little"))
                at += width
        columns.append(numbers)
    runs, ends = [], collections.defaultdict[int, int](int)
    for part, distance, less in zip(*columns, strict=True):
        first = ends[part] + (-(distance + 1) // 2 if distance % 2 else distance // 2)
        runs.append((part, first, less + 1))
        ends[part] = first + less + 1
    return runs, at


def records_of(path: pathlib.Path) -> list[Any]:
    """Those of a table with runs."""
    read = RangedReads(path)
    table = SpecReader(read, len(read.data))
    table.check_digest()
    index = table.section(table.index_at)
    parts = [index[64 * number :][:64] for number in range(table.parts)]
    at = 64 * table.parts
    run_count, group_count = struct.unpack_from("<QQ", index, at)
    at += 16
    groups = [struct.unpack_from("<6Q", index, at + 48 * number) for number in range(group_count)]
    at += 48 * group_count
    runs = []
    for own_runs in [group[1] for group in groups] or [run_count]:
        own, at = runs_of(index, at, own_runs)
        runs += own
    assert len(runs) == run_count
    leaves = []
    if group_count:
        text_bytes = sum(group[3] for group in groups)
        for place in range(at, len(index) - text_bytes, 8):
            leaves.append(struct.unpack_from("<II", index, place))
        at += 8 * len(leaves)
    columns = []
    texts, checksums = [], b""
    for part_count, own_runs, alignment, length, checksum, zero in groups or [
        (table.parts, run_count, table.alignment, 0, 0, 0)
    ]:
        text = index[at : at + length]
        at += length
        if groups:
            assert xxhash.xxh3_64_intdigest(text) == checksum
            assert zero == 0
            texts.append(json.loads(text))
        readers = []
        for entry in parts[:part_count]:
            file = path.parent.parent / "yogadl.parts" / f"{entry[:16].hex()}.mdb"
            read_part = RangedReads(file)
            readers.append(SpecReader(read_part, len(read_part.data)))
            part = readers[-1]
            assert (part.digest, part.file_size) == (entry[:16], len(read_part.data))
            assert part.spec_at[2] == (checksum if groups else table.spec_at[2])
            assert part.alignment % alignment == 0
            checksums += part.section(part.sums_at)
        used = [run[0] for run in runs[:own_runs]]
        assert set(used) == set(range(part_count))
        columns.append(
            [
                readers[number].record(position)
                for number, first, count in runs[:own_runs]
                for position in range(first, first + count)
            ]
        )
        assert len(columns[-1]) == table.count
        parts, runs = parts[part_count:], runs[own_runs:]
    assert (at, parts, runs) == (len(index), [], [])
    assert table.section(table.sums_at) == checksums
    if not groups:
        return columns[0]
    found = [
        [leaf_values(spec, record) for record in column]
        for spec, column in zip(texts, columns, strict=True)
    ]
    return [
        build_leaves(table.spec, iter([found[group][at][leaf] for group, leaf in leaves]))
        for at in range(table.count)
    ]


def leaf_values(node: Any, value: Any) -> list[Any]:
    if node["kind"] == "dict":
        return [leaf for key, child in node["items"] for leaf in leaf_values(child, value[key])]
    if node["kind"] in ("tuple", "namedtuple"):
        pairs = zip(node["items"], value, strict=True)
        return [leaf for child, part in pairs for leaf in leaf_values(child, part)]
    return [value]


def build_leaves(node: Any, leaves: Any) -> Any:
    if node["kind"] == "dict":
        return {key: build_leaves(child, leaves) for key, child in node["items"]}
    if node["kind"] in ("tuple", "namedtuple"):
        return tuple(build_leaves(child, leaves) for child in node["items"])
    return next(leaves)


def test_a_table_of_runs(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "some" / "runs" / "cache.mdb"
    parts = write_parts(path, INT64, [list(range(5000)), list(range(5000, 5010)), [-1]])
    runs = [(1, 3, 2), (0, 4090, 20), (1, 0, 10), (0, 0, 1)]
    write_runs(path, INT64, parts, runs).close()
    wanted = [5003, 5004, *range(4090, 4110), *range(5000, 5010), 0]
    assert records_of(path) == wanted
    read = RangedReads(path)
    table = SpecReader(read, len(read.data))
    assert (table.count, table.parts, table.value_size) == (len(wanted), 2, 8)
    # Its sums are those of the same records in one file.
    plain, _ = store(tmp_path, wanted, INT64)
    assert plain.token_sums == table.token_sums
    plain.check_token_sums()


def test_a_table_of_column_groups(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "some" / "groups" / "cache.mdb"
    images = {"old": specs.TensorSpec("string"), "x": specs.TensorSpec("float32", (None,))}
    spec = {"image": specs.TensorSpec("float32", (None,)), "label": (INT64, INT64)}
    rows = [{"old": "gone", "x": np.full(n, n, "f4")} for n in range(20)]
    one = write_parts(path, images, [rows[:15], rows[15:]])
    two = write_parts(path, (INT64, INT64), [[(n, -n) for n in range(12)]])
    groups = [(images, one, [(1, 0, 5), (0, 3, 7)]), ((INT64, INT64), two, [(0, 0, 12)])]
    # The numbers change places.
    write_groups(path, spec, groups, [(0, 1), (1, 1), (1, 0)]).close()
    found = records_of(path)
    assert [record["label"] for record in found] == [(-n, n) for n in range(12)]
    order = [*range(15, 20), *range(3, 10)]
    assert [record["image"].tolist() for record in found] == [[n] * n for n in order]
    read = RangedReads(path)
    table = SpecReader(read, len(read.data))
    assert (table.count, table.parts, table.value_size) == (12, 3, 0)
    plain, _ = store(tmp_path, found, spec)
    assert plain.token_sums == table.token_sums


def test_variable_size(tmp_path: pathlib.Path) -> None:
    spec = {
        "text": specs.TensorSpec("string"),
        "words": specs.TensorSpec("string", (None,)),
        "pair": specs.TensorSpec("string", (2,)),
        "matrix": specs.TensorSpec("float32", (None, 3)),
        "any": specs.TensorSpec("int32", None),
        "grid": specs.TensorSpec("uint8", (None, None)),
        "point": Point(specs.TensorSpec("bool"), specs.NoneSpec()),
        "ragged": specs.RaggedSpec("int64", (2, None), 1),
        "sparse": specs.SparseSpec("float64", (4, 4)),
        "maybe": {
            7: specs.OptionalSpec((specs.TensorSpec("string"), specs.TensorSpec("complex64", (9,))))
        },
    }
    records = [
        {
            "text": "grün" * n,
            "words": np.array(["a", "", "ccc"][:n], object),
            "pair": np.array([b"x" * n, b"yz"], object),
            "matrix": np.arange(3 * n, dtype="float32").reshape(n, 3),
            "any": np.zeros((1,) * n, "int32"),
            "grid": np.ones((n, 2), "uint8"),
            "point": Point(n == 1, None),
            "ragged": specs.Ragged(np.arange(n), (np.array([0, 0, n]),)),
            "sparse": specs.Sparse(np.array([[n, 1]]), np.array([0.5]), np.array([4, 4])),
            "maybe": {7: None if n == 0 else ("here", np.full(9, n + 1j, "complex64"))},
        }
        for n in range(4)
    ]
    reader, read = store(tmp_path, records, spec, {"from": "a test"})
    reader.record(3)
    assert len(read.reads) == 4
    for n in range(4):
        record = reader.record(n)
        assert list(record) == list(spec)
        assert record["text"].decode() == "grün" * n
        assert record["words"].tolist() == [b"a", b"", b"ccc"][:n]
        assert record["pair"].tolist() == [b"x" * n, b"yz"]
        assert record["matrix"].tolist() == np.arange(3 * n).reshape(n, 3).tolist()
        assert record["any"].shape == (1,) * n
        assert record["grid"].tolist() == [[1, 1]] * n
        assert record["point"] == (n == 1, None)
        assert [part.tolist() for part in record["ragged"]] == [list(range(n)), [0, 0, n]]
        assert [part.tolist() for part in record["sparse"]] == [[[n, 1]], [0.5], [4, 4]]
        if n == 0:
            assert record["maybe"][7] is None
        else:
            assert record["maybe"][7][0] == b"here"
            assert record["maybe"][7][1].tolist() == [n + 1j] * 9
    metadata = json.loads(reader.section(reader.metadata_at))
    assert metadata.pop("__yogadl__").keys() == {"duration", "host", "user"}
    assert metadata == {"from": "a test"}
    assert reader.release == yogadl.__version__
    reader.check_digest()
    reader.check_copies()


def test_a_changed_bit_is_found(tmp_path: pathlib.Path) -> None:
    reader, read = store(tmp_path, [f"record {n}" for n in range(3)])
    offset = reader.entry(1)[0]
    data = bytearray(read.data)
    data[offset + 9] ^= 1
    read.data = bytes(data)
    reader.record(0)
    with pytest.raises(AssertionError):
        reader.record(1)
    with pytest.raises(AssertionError):
        reader.check_digest()
    reader.check_copies()


def test_empty(tmp_path: pathlib.Path) -> None:
    reader, _ = store(tmp_path, [], specs.TensorSpec("int64"))
    assert reader.count == 0
    assert reader.section(reader.sums_at) == b""
    reader.check_digest()
    reader.check_copies()


def test_keys(tmp_path: pathlib.Path) -> None:
    reader, read = store(tmp_path, [f"record {n}" for n in range(3)])
    path = str(tmp_path / "data" / "1" / "cache.mdb")
    opened = lmdb.open(path, subdir=False, readonly=True, lock=False)
    with opened as environment, environment.begin() as transaction:
        found = dict(transaction.cursor())
    special = [b"__checksums__", b"__index__", b"__metadata__", b"__spec__", b"__yogadl__"]
    assert list(found) == [b"00000000", b"00000001", b"00000002", *special]
    assert found[b"00000001"] == reader.content(1)
    assert found[b"__yogadl__"] == read.data[8208:12288]
    assert found[b"__spec__"] == reader.section(reader.spec_at)


def test_meta_pages(tmp_path: pathlib.Path) -> None:
    _, read = store(tmp_path, [f"record {n}" for n in range(3)])
    pages = len(read.data) // 4096
    for number in (0, 1):
        page = read.data[4096 * number :][:4096]
        assert struct.unpack_from("<QHHHHIIQQ", page) == (
            *(number, 0, 8, 0, 0),
            *(0xBEEFC0DE, 1, 0, len(read.data)),
        )
        assert struct.unpack_from("<IHH5Q", page, 40) == (4096, 8, 0, 0, 0, 0, 0, 2**64 - 1)
        tree = struct.unpack_from("<IHH5Q", page, 88)
        assert (tree[:2], tree[6]) == ((0, 0), 3 + 5)
        assert struct.unpack_from("<QQ", page, 136) == (pages - 1, number)
        assert page[152:] == bytes(4096 - 152)
        root = read.data[4096 * tree[7] :]
        assert struct.unpack_from("<QHH", root) == (tree[7], 0, 1)  # a branch of two leaves
        assert tree[2:5] == (2, 1, 2)


def hexdumps(text: str) -> list[bytes]:
    """The blocks of the document that are dumps: an offset and eight bytes a line."""
    dumps = []
    for block in re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        lines = [line.split() for line in block.splitlines()]
        assert [int(line[0], 16) for line in lines] == list(range(0, 8 * len(lines), 8))
        dumps.append(bytes(int(byte, 16) for line in lines for byte in line[1:9]))
    return dumps


def test_examples_of_the_document(tmp_path: pathlib.Path) -> None:
    document = pathlib.Path(__file__).parents[2] / "docs" / "format.md"
    text = document.read_text(encoding="utf-8")
    written_specs = re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    variable = {"id": 7, "name": "ab", "scores": [1, 2, 3]}
    spec = {
        "id": specs.TensorSpec("int32"),
        "name": specs.TensorSpec("string"),
        "scores": specs.TensorSpec("float32", (None,)),
    }
    fixed = (True, np.arange(33, dtype="int16"), 5)
    cases = [(variable, spec), (fixed, None)]
    for (record, given), json_text, dump in zip(cases, written_specs, hexdumps(text), strict=True):
        reader, _ = store(tmp_path, [record], given)
        assert reader.spec == json.loads(json_text)
        assert reader.content(0) == dump
