"""A profiled stream and its reader can do all that the bare ones can."""

from __future__ import annotations

import copy
import importlib.util
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from profile_rig import LEGACY

import yogadl
from yogadl.cache.record_reader import RecordReader
from yogadl.dataref import IndexedDataRef, IndexedStream, LMDBDataRef
from yogadl.dataref._indexed import UnstoredDataRef
from yogadl.errors import UnsupportedTypeError
from yogadl.profile import Profile


def public(thing: Any) -> set[str]:
    # Completion does not offer all of it.
    names = dir(thing) if isinstance(thing, type) else object.__dir__(thing)
    return {name for name in names if not name.startswith("_")}


def begun(stream: IndexedStream) -> IndexedStream:
    next(iter(stream))
    return stream


def pickled(stream: IndexedStream) -> str:
    try:
        pickle.dumps(stream)
    except UnsupportedTypeError as error:
        return str(error)
    return "a profiled stream cannot be pickled; pickle the one it is of"


STREAMS: dict[str, Callable[[IndexedStream], Any]] = {
    "batches": lambda stream: list(stream.batches(7)),
    "close": lambda stream: (stream.close(), stream.epochs.closed),
    "epochs": lambda stream: (stream.epochs.order, stream.epochs.place(), stream.epochs.window),
    "iterator_fn": lambda stream: list(stream.iterator_fn()),
    "length": lambda stream: stream.length,
    "map": lambda stream: (
        list(stream.map(repr)),
        next(iter(stream.map(repr))),
        stream.epochs.place(),
    ),
    "output_shapes": lambda stream: stream.output_shapes,
    "output_types": lambda stream: stream.output_types,
    "spec": lambda stream: stream.spec,
    "state_dict": lambda stream: (stream.state_dict(), begun(stream).state_dict()),
    "__iter__": lambda stream: [list(stream), list(stream)],
    "__len__": len,
    "__enter__": lambda stream: stream.__enter__() is stream,
    "__exit__": lambda stream: (stream.__exit__(None, None, None), stream.epochs.closed),
    "__reduce__": pickled,
}
"""What to compare of a stream: all that users have of it."""

DATAREFS: dict[str, Callable[[IndexedDataRef], Any]] = {
    "announcer": lambda dataref: dataref.announcer.before(dataref.reader, np.arange(2)),
    "close": lambda dataref: dataref.close(),
    "metadata": lambda dataref: dataref.metadata,
    "read": lambda dataref: dataref.read([2, 0]),
    "reader": lambda dataref: (dataref.reader.content_id, dataref.reader.record_bytes),
    "select": lambda dataref: list(dataref.select([1, 0]).stream()),
    "spec": lambda dataref: dataref.spec,
    "split": lambda dataref: list(dataref.split({"a": 0.5, "b": 0.5}, 1)["a"].stream()),
    "stream": lambda dataref: list(dataref.stream(shuffle=True, shuffle_seed=2)),
    "__getitem__": lambda dataref: (dataref[1], list(dataref[:2].stream())),
    "__len__": len,
}
"""The same of a data set, all of which goes through its reader."""


@pytest.fixture(params=["texts", "images", "legacy", "view", "joined", "source"])
def any_dataref(request: pytest.FixtureRequest) -> IndexedDataRef:
    """One for each kind of reader that is profiled in its own way, and for views of such."""
    if request.param == "legacy":
        return LMDBDataRef(LEGACY)
    if request.param == "source":
        return yogadl.from_source({"x": np.arange(20)})
    if request.param in ("view", "joined"):
        texts: LMDBDataRef = request.getfixturevalue("texts")
        return texts[3:20] if request.param == "view" else yogadl.concat([texts, texts])
    dataref: LMDBDataRef = request.getfixturevalue(request.param)
    return dataref


def test_all_that_a_stream_does(any_dataref: IndexedDataRef) -> None:
    order: dict[str, Any] = {"shuffle": True, "shuffle_seed": 3, "start_offset": 2}
    # A method that is new is to be added to the table.
    assert public(any_dataref.stream()) | {"output_types", "output_shapes"} == {
        name for name in STREAMS if not name.startswith("_")
    }
    for name, use in STREAMS.items():
        if name.startswith("output_") and importlib.util.find_spec("tensorflow") is None:
            continue
        bare, profiled = any_dataref.stream(**order), any_dataref.stream(**order)
        np.testing.assert_equal(use(Profile().stream(profiled)), use(bare), err_msg=name)


def test_all_that_a_reader_does(any_dataref: IndexedDataRef) -> None:
    assert public(IndexedDataRef) == {name for name in DATAREFS if not name.startswith("_")}
    for name, use in DATAREFS.items():
        reader = Profile().stream(any_dataref.stream()).epochs.reader()
        found = use(UnstoredDataRef(reader))
        np.testing.assert_equal(found, use(UnstoredDataRef(copy.copy(any_dataref.reader))), name)


def test_a_profiled_stream_reads_ahead_as_the_bare_one_does(texts: LMDBDataRef) -> None:
    announced: list[list[int]] = []

    class Cold(RecordReader):
        """A reader of what is not in memory."""

        def __init__(self) -> None:
            self._base = copy.copy(texts.reader)
            self.spec = self._base.spec

        def __len__(self) -> int:
            return len(self._base)

        @property
        def content_id(self) -> str:
            return self._base.content_id

        @property
        def record_bytes(self) -> int:
            return self._base.record_bytes

        def _columns(self, positions: Any, out: Any, spans: bool) -> Any:
            return self._base.read_columns(positions, out, spans)

        def _record(self, position: int) -> Any:
            return self._base.read_record(position)

        def are_cached(self, positions: Any) -> bool:  # nothing is
            return False

        def announce(self, positions: Any) -> None:
            announced.append(positions.tolist())

        def close(self) -> None:
            self._base.close()

    dataref = UnstoredDataRef(Cold())
    order: dict[str, Any] = {"shuffle": True, "shuffle_seed": 1, "num_shards": 3}
    list(dataref.stream(**order))
    bare = announced.copy()
    announced.clear()
    list(Profile().stream(dataref.stream(**order)))
    assert announced == bare
    assert bare
