"""Profiled streams: they read the same, and all that they read is seen."""

from __future__ import annotations

import gc
import pathlib
import pickle
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from profile_rig import LEGACY, Clock, pages_of, parts_add_up, slow
from stored import write

import yogadl
from yogadl import Stream
from yogadl.dataref import LMDBDataRef
from yogadl.errors import ClosedError, InvalidArgumentError, UnsupportedTypeError
from yogadl.profile import Profile
from yogadl.profile._timed import LoadTimer
from yogadl.spec import TensorSpec


def test_profiled_streams_read_the_same(images: LMDBDataRef, texts: LMDBDataRef) -> None:
    for dataref in (images, texts):
        arguments: Any = {"shuffle": True, "shuffle_seed": 3, "start_offset": 7}
        plain, profiled = dataref.stream(**arguments), Profile().stream(dataref.stream(**arguments))
        assert profiled.spec == plain.spec
        assert len(profiled) == len(plain)
        for _ in range(2):
            np.testing.assert_equal(list(profiled), list(plain))
        np.testing.assert_equal(list(profiled.batches(9)), list(plain.batches(9)))


def test_the_place_is_shared(texts: LMDBDataRef) -> None:
    expected = texts.stream(shuffle=True, shuffle_seed=1)
    stream = texts.stream(shuffle=True, shuffle_seed=1)
    profiled = Profile().stream(stream)
    for each in (stream, profiled, profiled, stream):
        assert list(each) == list(expected)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("taken", [0, 3, 10])
def test_the_place_is_that_of_the_stream(texts: LMDBDataRef, batched: bool, taken: int) -> None:
    order: dict[str, Any] = {"shuffle": True, "shuffle_seed": 1}
    bare, stream = texts.stream(**order), texts.stream(**order)
    profiled = Profile().stream(stream)
    assert profiled.state_dict() == stream.state_dict() == bare.state_dict()
    for reader in (profiled, stream, profiled):
        items = [iter(each.batches(10) if batched else each) for each in (bare, reader)]
        for _ in range(taken):
            bare_item, item = map(next, items)
            np.testing.assert_equal(item, bare_item)
            assert profiled.state_dict() == stream.state_dict() == bare.state_dict()
        resumed = texts.stream(state=profiled.state_dict())
        left = [*map(list, items)]
        np.testing.assert_equal(left[1], left[0])
        if left[0]:
            np.testing.assert_equal(list(resumed.batches(10) if batched else resumed), left[0])


def test_every_page_is_touched_before_it_is_read(images: LMDBDataRef, texts: LMDBDataRef) -> None:
    for dataref in (images, texts):
        clock = Clock()
        profile = Profile(clock)
        stream = profile.stream(dataref.stream(shuffle=True, shuffle_seed=1))
        touched = slow(stream, clock)
        order = stream.epochs.positions(0, 0, 100).tolist()
        assert len(list(profile.watch(stream.batches(10)))) == 10
        report = profile.report()
        assert touched == pages_of(dataref.reader, order)
        assert report.disk == report.disk_busy == report.wall == len(touched)
        assert report.hidden == 0
        assert report.largest == "disk"
        parts_add_up(report)


def test_work_during_the_model_is_hidden(images: LMDBDataRef) -> None:
    clock = Clock()
    profile = Profile(clock)
    stream = profile.stream(images.stream())
    touched = slow(stream, clock)
    ahead = iter(stream.batches(50))
    for _ in profile.watch(range(1)):
        next(ahead)
    report = profile.report()
    assert report.model == report.hidden == report.disk_busy == len(touched) > 0
    assert report.disk == report.waiting == 0
    assert "of which" in str(report)
    parts_add_up(report)


def test_threads_that_were_waited_for_at_once_share_the_time() -> None:
    clock = Clock()
    profile = Profile(clock)
    loader = profile._loader

    def source() -> Iterator[int]:
        with loader.reading([], 0):
            # Ends while the other is still busy.
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        yield 1

    def work() -> None:
        with loader.reading([], 0):
            clock.now += 8

    list(profile.watch(source()))
    report = profile.report()
    assert (report.decoding_busy, report.decoding, report.hidden) == (16, 8, 8)
    parts_add_up(report)


def test_many_threads() -> None:
    loader = LoadTimer(time.perf_counter, lambda _now: 0.0)

    def work() -> None:
        for _ in range(500):
            with loader.reading([], 2):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loader.sums()[2] == 4000


def test_checked_records_and_empty_streams(tmp_path: pathlib.Path, texts: LMDBDataRef) -> None:
    profile = Profile()
    checked = LMDBDataRef(tmp_path / "texts.mdb", check_records=True)
    assert list(profile.stream(checked.stream())) == list(texts.stream())
    nothing = write(tmp_path / "empty.mdb", TensorSpec("int64"), [])
    assert list(profile.watch(profile.stream(nothing.stream()))) == []


def test_caches_of_the_first_release() -> None:
    dataref = LMDBDataRef(LEGACY)
    profile = Profile()
    stream = profile.stream(dataref.stream(shuffle=True, shuffle_seed=1))
    plain = dataref.stream(shuffle=True, shuffle_seed=1)
    assert list(profile.watch(stream)) == list(plain)
    assert next(iter(profile.watch(stream.batches(4)))).tolist() == list(plain)[:4]
    report = profile.report()
    assert report.disk_busy > 0
    assert report.decoding_busy > 0
    dataref.close()
    with pytest.raises(ClosedError):
        list(stream)


def test_closing(images: LMDBDataRef) -> None:
    stream = images.stream()
    profiled = Profile().stream(stream)
    stream.close()
    assert len(list(profiled)) == 100
    with pytest.raises(ClosedError):
        Profile().stream(stream)
    profiled.close()
    with pytest.raises(ClosedError):
        list(profiled)
    other = Profile().stream(images.stream())
    batches = iter(other.batches(10, read_ahead=0))
    images.close()
    with pytest.raises(ClosedError):
        list(other)
    with pytest.raises(ClosedError):
        list(batches)


def test_a_data_set_that_is_closed_is_let_go_of(images: LMDBDataRef) -> None:
    stream = Profile().stream(images.stream())
    iterator = iter(stream.batches(10))
    next(iterator)
    mapped = weakref.ref(stream.epochs.reader()._memory)  # type: ignore[attr-defined]
    iterator.close()  # type: ignore[attr-defined]
    assert mapped() is not None
    images.close()
    gc.collect()
    assert mapped() is None
    assert stream


@pytest.mark.parametrize(
    "derive",
    [
        lambda images, _: images.select(range(5)),
        lambda images, _: images[10:20][::2],
        lambda images, _: yogadl.concat([images, images[:5]]),
        lambda images, texts: yogadl.zip((images, texts)),
        lambda images, texts: yogadl.concat([yogadl.zip((images, texts))] * 2),
    ],
)
def test_what_is_derived_of_a_data_set_that_is_closed_is_let_go_of(
    images: LMDBDataRef, texts: LMDBDataRef, derive: Callable[[Any, Any], Any]
) -> None:
    derived = derive(images, texts)
    assert derived is not None
    stream = Profile().stream(derived.stream())
    batches = iter(stream.batches(2, read_ahead=0))
    next(batches)
    mapped = weakref.ref(images.reader._memory)  # type: ignore[attr-defined]
    images.close()
    texts.close()
    with pytest.raises(ClosedError):
        list(stream)
    del batches
    # What joins several has a map of its own, profiled or not, until it is closed.
    derived.close()
    gc.collect()
    assert mapped() is None


def test_errors(images: LMDBDataRef) -> None:
    with pytest.raises(InvalidArgumentError, match=r"Profile\.watch"):
        Profile().stream(Stream(lambda: iter([]), 0))
    with pytest.raises(UnsupportedTypeError, match="pickled"):
        pickle.dumps(Profile().stream(images.stream()))
