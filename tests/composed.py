"""Data sets made of others in any way, with the records that they should have.

No two of the dicts in what they are made of need have their keys in the same order.
"""

from __future__ import annotations

import itertools
import pathlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from strategies import is_named, records, same

import yogadl
from yogadl import dtypes
from yogadl import spec as specs
from yogadl.adapters import open_source
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import IndexedDataRef, LMDBDataRef


@dataclass
class Composed:
    """A data set and its records.

    Attributes:
        spec: of both, with dict keys in any order.
        is_known_by_records: whether it has the identity of its records when they are stored.
    """

    dataref: IndexedDataRef
    records: list[Any]
    spec: Any
    is_known_by_records: bool


@st.composite
def reordered(draw: st.DrawFn, nest: Any) -> Any:
    """A spec or a record with the keys of its dicts in any order."""
    if isinstance(nest, dict):
        keys = draw(st.permutations(list(nest)))
        return {key: draw(reordered(nest[key])) for key in keys}
    if isinstance(nest, specs.OptionalSpec):
        return specs.OptionalSpec(draw(reordered(nest.value)))
    # Ragged and Sparse are tuples, too.
    if isinstance(nest, tuple) and not isinstance(nest, specs.Ragged | specs.Sparse):
        children = [draw(reordered(child)) for child in nest]
        return type(nest)(*children) if is_named(nest) else tuple(children)
    return nest


def new_path(folder: pathlib.Path) -> pathlib.Path:
    return folder / f"{uuid.uuid4()}.mdb"


def stored(folder: pathlib.Path, spec: Any, found: list[Any], **layout: Any) -> LMDBDataRef:
    path = new_path(folder)
    with CacheWriter(path, spec, **layout) as writer:
        for record in found:
            writer.append(record)
        writer.commit()
    return LMDBDataRef(path)


def submitted(folder: pathlib.Path, data: Any, spec: Any = None) -> LMDBDataRef:
    """What a storage would have stored of anything it takes."""
    source = open_source(data, spec)
    path = new_path(folder)
    with CacheWriter(path, source.spec) as writer:
        source.feed(writer)
        writer.commit()
    return LMDBDataRef(path)


def is_static(spec: Any) -> bool:
    """Whether all leaves are numbers of static shape."""
    return all(
        isinstance(leaf, specs.TensorSpec) and leaf.static_shape is not None and not leaf.is_string
        for leaf in specs.leaves(spec)
    )


def arrays(spec: Any, found: list[Any]) -> Any:
    """The records of a static spec as a nest of arrays whose rows they are."""
    if isinstance(spec, specs.TensorSpec):
        dtype = dtypes.to_numpy(spec.dtype)
        made = np.empty((len(found), *(spec.static_shape or ())), dtype)
        for place, value in enumerate(found):
            made[place] = value
        return made
    if isinstance(spec, dict):
        return {key: arrays(child, [row[key] for row in found]) for key, child in spec.items()}
    children = [arrays(child, [row[at] for row in found]) for at, child in enumerate(spec)]
    return type(spec)(*children) if is_named(spec) else tuple(children)


@st.composite
def _simple(draw: st.DrawFn, folder: pathlib.Path, spec: Any) -> Composed:
    """Some records, stored or read where they are."""
    spec = draw(reordered(spec))
    found = draw(st.lists(records(spec), max_size=4))
    given = [draw(reordered(record)) for record in found]
    kinds = ["stored", "list"]
    # A tuple of arrays of which some are no arrays of rows is a tuple of records.
    kinds += ["arrays", "stored arrays"] if is_static(spec) and not is_hollow(spec) else []
    kind = draw(st.sampled_from(kinds))
    if kind == "stored":
        dataref: IndexedDataRef = stored(folder, spec, given)
    elif kind == "list":
        # Nobody looks at what is in it, so it needs a name.
        name = str(uuid.uuid4())
        dataref = yogadl.from_source(given, spec=draw(reordered(spec)), identity=name)
    else:
        columns = draw(reordered(arrays(spec, found)))
        dataref = yogadl.from_arrays(columns, spec=spec)
        if kind == "stored arrays":
            dataref = submitted(folder, columns, spec)
    return Composed(dataref, found, spec, kind != "list")


def is_hollow(spec: Any) -> bool:
    """Whether there is a dict or tuple in it with nothing in it."""
    if isinstance(spec, specs.LEAVES):
        return False
    children = list(spec.values()) if isinstance(spec, dict) else list(spec)
    return not children or any(map(is_hollow, children))


@st.composite
def _zipped(draw: st.DrawFn, folder: pathlib.Path, spec: Any, depth: int) -> Composed:
    """Data sets of the children of a dict or a tuple, side by side."""
    keys = draw(st.permutations(list(spec))) if isinstance(spec, dict) else range(len(spec))
    parts = {key: draw(composed(folder, spec[key], depth - 1)) for key in keys}
    count = min(len(part.records) for part in parts.values())
    datarefs = {key: part.dataref[:count] for key, part in parts.items()}
    found: list[Any] = [
        {key: part.records[at] for key, part in parts.items()} for at in range(count)
    ]
    if isinstance(spec, dict):
        return Composed(yogadl.zip(datarefs), found, spec, False)
    dataref = yogadl.zip(tuple(datarefs[at] for at in keys))
    return Composed(dataref, [tuple(row[at] for at in keys) for row in found], spec, False)


@st.composite
def composed(
    draw: st.DrawFn, folder: pathlib.Path, spec: Any, depth: int = 2, most: int = 12
) -> Composed:
    """A data set of some spec. Files of it are put into ``folder``.

    Args:
        spec: without dicts or tuples that are empty, in which nothing can be zipped.
        depth: of how many data sets above others it may be made.
        most: records to have at most.
    """
    kinds = ["simple", "slice", "select", "concat", "mix", "submitted"]
    if not isinstance(spec, specs.LEAVES) and not is_hollow(spec) and not is_named(spec):
        kinds.append("zip")
    kind = draw(st.sampled_from(kinds)) if depth else "simple"
    if kind == "simple":
        return draw(_simple(folder, spec))
    if kind == "zip":
        return draw(_zipped(folder, spec, depth))
    base = draw(composed(folder, spec, depth - 1))
    count = len(base.records)
    if kind == "slice":
        part = draw(st.slices(count))
        return Composed(base.dataref[part], base.records[part], spec, base.is_known_by_records)
    if kind == "select":
        places = draw(st.lists(st.integers(0, count - 1), max_size=most)) if count else []
        found = [base.records[at] for at in places]
        return Composed(base.dataref.select(places), found, spec, base.is_known_by_records)
    if kind == "submitted":
        return Composed(submitted(folder, base.dataref), base.records, spec, True)
    other = draw(composed(folder, spec, depth - 1))
    known = base.is_known_by_records and other.is_known_by_records
    pair = [base.dataref, other.dataref]
    if kind == "concat":
        whole = yogadl.concat(pair)
        found = base.records + other.records
        return Composed(whole[:most], found[:most], spec, known)
    found = []
    rows = [iter(base.records), iter(other.records)]
    for turn in itertools.cycle([1, 0, 1]):
        following = list(itertools.islice(rows[turn], 1))
        if not following:
            break
        found += following
    return Composed(yogadl.mix(pair, [1, 2]), found, spec, known)


def row(spec: Any, batch: Any, at: int) -> Any:
    """A record of a batch."""
    if isinstance(spec, specs.LEAVES):
        return batch[at]
    if isinstance(spec, dict):
        return {key: row(child, batch[key], at) for key, child in spec.items()}
    children = [row(child, part, at) for child, part in zip(spec, batch, strict=True)]
    return type(spec)(*children) if is_named(spec) else tuple(children)


def memory(spec: Any, count: int) -> Any:
    """Arrays to read batches of a static spec into."""
    return arrays(spec, [specs.map_leaves(lambda leaf: 0, spec)] * count)


def ways(dataref: IndexedDataRef) -> Iterator[tuple[str, list[Any]]]:
    """The records of a data set by every way to read them with NumPy alone."""
    spec, count = dataref.spec, len(dataref)
    yield "by position", [dataref[at] for at in range(count)]
    batch = dataref.read(np.arange(count))
    yield "read", [row(spec, batch, at) for at in range(count)]
    yield "stream", list(dataref.stream())
    batches = list(dataref.stream().batches(3))
    yield "batches", [row(spec, batches[at // 3], at % 3) for at in range(count)]


def check(dataref: IndexedDataRef, expected: list[Any]) -> None:
    """It has these records, by every way to read them with NumPy alone."""
    assert len(dataref) == len(expected)
    for name, found in ways(dataref):
        assert len(found) == len(expected), name
        assert all(map(same, found, expected)), name
