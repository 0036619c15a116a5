"""Profiles of loops: parts that add up, whatever is watched, and reports of them."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator

import pytest
from profile_rig import Clock, parts_add_up

from yogadl import Stream
from yogadl.dataref import LMDBDataRef
from yogadl.profile import Profile


def test_parts_of_a_loop(images: LMDBDataRef) -> None:
    profile = Profile()
    batches = profile.watch(profile.stream(images.stream()).batches(10))
    assert len(batches) == 10
    for _ in batches:
        time.sleep(0.02)  # the model
    report = profile.report()
    parts_add_up(report)
    assert report.model >= 0.2
    assert 0 < report.waiting < report.wall
    assert report.decoding_busy > 0
    assert (report.items, report.records, report.streams) == (10, 100, 1)
    assert report.records_per_second == pytest.approx(100 / report.wall)


def test_a_clock_of_its_own() -> None:
    clock = Clock()
    profile = Profile(clock)

    def source() -> Iterator[int]:
        clock.now += 100  # until the first
        for item in range(3):
            yield item
            clock.now += 10  # until the next, and after the last the end

    for _ in profile.watch(source()):
        clock.now += 1
    clock.now += 1000
    report = profile.report()
    assert (report.waiting, report.model, report.wall) == (130, 3, 133)
    assert (report.items, report.records, report.records_per_second) == (3, None, None)
    assert (report.other_name, report.largest) == ("other", "other")
    assert "Profile.stream" in report.advice


def test_iterations_add_up_and_breaks_end_the_measuring() -> None:
    clock = Clock()
    profile = Profile(clock)
    watched = profile.watch([1, 2, 3])
    for _ in range(2):
        for item in watched:
            clock.now += 1
            if item == 2:
                break
        clock.now += 50
    assert profile.report().items == 4
    assert profile.report().wall == 2  # of the first items; the second were left
    iterator = iter(watched)
    next(iterator)
    clock.now += 5
    assert profile.report().items == 5
    assert profile.report().model == 2
    next(iterator)
    assert profile.report().model == 7


def test_an_error_in_the_source_passes_and_ends_the_waiting() -> None:
    clock = Clock()
    profile = Profile(clock)

    def source() -> Iterator[int]:
        clock.now += 3
        raise RuntimeError("no")
        yield

    with pytest.raises(RuntimeError, match="no"):
        list(profile.watch(source()))
    clock.now += 9
    assert profile.report().wall == 3


def test_lengths() -> None:
    profile = Profile()
    assert len(profile.watch([1, 2])) == 2
    with pytest.raises(TypeError):
        len(profile.watch(iter([1])))
    assert list(profile.watch(iter([1]))) == [1]


def test_records_are_counted_where_that_is_certain(images: LMDBDataRef, texts: LMDBDataRef) -> None:
    profile = Profile()
    list(profile.watch(images.stream()))
    assert profile.report().records == 100
    list(profile.watch(texts.stream().batches(32)))
    assert profile.report().records == 200
    list(profile.watch([1]))
    assert profile.report().records is None
    assert profile.report().streams == 0
    # Then what the profiled streams read has to do.
    list(profile.stream(texts.stream()))
    assert profile.report().records == 100


def test_any_stream_can_be_watched() -> None:
    profile = Profile()
    assert list(profile.watch(Stream(lambda: iter("ab"), 2))) == ["a", "b"]
    assert profile.report().records == 2


def test_several_watches_on_one_profile() -> None:
    clock = Clock()
    profile = Profile(clock)
    pairs = zip(profile.watch(range(3)), profile.watch(itertools.count()), strict=False)
    for _ in pairs:
        clock.now += 1
    assert profile.report().items == 6


# Reports


def test_reports_as_text_and_json() -> None:
    empty = Profile().report()
    assert "Nothing was watched" in str(empty)
    assert json.loads(empty.to_json())["records_per_second"] is None
    clock = Clock()
    profile = Profile(clock)
    for _ in profile.watch(Stream(lambda: iter(range(2000)), 2000)):
        clock.now += 0.001
    text = str(profile.report())
    assert "wall time                      2.000 s 100.0%\n  model" in text
    assert "2,000 items, 2,000 records, 1,000 records/s\n" in text
    assert text.endswith("The largest part is model: the loader is not the bottleneck.")
    assert "disk" not in text
    found = json.loads(profile.report().to_json())
    assert found["model"] == pytest.approx(2)
    assert (found["largest"], found["records"]) == ("model", 2000)
