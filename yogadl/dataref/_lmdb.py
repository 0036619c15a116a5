"""A data set in a cache file on this machine."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from yogadl.arguments import as_flag, as_path
from yogadl.cache.file_reader import CacheInfo, FileReader
from yogadl.cache.files import shown
from yogadl.cache.mapping import Access
from yogadl.cache.opening import open_cache
from yogadl.dataref._stored import OpenedDataRef
from yogadl.errors import InvalidArgumentError

if TYPE_CHECKING:
    from yogadl.remote._pace import Network
    from yogadl.remote._plan import Plan


def _access(name: str) -> Access:
    try:
        return Access(name)
    except ValueError:
        raise InvalidArgumentError(
            f"access must be one of {', '.join(repr(a.value) for a in Access)}, not {name!r}"
        ) from None


class LMDBDataRef(OpenedDataRef[FileReader]):
    """A reference to a cache file, of this release or of yogadl 0.1.4.

    Opening reads a few pages, however large the file. The file is mapped into memory; replacing it
    under its name does not disturb this reference. Safe for threads. Survives a fork; pickled, it
    opens the same path again and insists on the same contents. A context manager that closes it.

    Args:
        cache_filepath: of the ``cache.mdb``.
        check_records: compare every record with its checksum before it is read, by whatever way: a
            ``ChecksumError`` instead of wrong data from a failing disk, for some of the speed. A
            cache of 0.1.4 has no checksums.
        access: what the system is told of reads that no stream announces: ``"random"``,
            ``"sequential"`` or ``"normal"``.

    Raises:
        CacheNotFoundError: there is no such file.
        CacheFormatError: it cannot be read.
        InvalidArgumentError: ``access`` is none of these, or the path none that a file can have.
    """

    def __init__(
        self,
        cache_filepath: pathlib.Path | str,
        *,
        check_records: bool = False,
        access: str = "random",
    ) -> None:
        self._path = pathlib.Path(as_path("cache_filepath", cache_filepath)).absolute()
        self._check_records = as_flag("check_records", check_records)
        self._access = _access(access)
        self._open()

    @property
    def info(self) -> CacheInfo:
        """What the file says of itself: record count, creation time, versions, metadata."""
        return self.reader.info

    def verify(self) -> None:
        """Reads the whole file and compares it with its checksums.

        Raises:
            CacheFormatError: it is not what was written.
        """
        self.reader.verify()

    def _plan(
        self,
        num_shards: int,
        shards_here: int,
        batch_size: int,  # noqa: ARG002 # it is here, however it is read
        local_cache_bytes: int | None,  # noqa: ARG002
        network: Network,  # noqa: ARG002
    ) -> Plan:
        from yogadl.remote._plan import plan_of_nothing

        return plan_of_nothing(round(len(self) * shards_here / num_shards))

    def __getstate__(self) -> tuple[pathlib.Path, bool, Access, str]:
        return self._path, self._check_records, self._access, self.reader.content_id

    def __setstate__(self, state: tuple[pathlib.Path, bool, Access, str]) -> None:
        self._path, self._check_records, self._access, content_id = state
        self._open()
        self._insist_on(content_id)

    def _open(self) -> None:
        self._name = shown(self._path)
        self._reader = open_cache(self._path, self._check_records, self._access)
