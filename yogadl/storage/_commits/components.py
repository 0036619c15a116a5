"""The components of a version, as a change of them adds, drops, renames and casts them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.cache.content_id import TokenSums
from yogadl.cache.grouped import JoinedLeaves, LeafMap, sums_of_joined
from yogadl.cache.record_reader import RecordReader
from yogadl.cache.table_writer import ColumnGroup, PartList, StoredGroups, whole_runs
from yogadl.cache.writer import encoded_spec
from yogadl.errors import InvalidArgumentError
from yogadl.format import spec_json
from yogadl.format.codec import RecordCodec

Leaf = tuple[int, int]


@dataclass(frozen=True)
class NewColumn:
    """The values of a component that are stored.

    Attributes:
        parts: that they are stored in.
        reader: reads them on this machine.
    """

    parts: PartList
    reader: RecordReader


@dataclass(frozen=True)
class _Component:
    """A component.

    Attributes:
        spec: of its values.
        leaves: for each leaf of that its column group, and its number in the spec of that.
        origins: for each what has it now, 0 for the base and others for new columns, and its
            number in the spec of that.
    """

    spec: specs.Structure
    leaves: tuple[Leaf, ...]
    origins: tuple[Leaf, ...]


class Components:
    """See the module. Not thread-safe.

    Args:
        stored: of what the base is made.
        spec: of the base.

    Attributes:
        are_changed: whether any is.
    """

    def __init__(self, stored: StoredGroups, spec: specs.Structure) -> None:
        self._groups = list(stored.groups)
        self._spec = spec
        self._columns: list[NewColumn] = []
        self._found: dict[Any, _Component] | None = None
        self._stored_leaves = stored.leaves
        self.are_changed = False

    def spec_of(self, group: int) -> specs.Structure:
        """The spec of a column group of the base."""
        return spec_json.from_json(json.loads(self._groups[group].spec))

    # Changing

    @property
    def _components(self) -> dict[Any, _Component]:
        if self._found is None:
            if not isinstance(self._spec, dict):
                raise InvalidArgumentError(
                    "components can be changed of records that are dicts, and these are "
                    f"{type(self._spec).__name__}s; submit what is to become of them"
                )
            leaves = self._stored_leaves
            count = len(list(specs.leaves(self._spec)))
            pairs = [(0, at) for at in range(count)] if leaves is None else leaves
            both = list(zip(map(tuple, pairs), range(count), strict=True))
            nest = specs.unflatten(self._spec, both)
            self._found = {}
            for name, child in self._spec.items():
                own = list(specs.flatten(child, nest[name]))
                self._found[name] = _Component(
                    child, tuple(leaf for leaf, _ in own), tuple((0, at) for _, at in own)
                )
        return self._found

    def _get(self, name: Any) -> _Component:
        if not isinstance(name, Hashable) or name not in self._components:
            known = ", ".join(map(repr, self._components))
            raise InvalidArgumentError(f"there is no component {name!r}; there are {known}")
        return self._components[name]

    def check_new(self, name: Any) -> None:
        """Sees that there is no component of this name.

        Raises:
            InvalidArgumentError: there is one.
        """
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(f"a component's name is a string, not {name!r:.100}")
        if name in self._components:
            raise InvalidArgumentError(f"there is a component {name!r} already; drop it first")

    def add(self, name: str, column: NewColumn) -> None:
        """Adds a component."""
        self.check_new(name)
        self.put(name, column)

    def put(self, name: str, column: NewColumn) -> None:
        """Adds a component, in place of one of its name."""
        text = encoded_spec(column.reader.spec)
        group = ColumnGroup(text, column.parts, whole_runs(column.parts))
        self._groups.append(group)
        self._columns.append(column)
        count = len(list(specs.leaves(column.reader.spec)))
        self._components[name] = _Component(
            column.reader.spec,
            tuple((len(self._groups) - 1, at) for at in range(count)),
            tuple((len(self._columns), at) for at in range(count)),
        )
        self.are_changed = True

    def drop(self, names: Sequence[Any]) -> None:
        """Drops components: all of these, or none."""
        for name in names:
            self._get(name)
        if names and len(set(names)) == len(self._components):
            raise InvalidArgumentError(
                f"{', '.join(map(repr, names))}: there is no other component, and records need one"
            )
        for name in set(names):
            del self._components[name]
            self.are_changed = True

    def rename(self, name: Any, new_name: Any) -> None:
        """Gives a component another name, if it is another."""
        component = self._get(name)
        if isinstance(new_name, str) and new_name == name:
            return
        self.check_new(new_name)
        del self._components[name]
        self._components[new_name] = component
        self.are_changed = True

    def cast_of(self, name: Any, dtype: Any) -> tuple[specs.TensorSpec, Callable[[Any], Any]]:
        """The spec that a component has in another dtype, and what converts a value."""
        spec = self._get(name).spec
        if not isinstance(spec, specs.TensorSpec) or spec.is_string:
            raise InvalidArgumentError(f"the component {name!r} is no tensor of numbers: {spec}")
        wanted = dataclasses.replace(spec, dtype=specs.TensorSpec(dtype, ()).dtype)
        if wanted.is_string:
            raise InvalidArgumentError(f"numbers cannot be cast to {dtype!r}")
        target = dtypes.to_numpy(wanted.dtype)
        if not np.can_cast(dtypes.to_numpy(spec.dtype), target, "unsafe"):
            raise InvalidArgumentError(
                f"NumPy cannot cast {spec.dtype} to {wanted.dtype}; cast to float32 first"
            )
        return wanted, lambda value: np.asarray(value).astype(target)

    # What comes of it

    def reader_of(self, name: Any, base: RecordReader) -> RecordReader:
        """Reads the values of a component."""
        component = self._get(name)
        return self._joined(component.spec, component.origins, base)

    def _joined(
        self, spec: specs.Structure, origins: tuple[Leaf, ...], base: RecordReader
    ) -> RecordReader:
        readers = self._readers(base)
        leaves = LeafMap(spec, [reader.spec for reader in readers], origins)
        return JoinedLeaves(leaves, readers, RecordCodec(spec), "a component of a version")

    def _readers(self, base: RecordReader) -> list[RecordReader]:
        return [base, *(column.reader for column in self._columns)]

    def sums(self, base: RecordReader) -> TokenSums:
        """Over the tokens of the version's records, all of which are read for it."""
        spec, _, origins = self._flattened()
        return sums_of_joined(spec, origins, self._readers(base))

    def put_together(self) -> StoredGroups:
        """Of what the version is made."""
        spec, leaves, _ = self._flattened()
        used = sorted({group for group, _ in leaves})
        numbers = {group: at for at, group in enumerate(used)}
        return StoredGroups(
            encoded_spec(spec),
            tuple(self._groups[group] for group in used),
            [(numbers[group], leaf) for group, leaf in leaves],
        )

    def _flattened(self) -> tuple[specs.Structure, list[Leaf], list[Leaf]]:
        """The version's spec, and for each leaf of it where it is stored and what has it now."""
        components = self._components
        spec = specs.normalize({name: component.spec for name, component in components.items()})
        nest = {
            name: specs.unflatten(
                component.spec, list(zip(component.leaves, component.origins, strict=True))
            )
            for name, component in components.items()
        }
        both = list(specs.flatten(spec, nest))
        return spec, [leaf for leaf, _ in both], [origin for _, origin in both]
