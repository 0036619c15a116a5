"""Building a version out of pieces that tasks of Ray make."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from yogadl.cache.progress import Progress
from yogadl.dataref import StoredDataRef
from yogadl.errors import InvalidArgumentError
from yogadl.extras import require
from yogadl.recipes import recipe_or_nonce
from yogadl.storage import CacheStorage, Receipt
from yogadl.storage._building.build import Build

ray = require("ray", "ray")

_WAIT_SECONDS = 1.0


def build(
    storage: CacheStorage[Any],
    dataset_id: str,
    dataset_version: str,
    inputs: Iterable[Any],
    make_records: Callable[[Any], Any],
    *,
    spec: Any,
    metadata: Mapping[str, Any] | None = None,
    recipe: str | None = None,
    part_bytes: int | None = None,
    **ray_remote_args: Any,
) -> StoredDataRef:
    """Builds a version of many inputs, such as names of files, each by a task of Ray.

    The version has the records of the first input, then those of the second, and so on. What is
    stored already is returned, and nothing is made. Of several that build the version, one does,
    and the others wait for it. A build that ended before it was done goes on when it is begun
    again: with the same inputs, spec and recipe, only what is missing is made.

    Ray decides where and when a task runs, and runs it again if its worker or its node dies.

    Args:
        storage: where to; every node of the cluster has to reach it.
        dataset_id: see ``storage.submit``.
        dataset_version: likewise.
        inputs: one for each piece.
        make_records: called with an input, in a task; returns what can be submitted. It may be
            called more than once.
        spec: the element spec of all records.
        metadata: see ``storage.submit``.
        recipe: what the records depend on besides the inputs; by default, all that determines what
            ``make_records`` makes, see ``docs/recipes.md``.
        part_bytes: see ``storage.submit``; a piece is a part of its own at least.
        ray_remote_args: options of the tasks, such as ``num_cpus``, ``memory`` or ``max_retries``:
            see ``ray.remote``.

    Returns:
        What is stored.

    Raises:
        InvalidArgumentError: an argument is not what it should be.
        RayTaskError: ``make_records`` failed in a task; also of the class of what it raised.
    """
    if not isinstance(storage, CacheStorage):
        raise InvalidArgumentError(
            f"build needs a storage of yogadl's, not a {type(storage).__name__}"
        )
    if not callable(make_records):
        raise InvalidArgumentError(
            f"make_records must be a function of an input, not {make_records!r:.100}"
        )
    given = list(inputs)
    with storage.build(
        dataset_id,
        dataset_version,
        spec=spec,
        metadata=metadata,
        recipe=_recipe(given, make_records, recipe),
        part_bytes=part_bytes,
    ) as begun:
        if begun.is_stored:
            return begun.commit([])
        return begun.commit(_written(begun, given, make_records, ray_remote_args))


def _recipe(inputs: Sequence[Any], make_records: Callable[..., Any], recipe: str | None) -> str:
    """What the records depend on; of what cannot be told, nobody knows whether it is the same."""
    if recipe is not None:
        return repr([recipe, recipe_or_nonce(None, tuple(inputs))])
    return recipe_or_nonce(make_records, tuple(inputs))


def _write(build: Build, make_records: Callable[[Any], Any], number: int, given: Any) -> Receipt:
    return build.write(number, partial(make_records, given))


def _written(
    build: Build,
    inputs: Sequence[Any],
    make_records: Callable[[Any], Any],
    ray_remote_args: Mapping[str, Any],
) -> list[Receipt]:
    """Has all pieces written; their receipts, in any order."""
    task = ray.remote(_write).options(**{"name": f"yogadl {build.label}", **ray_remote_args})
    sent = ray.put(build), ray.put(make_records)
    pending = [task.remote(*sent, number, given) for number, given in enumerate(inputs)]
    progress = Progress(f"Writing {build.label} with Ray", None)
    receipts: list[Receipt] = []
    try:
        while pending:
            ready, pending = ray.wait(pending, num_returns=len(pending), timeout=_WAIT_SECONDS)
            found = ray.get(ready)
            receipts += found
            if found:
                count = sum(receipt.record_count for receipt in found)
                progress.update(count, sum(receipt.nbytes for receipt in receipts))
        progress.close(done=True)
    finally:
        progress.close(done=False)
        for ref in pending:
            ray.cancel(ref)
    return receipts
