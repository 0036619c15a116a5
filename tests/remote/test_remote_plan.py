"""What a plan says is what is asked for, whatever the records, the parts and the limit."""

from __future__ import annotations

import itertools
import math
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from remote_rig import Asked, Site, make_site
from waiting import wait_until

import yogadl
from yogadl.dataref import RemoteDataRef
from yogadl.errors import InvalidArgumentError
from yogadl.remote._fetching import passing
from yogadl.remote._fetching.fetcher import fetcher
from yogadl.remote._fetching.lateness import Lateness
from yogadl.remote._fetching.planner import FIRST_RECORDS
from yogadl.remote._local.space import LimitedSpace
from yogadl.remote._pace import Network

pytestmark = pytest.mark.once

SHAPES = [(300, 8_000), (3_000, 200), (20_000, 10), (60, 100_000)]
"""Records, and bytes of each."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has nothing asked for twice because this machine is busy, which no plan knows of."""
    monkeypatch.setattr(Lateness, "seconds", lambda _: math.inf)


def store(site: Site, shape: tuple[int, int], part_bytes: int | None, ragged: bool = False) -> int:
    """Stores a version; how many records it has."""
    count, size = shape
    rng = np.random.default_rng(size)
    lengths = rng.integers(0, 2 * size, count) if ragged else np.full(count, size)
    spec = {
        "x": yogadl.spec.TensorSpec("uint8", (None if ragged else size,)),
        "number": yogadl.spec.TensorSpec("int64", ()),
    }
    records = ({"x": np.zeros(n, "u1"), "number": np.int64(at)} for at, n in enumerate(lengths))
    site.store(records, spec=spec, part_bytes=part_bytes)
    return count


def bytes_of(asked: list[Asked]) -> int:
    return sum(each.stop - each.start for each in asked)


def read(
    site: Site, ref: RemoteDataRef, shards: int, seed: int = 1, batch_size: int = 16
) -> list[Asked]:
    """Reads an epoch; what was asked for, then and until nothing more was."""
    before = len(site.web.asked)
    order: dict[str, Any] = {"shuffle": True, "shuffle_seed": seed, "num_shards": shards}
    for _batch in ref.stream(**order).batches(batch_size, pad=0):
        pass
    wait_until(is_nothing_fetched)
    return site.web.asked[before:]


def is_nothing_fetched() -> bool:
    with fetcher()._mutex:
        for queue in (desk.queue for desk in fetcher().office.desks.values()):
            if queue.flying or queue.soon or queue.bulk.has_any() or queue.bulk.left:
                return False
    return True


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("part_bytes", [None, 400_000], ids=["file", "parts"])
@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_asked_for(
    site: Site, shape: tuple[int, int], shards: int, part_bytes: int | None, ragged: bool
) -> None:
    count = store(site, shape, part_bytes, ragged)
    with site.ref() as ref:
        opening = len(site.web.asked), bytes_of(site.web.asked)
        plan = ref.plan(num_shards=shards, shards_here=1)
        asked = read(site, ref, shards)
        assert not read(site, ref, shards)
    assert plan.records == count // shards
    assert (plan.opening_requests, plan.opening_bytes) == opening
    # Lengths that vary are known by their mean, of which a few records differ.
    near = 0.3 if ragged else 0.1
    wanted = plan.index_bytes + plan.record_bytes
    assert bytes_of(asked) == pytest.approx(wanted, rel=near, abs=20_000)
    # Besides, what the first batch waits for.
    requests = plan.index_requests + plan.record_requests
    assert 0.7 * requests - 2 <= len(asked) <= 1.3 * requests + FIRST_RECORDS
    assert (plan.later_requests, plan.later_bytes) == (0, 0)


@pytest.mark.parametrize(("count", "shards"), [(3000, 16), (3000, 64), (1000, 64)])
def test_a_small_share_of_many_parts(site: Site, count: int, shards: int) -> None:
    """Entries of different parts are never one request."""
    store(site, (count, 3_000), 60_000)
    with site.ref() as ref:
        plan = ref.plan(num_shards=shards, shards_here=1)
        asked = read(site, ref, shards)
    requests = plan.index_requests + plan.record_requests
    # Who reads asks by himself for what is not there yet.
    assert len(asked) == pytest.approx(requests, rel=0.25, abs=3)


@pytest.mark.parametrize(("count", "shards"), [(10_000, 64), (20_000, 128), (20_000, 400)])
def test_a_small_share_of_one_file(site: Site, count: int, shards: int) -> None:
    """Entries of the share lie far apart, each in a cell of its own."""
    store(site, (count, 3_000), None)
    with site.ref() as ref:
        plan = ref.plan(num_shards=shards, shards_here=1, latency=0.001)
        asked = read(site, ref, shards)
    # How many come with others depends on how soon it is seen that nobody reads the rest.
    requests = plan.index_requests + plan.record_requests
    assert len(asked) == pytest.approx(requests, rel=0.3)
    assert bytes_of(asked) == pytest.approx(plan.index_bytes + plan.record_bytes, rel=0.1)


def test_entries_of_a_very_small_share(site: Site) -> None:
    """Those of the first batch are in near half of the cells, so most of the rest are between."""
    store(site, (5_000, 3_000), None)
    with site.ref() as ref:
        plan = ref.plan(num_shards=64, shards_here=1, latency=0.001)
        asked = read(site, ref, 64, batch_size=32)
    assert 15 <= plan.index_requests <= 26
    assert len(asked) == pytest.approx(plan.index_requests + plan.record_requests, rel=0.12)


@pytest.mark.parametrize("part_bytes", [None, 400_000], ids=["file", "parts"])
@pytest.mark.parametrize("shards", [1, 4])
def test_what_is_asked_for_when_nothing_is_kept(
    site: Site, shards: int, part_bytes: int | None
) -> None:
    store(site, SHAPES[0], part_bytes)
    (site.folder / "ledger").mkdir()
    space = LimitedSpace(site.folder / "ledger" / "space", 0, lambda: [site.folder])
    with site.ref(space) as ref:
        plan = ref.plan(num_shards=shards, shards_here=1, local_cache_bytes=0)
        first, later = read(site, ref, shards), read(site, ref, shards, 2)
    requests = plan.index_requests + plan.record_requests
    # Of so few records, some of those that are asked for together are neighbours.
    assert 0.7 * requests - 8 <= len(first) <= 1.15 * requests + 8
    assert 0.7 * plan.later_requests - 8 <= len(later) <= 1.15 * plan.later_requests + 8
    assert bytes_of(later) == pytest.approx(plan.later_bytes, rel=0.15, abs=60_000)


@pytest.mark.parametrize(
    ("count", "batch_size", "is_by_file"),
    [(60, 16, False), (60, 40, True), (300, 16, False), (300, 200, True)],
)
def test_what_is_asked_for_of_many_small_files(
    site: Site, count: int, batch_size: int, is_by_file: bool
) -> None:
    store(site, (count, 8_000), 10_000)
    with site.ref() as ref:
        assert ref.reader.files.are_many_small
        plan = ref.plan(batch_size=batch_size)
        asked = read(site, ref, 1, batch_size=batch_size)
    wanted = plan.index_requests + plan.record_requests
    if is_by_file:
        # The first records are in most of them.
        assert wanted == count
    else:
        # Each file, and what the first records need of theirs, between which the rest is.
        assert count + FIRST_RECORDS < wanted <= count + 4 * FIRST_RECORDS
    # Each file once. What comes meanwhile is not asked for: by chance, as it depends on time.
    assert count <= len(asked) <= 1.1 * wanted
    # And what may come twice.
    assert bytes_of(asked) == pytest.approx(plan.index_bytes + plan.record_bytes, rel=0.02)


@pytest.mark.parametrize(("batch_size", "is_by_file"), [(16, True), (4, False)])
def test_first_records_of_many_small_files_with_shards_elsewhere(
    site: Site, batch_size: int, is_by_file: bool
) -> None:
    """Who reads counts all of them, however few are here."""
    store(site, (600, 1_000), 10_000)
    with site.ref() as ref:
        plan, files = ref.plan(num_shards=4, shards_here=2, batch_size=batch_size), ref.reader.files
        positions = np.random.default_rng(1).permutation(600)[:batch_size]
        assert files.are_most_small(positions, 4) == is_by_file
        assert (plan.index_requests + plan.record_requests == len(files)) == is_by_file


def test_first_records_that_come_in_batches(site: Site) -> None:
    """What comes while a batch is asked for is not asked for itself."""
    count = store(site, (120, 8_000), 10_000)
    with site.ref() as ref:
        at_once, slow = ref.plan(batch_size=32), ref.plan(batch_size=4)
    assert count < slow.record_requests < at_once.record_requests


def test_what_is_asked_for_when_some_is_kept(site: Site) -> None:
    store(site, SHAPES[3], None)
    limit = 3_500_000
    (site.folder / "ledger").mkdir()
    space = LimitedSpace(site.folder / "ledger" / "space", limit, lambda: [site.folder])
    with site.ref(space) as ref:
        plan = ref.plan(shards_here=1, local_cache_bytes=limit)
        for seed in range(3):
            asked = read(site, ref, 1, seed)
    assert 0 < plan.later_requests < 60
    # How many of the first are neighbours' and come with them depends on how fast they are read.
    assert (
        0.65 * plan.later_requests <= len(asked) <= 1.35 * plan.later_requests + FIRST_RECORDS / 2
    )
    assert bytes_of(asked) == pytest.approx(plan.later_bytes, rel=0.35)


def limited(site: Site, limit: int) -> RemoteDataRef:
    """Of which so many bytes are kept."""
    (site.folder / "ledger").mkdir()
    return site.ref(LimitedSpace(site.folder / "ledger" / "space", limit, lambda: [site.folder]))


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("shape", [(3_000, 200), (10_000, 10)])
def test_small_records_that_stay_in_memory(
    site: Site, shape: tuple[int, int], share: float
) -> None:
    """Those that share a cell come together, and nothing that is not kept comes twice."""
    store(site, shape, None)
    nbytes = sum(path.stat().st_size for path in site.folder.parent.rglob("cache.mdb"))
    limit = round(share * nbytes)
    with limited(site, limit) as ref:
        plan = ref.plan(local_cache_bytes=limit)
        assert plan.record_bytes + plan.index_bytes <= nbytes
        asked = read(site, ref, 1)
    assert (plan.later_requests, plan.later_bytes) == (0, 0)
    requests = plan.index_requests + plan.record_requests
    # Few cells come in as many requests as is chance.
    assert 0.75 * requests - 20 <= len(asked) <= 1.25 * requests + 180
    assert bytes_of(asked) == pytest.approx(plan.index_bytes + plan.record_bytes, rel=0.15)


@pytest.mark.long
def test_small_records_of_which_memory_has_few(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "_PASSING_BYTES", 600_000)
    store(site, (6_000, 200), None)
    with limited(site, 0) as ref:
        plan = ref.plan(local_cache_bytes=0)
        first, later = read(site, ref, 1), read(site, ref, 1, 2)
    # What waits to be read is much of so little memory.
    requests = plan.index_requests + plan.record_requests
    assert 0.9 * requests <= len(first) <= 1.5 * requests
    assert 0.9 * plan.later_requests <= len(later) <= 1.5 * plan.later_requests
    assert bytes_of(later) < 6_000 * 1_300


def test_bulk_ends_at_what_has_no_room(site: Site) -> None:
    """If that is the only piece, all comes by itself."""
    count, size = SHAPES[0]
    store(site, SHAPES[0], None)
    with site.ref() as ref:
        plan = ref.plan(local_cache_bytes=ref.reader.files.nbytes - 300_000)
    assert plan.record_requests >= 0.8 * count
    # What is kept of it is not asked for later.
    assert plan.later_bytes < 0.5 * count * size


def test_parts_that_have_room_come_in_bulk(site: Site) -> None:
    count = store(site, SHAPES[0], 400_000)
    limit = 1_700_000
    with limited(site, limit) as ref:
        plan = ref.plan(local_cache_bytes=limit)
        asked = read(site, ref, 1)
    assert 0.3 * count < plan.later_requests < 0.7 * count
    requests = plan.index_requests + plan.record_requests
    assert len(asked) == pytest.approx(requests, rel=0.3, abs=FIRST_RECORDS)


@pytest.mark.parametrize("part_bytes", [None, 400_000], ids=["file", "parts"])
def test_of_what_is_here_nothing_is_asked_for(site: Site, part_bytes: int | None) -> None:
    store(site, SHAPES[0], part_bytes)
    with site.ref() as ref:
        assert ref.plan().record_requests > 0
        read(site, ref, 1)
        wait_until(lambda: ref.reader.is_here)
        plan = ref.plan(num_shards=4, shards_here=1)
        assert not read(site, ref, 1)
    assert plan.records == 75
    assert (plan.index_requests, plan.record_requests, plan.later_requests) == (0, 0, 0)
    # But by who opens it so.
    assert plan.requests == plan.opening_requests == 1


@pytest.fixture(scope="module")
def refs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RemoteDataRef]]:
    """Of one file, of parts, of records of any length, of few and of none."""
    folder: pathlib.Path = tmp_path_factory.mktemp("plans")
    site, found = make_site(folder), []
    stored: list[tuple[tuple[int, int], int | None, bool]] = [
        ((300, 8_000), None, False),
        ((300, 8_000), 100_000, False),
        ((3_000, 200), None, True),
        ((1, 1), None, False),
        ((0, 8), None, False),
    ]
    try:
        for shape, part_bytes, ragged in stored:
            store(site, shape, part_bytes, ragged)
            found.append(site.ref())
        yield found
    finally:
        for ref in found:
            ref.close()
        site.web.close()


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_arguments(refs: list[RemoteDataRef], data: st.DataObject) -> None:
    ref = data.draw(st.sampled_from(refs))
    shards = data.draw(st.one_of(st.integers(1, 10), st.integers(1, 2**40)))
    positive = st.floats(1e-9, 1e15)
    options: dict[str, Any] = {
        "num_shards": shards,
        "shards_here": data.draw(st.none() | st.integers(1, min(shards, 10**6))),
        "batch_size": data.draw(st.integers(1, 2**40)),
        "latency": data.draw(positive),
        "connection_bytes": data.draw(positive),
        "machine_bytes": data.draw(positive),
    }
    limits = sorted(data.draw(st.lists(st.integers(0, 2**50), min_size=2, max_size=4)))
    unlimited = ref.plan(**options)
    plans = [ref.plan(**options, local_cache_bytes=limit) for limit in limits] + [unlimited]
    for plan in plans:
        for name, value in vars(plan).items():
            assert 0 <= value < math.inf, name
            assert isinstance(value, float) == name.endswith("_seconds"), name
        assert 0 <= plan.records <= len(ref)
        assert plan.requests >= 1
        assert plan.nbytes >= plan.opening_bytes > 0
        assert plan.later_requests <= plan.records
        assert plan.first_batch_seconds > 0
        assert "records" in str(plan)
    # The more is kept, the less is asked for later; but the whole index may be what is kept, too.
    for less, more in itertools.pairwise(plans):
        index_bytes = max(0, more.index_bytes - less.index_bytes)
        assert more.later_bytes <= less.later_bytes + index_bytes
        assert more.later_requests <= less.later_requests or index_bytes
    assert unlimited.later_requests == 0


SLOW = {"latency": 0.03, "connection_bytes": 4e5}
"""A piece of some MB takes many seconds."""


@pytest.mark.parametrize("shards", [1, 2])
def test_seconds_of_a_few_pieces(site: Site, shards: int) -> None:
    """However many connections there may be, a piece comes over one; who reads waits for it."""
    store(site, SHAPES[3], None)
    with site.ref() as ref:
        plan = ref.plan(num_shards=shards, **SLOW)
        piece = ref.reader.files.nbytes / SLOW["connection_bytes"]
    # But for what came with its head.
    assert 0.9 * piece < plan.first_batch_seconds <= plan.epoch_seconds < 1.1 * piece + 1
    assert plan.later_seconds == 0


def test_seconds_of_small_records_that_overtake_their_piece(site: Site) -> None:
    store(site, (20_000, 10), None)
    with site.ref() as ref:
        plan, several = ref.plan(batch_size=4, **SLOW), ref.plan(num_shards=2, **SLOW)
    assert plan.first_batch_seconds < 0.7 * plan.epoch_seconds
    # One process does not overtake what another one brings.
    assert several.first_batch_seconds > 0.8 * several.epoch_seconds


def test_seconds_of_parts(site: Site) -> None:
    """Each is a piece, however large one might be."""
    store(site, (300, 8_000), 400_000)
    with site.ref() as ref:
        plan = ref.plan(**SLOW)
        part = int(ref.reader.files.sizes.max()) / SLOW["connection_bytes"]
    assert part < plan.epoch_seconds < 2 * part + 1


def test_seconds_of_a_share_that_comes_batch_by_batch(site: Site) -> None:
    """Until it is seen that nobody here reads the rest, nothing comes ahead."""
    store(site, (2_000, 3_000), None)
    with site.ref() as ref:
        plan = ref.plan(num_shards=40, shards_here=1, batch_size=10, latency=0.1)
    assert plan.first_batch_seconds > 0.3
    assert plan.epoch_seconds > plan.first_batch_seconds + 0.3


def test_seconds_of_requests() -> None:
    network = Network(latency=0.1, connection_bytes=1e6, machine_bytes=1e7)
    # A few, each as if alone; many, as often as there are connections; and all of the network.
    assert network.seconds(3, 3e6, 50) == pytest.approx(1.1)
    assert network.seconds(51, 51e4, 50) == pytest.approx(0.22)
    assert network.seconds(50, 50e6, 50) == pytest.approx(5.1)
    assert network.seconds(0, 0, 50) == 0
    # No more is under way than may wait to be read.
    assert network.by_itself(100, 100 * 2**25, 1) > 100 * 3.3


@pytest.mark.parametrize("name", ["latency", "connection_bytes", "machine_bytes"])
@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan, "fast", None, [1.0]])
def test_impossible_rates(refs: list[RemoteDataRef], name: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} must be a finite number above zero"):
        refs[0].plan(**{name: value})


def test_numbers_of_numpy(refs: list[RemoteDataRef]) -> None:
    given_ = {"latency": np.float32(0.5), "machine_bytes": np.int64(10**9)}
    assert refs[0].plan(**given_).first_batch_seconds > 1.0  # type: ignore[arg-type]


@pytest.mark.parametrize("num_shards", [1, 2, 5])
def test_a_batch_has_no_more_records_than_its_shard(site: Site, num_shards: int) -> None:
    count = store(site, (100, 8_000), 10_000)
    with site.ref() as ref:
        plans = [
            ref.plan(num_shards=num_shards, shards_here=num_shards, batch_size=batch_size)
            for batch_size in (count // num_shards, count, 10 * count)
        ]
        assert plans[0] == plans[1] == plans[2]
