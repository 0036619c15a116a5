"""What all of yogadl's storages have in common: one builder, and moving versions about."""

from __future__ import annotations

import abc
import contextlib
import datetime
import functools
import logging
import pathlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from yogadl.cache.files import shown, telling
from yogadl.core import Params, Storage
from yogadl.dataref import LMDBDataRef
from yogadl.errors import (
    CacheFormatError,
    CacheNotFoundError,
    InvalidArgumentError,
    UnsupportedFormatError,
    YogadlError,
)

_log = logging.getLogger(__name__)
_building = threading.local()


def check_configurations(name: str, directory: pathlib.Path, cache_format: str) -> None:
    """Checks what all configurations have.

    Args:
        name: of the directory, for messages.
        directory: that has to be there.
        cache_format: what 0.1.4 let one set.

    Raises:
        InvalidArgumentError: there is no such directory, or no such format.
    """
    with telling("use", directory):
        if not directory.is_dir():
            raise InvalidArgumentError(
                f"{name} {shown(directory)!r} is not a directory; create it first"
            )
    if cache_format != "LMDB":
        raise InvalidArgumentError(f"cache_format must be 'LMDB', not {cache_format!r}")


@dataclass(frozen=True)
class StoredVersion:
    """One stored version of a data set.

    Attributes:
        dataset_id: as it was submitted.
        dataset_version: likewise.
        size: bytes.
        created: when it was stored, in UTC.
    """

    dataset_id: str
    dataset_version: str
    size: int
    created: datetime.datetime


class CacheStorage(Storage):
    """A storage of cache files.

    A storage of one's own need not derive from this class; ``yogadl.Storage`` is all that is asked.
    """

    # What a kind of storage supplies

    @abc.abstractmethod
    def fetch(
        self, dataset_id: str, dataset_version: str, *, check_records: bool = False
    ) -> LMDBDataRef:
        """See ``Storage.fetch``; for ``check_records``, see ``LMDBDataRef``."""

    @abc.abstractmethod
    def list_versions(self, dataset_id: str | None = None) -> list[StoredVersion]:
        """What is stored, sorted by id and version.

        Args:
            dataset_id: list only the versions of this one.

        Raises:
            InvalidArgumentError: the id is empty or leaves the storage.
        """

    @abc.abstractmethod
    def delete(self, dataset_id: str, dataset_version: str) -> None:
        """Deletes a version. Who has it open can go on reading it.

        Raises:
            CacheNotFoundError: it is not stored.
            InvalidArgumentError: an id or version that is empty or leaves the storage.
        """

    @abc.abstractmethod
    def _name(self, dataset_id: str, dataset_version: str) -> str:
        """A name for this version that no other has, in any storage; checks id and version.

        Raises:
            InvalidArgumentError: an id or version that is empty or leaves the storage.
        """

    @abc.abstractmethod
    def _build(
        self,
        make: Callable[[], Any],
        dataset_id: str,
        dataset_version: str,
        spec: Any,
        metadata: Mapping[str, Any] | None,
    ) -> LMDBDataRef:
        """Stores what ``make()`` returns as the only one who does, or waits for who is that."""

    @abc.abstractmethod
    def _publish_copy(self, ref: LMDBDataRef, dataset_id: str, dataset_version: str) -> None:
        """Stores a copy of a cache file, replacing what is there."""

    # What is the same for all of them

    def cacheable(
        self,
        dataset_id: str,
        dataset_version: str = "",
        *,
        spec: Any = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Callable[[Callable[Params, Any]], Callable[Params, LMDBDataRef]]:
        """See ``Storage.cacheable``.

        What is stored but cannot be read, as a killed yogadl 0.1.4 leaves it, is built again; what
        a newer yogadl wrote is an error. The wait for another builder can be interrupted.
        """
        if callable(dataset_id):
            raise InvalidArgumentError(
                "cacheable has to be told under which id and version to store what the function "
                'makes: @storage.cacheable("mnist", "1.0")'
            )
        self._name(dataset_id, dataset_version)

        def decorate(function: Callable[Params, Any]) -> Callable[Params, LMDBDataRef]:
            @functools.wraps(function)
            def create_dataref(*args: Params.args, **kwargs: Params.kwargs) -> LMDBDataRef:
                found = self._fetch_usable(dataset_id, dataset_version)
                if found is not None:
                    return found
                with self._building_alone(dataset_id, dataset_version):
                    make = functools.partial(function, *args, **kwargs)
                    return self._build(make, dataset_id, dataset_version, spec, metadata)

            return create_dataref

        return decorate

    def copy(
        self,
        dataset_id: str,
        dataset_version: str,
        to: CacheStorage,
        *,
        new_id: str | None = None,
        new_version: str | None = None,
    ) -> None:
        """Copies a version into another storage, or this one, byte for byte.

        Args:
            dataset_id: of the version.
            dataset_version: of the version.
            to: where to; what is stored there under the new id and version is replaced.
            new_id: its id there, the same without.
            new_version: its version there, the same without.

        Raises:
            CacheNotFoundError: it is not stored here.
            CacheFormatError: it is damaged; nothing was copied.
            InvalidArgumentError: an id or version that is empty or leaves the storage.
        """
        if not isinstance(to, CacheStorage):
            raise InvalidArgumentError(
                f"copy needs a storage of yogadl's to copy to, not {to!r}; to any other, submit "
                "what is fetched"
            )
        new_id = dataset_id if new_id is None else new_id
        new_version = dataset_version if new_version is None else new_version
        to._name(new_id, new_version)
        with self.fetch(dataset_id, dataset_version, check_records=True) as ref:
            ref.verify()
            to._publish_copy(ref, new_id, new_version)

    def _fetch_usable(self, dataset_id: str, dataset_version: str) -> LMDBDataRef | None:
        try:
            return self.fetch(dataset_id, dataset_version)
        except CacheNotFoundError:
            return None
        except UnsupportedFormatError:
            raise
        except CacheFormatError as error:
            _log.warning("Building %s:%s again: %s", dataset_id, dataset_version, error)
            return None

    @contextlib.contextmanager
    def _building_alone(self, dataset_id: str, dataset_version: str) -> Iterator[None]:
        """Tells a function that calls itself, which would wait for itself for ever."""
        name = self._name(dataset_id, dataset_version)
        names: set[str] = _building.__dict__.setdefault("names", set())
        if name in names:
            raise YogadlError(
                f"the function that makes {dataset_id!r} version {dataset_version!r} calls itself "
                "through cacheable; it would wait for itself for ever"
            )
        names.add(name)
        try:
            yield
        finally:
            names.discard(name)
