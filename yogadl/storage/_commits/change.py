"""A change of a version, as its user makes it."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from yogadl.adapters import Source, open_source
from yogadl.arguments import as_index
from yogadl.cache.file_reader import FileReader
from yogadl.cache.opening import open_cache
from yogadl.cache.progress import Progress
from yogadl.cache.writer import CacheWriter, metadata_json
from yogadl.dataref import StoredDataRef
from yogadl.dataref._indexed import UnstoredDataRef
from yogadl.errors import (
    CacheReplacedError,
    ClosedError,
    InvalidArgumentError,
    RecordIndexError,
    SpecMismatchError,
)
from yogadl.format.codec import RecordCodec
from yogadl.format.provenance import UNKNOWN
from yogadl.lazy import lazy
from yogadl.storage._commits.begun import Begun
from yogadl.storage._commits.commit import Committer
from yogadl.storage._commits.comparing import equal_records
from yogadl.storage._commits.components import Components, NewColumn
from yogadl.storage._commits.merging import rewritten
from yogadl.storage._commits.new_records import NewRecords, PartWriter
from yogadl.storage._commits.new_runs import put_together
from yogadl.storage._commits.purpose import Purpose
from yogadl.storage._commits.updating import Updated, advising, is_function, values_of
from yogadl.storage._commits.user_metadata import same_json
from yogadl.versions.edits import Edits
from yogadl.versions.hunks import Hunks, hunks_of
from yogadl.versions.matching import NEW, matched
from yogadl.versions.runs import Runs

Array = np.ndarray[Any, Any]


class Change:
    """A change of a version: of ``storage.change(…)``, a context manager.

    Leaving it commits the change; leaving it by an exception commits nothing. **All positions are
    those of the version that is changed**, whatever was called before, and each of its records is
    deleted or replaced once at most. A change is either one of records or one of components.

    Not thread-safe.

    Attributes:
        base: the version that is changed, to be read. Closed at the end.
        version: the name of the version that was made, once it is; that of the base if nothing was
            changed and no name was given.
        metadata: of the version to be; those of the base until others are set.
    """

    def __init__(
        self,
        begin: Callable[[contextlib.ExitStack], Begun],
        message: str,
        part_bytes: int | None,
    ) -> None:
        self._begin = begin
        self._message = message
        self._part_bytes = part_bytes
        self._stack: contextlib.ExitStack | None = None
        self._is_done = False

    def __enter__(self) -> Change:
        if self._stack is not None:
            raise InvalidArgumentError("a change is entered once; begin another one")
        with contextlib.ExitStack() as stack:
            self._begun = begun = self._begin(stack)
            self._started = time.monotonic()
            self._made = begun.made
            self._writer = PartWriter(begun.target.label, begun.path, begun.parts, self._part_bytes)
            self._edits = Edits(self._made.count)
            self._new: list[NewRecords] = []
            self._whole: tuple[Hunks, Runs] | None = None
            self._components = Components(self._made.stored, self._made.spec)
            self._version = self._made.dataset_version
            self._metadata: dict[str, Any] = copy.deepcopy(self._made.metadata)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        stack = self._stack
        if stack is None or self._is_done:
            return
        with stack:
            try:
                if kind is None:
                    self._commit()
            finally:
                self._is_done = True

    @property
    def base(self) -> StoredDataRef:
        self._check_entered()
        return self._begun.base

    @property
    def version(self) -> str:
        self._check_entered()
        return self._version

    @property
    def metadata(self) -> dict[str, Any]:
        self._check_entered()
        return self._metadata

    @metadata.setter
    def metadata(self, given: dict[str, Any]) -> None:
        self._check_open()
        self._metadata = given

    # Records

    def append(self, data: Any) -> None:
        """Adds records behind all others. Each call makes a part of its own: give many at once.

        Args:
            data: what can be submitted, of the spec of the version.

        Raises:
            SpecMismatchError: a record does not fit the spec.
        """
        self._check_open(of_records=True)
        self.insert(self._made.count, data)

    def insert(self, position: int, data: Any) -> None:
        """Adds records before the one at a position, behind what was inserted there before.

        Args:
            position: from 0 to the number of records, which is behind the last one.
            data: see :meth:`append`.

        Raises:
            RecordIndexError: there is no such position.
            SpecMismatchError: a record does not fit the spec.
        """
        self._check_open(of_records=True)
        at = as_index("position", position, -sys.maxsize)
        if not 0 <= at <= self._made.count:
            raise RecordIndexError(
                f"there is no position {at} to insert at: the version has {self._made.count} "
                "records; it is from 0 to their number"
            )
        with advising():
            source = self._write(data)
        self._edits.insert(at, source, self._new[-1].count)

    def delete(self, positions: Any) -> None:
        """Deletes the records at some positions.

        Args:
            positions: integers ``[n]``; or a condition, see :meth:`find`.

        Raises:
            RecordIndexError: there is no such record.
            InvalidArgumentError: one is deleted or replaced already.
        """
        self._check_open(of_records=True)
        self._edits.delete(self._positions(positions))

    def replace(self, positions: Any, data: Any) -> None:
        """Has other records stand in for those at some positions.

        Args:
            positions: integers ``[n]``; or a condition, see :meth:`find`.
            data: ``n`` records, in the order of the positions; see :meth:`append`.

        Raises:
            RecordIndexError: there is no such record.
            InvalidArgumentError: there are not as many, or one is deleted or replaced already.
            SpecMismatchError: a record does not fit the spec.
        """
        self._check_open(of_records=True)
        found = self._positions(positions)
        with advising():
            self._put_in(found, self._write(data))

    def update(self, function: Callable[[Any], Any], positions: Any = None) -> None:
        """Has what a function makes of some records stand in for them, where that is another
        record, compared byte by byte.

        Args:
            function: takes a record, and returns one of the same spec.
            positions: integers ``[n]``; or a condition, see :meth:`find`; ``None`` for all.

        Raises:
            RecordIndexError: there is no such record.
            InvalidArgumentError: one is deleted or replaced already.
            SpecMismatchError: a record does not fit the spec.
        """
        self._check_open(of_records=True)
        if positions is None:
            found = np.arange(self._made.count)
            chosen = self._whole_base.stream()
        else:
            found = self._positions(positions)
            chosen = self.base.select(found).stream()
        self._edits.check_new(found)
        # What is stored says little of how far it got: that may be nothing.
        progress = Progress(f"Updating {self._begun.target.label}", len(found))
        codec = RecordCodec(self._made.spec)
        try:
            updated = Updated(function, found.tolist(), chosen, codec, progress.update)
            source = self._write(updated, is_shown=False)
            progress.close(done=True)
        except SpecMismatchError as error:
            explained = updated.explained(error)
            if explained is error:
                raise
            raise explained from error
        finally:
            progress.close(done=False)
        self._put_in(found[updated.changed], source)

    def submit(self, data: Any) -> None:
        """Makes the version one of just these records. Those that the base has are found there,
        wherever they stand, compared byte by byte, and not stored again. Nothing else can be
        changed in the same block but the metadata.

        All of the base is read for it, and all records are written once to a file on this machine.

        Args:
            data: see :meth:`append`.

        Raises:
            InvalidArgumentError: something else was changed, before or after.
            SpecMismatchError: a record does not fit the spec.
        """
        self._check_open(of_records=True)
        if self._edits or self._new:
            raise self._not_alone()
        with advising():
            reader = self._staged(open_source(data, self._made.spec))
        base = self._whole_base.reader
        runs = matched(
            base.tokens(np.arange(len(base))),
            reader.tokens(np.arange(len(reader))),
            functools.partial(equal_records, reader, base),
        )
        sources, places = runs.sources == NEW, np.cumsum(runs.counts) - runs.counts
        new = [
            np.arange(start, start + count)
            for start, count in zip(
                places[sources].tolist(), runs.counts[sources].tolist(), strict=True
            )
        ]
        chosen = np.concatenate([np.empty(0, np.int64), *new])
        assert self._write(UnstoredDataRef(reader).select(chosen)) == NEW
        self._whole = hunks_of(runs, self._made.count)

    def find(self, condition: Callable[[Any], Any]) -> Array:
        """The positions of the records of the base for which a condition holds, int64 ``[n]``.

        Args:
            condition: takes a record, and says whether.

        Raises:
            InvalidArgumentError: it cannot be called.
        """
        self._check_open()
        if not callable(condition):
            raise InvalidArgumentError(
                f"find takes a function of a record that says whether, not {condition!r:.100}"
            )
        found = [at for at, record in enumerate(self._whole_base.stream()) if condition(record)]
        return np.array(found, dtype=np.int64)

    def _positions(self, given: Any) -> Array:
        if callable(given):
            return self.find(given)
        return self.base._positions(given)

    def _put_in(self, positions: Array, source: int) -> None:
        """Has the records that were written last stand in for others."""
        count = self._new[-1].count
        try:
            if count != len(positions):
                raise InvalidArgumentError(
                    f"{len(positions)} positions are to have {count} records; give one for each"
                )
            self._edits.replace(positions, source)
        except InvalidArgumentError:
            # They are of no version, and what is done next is the first that is.
            self._new.pop()
            raise

    def _write(self, data: Any, is_shown: bool = True) -> int:
        """Stores some records, and may tell how far it got; the number of the source that they
        are."""
        self._check_open(of_records=True)
        stored = self._made.stored
        specs_of = [self._components.spec_of(number) for number, _ in enumerate(stored.groups)]
        self._new.append(
            self._writer.write(data, self._made.spec, specs_of, stored.leaves, is_shown)
        )
        return len(self._new)

    # Components

    def add(self, name: str, data: Any, spec: Any = None) -> None:
        """Adds a component to all records.

        Args:
            name: its key in the dict that a record is.
            data: a value for each record, in their order: what can be submitted; or else anything
                that can be called, and makes it of a record of the base.
            spec: the element spec of the values; inferred without.

        Raises:
            InvalidArgumentError: there is one of this name, or not a value for each record; or none
                of which a function could make one, and no spec.
        """
        self._check_open(of_components=True)
        self._components.check_new(name)
        if is_function(data):
            if spec is None and not self._made.count:
                raise InvalidArgumentError(
                    f"the version has no records of which the function could make values of "
                    f"{name!r}; give spec= to add it all the same"
                )
            data = values_of(data, self._whole_base.stream())
        self._components.add(name, self._column(data, spec, name))

    def drop(self, *names: str) -> None:
        """Drops components of all records; what is stored of them stays until ``compact``.

        Raises:
            InvalidArgumentError: there is no such component, or no other one.
        """
        self._check_open(of_components=True)
        self._components.drop(names)

    def rename(self, name: str, new_name: str) -> None:
        """Gives a component another name.

        Raises:
            InvalidArgumentError: there is no such component, or another one of the new name.
        """
        self._check_open(of_components=True)
        self._components.rename(name, new_name)

    def cast(self, name: str, dtype: Any) -> None:
        """Stores a component of numbers in another dtype, as ``astype`` of NumPy converts it.

        Args:
            name: of the component, which is one tensor.
            dtype: of NumPy, TensorFlow or by name.

        Raises:
            InvalidArgumentError: there is no such component, or it is none of numbers.
        """
        self._check_open(of_components=True)
        spec, convert = self._components.cast_of(name, dtype)
        values = (convert(record) for record in self._values_of(name))
        self._components.put(name, self._column(values, spec, name))

    def _values_of(self, name: str) -> Any:
        """The values of a component of the change, in the order of the records."""
        reader = self._components.reader_of(name, self._whole_base.reader)
        return (reader.read_record(at) for at in range(len(reader)))

    def _column(self, data: Any, spec: Any, name: str) -> NewColumn:
        """Stores the values of a component."""
        reader = self._staged(open_source(data, spec))
        if len(reader) != self._made.count:
            raise InvalidArgumentError(
                f"the component {name!r} has {len(reader)} values, and the version has "
                f"{self._made.count} records; give one for each"
            )
        return NewColumn(self._writer.write_reader(reader), reader)

    def _staged(self, source: Source) -> FileReader:
        """Records in a file of their own on this machine, until the change ends."""
        folder = self._begun.scratch
        path = folder / f"{len(list(folder.iterdir()))}.mdb"
        with CacheWriter(
            path,
            source.spec,
            total=source.count,
            label=self._begun.target.label,
            first=source.first,
        ) as writer:
            source.feed(writer)
            writer.commit()
        assert self._stack is not None
        return self._stack.enter_context(open_cache(path))

    @lazy
    def _whole_base(self) -> StoredDataRef:
        """The base, to read all of it, which a bucket gives at once.

        Raises:
            CacheReplacedError: it was replaced since the change was begun.
        """
        if not self.base.reader.is_far:
            return self.base
        assert self._stack is not None
        whole = self._stack.enter_context(self._begun.open_whole())
        if whole.reader.content_id != self.base.reader.content_id:
            name = self._made.dataset_version
            raise CacheReplacedError(f"{name!r} was replaced while it was changed; try again")
        return whole

    # The end

    def _check_entered(self) -> None:
        if self._stack is None:
            raise ClosedError("a change is made inside its context: with storage.change(…)")

    def _check_open(self, of_records: bool = False, of_components: bool = False) -> None:
        self._check_entered()
        if self._is_done:
            raise ClosedError("a change that has ended is not changed any more; begin another one")
        if (of_records and self._components.are_changed) or (of_components and self._edits):
            raise InvalidArgumentError(
                "a change is either of records or of components; make two, one after the other"
            )
        if (of_records or of_components) and self._whole is not None:
            raise self._not_alone()

    def _not_alone(self) -> InvalidArgumentError:
        return InvalidArgumentError(
            "submit says what all records are, and is called alone; make two changes, one after "
            "the other"
        )

    def _commit(self) -> None:
        begun = self._begun
        given = json.loads(metadata_json(self.metadata, UNKNOWN))
        is_told = not same_json(given, self._made.metadata)
        metadata = given if is_told else None
        purpose = Purpose(self._message, metadata, begun.change, self._started)
        committer = Committer(
            begun.storage, self._made, begun.target, begun.branch, begun.parts, purpose, begun.base
        )
        if self._components.are_changed:
            stored = self._components.put_together()
            sums = self._components.sums(self._whole_base.reader)
            committer.commit_spec(stored, sums)
        elif self._edits or self._whole is not None:
            hunks, runs = self._whole or self._edits.put_together()
            if not (len(hunks) or is_told or begun.is_named):
                return
            others = rewritten(self._made, self.base.reader, self._writer)
            new = put_together(runs, self._new, self._made, self.base.reader)
            committer.commit_records(hunks, new, self._writer, others)
        elif is_told or begun.is_named:
            committer.commit_metadata()
        else:
            return
        self._version = begun.target.dataset_version

    def __repr__(self) -> str:
        return f"<change of {self._begun.target.dataset_id!r}>" if self._stack else "<change>"
