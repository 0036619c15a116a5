"""Storages that fsspec can read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NoReturn

from yogadl.dataref import StoredDataRef
from yogadl.storage._buckets.version import ObjectVersion
from yogadl.storage._cloud import BaseCloudStorage
from yogadl.storage._configurations import FsspecConfigurations
from yogadl.storage._objects.fsspec_store import FsspecStore, read_only
from yogadl.storage._objects.store import ObjectInfo, ObjectStore


class FsspecStorage(BaseCloudStorage):
    """Data sets wherever fsspec can read, and only to be read: ``http://``, ``sftp://``,
    ``abfs://``, ``hf://``, ``zip://`` and others.

    What is fetched is downloaded, and compared with its digest. See ``BaseCloudStorage``; needs
    ``pip install 'yogadl[fsspec]'``, and what fsspec needs for such URLs.

    Raises:
        MissingExtraError: that is not installed.
        InvalidArgumentError: fsspec knows no such URLs.
    """

    _configurations: FsspecConfigurations
    _takes = FsspecConfigurations

    def __init__(self, configurations: FsspecConfigurations, tensorflow_config: Any = None) -> None:
        super().__init__(configurations, tensorflow_config)

    @property
    def _storage_type(self) -> str:
        return "fsspec"

    def _open_store(self) -> ObjectStore:
        return FsspecStore(self._configurations)

    # All of a version is downloaded

    def _is_better_far(self, version: ObjectVersion, info: ObjectInfo) -> bool:  # noqa: ARG002
        return False

    def _may_be_far(self, info: ObjectInfo) -> bool:  # noqa: ARG002
        return False

    def _open_here(self, version: ObjectVersion) -> StoredDataRef:
        return self._fetch(version, check_records=False)

    # Nothing is changed

    def _refuse(self) -> NoReturn:
        raise read_only(self._store.url)

    def _prove_tags(self, version: ObjectVersion) -> None:  # noqa: ARG002
        self._refuse()

    def _adding(self, version: ObjectVersion, may_stamp: bool, /) -> Any:  # noqa: ARG002
        self._refuse()

    @contextlib.contextmanager
    def _turn(self, version: ObjectVersion) -> Iterator[StoredDataRef]:
        found = self._fetch_usable(version)
        if found is None:
            self._refuse()
        yield found

    def _collect(self, *arguments: Any) -> NoReturn:  # noqa: ARG002
        self._refuse()

    def delete(self, dataset_id: str, dataset_version: str, *, force: bool = False) -> None:  # noqa: ARG002
        """Refuses to."""
        self._refuse()

    def gc(self, *arguments: Any, **options: Any) -> NoReturn:  # noqa: ARG002
        """Refuses to."""
        self._refuse()
