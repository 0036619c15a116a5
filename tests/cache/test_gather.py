"""``gather``: what slicing a buffer gives, by whichever way it is copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yogadl.cache.gather import Toucher, _parts, gather

Array = np.ndarray[Any, Any]
# No period that a wrong place could hide behind.
BUFFER = np.random.RandomState(5).randint(0, 256, 3 << 20).astype("u1")
BUFFER.flags.writeable = False


def sliced(buffer: Array, offsets: Array, size: int) -> Array:
    rows = [buffer[at : at + size] for at in offsets.tolist()]
    return np.concatenate([np.empty(0, "u1"), *rows]).reshape(len(offsets), size)


@st.composite
def places(draw: st.DrawFn, buffer: int, sizes: st.SearchStrategy[int]) -> tuple[Array, int]:
    size = draw(sizes)
    last = buffer - size
    offsets = st.integers(0, last) | st.sampled_from([0, last])
    return np.array(draw(st.lists(offsets, max_size=12)), "i8"), size


def check(buffer: Array, offsets: Array, size: int) -> None:
    expected = sliced(buffer, offsets, size)
    found = gather(buffer, offsets, size)
    assert (found.dtype, found.shape) == (np.uint8, (len(offsets), size))
    assert (found == expected).all()
    assert found.flags.writeable
    assert not np.shares_memory(found, buffer)
    flat = np.full(len(offsets) * size, 77, "u1")
    assert (gather(buffer, offsets, size, flat) == expected).all()
    assert (flat == expected.reshape(-1)).all()
    # Memory of any dtype and shape will do, if it has as many bytes.
    words = np.zeros((len(offsets), size // 8), "<f8")
    if words.nbytes == flat.nbytes:
        rows = gather(buffer, offsets, size, words)
        assert np.shares_memory(rows, words) or not len(offsets)
        assert (words.reshape(-1).view("u1") == flat).all()


@given(place=places(300, st.integers(1, 300)))
def test_small_items(place: tuple[Array, int]) -> None:
    check(BUFFER[:300], *place)


@given(
    begin=st.integers(0, 9),
    end=st.integers(280, 300),
    size=st.sampled_from([1, 2, 4, 8, 16]),
    words=st.lists(st.integers(0, 300)),
)
def test_words(begin: int, end: int, size: int, words: list[int]) -> None:
    """At multiples of their size, wherever the buffer begins and ends."""
    buffer = BUFFER[begin:end]
    last = len(buffer) // size - 1
    check(buffer, np.array([size * min(word, last) for word in words], "i8"), size)
    for outside in (-size, size * (last + 1)):
        with pytest.raises(IndexError):
            gather(buffer, np.array([0, outside]), size)


@given(
    count=st.integers(1, 2000),
    size=st.integers(700, 12_500),
    seed=st.integers(0, 100),
)
@settings(max_examples=20)
def test_into_memory_in_several_pieces(count: int, size: int, seed: int) -> None:
    offsets = np.random.RandomState(seed).randint(0, len(BUFFER) - size + 1, count)
    offsets[-1] = len(BUFFER) - size
    out = np.zeros((count, size), "u1")
    assert np.shares_memory(gather(BUFFER, offsets, size, out), out)
    assert (out == sliced(BUFFER, offsets, size)).all()


@given(
    count=st.integers(0, 600),
    size=st.integers(1, 300_000) | st.integers(1, 1 << 62),
    first=st.integers(0, 300_000),
    width=st.integers(0, 20),
)
def test_only_what_is_in_the_items_is_touched(
    count: int, size: int, first: int, width: int
) -> None:
    """They may be all that is mapped."""
    toucher = Toucher(size, min(first, size - 1), width)
    toucher.touch(BUFFER[:size], np.zeros(count, "i8"))


def test_every_page_is_touched_but_that_which_is_read_first() -> None:
    for width, pages in ((0, {0, 1, 2, 3}), (8, {0, 1, 2})):
        toucher = Toucher(13_000, 12_900, width)
        assert {place // 4096 for place in toucher._places.tolist()} == pages
    with pytest.raises(IndexError):
        toucher.touch(BUFFER, np.full(100, len(BUFFER)))
    toucher.touch(BUFFER, np.full(10, len(BUFFER)))
    assert len(Toucher(3144, 3136, 8)._places) == 0
    assert len(Toucher(3144, 3132, 12)._places) == 1
    assert len(Toucher(1000, 0, 0)._places) == 0


@given(place=places(len(BUFFER), st.integers(1000, 1050) | st.integers(4000, 600_000)))
def test_large_items(place: tuple[Array, int]) -> None:
    check(BUFFER, *place)


@pytest.mark.parametrize(
    ("count", "size"),
    [(1, 2 << 20), (2, 1 << 20), (3, 150_528), (7, 1 << 19), (32, 1 << 16), (64, 1 << 15)],
)
def test_few_large_items_that_are_copied_in_parts(count: int, size: int) -> None:
    offsets = np.random.RandomState(count).randint(0, len(BUFFER) - size + 1, count)
    offsets[-1] = len(BUFFER) - size
    check(BUFFER, offsets, size)


def test_some_are_copied_in_parts_and_some_are_not() -> None:
    """Else the tests here would miss one of the ways."""
    assert _parts(2, 1 << 20) > 1
    assert _parts(64, 1 << 15) > 1
    for count, size in [(0, 1 << 20), (1, 1000), (600, 1 << 20), (2, (1 << 20) + 1)]:
        assert _parts(count, size) == 1
    for count in range(1, 70):
        for size in (1 << 18, 150_528, 1 << 20):
            assert size % _parts(count, size) == 0


@given(
    offset=st.integers(0, 5000),
    count=st.integers(0, 300),
    stride=st.integers(0, 17),
    size=st.integers(1, 40),
)
def test_items_that_overlap(offset: int, count: int, stride: int, size: int) -> None:
    check(BUFFER[:20_000], offset + stride * np.arange(count), size)


@pytest.mark.parametrize("into", [False, True])
@pytest.mark.parametrize("size", [1, 7, 999, 1024, 5000, 1 << 20])
@pytest.mark.parametrize("where", ["behind the end", "before the start"])
def test_offsets_outside_the_buffer(where: str, size: int, into: bool) -> None:
    last, end = len(BUFFER) - size, len(BUFFER)
    behind = [last + 1, end, end + 1, 2**40]
    before = [-1, -size, -last, -end, -(2**40)]
    for wrong in behind if where == "behind the end" else before:
        for offsets in ([wrong], [0, wrong], [wrong, last]):
            out = np.empty(len(offsets) * size, "u1") if into else None
            with pytest.raises(IndexError):
                gather(BUFFER, np.array(offsets), size, out)


@pytest.mark.parametrize("size", [5, 2000, 1 << 20])
def test_items_larger_than_the_buffer(size: int) -> None:
    small = BUFFER[: size - 1]
    assert gather(small, np.empty(0, "i8"), size).shape == (0, size)
    for offset in (0, -1):
        with pytest.raises(IndexError):
            gather(small, np.array([offset]), size)
        with pytest.raises(IndexError):
            gather(small, np.array([offset]), size, np.empty(size, "u1"))
