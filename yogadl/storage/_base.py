"""What all of yogadl's storages have in common: what is stored, by whom, and how it is fetched."""

from __future__ import annotations

import abc
import contextlib
import datetime
import functools
import logging
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from yogadl.adapters import as_spec
from yogadl.arguments import as_flag, as_index
from yogadl.cache.files import shown, telling
from yogadl.cache.partial import PartialFile
from yogadl.core import Params, Submittable
from yogadl.dataref import LMDBDataRef, StoredDataRef
from yogadl.errors import (
    CacheFormatError,
    CacheNotFoundError,
    InvalidArgumentError,
    UnsafeStoreError,
    UnsupportedFormatError,
    YogadlError,
)
from yogadl.recipes import CACHED, checked_inputs, checked_names
from yogadl.storage._building import provenance
from yogadl.storage._building.build import Build, Turn
from yogadl.storage._building.pieces import Pieces
from yogadl.storage._building.submission import Submission, staged
from yogadl.storage._building.workers import build_with
from yogadl.storage._cacheable import Cacheable, Why, cached_by, checked_on_change
from yogadl.storage._collected import CollectedParts
from yogadl.storage._copied_versions import CopiedVersions
from yogadl.storage._kept_versions import check_age
from yogadl.storage._listing import V
from yogadl.storage._version import Version

__all__ = ["CacheStorage", "Submission", "Version", "check_configurations"]

_ATTEMPTS = 5

_log = logging.getLogger(__name__)


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
            advice = ", but a file" if directory.exists() else "; create it first"
            raise InvalidArgumentError(f"{name} {shown(directory)!r} is not a directory{advice}")
    if cache_format != "LMDB":
        raise InvalidArgumentError(f"cache_format must be 'LMDB', not {cache_format!r}")


class CacheStorage(CopiedVersions[V]):
    """A storage of cache files.

    A storage of one's own need not derive from this class; ``yogadl.Storage`` is all that is asked.
    """

    _tensorflow_config: Any = None
    _default_part_bytes: int | None = None

    # What a kind of storage supplies

    @abc.abstractmethod
    def _fetch(self, version: V, check_records: bool) -> LMDBDataRef:
        """See :meth:`fetch`: a version that is on this machine, then."""

    def _fetch_best(self, version: V, check_records: bool) -> StoredDataRef:
        """The same, or one that stays where it is, if that is better."""
        return self._fetch(version, check_records)

    def _open_whole(self, version: V) -> StoredDataRef:
        return self._fetch_best(version, check_records=False)

    @abc.abstractmethod
    def _publish(self, file: PartialFile, version: V, parts: Any) -> None:
        """Stores a whole file that was made beside ``version.claim()``, replacing what is there.

        Args:
            file: if it is a table, its parts were stored.
            version: that it is.
            parts: by which they were.
        """

    @abc.abstractmethod
    def _turn(self, version: V) -> contextlib.AbstractContextManager[Turn | StoredDataRef | None]:
        """Waits until nobody else builds a version: one's turn to do so, until the end, or what is
        stored already; ``None`` if that has still to be fetched."""

    @abc.abstractmethod
    def _pieces(self, version: V, build: str, removed: frozenset[bytes], /) -> Pieces:
        """Where the pieces of a build are.

        Args:
            version: that is built.
            build: the build's name.
            removed: digests of parts that may not be stored, see ``Parts.removed``.
        """

    # What is the same for all of them

    def submit(
        self,
        data: Submittable,
        dataset_id: str,
        dataset_version: str,
        *,
        spec: Any = None,
        metadata: Mapping[str, Any] | None = None,
        part_bytes: int | None = None,
        workers: int = 1,
    ) -> None:
        """See ``Storage.submit``. Takes no lock: of several, the last to finish wins.

        Readers of a version that is replaced keep the old one.

        Args:
            data: see ``Storage.submit``.
            dataset_id: likewise.
            dataset_version: likewise.
            spec: likewise.
            metadata: likewise.
            part_bytes: cut the data set into parts of about so many bytes, each a file. What is
                smaller is one file, and by default all is, up to the 10**8 records of a file.
            workers: so many write at the same time, each some records: threads for arrays, else
                processes of Python's ``multiprocessing``. The data has to be one that can be read
                by position.

        Raises:
            StoreError: the bucket cannot be written to; what was stored is as it was.
            UnsupportedTypeError: several workers cannot read the data.
        """
        version = self._version(dataset_id, dataset_version)
        submission = Submission(
            lambda: data, spec, metadata, provenance.of_here(), self._part_bytes(part_bytes)
        )
        if as_index("workers", workers, 1) > 1:
            self._build_with(submission, version, workers, self._any_turn).close()
            return
        with self._staged(submission, version) as (file, parts):
            self._publish(file, version, parts)

    def fetch(
        self,
        dataset_id: str,
        dataset_version: str | None = None,
        *,
        check_records: bool = False,
        download: bool | None = None,
    ) -> StoredDataRef:
        """See ``Storage.fetch``; also by a tag, or, without a version, the newest.

        From a bucket: one request tells whether the copy on this machine is current; if not, it is
        downloaded, by one process of this machine while the others wait. The copy of who has it
        open stays.

        Args:
            dataset_id: of the version.
            dataset_version: of the version; if there is no such version, the tag that is at it.
                ``None`` for what ``latest`` says.
            check_records: see ``LMDBDataRef``.
            download: of a bucket, see ``S3Storage.fetch``. On a disk there is nothing to download.

        Raises:
            InvalidArgumentError: ``download`` or ``check_records`` is none of these.
            StoreError: the bucket cannot be read.
            StorageFullError: the copy does not fit on this machine.
        """
        if download is not None:
            as_flag("download", download)
        check_records = as_flag("check_records", check_records)
        return self._fetch_named(
            dataset_id, dataset_version, lambda it: self._fetch_best(it, check_records)
        )

    def cacheable(
        self,
        dataset_id: str,
        dataset_version: str | None = None,
        *,
        spec: Any = None,
        metadata: Mapping[str, Any] | None = None,
        part_bytes: int | None = None,
        workers: int = 1,
        key: Any = None,
        ignore: Iterable[str] = (),
        inputs: Iterable[Any] = (),
        on_change: str = "warn",
    ) -> Callable[[Callable[Params, Any]], Callable[Params, StoredDataRef]]:
        """See ``Storage.cacheable``, and :meth:`submit` for ``part_bytes`` and ``workers``.

        Without a version, that follows from what determines the data: the code of the function and
        of the user's own code that it calls, what these read, the arguments, and what is declared
        here. It is ``"r-"`` and 32 hexadecimal digits. ``docs/recipes.md`` says what counts.

        What is stored but cannot be read, as a killed yogadl 0.1.4 leaves it, is built again; what
        a newer yogadl wrote is an error. The wait for another builder can be interrupted.

        Args:
            dataset_id: see ``Storage.cacheable``.
            dataset_version: likewise; ``None`` to have it follow from what determines the data.
            spec: see ``Storage.cacheable``.
            metadata: likewise.
            part_bytes: see :meth:`submit`.
            workers: likewise.
            key: anything that JSON can hold, which counts, too.
            ignore: names that do not count: of arguments, variables and functions, and
                ``Class.attribute``.
            inputs: what the data is made of: paths of files and folders, which count by their
                contents, ``yogadl.FileInput`` and DataRefs.
            on_change: what to do if something else determined what is stored under the version:
                ``"warn"`` once and read it; ``"raise"``; ``"rebuild"`` it, which replaces it; or
                ``"ignore"`` it.

        Raises:
            UndeterminedError: by the call: there is no version, and it cannot be told what
                determines the data.
            StaleCacheError: by the call, with ``on_change="raise"``.
        """
        if callable(dataset_id):
            raise InvalidArgumentError(
                "cacheable has to be told under which id and version to store what the function "
                'makes: @storage.cacheable("mnist", "1.0")'
            )
        # What cannot be stored is told at once.
        self._version(dataset_id, "any" if dataset_version is None else dataset_version)
        make = functools.partial(
            Cacheable,
            storage=self,
            dataset_id=dataset_id,
            dataset_version=dataset_version,
            key=key,
            ignore=checked_names(ignore),
            inputs=checked_inputs(inputs),
            on_change=checked_on_change(on_change),
            spec=None if spec is None else as_spec(spec),
            metadata=metadata,
            part_bytes=self._part_bytes(part_bytes),
            workers=as_index("workers", workers, 1),
        )

        def decorate(function: Callable[Params, Any]) -> Callable[Params, StoredDataRef]:
            if not callable(function):
                raise InvalidArgumentError(
                    f"cacheable decorates a function that makes the data set, not {function!r:.100}"
                    "; data that is there already can be stored by submit"
                )
            cacheable = make(function=function)

            def create_dataref(*args: Params.args, **kwargs: Params.kwargs) -> StoredDataRef:
                return cacheable.call(args, kwargs)

            try:
                functools.update_wrapper(create_dataref, function)
            except Exception:
                # An object that is called may fail when it is asked for its name, or answer
                # with something else.
                create_dataref.__wrapped__ = function  # type: ignore[attr-defined]
            setattr(create_dataref, CACHED, cacheable)
            return create_dataref

        return decorate

    def why(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Why:
        """What a call of a function that :meth:`cacheable` decorates would do, and why::

            print(storage.why(make_records, 10))

        It says whether what is stored would be used, and if not, or if that was made otherwise,
        which line or value changed. The function is not called. What is compared is the version
        that the call goes by, or else the one of the id that was stored last.

        Args:
            function: that is decorated.
            args: that it would be called with.
            kwargs: likewise.

        Raises:
            InvalidArgumentError: it is no function that this storage's ``cacheable`` decorates.
            TypeError: it would be called, and cannot be with these arguments.
            StoreError: the bucket cannot be read.
        """
        cacheable, bound = cached_by(self, function)
        return cacheable.why((*bound, *args), kwargs)

    def build(
        self,
        dataset_id: str,
        dataset_version: str,
        *,
        spec: Any,
        metadata: Mapping[str, Any] | None = None,
        recipe: str = "",
        part_bytes: int | None = None,
    ) -> Build:
        """Builds a version out of pieces that are written apart, by any processes and machines.

        Inside its context, ``build.write(number, make_records)`` stores a piece and returns a
        receipt, and ``build.commit(receipts)`` publishes the version. Nothing can be fetched before
        that. As with ``cacheable``, of several that build a version one does, and the others
        wait for it and get what it has stored.

        A build that ended without a commit, whatever the reason, goes on where it was when it is
        begun again: with the same id, version, spec and recipe. For how long what was written is
        kept, see ``docs/building.md``.

        Args:
            dataset_id: see ``submit``.
            dataset_version: likewise.
            spec: the element spec of all records.
            metadata: see ``submit``.
            recipe: what the records depend on: pieces that were written with another recipe are
                not used.
            part_bytes: see ``submit``; a piece is a part of its own at least.

        Raises:
            InvalidArgumentError: an argument is not what it should be.
        """
        version = self._version(dataset_id, dataset_version)
        here = provenance.of_here()
        turn = functools.partial(self._turn, version)
        build = Build(self, version, here, self._part_bytes(part_bytes), turn)
        return build.fix(spec, metadata, recipe)

    def collect_parts(
        self,
        dataset_id: str | None = None,
        *,
        older_than: datetime.timedelta | None = None,
        dry_run: bool = False,
    ) -> CollectedParts:
        """Removes the parts that no version refers to, see ``docs/storage.md``.

        Safe at any time, from any number of processes: what is read, or being stored, stays.

        Args:
            dataset_id: of this one only.
            older_than: only parts that nobody has referred to for so long. Without, on a disk, all
                that no version has any more and nobody reads, and what never had one after a
                day; in a bucket, after a week, since it is not known who reads there.
            dry_run: tell what would be removed, and remove nothing.

        Returns:
            What was removed, what is not old enough, and of which ids nothing was removed, and why:
            for example, since one of their tables is damaged.

        Raises:
            InvalidArgumentError: the id is empty or leaves the storage, or a time is negative.
            UnsafeStoreError: the bucket has no conditional writes that can be trusted.
            StoreError: the bucket cannot be changed.
            FileSystemError: a part cannot be removed.
        """
        check_age(older_than)
        dry_run = as_flag("dry_run", dry_run)
        if not dry_run:
            self._collect_copies()
        if dataset_id is not None:
            return self._collect(dataset_id, older_than, dry_run)
        ids = sorted(set(self._ids_of_parts()))
        return CollectedParts.of(self._collect(name, older_than, dry_run) for name in ids)

    def _collect_after(self, version: V) -> None:
        """Collects what a change of a version leaves, which is no reason for the change to fail."""
        try:
            self._collect_copies()
            self._collect(version.dataset_id, None, dry_run=False)
        except UnsafeStoreError as error:
            _log.info("Parts of %s stay: %s", version.dataset_id, error)
        except YogadlError as error:
            _log.warning("Parts of %s are left for collect_parts: %s", version.dataset_id, error)

    def _staged(
        self, submission: Submission, version: V
    ) -> contextlib.AbstractContextManager[tuple[PartialFile, Any]]:
        """See ``staged``."""
        self._check_name(version)
        adding = self._adding(version, True)
        return staged(submission, version, adding, self._tensorflow_config)

    def _build(self, submission: Submission, version: V) -> StoredDataRef:
        """Stores what is submitted as the only one who does, or waits for who is that."""
        for _ in range(_ATTEMPTS):
            with self._turn(version) as turn:
                if turn is None or isinstance(turn, StoredDataRef):
                    found = turn
                else:
                    with self._staged(submission, version) as (file, parts):
                        found = turn.publish(file, parts)
            if found is None:
                found = self._fetch_usable(version)
            if found is not None:
                return found
            _log.info("%s was deleted, or cannot be read, since it was built.", version.name)
        # Of a store that loses parts, for one, this tells what is wrong.
        return self._fetch_best(version, check_records=False)

    def _build_with(
        self,
        submission: Submission,
        version: V,
        workers: int,
        turn: Callable[[V], contextlib.AbstractContextManager[Turn | StoredDataRef | None]],
    ) -> StoredDataRef:
        taking = functools.partial(turn, version)
        build = Build(self, version, submission.provenance, submission.part_bytes, taking)
        return build_with(build, submission, workers, self._tensorflow_config)

    @contextlib.contextmanager
    def _any_turn(self, version: V) -> Iterator[Turn]:
        """That of who replaces what is there, and takes no lock."""
        yield _AnyTurn(functools.partial(self._publish, version=version))

    def _part_bytes(self, given: Any) -> int | None:
        return self._default_part_bytes if given is None else as_index("part_bytes", given, 1)

    def _fetch_usable(self, version: V, level: int = logging.WARNING) -> StoredDataRef | None:
        """What is stored, ``None`` if it has to be built; says in the log at a level if again."""
        try:
            return self._fetch_best(version, check_records=False)
        except CacheNotFoundError:
            return None
        except UnsupportedFormatError:
            raise
        except CacheFormatError as error:
            _log.log(level, "Building %s again: %s", version.label, error)
            return None

    def _missing(self, version: V) -> CacheNotFoundError:
        return CacheNotFoundError(
            f"no {version} in {self._where}; submit it first, or use cacheable; what there is, "
            "storage.list() and tags() tell"
        )


@dataclass(frozen=True)
class _AnyTurn:
    """See ``Turn``."""

    store: Callable[..., object]

    def publish(self, file: PartialFile, parts: Any) -> None:
        self.store(file, parts=parts)
