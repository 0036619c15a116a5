"""The parts of an id in a folder of this machine, and publishing the versions that need them.

``<id>/yogadl.parts`` has the parts, and besides

- ``yogadl.building``, a lock: shared by all who store parts and publish tables, from before the
  first part until the table has its name, and exclusive for who collects;
- for each table another name, ``<random>.table``, a hard link to the version's own file. It is made
  before the table is published, and stays when the version is replaced or deleted. So its file can
  still be found while somebody has it open, who holds a shared lock on it; see ``cache.held``.

Which parts are removed is said in ``yogadl.storage._disk.collector``.

A child of a fork inherits its parent's locks. Those of readers it keeps until it ends or closes
what it inherited; nobody unlocks them but by closing, so neither takes the other's away. Those of
who stores or collects are let go of by who took them, whatever children were born meanwhile.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import logging
import os
import pathlib
import time
from collections.abc import Callable, Collection, Iterator

from yogadl.cache.files import make_folders, shown, telling
from yogadl.cache.partial import PartialFile
from yogadl.cache.parts import parts_of
from yogadl.cache.progress import waiting_for
from yogadl.errors import FileAccessError, FileSystemError
from yogadl.storage._collected import CollectedParts
from yogadl.storage._disk.collector import LocalCollector
from yogadl.storage._disk.note import FOLDER_MODE
from yogadl.storage._disk.tables import BUILDING_FILE, FileLock, LocalTables

_POLL_SECONDS = 0.02
# For a rename, mostly.
_SHORT_POLL_SECONDS = 0.002

_log = logging.getLogger(__name__)


class LocalParts:
    """The parts of the versions of an id. Safe for threads and processes.

    Args:
        folder: of the id.
        dataset_id: the id, for people.
    """

    def __init__(self, folder: pathlib.Path, dataset_id: str) -> None:
        self._folder = folder
        self._id = dataset_id
        self._tables = LocalTables(folder)
        self._parts = self._tables.folder

    def _is_there(self) -> bool:
        with telling("look for", self._parts):
            return self._parts.is_dir()

    # Storing

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Nothing is collected meanwhile. Where nothing can be written, nobody sees to that.

        Raises:
            FileSystemError: the lock cannot be taken.
        """
        make_folders(self._parts, FOLDER_MODE)
        with contextlib.ExitStack() as stack:
            try:
                lock = FileLock(self._parts / BUILDING_FILE, os.O_RDONLY | os.O_CREAT)
            except FileAccessError as error:
                _log.debug("Not locked: %s", error)
            else:
                self._share(stack.enter_context(lock))
            yield

    def _share(self, lock: FileLock) -> None:
        try:
            if lock.takes(fcntl.LOCK_SH):
                return
            with waiting_for(f"for who removes parts of {self._id}"):
                while not lock.takes(fcntl.LOCK_SH):
                    time.sleep(_POLL_SECONDS)
        except OSError as error:
            _log.debug("%s has no locks: %s", shown(self._parts), error.strerror)

    @contextlib.contextmanager
    def _alone(self, path: pathlib.Path) -> Iterator[None]:
        """Nobody else publishes or removes the file of a version meanwhile, where folders can be
        locked."""
        with contextlib.ExitStack() as stack:
            try:
                lock = stack.enter_context(FileLock(path.parent, os.O_RDONLY | os.O_DIRECTORY))
                while not lock.takes(fcntl.LOCK_EX):
                    time.sleep(_SHORT_POLL_SECONDS)
            except FileAccessError as error:
                _log.debug("Not locked: %s", error)
            except FileSystemError:
                raise
            except OSError as error:
                _log.debug("%s cannot be locked: %s", shown(path.parent), error.strerror)
            yield

    def publish(
        self,
        file: PartialFile,
        path: pathlib.Path,
        replaces: bool = True,
        check: Callable[[], object] = lambda: None,
    ) -> bool:
        """Gives a whole file, a table or not, its final name.

        Args:
            file: the file.
            path: its final name.
            replaces: see ``PartialFile.commit``.
            check: called when nobody else can do so any more; raises if it is not to be.

        Returns:
            Whether it replaced a table, so that there may be something to collect.

        Raises:
            FileSystemError: it cannot be.
        """
        is_table = bool(parts_of(file.path))
        if not is_table and not self._is_there():
            with self._alone(path):
                check()
                file.commit(path, replaces)
            return False
        with self.kept(), self._alone(path):
            check()
            was_table = self._tables.keep(path)
            if is_table:
                self._tables.link(file.path)
            file.commit(path, replaces)
        return was_table

    def remove(self, path: pathlib.Path, check: Callable[[], object] = lambda: None) -> bool:
        """Removes the file of a version; whether it was a table.

        Args:
            path: of the file.
            check: see :meth:`publish`.

        Raises:
            FileSystemError: it cannot be, or is not there.
        """
        if not self._is_there():
            with self._alone(path), telling("delete", path):
                check()
                path.unlink()
            return False
        with self.kept(), self._alone(path):
            check()
            was_table = self._tables.keep(path)
            with telling("delete", path):
                path.unlink()
        return was_table

    # Collecting

    def collect(
        self,
        older_than: datetime.timedelta | None = None,
        dry_run: bool = False,
        doomed: Collection[str] = (),
    ) -> CollectedParts:
        """See ``LocalCollector.collect``; where parts were never stored, there is nothing to do."""
        if not self._is_there():
            return CollectedParts()
        return LocalCollector(self._folder, self._id).collect(older_than, dry_run, doomed)

    def collect_after(self) -> None:
        """The same after a change, which is no reason for the change to fail."""
        try:
            self.collect()
        except FileSystemError as error:
            _log.warning("Parts of %s are left for collect_parts: %s", self._id, error)
