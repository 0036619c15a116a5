"""Building a version out of pieces that are written apart, in any order and by anybody."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import xxhash

from yogadl import spec as specs
from yogadl.adapters import Source, as_spec, open_source
from yogadl.arguments import as_index
from yogadl.cache.partial import PartialFile, claimed, remove_leftovers
from yogadl.cache.table_writer import PartList
from yogadl.cache.writer import CacheWriter, encoded_spec, metadata_json, with_duration
from yogadl.dataref import StoredDataRef
from yogadl.errors import (
    CacheFormatError,
    ClosedError,
    InvalidArgumentError,
    SpecMismatchError,
    UnsupportedTypeError,
    YogadlError,
)
from yogadl.format import spec_json
from yogadl.format.provenance import Provenance
from yogadl.format.spec_text import spec_text
from yogadl.storage._building import provenance
from yogadl.storage._building.building import building_alone
from yogadl.storage._building.pieces import Pieces
from yogadl.storage._building.submission import Parts
from yogadl.storage._receipt import Receipt
from yogadl.storage._version import Version

_FORMAT = 1
_ATTEMPTS = 5

_log = logging.getLogger(__name__)


class Turn(Protocol):
    """One's turn to build a version."""

    def publish(self, file: PartialFile, parts: Any) -> StoredDataRef | None:
        """Stores the whole file of the version; what is stored then, unless it has to be fetched.

        That may be another's, if this one lost its turn.
        """


class BuildStorage(Protocol):
    """What a build needs of its storage."""

    def _version(self, dataset_id: str, dataset_version: str) -> Version: ...

    def _pieces(self, version: Any, build: str, removed: frozenset[bytes], /) -> Pieces: ...

    def _adding(
        self, version: Any, may_stamp: bool, /
    ) -> contextlib.AbstractContextManager[Parts]: ...

    def _fetch_usable(self, version: Any) -> StoredDataRef | None: ...

    def _check_name(self, version: Any) -> None: ...


class Build:
    """A version that is built out of pieces. Of ``storage.build(…)``; a context manager.

    Entering it waits until nobody else builds the version; it then is stored, or it is this one's
    turn. Until the context ends, nobody else builds it, and no part of it is collected. What was
    written stays when it ends without a commit, so that the same build, begun again, goes on.

    A copy, pickled and sent to another process or machine, can write pieces: it needs the same
    credentials there, and carries none. Safe for threads; the context may be ended by another
    one than began it.

    Attributes:
        spec: the element spec of all records.
    """

    def __init__(
        self,
        storage: BuildStorage,
        version: Version,
        provenance: Provenance,
        part_bytes: int | None,
        turn: Callable[[], contextlib.AbstractContextManager[Turn | StoredDataRef | None]],
    ) -> None:
        self.spec: specs.Structure = None
        self._storage = storage
        self._version = version
        self._provenance = provenance
        self._part_bytes = part_bytes
        self._take_turn: Callable[..., Any] | None = turn
        self._metadata: Mapping[str, Any] | None = None
        self._metadata_json = b""
        self._name = self._recipe = ""
        self._numbers: set[int] = set()
        self._stack: contextlib.ExitStack | None = None
        self._turn: Turn | None = None
        self._parts: Any = None
        self._pieces: Pieces | None = None
        self._removed: frozenset[bytes] = frozenset()
        self._found: StoredDataRef | None = None
        self._is_stored = self._is_open = False
        self._began = 0.0

    def fix(self, spec: Any, metadata: Mapping[str, Any] | None, recipe: str) -> Build:
        """Says what is built, before anything is written; returns this.

        Raises:
            InvalidArgumentError: it cannot be stored.
        """
        self.spec = as_spec(spec)
        # A copy, which can be pickled.
        self._metadata = dict(metadata) if isinstance(metadata, Mapping) else metadata
        self._metadata_json = metadata_json(metadata, self._provenance)
        text = [_FORMAT, self._version.dataset_version, spec_json.canonical(self.spec), recipe]
        if not isinstance(recipe, str):
            raise InvalidArgumentError(f"recipe must be a string, not {recipe!r:.100}")
        self._recipe = recipe
        self._name = xxhash.xxh3_128_hexdigest(json.dumps(text).encode())
        return self

    # The context

    def __enter__(self) -> Build:
        if self._stack is not None:
            raise InvalidArgumentError("a build is entered once; begin another one")
        with contextlib.ExitStack() as stack:
            stack.enter_context(building_alone(self._version))
            self._begin(stack)
            self._stack = stack.pop_all()
        return self

    def _begin(self, stack: contextlib.ExitStack) -> None:
        for _ in range(_ATTEMPTS):
            with contextlib.ExitStack() as held:
                assert self._take_turn is not None
                turn = held.enter_context(self._take_turn())
                if turn is None:
                    # It was published a moment ago.
                    turn = self._storage._fetch_usable(self._version)
                if isinstance(turn, StoredDataRef):
                    self._found, self._is_stored = turn, True
                    if self._name:
                        name, given = str(self._version), (self.spec, self._metadata)
                        provenance.check_stored(turn, name, *given, self._provenance)
                    return
                if turn is not None:
                    self._storage._check_name(self._version)
                    self._began = time.monotonic()
                    self._turn = turn
                    self._parts = held.enter_context(self._storage._adding(self._version, True))
                    self._parts.begin()
                    self._removed = self._parts.removed
                    self._is_open = True
                    stack.push(held.pop_all())
                    return
        raise YogadlError(f"{self._version} is deleted again and again while it is built")

    def __exit__(self, *raised: Any) -> None:
        stack, self._stack = self._stack, contextlib.ExitStack()
        if self._turn is not None:
            # Of workers that were killed.
            remove_leftovers(self._version.claim())
            if raised[0] is None:
                _log.warning(
                    "%s was not committed, so it is not stored; build.commit(receipts) does that, "
                    "inside the context.",
                    self._version,
                )
        self._turn = None
        if self._found is not None:
            self._found.close()
            self._found = None
        if stack is not None:
            stack.__exit__(*raised)

    @property
    def is_stored(self) -> bool:
        """Whether the version was stored already, so that there is nothing to write."""
        return self._is_stored

    # Workers

    def write(self, number: int, make_records: Any) -> Receipt:
        """Stores a piece, unless it was stored by this build before. Safe for threads.

        Args:
            number: of the piece; the records of the version are in the order of these. Any that is
                not negative, and some may be left out.
            make_records: a function without arguments that returns what can be submitted, or that
                itself: anything but what can be read only once. It is not called, nor read, if the
                piece is stored already.

        Returns:
            For :meth:`commit`. A piece may be written more than once, also at the same time.

        Raises:
            InvalidArgumentError: the number is negative, or an iterator was given.
            SpecMismatchError: a record does not fit the spec.
            StoreError: the bucket cannot be written to.
            FileSystemError: the disk cannot.
        """
        return self.write_source(
            as_index("number", number, 0), lambda: open_source(_made(make_records), self.spec)
        )

    def write_source(self, number: int, open_it: Callable[[], Source]) -> Receipt:
        """The same, of what a function opens if it is needed."""
        if self._is_stored:
            return Receipt.of(self._name, number, PartList())
        pieces = self._open_pieces()
        found = self._found_piece(pieces, number)
        if found is not None:
            self._tell_found(number)
            return found
        try:
            parts = self._write(pieces, open_it())
        except (InvalidArgumentError, SpecMismatchError, UnsupportedTypeError) as error:
            raise type(error)(f"piece {number}: {error}") from error
        receipt = Receipt.of(self._name, number, parts)
        pieces.write(number, receipt.to_json())
        self._numbers.add(number)
        _log.info("Stored piece %d of %s.", number, self._version.label)
        return receipt

    def _tell_found(self, number: int) -> None:
        """Says of a piece that the records that were given were not looked at."""
        if number in self._numbers:
            _log.warning(
                "Piece %d of %s was written here before, and stays as it is: the records given now "
                "are not read. Other records need a number of their own.",
                number,
                self._version.label,
            )
            return
        _log.log(
            logging.INFO if self._recipe else logging.WARNING,
            "Piece %d of %s was stored by another worker or an earlier run of this build, and is "
            "taken as it is%s.",
            number,
            self._version.label,
            "" if self._recipe else "; recipe= of storage.build says what its records depend on",
        )

    def _open_pieces(self) -> Pieces:
        if not self._is_open:
            raise ClosedError("a build is entered before it is written to: with storage.build(…)")
        if self._pieces is None:
            self._pieces = self._storage._pieces(self._version, self._name, self._removed)
        return self._pieces

    def _found_piece(self, pieces: Pieces, number: int) -> Receipt | None:
        data = pieces.read(number)
        if data is None:
            return None
        try:
            receipt = Receipt.parse(data)
        except CacheFormatError as error:
            _log.warning("Piece %d of %s is made again: %s", number, self._version.label, error)
            return None
        is_it = receipt.is_of(self._name) and receipt.number == number
        return receipt if is_it and pieces.has(receipt.sizes()) else None

    def _write(self, pieces: Pieces, source: Source) -> PartList:
        if source.spec != self.spec:
            raise SpecMismatchError(
                f"the records have the spec {spec_text(source.spec)}, and the build has "
                f"{spec_text(self.spec)}"
            )
        with (
            claimed(self._version.claim) as path,
            CacheWriter(
                path,
                self.spec,
                total=source.count,
                part_bytes=self._part_bytes,
                take_part=lambda part, header: not pieces.store(part, header.digest),
                is_shown=False,
                first=source.first,
            ) as writer,
        ):
            source.feed(writer)
            return writer.finish_parts()

    # The end

    def commit(self, receipts: Iterable[Receipt]) -> StoredDataRef:
        """Publishes the version: all of it, at once.

        Args:
            receipts: of all pieces that it is to have, in any order.

        Returns:
            What is stored then. That may be another's, if this one lost its turn meanwhile.

        Raises:
            InvalidArgumentError: there are two different receipts of a number, or one of another
                build; or this is a copy that was sent elsewhere.
            CacheFormatError: parts of a piece are not there any more.
            StoreError: the bucket cannot be written to.
        """
        if self._is_stored and self._found is not None:
            found, self._found = self._found, None
            return found
        if self._turn is None:
            raise InvalidArgumentError(
                "a build is committed once, inside its context, by the process that began it"
            )
        ordered = self._in_order(receipts)
        sizes = {name: size for receipt in ordered for name, size in receipt.sizes().items()}
        pieces = self._open_pieces()
        if not pieces.has(sizes):
            raise CacheFormatError(
                f"parts of {self._version} that its receipts name are not stored any more; write "
                "these pieces again"
            )
        self._parts.adopt(sizes)
        turn, self._turn = self._turn, None
        with self._file(ordered) as file:
            stored = turn.publish(file, self._parts)
            if stored is None:
                stored = self._storage._fetch_usable(self._version)
        if stored is None:
            raise YogadlError(f"{self._version} was deleted right after it was built")
        pieces.forget()
        return stored

    def _in_order(self, receipts: Iterable[Receipt]) -> list[Receipt]:
        known: dict[int, Receipt] = {}
        if not isinstance(receipts, Iterable):
            raise InvalidArgumentError(f"commit takes a list of receipts, not {receipts!r:.100}")
        for receipt in receipts:
            if not isinstance(receipt, Receipt) or not receipt.is_of(self._name):
                raise InvalidArgumentError(
                    f"commit takes what write of this build has returned, not {receipt!r:.100}"
                )
            if known.setdefault(receipt.number, receipt) != receipt:
                raise InvalidArgumentError(
                    f"piece {receipt.number} was written twice, with other records, and it is not "
                    "said which are to count; give one receipt for each piece"
                )
        return [known[number] for number in sorted(known)]

    @contextlib.contextmanager
    def _file(self, receipts: Iterable[Receipt]) -> Iterator[PartialFile]:
        """The table of some pieces; a file without records if they have none."""
        parts = PartList()
        for receipt in receipts:
            parts.extend(receipt.parts())
        with claimed(self._version.claim) as path:
            remove_leftovers(path)
            with self._written(path, parts) as file:
                yield file

    @contextlib.contextmanager
    def _written(self, path: pathlib.Path, parts: PartList) -> Iterator[PartialFile]:
        if not parts:
            with CacheWriter(
                path,
                self.spec,
                self._metadata,
                0,
                provenance=self._provenance,
                label=self.label,
                began=self._began,
            ) as writer:
                yield writer.finish()
            return
        now = time.time_ns()
        metadata = with_duration(self._metadata_json, time.monotonic() - self._began)
        with parts.write(path, encoded_spec(self.spec), metadata, now) as file:
            yield file

    # Copies

    def __getstate__(self) -> dict[str, Any]:
        left_here = ("_stack", "_take_turn", "_turn", "_parts", "_pieces", "_found")
        names = self._version.dataset_id, self._version.dataset_version
        state = {**self.__dict__, **dict.fromkeys(left_here), "_version": names}
        return {**state, "_numbers": set()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._version = self._storage._version(*state["_version"])

    def forget(self) -> None:
        """Has nobody go on with it: removes what says which pieces are written."""
        self._open_pieces().forget()

    @property
    def label(self) -> str:
        """What is built, in short, for logs."""
        return self._version.label

    def __repr__(self) -> str:
        return f"<build of {self._version.label}, process {os.getpid()}>"


def _made(make_records: Any) -> Any:
    """What is to be stored."""
    is_data = any(hasattr(make_records, name) for name in ("__iter__", "__getitem__"))
    if isinstance(make_records, type) or (callable(make_records) and not is_data):
        return make_records()
    if hasattr(make_records, "__next__"):
        raise InvalidArgumentError(
            f"{make_records!r:.100} can be read only once, so a piece that breaks off could not be "
            "written again; give the function that makes it"
        )
    return make_records
