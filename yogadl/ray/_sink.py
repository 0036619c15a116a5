"""Data sets of Ray Data, written to a storage."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from yogadl.adapters import Source, as_spec, open_source
from yogadl.adapters._arrow_types import schema_spec
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import StoredDataRef
from yogadl.errors import InvalidArgumentError, SpecMismatchError, YogadlError
from yogadl.extras import require
from yogadl.format.spec_text import spec_text
from yogadl.storage import Build, CacheStorage, Receipt
from yogadl.storage._building.provenance import check_stored, of_here

data: Any = require("ray.data", "ray")
BlockAccessor: Any = require("ray.data.block", "ray").BlockAccessor

_log = logging.getLogger(__name__)


class _Blocks(Source):
    """The rows of some blocks of Ray's, which are tables of Arrow or pandas.

    Args:
        blocks: in order.
        spec: of their rows.
        is_inferred: it is that of another block, not what the user gave.
    """

    count = None

    def __init__(self, blocks: Iterable[Any], spec: Any, is_inferred: bool) -> None:
        self.spec = spec
        self._blocks = blocks
        self._is_inferred = is_inferred

    def feed(self, writer: CacheWriter) -> None:
        for block in self._blocks:
            table = BlockAccessor.for_block(block).to_arrow()
            # Blocks without rows need not have the columns of the others.
            if table.num_rows:
                self._check(table.schema)
                open_source(table, self.spec).feed(writer)

    def _check(self, schema: Any) -> None:
        if self._is_inferred:
            found = schema_spec(schema)
            if found != self.spec:
                raise SpecMismatchError(
                    f"a block has rows of {spec_text(found)}, and the first one had "
                    f"{spec_text(self.spec)}; give spec= for all of them"
                )


class Datasink(data.Datasink):  # type: ignore[misc] # Ray has types of its own
    """Where ``dataset.write_datasink`` of Ray Data stores a data set: as a version of a storage.

    ::

        dataset.write_datasink(yogadl.ray.Datasink(storage, "mnist", "1.0"))

    :func:`write` does the same, and returns what is stored.

    Each write task of Ray writes one piece, and the version is published when all are done: all of
    it, at once. A task that Ray runs again, or twice, writes the same piece again, which counts
    once. If a task fails, nothing is published. If the version is stored already, it stays as it
    is, and nothing is written.

    The records are in the order of the blocks as Ray hands them out. That is the data set's order
    if ``dataset.context.execution_options.preserve_order`` is set, as :func:`write` does. To be
    used once.

    Args:
        storage: where to; every node of the cluster has to reach it.
        dataset_id: see ``storage.submit``.
        dataset_version: likewise.
        spec: the element spec of the rows, a dict of the columns. Without, that of the first block,
            which all others have to have; Ray then cannot join the writing with what comes before
            it into one task.
        metadata: see ``storage.submit``.
        part_bytes: see ``storage.submit``; a piece is a part of its own at least.

    Attributes:
        stored: what is stored, once Ray has finished writing.

    Raises:
        InvalidArgumentError: an argument is not what it should be.
    """

    def __init__(
        self,
        storage: CacheStorage[Any],
        dataset_id: str,
        dataset_version: str,
        *,
        spec: Any = None,
        metadata: Mapping[str, Any] | None = None,
        part_bytes: int | None = None,
    ) -> None:
        if not isinstance(storage, CacheStorage):
            raise InvalidArgumentError(
                f"Datasink needs a storage of yogadl's, not a {type(storage).__name__}"
            )
        self.stored: StoredDataRef | None = None
        self._storage: CacheStorage[Any] | None = storage
        self._name = (dataset_id, dataset_version)
        self._metadata = metadata
        self._part_bytes = part_bytes
        self._is_inferred = spec is None
        self._is_begun = False
        self._build = None if spec is None else self._build_of(as_spec(spec))

    def _build_of(self, spec: Any) -> Build:
        assert self._storage is not None
        if not isinstance(spec, dict):
            raise InvalidArgumentError(
                f"the rows of a Ray data set are dicts, whose spec is no {spec!r:.200}"
            )
        # Blocks may be others the next time, so no other run's pieces are used.
        return self._storage.build(
            *self._name,
            spec=spec,
            metadata=self._metadata,
            recipe=uuid.uuid4().hex,
            part_bytes=self._part_bytes,
        )

    def _begin(self, schema: Any) -> Build:
        """Waits until nobody else builds the version."""
        if self._build is None:
            if schema is None or not schema.names:
                raise InvalidArgumentError(
                    "the data set has no rows that would tell its columns; give spec="
                )
            self._build = self._build_of(schema_spec(schema))
        if not self._is_begun:
            self._build.__enter__()
            self._is_begun = True
        return self._build

    def end(self) -> None:
        """Lets others build the version. May be called twice."""
        if self._is_begun and self._build is not None:
            self._is_begun = False
            self._build.__exit__(None, None, None)

    # What Ray calls, on the driver

    def get_name(self) -> str:
        """What Ray calls it in its log."""
        return "yogadl"

    @property
    def min_bytes_per_write(self) -> int | None:
        """Any number keeps Ray from joining tasks; joined ones do not tell the schema of blocks."""
        return 1 if self._is_inferred else None

    def on_write_start(self, schema: Any = None) -> None:
        """Begins the build, before the first task is."""
        self._begin(schema)

    def on_write_complete(self, write_result: Any) -> None:
        """Publishes the version."""
        # It has not begun if there was no block.
        self.stored = self._begin(None).commit(write_result.write_returns)
        self.end()

    def on_write_failed(self, error: Exception) -> None:
        """Ends the build; nothing is published, and nobody goes on with what was written."""
        del error
        try:
            if self._is_begun and self._build is not None:
                self._build.forget()
        except YogadlError as failed:
            # What it removes goes later otherwise, by collection; Ray tells why the writing failed.
            _log.info("What says which pieces are written stays: %s", failed)
        finally:
            self.end()

    # What Ray calls in its tasks

    def write(self, blocks: Iterable[Any], ctx: Any) -> Receipt:
        """Writes the piece of a task."""
        assert self._build is not None
        spec, is_inferred = self._build.spec, self._is_inferred
        return self._build.write_source(ctx.task_idx, lambda: _Blocks(blocks, spec, is_inferred))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "stored": None, "_storage": None, "_is_begun": False}


def write(
    dataset: Any,
    storage: CacheStorage[Any],
    dataset_id: str,
    dataset_version: str,
    *,
    spec: Any = None,
    metadata: Mapping[str, Any] | None = None,
    part_bytes: int | None = None,
    concurrency: int | None = None,
    **ray_remote_args: Any,
) -> StoredDataRef:
    """Stores a data set of Ray Data, in its order; see :class:`Datasink`.

    What is stored already is returned, and the data set is not read.

    Args:
        dataset: a ``ray.data.Dataset``.
        storage: see :class:`Datasink`, also for the next five.
        dataset_id: likewise.
        dataset_version: likewise.
        spec: likewise.
        metadata: likewise.
        part_bytes: likewise.
        concurrency: how many tasks write at the same time; Ray decides without.
        ray_remote_args: options of these tasks, see ``ray.remote``.

    Returns:
        What is stored.

    Raises:
        InvalidArgumentError: an argument is not what it should be.
        SpecMismatchError: rows do not fit the spec, or blocks have different ones.
        UnsupportedTypeError: a column that cannot be stored.
    """
    if not isinstance(dataset, data.Dataset):
        raise InvalidArgumentError(
            f"write takes a ray.data.Dataset, not a {type(dataset).__name__}; other data is stored "
            "by storage.submit"
        )
    sink = Datasink(
        storage, dataset_id, dataset_version, spec=spec, metadata=metadata, part_bytes=part_bytes
    )
    version = storage._version(dataset_id, dataset_version)
    found = storage._fetch_usable(version)
    if found is not None:
        wanted = None if spec is None else as_spec(spec)
        check_stored(found, str(version), wanted, metadata, of_here())
        return found
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        dataset.write_datasink(sink, ray_remote_args=ray_remote_args, concurrency=concurrency)
    finally:
        options.preserve_order = before
        # Ray does not say so if it was interrupted.
        sink.end()
    assert sink.stored is not None
    return sink.stored
