"""Functions whose data is stored, and what their recipes say of what is stored."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import logging
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from yogadl import spec as specs
from yogadl.catalogue import Entry
from yogadl.dataref import StoredDataRef
from yogadl.errors import (
    CacheFormatError,
    CacheNotFoundError,
    InvalidArgumentError,
    UndeterminedError,
)
from yogadl.format import spec_json
from yogadl.format.provenance import Provenance
from yogadl.recipes import CACHED, Recipe, RecipeChange, changes, parse, recipe_of
from yogadl.storage._building import provenance
from yogadl.storage._building.building import building_alone
from yogadl.storage._building.submission import Submission
from yogadl.storage._listed import Listed

ON_CHANGE = ("warn", "raise", "rebuild", "ignore")
_OF_RECIPES = "r-"

# The versions for which this process has run a function.
_run_here: set[str] = set()
_log = logging.getLogger(__name__)


class CachingStorage(Protocol):
    """What a function that is cached needs of its storage."""

    def _version(self, dataset_id: str, dataset_version: str) -> Any: ...

    def _fetch_usable(self, version: Any, level: int = ...) -> StoredDataRef | None: ...

    def _fetch_best(self, version: Any, check_records: bool) -> StoredDataRef: ...

    def _newest_first(self, dataset_id: str) -> Iterator[tuple[Listed, Entry]]: ...

    def _build(self, submission: Submission, version: Any) -> StoredDataRef: ...

    def _build_with(
        self, submission: Submission, version: Any, workers: int, turn: Callable[..., Any]
    ) -> StoredDataRef: ...

    def _staged(
        self, submission: Submission, version: Any
    ) -> contextlib.AbstractContextManager[tuple[Any, Any]]: ...

    def _publish(self, file: Any, version: Any, parts: Any) -> None: ...

    def _turn(self, version: Any) -> contextlib.AbstractContextManager[Any]: ...

    def _any_turn(self, version: Any) -> contextlib.AbstractContextManager[Any]: ...


@dataclass(frozen=True)
class Cacheable:
    """A function whose data is stored. Safe for threads and processes.

    Attributes:
        storage: where.
        function: that makes the data.
        dataset_id: under which it is stored.
        dataset_version: likewise; ``None`` if it follows from the recipe.
        key: counts in the recipe, if it is not ``None``.
        ignore: names that do not.
        inputs: paths and DataRefs that do.
        on_change: one of ``ON_CHANGE``.
        spec: of the records, in standard form.
        metadata: see ``submit``.
        part_bytes: likewise.
        workers: likewise.
    """

    storage: CachingStorage
    function: Callable[..., Any]
    dataset_id: str
    dataset_version: str | None
    key: Any
    ignore: tuple[str, ...]
    inputs: tuple[Any, ...] | frozenset[Any]
    on_change: str
    spec: specs.Structure | None
    metadata: Mapping[str, Any] | None
    part_bytes: int | None
    workers: int

    def call(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> StoredDataRef:
        """What is stored for a call, built if it is not there.

        Raises:
            UndeterminedError: there is no version, and none follows.
            StaleCacheError: what is stored was made otherwise, and ``on_change`` says so.
        """
        storage, recipe = self.storage, self.recipe_if_told(arguments, named)
        version = storage._version(self.dataset_id, self._version_of(recipe))
        now = provenance.of_call(self.function, arguments, named, recipe)
        asked = self.spec, self.metadata, now, recipe
        found = storage._fetch_usable(version, level=logging.DEBUG)
        if found is None:
            _run_here.add(version.name)
            found = self._build(self._submission(arguments, named, now, recipe), version)
        elif self.on_change == "rebuild":
            is_own = version.name in _run_here
            other = next(provenance.differences(found, *asked, is_own), None)
            if other is not None:
                found.close()
                _run_here.add(version.name)
                _log.info("Building %s again: it was stored %s.", version.label, other.text)
                found = self._replace(self._submission(arguments, named, now, recipe), version)
        is_own = version.name in _run_here
        provenance.check_stored(found, str(version), *asked, self.on_change, is_own)
        return found

    def recipe(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Recipe:
        """What determines the data of a call.

        Raises:
            UndeterminedError: it cannot be told.
        """
        is_pinned = self.dataset_version is not None
        return recipe_of(
            self.function,
            arguments,
            named,
            key=self.key,
            ignore=self.ignore,
            inputs=self.inputs,
            # With a version, it is compared with what is stored itself.
            spec="" if is_pinned or self.spec is None else spec_json.canonical(self.spec),
        )

    def recipe_if_told(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Recipe | None:
        """The same; ``None`` if it cannot be told, and is not needed."""
        try:
            return self.recipe(arguments, named)
        except UndeterminedError as error:
            if self.dataset_version is None:
                raise UndeterminedError(f"{self.label} has no version, and {error}") from error
            _log.debug("What determines %s is not compared: %s", self.label, error)
            return None
        except InvalidArgumentError:
            raise
        except Exception as error:
            # Users' objects may raise anything when they are looked at. Their version was given.
            if self.dataset_version is None:
                raise
            _log.info("What determines %s is not compared: %r", self.label, error)
            return None

    def _version_of(self, recipe: Recipe | None) -> str:
        if self.dataset_version is not None:
            return self.dataset_version
        assert recipe is not None
        return f"{_OF_RECIPES}{recipe.digest}"

    @property
    def label(self) -> str:
        """For people."""
        return f"the data set {self.dataset_id!r}"

    def _submission(
        self,
        arguments: tuple[Any, ...],
        named: Mapping[str, Any],
        now: Provenance,
        recipe: Recipe | None,
    ) -> Submission:
        # Before the function runs, which may change what it goes by.
        document = None if recipe is None else recipe.document()
        return Submission(
            functools.partial(self.function, *arguments, **named),
            self.spec,
            self.metadata,
            dataclasses.replace(now, recipe_document=document),
            self.part_bytes,
        )

    def _build(self, submission: Submission, version: Any) -> StoredDataRef:
        storage = self.storage
        if self.workers > 1:
            return storage._build_with(submission, version, self.workers, storage._turn)
        with building_alone(version):
            return storage._build(submission, version)

    def _replace(self, submission: Submission, version: Any) -> StoredDataRef:
        storage = self.storage
        if self.workers > 1:
            return storage._build_with(submission, version, self.workers, storage._any_turn)
        with building_alone(version), storage._staged(submission, version) as (file, parts):
            storage._publish(file, version, parts)
        found = storage._fetch_usable(version)
        # Somebody may have deleted it.
        return self._build(submission, version) if found is None else found

    # What would happen

    def why(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Why:
        """What a call would do, and why.

        Raises:
            TypeError: it would call the function, which cannot be called so.
        """
        found = self._why(arguments, named)
        function = self.function
        # Whatever else there is may take other arguments than it says.
        is_plain = isinstance(function, types.FunctionType) and not hasattr(function, "__wrapped__")
        if found.would_build and is_plain:
            inspect.signature(function).bind(*arguments, **named)
        return found

    def _why(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Why:
        storage = self.storage
        try:
            recipe = self.recipe(arguments, named)
        except UndeterminedError as error:
            if self.dataset_version is None:
                return Why(self.dataset_id, None, False, None, (), str(error))
            recipe, reason = None, str(error)
        else:
            reason = ""
        name = self._version_of(recipe)
        version = storage._version(self.dataset_id, name)
        found = storage._fetch_usable(version, level=logging.DEBUG)
        compared: str | None = name
        if found is None:
            found, compared = self._newest()
        is_stored = compared == name and found is not None
        if found is None:
            return Why(self.dataset_id, name, False, None, (), reason)
        with found:
            stored = found.info.provenance
            before = parse(stored.recipe_document)
            texts = tuple(
                it.text
                for it in provenance.differences(
                    found,
                    self.spec,
                    self.metadata,
                    provenance.of_call(self.function, arguments, named, None),
                    None,
                )
            )
        if recipe is not None and before is not None:
            is_same = recipe.digest == stored.recipe
            differ = () if is_same else changes(before, recipe)
            return Why(self.dataset_id, name, is_stored, compared, differ, "", self.on_change)
        if recipe is not None and stored.recipe == recipe.digest:
            texts = ()
        differ = tuple(RecipeChange("stored", text) for text in texts)
        return Why(self.dataset_id, name, is_stored, compared, differ, reason, self.on_change)

    def _newest(self) -> tuple[StoredDataRef | None, str | None]:
        """The version that was stored last, of those that can be read."""
        for it, _ in self.storage._newest_first(self.dataset_id):
            version = self.storage._version(it.dataset_id, it.dataset_version)
            try:
                return self.storage._fetch_best(version, check_records=False), it.dataset_version
            except (CacheFormatError, CacheNotFoundError):
                continue
        return None, None


@dataclass(frozen=True)
class Why:
    """What a call of a function that ``cacheable`` decorates would do; ``str`` says it.

    Attributes:
        dataset_id: of the function.
        dataset_version: that the call goes by; ``None`` if it cannot be told.
        is_stored: whether that version is stored.
        compared_with: the version that it was compared with: that one, or else the newest of the
            id; ``None`` if nothing is stored.
        changes: what is other than when that was stored, what matters most first.
        undetermined: why it cannot be told what determines the data; empty if it can.
        on_change: of ``cacheable``.
    """

    dataset_id: str
    dataset_version: str | None
    is_stored: bool
    compared_with: str | None
    changes: tuple[RecipeChange, ...]
    undetermined: str = ""
    on_change: str = "warn"

    @property
    def would_build(self) -> bool:
        """Whether a call would run the function."""
        if not self.is_stored:
            return self.dataset_version is not None
        return bool(self.changes) and self.on_change == "rebuild"

    def __str__(self) -> str:
        said = [self._outcome()]
        if self.undetermined:
            said.append(self.undetermined)
        if self.changes:
            said.append(f"Compared with version {self.compared_with!r}:")
            said += [f"  {change}" for change in self.changes]
        return "\n".join(said)

    def _outcome(self) -> str:
        name = f"version {self.dataset_version!r} of {self.dataset_id!r}"
        if self.dataset_version is None:
            return f"{self.dataset_id!r} would be refused, since it has no version."
        if not self.is_stored:
            return f"{name} would be built: it is not stored."
        if not self.changes:
            return f"{name} would be read: it is stored, and nothing has changed."
        if self.on_change == "rebuild":
            return f"{name} would be built again: it was made otherwise."
        if self.on_change == "raise":
            return f"{name} would not be read, but an error be raised: it was made otherwise."
        return f"{name} would be read as it is stored, though it was made otherwise."


def cached_by(storage: Any, function: Any) -> tuple[Cacheable, tuple[Any, ...]]:
    """What ``cacheable`` of a storage made of a function, and the arguments that it is bound to.

    Raises:
        InvalidArgumentError: it did not.
    """
    found = getattr(function, CACHED, None)
    if not isinstance(found, Cacheable) or found.storage is not storage:
        raise InvalidArgumentError(
            f"why takes a function that cacheable of this storage decorates, not {function!r:.100}"
        )
    return found, (function.__self__,) if isinstance(function, types.MethodType) else ()


def checked_on_change(on_change: Any) -> str:
    """What is to be done, as users give it.

    Raises:
        InvalidArgumentError: it is nothing that can be done.
    """
    if not isinstance(on_change, str) or on_change not in ON_CHANGE:
        raise InvalidArgumentError(
            f"on_change must be one of {', '.join(map(repr, ON_CHANGE))}, not {on_change!r:.100}"
        )
    return str(on_change)
