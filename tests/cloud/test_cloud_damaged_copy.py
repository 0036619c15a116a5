"""One machine's bad copy is that machine's affair: it is fetched again, and nothing is rebuilt."""

from __future__ import annotations

import pathlib
from dataclasses import replace
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import xxhash
from copies import KEY, LEGACY, flip, folder, load_note, records, rot, write_note
from faults import FLIP_ANSWER

from yogadl.dataref import LMDBDataRef
from yogadl.errors import CacheFormatError, ChecksumError, ForeignFileError, StoreError

# It is about the copies here, and all buckets are alike to them.
pytestmark = pytest.mark.long_for("s3")

VALUES = list(range(0, 9000, 3))

few = hypothesis.settings(
    max_examples=15, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)


class Never:
    """A function under ``cacheable`` that must not run, and an object that must stay."""

    def __init__(self, rig: Any, local: pathlib.Path) -> None:
        self.storage = rig.make_storage(local)
        self._raw = rig.raw
        self._tag = rig.raw.tag(KEY)
        self.make = self.storage.cacheable("a", "1")(lambda: pytest.fail("it was built again"))

    def check(self) -> None:
        assert self._raw.tag(KEY) == self._tag


def submitted(rig: Any, local: pathlib.Path) -> Never:
    rig.make_storage(local).submit(
        np.array(VALUES), "a", "1", metadata={"told": "something of some length"}
    )
    return Never(rig, local)


def places(path: pathlib.Path) -> list[range]:
    """The parts of a cache file: what LMDB reads, the header, records, the sections, ends."""
    size = path.stat().st_size
    with LMDBDataRef(path) as ref:
        header = ref.reader.header  # type: ignore[attr-defined]
    sections = [header.spec, header.metadata, header.index, header.index_checksums]
    return [
        range(8192),
        range(8192, 8192 + 400),
        range(12288, header.index_checksums.offset),
        *[range(place.offset, place.offset + place.length) for place in sections],
        range(size - 1, size),
    ]


@pytest.mark.parametrize("part", range(8))
@pytest.mark.long_for(*range(4))
def test_any_byte_of_a_copy(part: int, rig: Any, local: pathlib.Path) -> None:
    """Written to, or rotten on the disk."""
    never = submitted(rig, local)
    where = folder(local)
    region = places(where / "cache.mdb")[part]
    is_checked_when_opened = part in (1, 3, 4, 6)

    @few
    @hypothesis.given(at=st.sampled_from(region), mask=st.integers(1, 255))
    def check(at: int, mask: int) -> None:
        flip(where / "cache.mdb", at, mask)
        assert records(never.make()) == VALUES
        rot(where, at, mask)
        if is_checked_when_opened:
            assert records(never.make()) == VALUES
            rot(where, at, mask)
            assert records(never.storage.fetch("a", "1")) == VALUES
            rot(where, at, mask)
        with never.make():
            pass
        assert records(never.storage.fetch("a", "1", check_records=True)) == VALUES
        assert records(never.make()) == VALUES
        never.check()

    check()


def test_damage_that_reading_finds_says_what_to_do(rig: Any, local: pathlib.Path) -> None:
    never = submitted(rig, local)
    where = folder(local)
    index = places(where / "cache.mdb")[5]
    rot(where, index[20])
    with never.make() as ref, pytest.raises(ChecksumError, match="check_records=True"):
        ref[0]
    with never.storage.fetch("a", "1", check_records=True) as ref:
        records_part = places(where / "cache.mdb")[2]
        rot(where, records_part[-30])
        with pytest.raises(ChecksumError, match="check_records=True"):
            ref.verify()
    assert records(never.storage.fetch("a", "1", check_records=True)) == VALUES
    never.check()


def test_the_metadata_of_a_good_copy_is_not_asked_of_the_bucket_again(
    rig: Any, local: pathlib.Path
) -> None:
    never = submitted(rig, local)
    for check_records in (False, True):
        with rig.counting() as requests:
            never.storage.fetch("a", "1", check_records=check_records).close()
        assert [request.is_metadata for request in requests] == [True]


def test_copying_repairs_first(rig: Any, local: pathlib.Path) -> None:
    never = submitted(rig, local)
    rot(folder(local), places(folder(local) / "cache.mdb")[2][-30])
    never.storage.copy("a", "1", never.storage, new_id="b")
    assert records(never.storage.fetch("b", "1", check_records=True)) == VALUES


def test_any_byte_of_a_copy_of_an_object_of_0_1_4(rig: Any, local: pathlib.Path) -> None:
    """Neither the object nor the file has a digest; the note has, of what was downloaded."""
    rig.raw.put(KEY, LEGACY.read_bytes())
    never = Never(rig, local)
    where = folder(local)
    never.make().close()
    size = LEGACY.stat().st_size

    @few
    @hypothesis.given(at=st.integers(0, size - 1), mask=st.integers(1, 255))
    def check(at: int, mask: int) -> None:
        rot(where, at, mask)
        never.make().close()
        assert records(never.storage.fetch("a", "1", check_records=True)) == list(range(1000))
        flip(where / "cache.mdb", at, mask)
        assert records(never.make()) == list(range(1000))
        never.check()

    check()


def test_a_copy_of_0_1_4_that_cannot_be_read(rig: Any, local: pathlib.Path) -> None:
    rig.raw.put(KEY, LEGACY.read_bytes())
    where = folder(local)
    where.mkdir(parents=True)
    (where / "cache.mdb").write_bytes(bytes(LEGACY.stat().st_size))
    write_note(where, {"time_created": rig.raw.created(KEY).timestamp()})
    never = Never(rig, local)
    assert records(never.make()) == list(range(1000))
    never.check()


# What is proven of the object. boto3 compares a checksum of its own, so not all can happen on S3.


def downloads(requests: Any) -> int:
    """How often an object was read from its beginning on; its header alone lies behind that."""
    ranges = [it.headers.get("range", "") for it in requests if it.operation == "read"]
    return sum(it.startswith("bytes=0-") or not it for it in ranges)


def digest_of(data: bytes) -> dict[str, str]:
    return {"yogadl-digest": xxhash.xxh3_128_hexdigest(data)}


@pytest.mark.parametrize("has_digest", [True, False])
def test_an_object_that_is_no_cache_is_built_again(
    has_digest: bool, rig: Any, local: pathlib.Path
) -> None:
    data = b"no cache at all" * 1000
    rig.raw.put(KEY, data, digest_of(data) if has_digest else None)
    storage = rig.make_storage(local)
    for _ in range(2):
        with rig.counting() as requests, pytest.raises(ForeignFileError):
            storage.fetch("a", "1")
        # Its digest proves it. Without one, it may have been the way here, but not twice.
        assert downloads(requests) <= (1 if has_digest else 2)
    built = []
    ref = storage.cacheable("a", "1")(lambda: built.append(1) or [4, 5])()
    assert (records(ref), built) == ([4, 5], [1])


def test_an_object_without_a_digest_that_was_damaged_on_its_way(
    gcs: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    submitted(gcs, elsewhere)
    data = gcs.raw.get(KEY)
    gcs.raw.put(KEY, data)
    never = Never(gcs, local)
    in_header = replace(FLIP_ANSWER, at=(8192 + 60) / len(data))
    # The header is read first, by itself.
    with gcs.counting() as requests, gcs.failing(in_header, "read", skip=1, times=1):
        assert records(never.make()) == VALUES
    assert downloads(requests) == 2
    never.check()


@pytest.mark.parametrize("at", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("has_digest", [True, False])
def test_an_answer_that_was_altered_on_its_way(
    has_digest: bool, at: float, rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    """S3 sends a checksum, and boto3 compares it; to Google, our digest has to do."""
    if not has_digest and rig.dialect == "gcs":
        pytest.skip("nothing tells, but where it is a header that is altered: see above")
    submitted(rig, elsewhere)
    if not has_digest:
        rig.through.put(KEY, rig.raw.get(KEY))
    never = Never(rig, local)
    fault = replace(FLIP_ANSWER, at=at)
    # The header of what says nothing of itself is read first, by itself.
    skipped = 0 if has_digest else 1
    with rig.counting() as requests, rig.failing(fault, "read", skip=skipped, times=1):
        assert records(never.make()) == VALUES
    assert downloads(requests) == 2
    never.check()


def test_downloads_that_differ_from_one_another_say_nothing_of_the_object(
    gcs: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    submitted(gcs, elsewhere)
    never = Never(gcs, local)
    for at in (0.2, 0.4, 0.6):
        gcs.proxy.faults.add(replace(FLIP_ANSWER, at=at), "read", times=1)
    with pytest.raises(StoreError, match="from one another") as caught:
        never.make()
    assert not isinstance(caught.value, CacheFormatError)
    assert records(never.make()) == VALUES
    never.check()


# A note of 0.1.4


def test_a_note_of_0_1_4_is_not_taken_for_a_digest(
    rig: Any, local: pathlib.Path, elsewhere: pathlib.Path
) -> None:
    """It says when the object was written, and that is all."""
    submitted(rig, elsewhere)
    where = folder(local)
    where.mkdir(parents=True)
    other = [1] * len(VALUES)
    rig.make_storage(elsewhere).submit(
        np.array(other), "b", "1", metadata={"told": "something of some length"}
    )
    (where / "cache.mdb").write_bytes(rig.raw.get("data/b/1/cache.mdb"))
    assert (where / "cache.mdb").stat().st_size == len(rig.raw.get(KEY))
    old = {"time_created": rig.raw.created(KEY).timestamp()}
    write_note(where, old)
    never = Never(rig, local)
    assert records(never.make()) == VALUES
    # One that is what it should be is not transferred, and known from then on.
    write_note(where, old)
    with rig.counting() as requests:
        assert records(never.make()) == VALUES
    assert [request.is_metadata for request in requests] == [True]
    assert load_note(where)["tag"] == rig.raw.tag(KEY)
