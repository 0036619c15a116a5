"""``stream.batches(out=…)``: batches in memory of the caller."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import threading
from typing import Any
from unittest import mock

import numpy as np
import pytest
from batch_rig import always_in_a_thread, ended, in_batches, memory, threads, write
from hypothesis import given
from hypothesis import strategies as st
from strategies import NUMBERS, data_sets, same, structures

from yogadl.cache.reader import CacheFile
from yogadl.dataref import LMDBDataRef
from yogadl.errors import InvalidArgumentError
from yogadl.spec import OptionalSpec, TensorSpec


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_given_memory_is_filled_in_turn(wide: pathlib.Path, number: int, busy: bool) -> None:
    order: dict[str, Any] = {"shuffle": True, "shuffle_seed": 1}
    with LMDBDataRef(wide) as dataref:
        out = memory(dataref, 8, number)
        expected = in_batches(dataref.spec, list(dataref.stream(**order)), 8)
        found = 0
        with always_in_a_thread() if busy else contextlib.nullcontext():
            for at, batch in enumerate(dataref.stream(**order).batches(8, out=out)):
                assert same(batch, expected[at])
                for key, array in batch.items():
                    target = out[at % number][key]
                    assert np.shares_memory(array, target)
                    assert array.ctypes.data == target.ctypes.data
                found += 1
        assert found == 8
        assert len(expected[-1]["y"]) == 4


@given(
    data_set=data_sets(
        structures(st.builds(TensorSpec, st.sampled_from(NUMBERS), st.just((2,)) | st.just(()))),
        max_size=7,
    ),
    size=st.integers(1, 4),
    number=st.integers(1, 3),
)
def test_records_in_given_memory(
    folder: pathlib.Path, data_set: Any, size: int, number: int
) -> None:
    spec, records = data_set
    with LMDBDataRef(write(folder / "out.mdb", spec, records)) as dataref:
        out = memory(dataref, size, number)
        expected = in_batches(spec, records, size)
        with always_in_a_thread():
            for batch, wanted in itertools.zip_longest(
                dataref.stream().batches(size, out=out), expected
            ):
                assert same(batch, wanted)


def test_memory_that_does_not_fit(wide: pathlib.Path) -> None:
    good = {"x": np.empty((4, 1000), "i8"), "y": np.empty(4, "i2")}
    frozen = np.empty(4, "i2")
    frozen.flags.writeable = False
    wrong: list[dict[str, Any]] = [
        {**good, "y": np.empty(4, "i4")},
        {**good, "y": np.empty(4, ">i2")},
        {**good, "y": np.empty(3, "i2")},
        {**good, "y": np.empty((4, 1), "i2")},
        {**good, "y": np.empty(8, "i2")[::2]},
        {**good, "x": np.empty((1000, 4), "i8").T},
        {**good, "y": frozen},
        {**good, "y": [0, 0, 0, 0]},
        {**good, "y": None},
        {"x": good["x"]},
        {**good, "z": np.empty(4, "i2")},
    ]
    with LMDBDataRef(wide) as dataref:
        stream = dataref.stream()
        for nest in wrong:
            for out in ([nest], [good, nest]):
                with pytest.raises(InvalidArgumentError):
                    stream.batches(4, out=out)
        for out in ([], good, 2):
            with pytest.raises(InvalidArgumentError, match="out="):
                stream.batches(4, out=out)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError, match="read ahead"):
            stream.batches(4, out=[good], read_ahead=1)
        assert next(iter(stream.batches(4, out=[good])))["y"].tolist() == [0, 1, 2, 3]


def test_memory_that_is_shared(wide: pathlib.Path) -> None:
    """The batch in use would be overwritten by the one that is read ahead."""

    def batch(memory: np.ndarray[Any, Any]) -> dict[str, Any]:
        return {"x": np.empty((4, 1000), "i8"), "y": memory}

    memory = np.empty(12, "i2")
    with LMDBDataRef(wide) as dataref:
        stream = dataref.stream()
        for out in ([batch(memory[:4])] * 2, [batch(memory[4:8]), batch(memory[1:5])]):
            with pytest.raises(InvalidArgumentError, match="share memory"):
                stream.batches(4, out=out)
        # Beside each other, they do not.
        out = [batch(memory[4:8]), batch(memory[:4]), batch(memory[8:])]
        numbers = [found["y"][0] for found in stream.batches(4, out=out)]
        assert numbers[:3] == [0, 4, 8]


@pytest.mark.parametrize(
    ("spec", "record", "array"),
    [
        (TensorSpec("string"), b"a", np.empty(2, object)),
        (TensorSpec("string", (1,)), np.array([b"a"], object), np.empty((2, 1), object)),
        (TensorSpec("int64", (None,)), np.zeros(3, "i8"), np.empty((2, 3), "i8")),
        (OptionalSpec(TensorSpec("int64")), 1, np.empty(2, "i8")),
    ],
)
def test_leaves_that_given_memory_cannot_hold(
    spec: Any, record: Any, array: Any, tmp_path: pathlib.Path
) -> None:
    path = write(tmp_path / "cache.mdb", spec, [record] * 3)
    with LMDBDataRef(path) as dataref, pytest.raises(InvalidArgumentError, match="out="):
        dataref.stream().batches(2, out=[array])


def test_given_memory_is_the_callers_again_after_an_early_exit(wide: pathlib.Path) -> None:
    """What a thread has under way when the loop ends must not be written later."""
    before, go = threads(), threading.Event()
    plain = CacheFile.read_columns

    def read_columns(self: CacheFile, *arguments: Any, **options: Any) -> Any:
        if threading.current_thread().name.startswith("yogadl-read-ahead"):
            go.wait(0.5)
        return plain(self, *arguments, **options)

    with LMDBDataRef(wide) as dataref, always_in_a_thread():
        out = memory(dataref, 4, 3)
        with mock.patch.object(CacheFile, "read_columns", read_columns):
            iterator: Any = iter(dataref.stream().batches(4, out=out))
            for _ in range(2):
                next(iterator)
            iterator.close()
            for nest in out:
                for array in nest.values():
                    array[...] = -1
            go.set()
            assert ended(before)
        assert all((array == -1).all() for nest in out for array in nest.values())
