"""Removing the parts of an id in a bucket that no version refers to.

Nobody knows who reads a bucket, so parts stay for some time, the *grace*, after the last version
that refers to them was replaced or deleted. And deletions of S3 know no conditions that tell a part
from the same one, stored again. So what may be removed is agreed on in one object, the *control*,
see ``part_control``, which is only changed by conditional writes, so that its states have an
order.

**A builder** enters its name, and with that learns which parts were *removed*. Such a part it does
not use: it gives the same records another time, and so another name. It stores parts, or finds them
stored, whether they are noted as unused or not. When all are, it renews its name, on condition that
it is still there, in the same step takes its parts off the list of *unused* ones, and publishes.
Then it takes its name out.

**A collector**

1. writes the control, which tells the store's time and begins its step; if some builder has a name
   there, it stops, having taken out the names of those that are gone, on condition that the control
   is as it was. Names of builders count as gone when they were not renewed for a week, or when
   the collector sees on this machine that the builder's process has ended, and a while ago;
2. lists the id, and reads all tables; if one cannot be read, it stops;
3. notes parts that no table refers to as unused since now, and those that are for longer than the
   grace as removed; takes dead builders out; and writes that on condition that the control is as it
   was at 1. If it is not, it begins anew;
4. then deletes what is removed, each only within half a day of 3.

Removed names stay for two days, for deletions that are under way to arrive.

*Why no table ever refers to a part that is removed.* Let W be the write at 3 that removes a part P,
after the write at 1, V. No builder is named in the control in between, and none enters or renews,
or W would fail. A table with P is published after a renewal R of its builder. If R is after W, the
builder entered after W, since W leaves no builder; so it has read that P is removed, or, two days
later, that it is not, when all deletions are over; and it has not used it, or stored it anew. If R
is before V, then either the builder took its name out before V, and the table was published before
that and is seen at 2; or its name was taken for gone, which takes a week, or 15 minutes of a
process that has ended; then its request was over before V, too, since it comes within half a day of
R, or, from a process that has ended, in a matter of minutes.

*Why the grace is kept.* That P is unused since some time t was true in the step that wrote it. To
refer to P after that, a builder has to renew, which takes P off the list, and who notes it again
does so with a later time. While a table refers to P, any collector takes it off.

*Who is killed*: a builder leaves its name, for a week or until somebody on its machine sees that it
is dead, and parts that are then unused. So does one that fails and does not know whether what it
has sent to publish will arrive. A collector before W leaves nothing. After W it leaves
parts that nobody uses, and the next one deletes those that are still there. A control that is gone
says nothing is unused; removed with the folder, it takes its builders' names with it, and they
fail. *Two collectors*: W of one makes W of the other fail, and what both delete is removed.

What is taken for granted is the consistency that S3 and Google document, reads and lists that see
what was written before; that a request arrives within half a day of the check right before it; and
conditional writes. A builder that has none (``conditional_writes=False``, or they were tried out
and failed) writes ``yogadl.uncollectable`` before it reads the control. Who collects looks for that
after W, before it deletes, and takes W back. So either sees what the other has written first.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import logging
import pathlib
import tempfile
import threading
from collections.abc import Collection

import numpy as np

from yogadl.cache.partial import PartialFile
from yogadl.cache.parts import parts_of, read_header
from yogadl.cache.whole_file import check_digest
from yogadl.errors import CacheFormatError, ForeignFileError, StoreError
from yogadl.format import header as headers
from yogadl.format.tree import META_BYTES, is_of_transactions
from yogadl.storage._buckets.clock import boot_seconds
from yogadl.storage._buckets.part_builder import (
    BUILDER_SECONDS,
    REQUEST_SECONDS,
    forget,
    is_dead,
    remove_strays,
    sign_names,
)
from yogadl.storage._buckets.part_control import Control, is_over
from yogadl.storage._buckets.parts import BucketParts
from yogadl.storage._buckets.told import bytes_of
from yogadl.storage._collected import (
    CannotCollectError,
    CollectedParts,
    NotNowError,
    StoredPart,
    skipped,
)
from yogadl.storage._objects.metadata_keys import FORMAT_KEY
from yogadl.storage._objects.probe import is_probe
from yogadl.storage._objects.store import ObjectGoneError, ObjectInfo, ObjectStore
from yogadl.storage._objects.transfer import download, in_parallel
from yogadl.storage._paths import CACHE_FILE

GRACE = datetime.timedelta(days=7)
"""For which parts stay that no version refers to."""

DEAD_SECONDS = 900.0
"""After which requests of a process that has ended are over."""

_ATTEMPTS = 5
_DELETIONS = 8
_READS = 16

_log = logging.getLogger(__name__)


class PartCollector:
    """Collects the parts of one id. Safe for threads and processes.

    Args:
        store: the bucket.
        parts: of the id.
        dataset_id: the id.
        folders: for the parts of the id on this machine.
    """

    def __init__(
        self, store: ObjectStore, parts: BucketParts, dataset_id: str, folders: list[pathlib.Path]
    ) -> None:
        self._store = store
        self._parts = parts
        self._id = dataset_id
        self._folders = folders

    def collect(
        self,
        older_than: datetime.timedelta | None = None,
        dry_run: bool = False,
        doomed: Collection[str] = (),
    ) -> CollectedParts:
        """See ``CacheStorage.collect_parts``.

        Args:
            older_than: likewise.
            dry_run: likewise.
            doomed: versions that are taken for deleted; for a dry run.
        """
        grace = (GRACE if older_than is None else older_than).total_seconds()
        try:
            for _ in range(_ATTEMPTS):
                found = self._step(grace, dry_run, doomed)
                if found is not None:
                    return found
            raise NotNowError("somebody else stores or removes some all the time")
        except CannotCollectError as error:
            return skipped(self._id, error)

    def _step(self, grace: float, dry_run: bool, doomed: Collection[str]) -> CollectedParts | None:
        """``None`` if somebody else came in between."""
        if self._is_nothing_left(dry_run):
            return CollectedParts()
        self._see_whether_allowed()
        control, tag, now = self._parts.control.now()
        gone = self._gone_builders(control, now)
        if alive := control.builders.keys() - gone:
            if gone and not dry_run:
                # Those of other machines may wait for that, as this one for those that died there.
                self._take_out(control, tag, gone)
            raise NotNowError(
                f"{len(alive)} builders are at work there, or were killed, which is known on their "
                "own machine a quarter of an hour later, and after a week on others"
            )
        sizes, tables, left = self._listed()
        deleted = {f"{self._parts.folder}/{version}/{CACHE_FILE}" for version in doomed}
        needed = self._needed([info for info in tables if info.key not in deleted])
        if needed is None:
            return None
        plan = _planned(control, sizes.keys() - needed, needed, now, grace)
        removed = sorted(plan.removed.keys() & sizes.keys())
        done = CollectedParts(self._told(removed, sizes), self._told(sorted(plan.unused), sizes))
        if dry_run:
            return done
        started = boot_seconds()
        if self._parts.control.write(plan, tag) is None:
            return None
        self._forget(gone)
        self._remove_strays(control)
        for info in left:
            # Nobody builds, and who begins again does what a receipt says once more.
            if now - info.created.timestamp() >= grace:
                self._store.delete(info.key)
        if removed:
            self._see_again_whether_allowed(set(removed) - control.removed.keys())
            self._delete(removed, started)
        return done

    def _is_nothing_left(self, dry_run: bool) -> bool:
        """Whether the id has no parts, and nothing there tells of builders that began here."""
        found = self._parts.looked_at()
        if found.has_any:
            return False
        if found.has_control and self._parts.control.read()[0].removed:
            # Whose names may be used again by now.
            return False
        if not any(sign_names(folder) for folder in self._folders):
            return True
        control, _ = self._parts.control.read()
        if control.builders:
            return False
        if not dry_run:
            self._remove_strays(control)
        return True

    def _remove_strays(self, control: Control) -> None:
        for folder in self._folders:
            remove_strays(folder, control.builders)

    def _take_out(self, control: Control, tag: str, gone: set[str]) -> None:
        """Takes dead builders' names out, unless somebody else writes meanwhile."""
        builders = {it: since for it, since in control.builders.items() if it not in gone}
        if self._parts.control.write(dataclasses.replace(control, builders=builders), tag):
            self._forget(gone)

    def _forget(self, gone: set[str]) -> None:
        for folder in self._folders:
            for name in gone:
                forget(folder, name)

    def _told(self, digests: list[bytes], sizes: dict[bytes, int]) -> tuple[StoredPart, ...]:
        return tuple(StoredPart(self._id, digest.hex(), sizes[digest]) for digest in digests)

    def _listed(self) -> tuple[dict[bytes, int], list[ObjectInfo], list[ObjectInfo]]:
        """The parts that are there and their bytes, the files of versions, and what those who were
        killed may have left."""
        sizes, tables, left = {}, [], []
        prefix = f"{self._parts.folder}/"
        for info in self._store.list(prefix):
            digest = self._parts.digest_of(info.key)
            if digest is not None:
                sizes[digest] = info.size
            elif info.key.removeprefix(prefix).split("/")[1:] == [CACHE_FILE]:
                tables.append(info)
            elif self._parts.is_receipt(info.key) or is_probe(info.key):
                left.append(info)
        return sizes, tables, left

    def _see_whether_allowed(self) -> None:
        if self._parts.is_collecting_forbidden():
            raise CannotCollectError(
                "somebody has stored parts without conditional writes; when nobody does so any "
                f"more, delete {self._parts.forbidding_key}"
            )

    def _see_again_whether_allowed(self, new: set[bytes]) -> None:
        """Takes back that some parts are removed if that is not allowed since a moment ago."""

        def take_back(control: Control) -> None:
            for digest in new:
                control.removed.pop(digest, None)

        try:
            self._see_whether_allowed()
        except CannotCollectError:
            self._parts.control.change(take_back)
            raise

    def _gone_builders(self, control: Control, now: float) -> set[str]:
        gone = set()
        for name, since in control.builders.items():
            assert since is not None
            seconds = now - since
            if seconds >= BUILDER_SECONDS or (
                seconds >= DEAD_SECONDS and any(is_dead(folder, name) for folder in self._folders)
            ):
                _log.info("A builder of %s is gone: %s", self._id, name)
                gone.add(name)
        return gone

    # What versions refer to

    def _needed(self, tables: list[ObjectInfo]) -> set[bytes] | None:
        """The digests of the parts; ``None`` if a version was replaced meanwhile.

        Raises:
            CannotCollectError: they are not known.
        """
        found: list[set[bytes]] = []

        def read(info: ObjectInfo, _stop: threading.Event) -> None:
            found.append(self._digests(info))

        try:
            in_parallel([functools.partial(read, info) for info in tables], _READS)
        except ObjectGoneError:
            return None
        except CacheFormatError as error:
            raise CannotCollectError(f"it is not known what a table refers to: {error}") from error
        return set().union(*found)

    def _digests(self, info: ObjectInfo) -> set[bytes]:
        head = bytearray()
        if info.size >= headers.BODY_OFFSET:
            self._store.read_range(info, headers.HEADER_OFFSET, headers.BODY_OFFSET, head.extend)
        name = f"{self._store.url}/{info.key}"
        try:
            if not headers.unpack(bytes(head), info.size, name).part_count:
                return set()
        except ForeignFileError:
            found = self._store.head(info.key)
            if found is None or found.tag != info.tag:
                raise ObjectGoneError(info.key) from None
            said = found.metadata.get(FORMAT_KEY)
            # Who uploaded it may have been another program, and it damaged before.
            if said == "0" or (said is None and self._is_legacy(info, name)):
                return set()
            raise
        with tempfile.TemporaryDirectory(prefix="yogadl") as folder:
            path = pathlib.Path(folder, CACHE_FILE)
            with PartialFile(path) as file:
                download(self._store, info, file)
                header, mapped = read_header(file.path)
                check_digest(mapped, header, name)
                return set(parts_of(file.path))

    def _is_legacy(self, info: ObjectInfo, name: str) -> bool:
        """Whether yogadl 0.1.4 may have written a file, which says nothing of itself.

        Raises:
            CacheFormatError: it is damaged, or neither one of 0.1.4's nor a table.
        """
        head = bytes_of(self._store, info, 0, min(info.size, META_BYTES)) if info.size else b""
        return is_of_transactions(np.frombuffer(head, "u1"), info.size, name)

    # Deleting

    def _delete(self, digests: list[bytes], started: float) -> None:
        def delete(digest: bytes, _stop: threading.Event) -> None:
            if boot_seconds() - started > REQUEST_SECONDS:
                raise StoreError(
                    f"removing parts of {self._id} took too long; what is left is removed next time"
                )
            self._store.delete(self._parts.key(digest))
            _log.debug("Removed part %s of %s.", digest.hex(), self._id)

        in_parallel([functools.partial(delete, digest) for digest in digests], _DELETIONS)
        _log.info("Removed %d parts of %s.", len(digests), self._id)


def _planned(
    control: Control, unused: set[bytes], needed: set[bytes], now: float, grace: float
) -> Control:
    """What the control is to say.

    Args:
        control: what it says.
        unused: parts that are there, and that no version refers to.
        needed: parts that some version refers to.
        now: the store's time.
        grace: seconds for which a part is to be unused.
    """
    plan = Control()
    for digest in unused:
        since = control.unused.get(digest)
        if digest in control.removed or now - (now if since is None else since) >= grace:
            # Anew if who removed it was killed: another deletion begins now.
            plan.removed[digest] = None
        else:
            plan.unused[digest] = since
    for digest, since in control.removed.items():
        assert since is not None
        # Somebody may have put it there by hand, with its table.
        if digest not in needed and digest not in plan.removed and not is_over(since, now):
            plan.removed[digest] = since
    return plan
