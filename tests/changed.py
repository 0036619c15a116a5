"""Changes of versions, drawn at random, and what becomes of a list of records by the same ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from strategies import element_specs, leaf_specs, records, same

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.dataref import StoredDataRef
from yogadl.spec import TensorSpec
from yogadl.storage._commits.change import Change

Apply = Callable[[Change], None]

_LEAVES: list[Any] = [
    TensorSpec("int64", ()),
    TensorSpec("uint8", (3,)),
    TensorSpec("float32", (None,)),
    TensorSpec("string", ()),
    TensorSpec("int16", (0,)),
    TensorSpec("bool", ()),
    {"x": TensorSpec("int32", (2,)), "y": TensorSpec("string", (None,))},
    (TensorSpec("uint16", ()), TensorSpec("float64", (None, 2))),
]
_NAMES = ("a", "b", "c", "label")
# Every value of which is one of the others, so that no warning comes of it.
_CASTS = {"int64": ("int32", "float32"), "uint8": ("int16", "float64"), "bool": ("uint8",)}

component_specs = st.sampled_from(_LEAVES) | leaf_specs
dict_specs = st.dictionaries(st.sampled_from(_NAMES), component_specs, min_size=1, max_size=4)
changed_specs = dict_specs | dict_specs | element_specs


@dataclasses.dataclass
class Model:
    """What a version should be.

    Attributes:
        spec: of the records.
        records: all.
    """

    spec: Any
    records: list[Any]

    def check(self, ref: StoredDataRef) -> None:
        """Sees that a version is just that, however it is read."""
        assert same(ref.spec, specs.normalize(self.spec))
        assert len(ref) == len(self.records)
        assert same(list(ref.stream()), self.records)
        if self.records:
            backwards = np.arange(len(self.records))[::-1]
            assert same(list(ref.select(backwards).stream()), self.records[::-1])

    def check_equal(self, ref: StoredDataRef, plain: StoredDataRef) -> None:
        """Sees that a version cannot be told from one file with the same records."""
        assert ref.reader.content_id == plain.reader.content_id
        shuffled = [list(it.stream(shuffle=True, shuffle_seed=1)) for it in (ref, plain)]
        assert same(*shuffled)


@st.composite
def changes(draw: st.DrawFn, model: Model) -> tuple[Apply, Model]:
    """A change, and what becomes of the model by it."""
    can_change_components = isinstance(model.spec, dict) and all(
        isinstance(name, str) for name in model.spec
    )
    if can_change_components and model.spec and draw(st.integers(0, 2)) == 0:
        return draw(_of_components(model))
    return draw(record_changes(model))


@st.composite
def record_changes(draw: st.DrawFn, model: Model) -> tuple[Apply, Model]:
    """One of records only."""
    count = len(model.records)
    fates = draw(
        st.just(["deleted"] * count)
        | st.just(["kept"] * count)
        | st.lists(
            st.sampled_from(["kept", "kept", "kept", "deleted", "replaced", "updated"]),
            min_size=count,
            max_size=count,
        )
    )
    one = records(model.spec)
    at = {fate: [n for n, it in enumerate(fates) if it == fate] for fate in set(fates)}
    calls: list[Apply] = []
    after: list[Any] = [
        None if fate == "deleted" else [it] for fate, it in zip(fates, model.records, strict=True)
    ]
    for fate in ("deleted", "replaced", "updated"):
        places = draw(st.permutations(at.get(fate, [])))
        if not places:
            continue
        # Negative ones count from the end, as everywhere.
        given = [place - count * draw(st.integers(0, 1)) for place in places]
        if fate == "deleted":
            calls.append(lambda change, given=given: change.delete(given))
            continue
        new = [draw(one) for _ in places]
        for place, record in zip(places, new, strict=True):
            after[place] = [record]
        if fate == "replaced":
            calls.append(lambda change, given=given, new=new: change.replace(given, new))
        else:
            calls.append(lambda change, given=given, new=new: change.update(_each(new), given))
    # In which order they are made makes no difference, but for what is inserted at one place.
    calls = list(draw(st.permutations(calls)))
    before: list[list[Any]] = [[] for _ in range(count + 1)]
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, count))
        new = draw(st.lists(one, max_size=4))
        before[place].extend(new)
        if place == count and draw(st.booleans()):
            calls.append(lambda change, new=new: change.append(new))
        else:
            calls.append(lambda change, place=place, new=new: change.insert(place, new))
    found = [
        record
        for inserted, stays in zip(before, [*after, None], strict=True)
        for record in (*inserted, *(stays or ()))
    ]
    if draw(st.booleans()):
        calls.append(lambda change: change.metadata.update(touched=True))
    return _all(calls), Model(model.spec, found)


def _each(new: list[Any]) -> Callable[[Any], Any]:
    found = iter(new)
    return lambda _record: next(found)


@st.composite
def _of_components(draw: st.DrawFn, model: Model) -> tuple[Apply, Model]:
    spec, rows = dict(model.spec), [dict(record) for record in model.records]
    calls: list[Apply] = []
    for _ in range(draw(st.integers(1, 3))):
        free = [name for name in (*_NAMES, "new", "other", "another") if name not in spec]
        casts = [
            name
            for name, child in spec.items()
            if isinstance(child, TensorSpec) and child.dtype in _CASTS and child.shape is not None
        ]
        # What is left has to have a leaf.
        spare = [
            name
            for name in sorted(spec)
            if any(True for other in spec if other != name for _ in specs.leaves(spec[other]))
        ]
        kinds = ["add"] * bool(free) + ["rename"] * bool(free)
        kinds += ["drop"] * bool(spare) + ["cast"] * bool(casts)
        kind = draw(st.sampled_from(kinds))
        if kind == "add":
            name, child = draw(st.sampled_from(free)), draw(component_specs)
            values = [draw(records(child)) for _ in rows]
            spec[name] = child
            for row, value in zip(rows, values, strict=True):
                row[name] = value
            calls.append(
                lambda change, name=name, values=values, child=child: change.add(
                    name, values, child
                )
            )
        elif kind == "rename":
            name, new = draw(st.sampled_from(sorted(spec))), draw(st.sampled_from(free))
            spec[new] = spec.pop(name)
            for row in rows:
                row[new] = row.pop(name)
            calls.append(lambda change, name=name, new=new: change.rename(name, new))
        elif kind == "drop":
            name = draw(st.sampled_from(spare))
            del spec[name]
            for row in rows:
                del row[name]
            calls.append(lambda change, name=name: change.drop(name))
        else:
            name = draw(st.sampled_from(casts))
            dtype = draw(st.sampled_from(_CASTS[spec[name].dtype]))
            spec[name] = dataclasses.replace(spec[name], dtype=dtype)
            for row in rows:
                row[name] = np.asarray(row[name]).astype(dtypes.to_numpy(dtype))[()]
            calls.append(lambda change, name=name, dtype=dtype: change.cast(name, dtype))
    ordered = specs.normalize(spec)
    return _all(calls), Model(ordered, [{name: row[name] for name in ordered} for row in rows])


def _all(calls: list[Apply]) -> Apply:
    def apply(change: Change) -> None:
        for call in calls:
            call(change)

    return apply


def make_versions(
    storage: Any, data: st.DataObject, most: int, made: Callable[[str], object] = str
) -> dict[str, Model]:
    """Stores a version of "a", and others that are each a change of the one before.

    Args:
        storage: in which.
        data: what is drawn.
        most: of the changes.
        made: called with the name of each that was.

    Returns:
        What each of them should be.
    """
    spec = data.draw(changed_specs)
    model = Model(spec, data.draw(st.lists(records(spec), max_size=6)))
    part_bytes = st.sampled_from([None, 1, 300])
    storage.submit(model.records, "a", "0", spec=spec, part_bytes=data.draw(part_bytes))
    storage.tag("a", "main", "0")
    known = {"0": model}
    for number in range(1, data.draw(st.integers(1, most)) + 1):
        apply, model = data.draw(changes(model))
        with storage.change(
            "a", "main", version=str(number), part_bytes=data.draw(part_bytes)
        ) as change:
            apply(change)
        known[change.version] = model
        made(change.version)
    return known
