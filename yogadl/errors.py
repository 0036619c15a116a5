"""Every error that yogadl raises on purpose.

Each class also derives from the built-in exception a caller would expect, so ``except ValueError``
and ``except FileNotFoundError`` work without knowing this module::

    YogadlError
    ├── InvalidArgumentError (ValueError)       an argument outside what its docstring allows
    │   └── InfiniteDatasetError                a data set that never ends was submitted
    ├── UnsupportedTypeError (TypeError)        a type, dtype or component that cannot be stored
    ├── UndeterminedError (TypeError)           it cannot be told what determines a data set
    ├── SpecMismatchError (ValueError)          a record that does not fit the element spec
    ├── StaleCacheError (RuntimeError)          what is stored was made otherwise than it would be
    ├── CacheNotFoundError (FileNotFoundError)  nothing is stored under this id and version
    ├── RecordIndexError (IndexError)           a position that the data set does not have
    ├── RankError (RuntimeError)                what distributes the training contradicts itself
    ├── StateMismatchError (ValueError)         a saved place is of another data set or order
    ├── CacheReplacedError (RuntimeError)       a pickled reference meets a different cache
    ├── ClosedError (ValueError)                a reader that was closed is used
    ├── TagMovedError (RuntimeError)            a tag is not where it was expected
    ├── ConflictError (RuntimeError)            a commit and one before it changed the same
    ├── VersionExistsError (FileExistsError)    a commit is to make a version that is there already
    ├── CatalogueError (RuntimeError)           a catalogue is damaged, or cannot be changed now
    ├── LocalDirectoryError (PermissionError)   a directory on this machine cannot be used
    ├── FileSystemError (OSError)               the file system refused; ``errno`` says why
    │   ├── FileAccessError (PermissionError)   the user may not, or nobody: it is read-only
    │   ├── StorageFullError                    the disk has too little room; ``errno`` is ENOSPC
    │   └── TooManyFilesError                   no file can be opened; ``errno`` is EMFILE
    ├── MissingExtraError (ImportError)         an optional dependency is not installed
    ├── StoreError (OSError)                    an object store did not do as it was asked
    │   ├── BucketNotFoundError (FileNotFoundError)  there is no such bucket
    │   ├── AccessDeniedError (PermissionError)  the credentials do not allow it
    │   ├── CredentialsError (PermissionError)  they are missing, wrong or expired
    │   ├── WrongRegionError                    the bucket is in another region
    │   ├── ThrottledError                      too many requests, and retrying did not help
    │   ├── StoreUnavailableError               the store is failing, likewise
    │   ├── NetworkError (ConnectionError)      it cannot be reached, or broke off
    │   └── UnsafeStoreError                    it cannot do what a lock or an upload needs
    ├── LockError (RuntimeError)                a lock cannot be had
    │   ├── CoordinatorUnreachableError (ConnectionError)  no lock server answers
    │   └── LockLostError                       it was had, and is no longer
    └── CacheFormatError (ValueError)           a file that cannot be read as a cache
        ├── ForeignFileError                    it is not a yogadl cache at all
        ├── TruncatedCacheError                 it is shorter or longer than it says
        ├── UnsupportedFormatError              it was written by a newer yogadl
        ├── UnsafePickleError                   a 0.1.4 cache holds more than plain data
        └── ChecksumError                       its bytes are not those that were written

All of them can be pickled, so they cross process boundaries. ``StaleCacheWarning`` is no error,
but a ``UserWarning``.
"""

from __future__ import annotations

import errno
import functools
from typing import Any

from yogadl.completion import public_names

REPAIR = (
    "rebuild it; if it comes from a bucket, first fetch it with check_records=True, which gets a "
    "bad copy anew"
)
"""What to do about damage that is found where a record is read."""


class YogadlError(Exception):
    """Base of all errors of this library."""


class InvalidArgumentError(YogadlError, ValueError):
    """An argument is outside the range or form its docstring allows."""


class InfiniteDatasetError(InvalidArgumentError):
    """A data set that never ends was submitted."""


class UnsupportedTypeError(YogadlError, TypeError):
    """A type, dtype or component cannot be stored or read."""


class UndeterminedError(YogadlError, TypeError):
    """It cannot be told what determines the data that a function makes."""


class StaleCacheError(YogadlError, RuntimeError):
    """What is stored was made otherwise than it would be now."""


class SpecMismatchError(YogadlError, ValueError):
    """A record does not have the structure, dtypes or shapes of the element spec."""


class CacheNotFoundError(YogadlError, FileNotFoundError):
    """Nothing is stored under this id and version, or at this path."""


class RecordIndexError(YogadlError, IndexError):
    """A position that the data set does not have."""


class RankError(YogadlError, RuntimeError):
    """What says which of how many processes this is contradicts itself."""


class StateMismatchError(YogadlError, ValueError):
    """The saved place of a stream is of another data set, or of another order of it."""


class CacheReplacedError(YogadlError, RuntimeError):
    """The file behind a pickled reference is not the one it was pickled with."""


class ClosedError(YogadlError, ValueError):
    """Something that was closed is used again."""


class TagMovedError(YogadlError, RuntimeError):
    """A tag is not where it was expected.

    Attributes:
        current: the version that it is at, ``None`` if it is not there.
    """

    def __init__(self, message: str, current: str | None = None) -> None:
        super().__init__(message)
        self.current = current


class ConflictError(YogadlError, RuntimeError):
    """A commit cannot be put together with another one that came first."""


class VersionExistsError(YogadlError, FileExistsError):
    """There is a version of this name already, which is not replaced."""


class CatalogueError(YogadlError, RuntimeError):
    """The catalogue of a storage is damaged, or cannot be changed now."""


class FileSystemError(YogadlError, OSError):
    """The file system did not do as it was asked; ``errno`` says why."""

    _default_errno = errno.EIO

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(self._default_errno if code is None else code, message)

    def __str__(self) -> str:
        return str(self.args[-1])

    def __reduce__(self) -> tuple[type[FileSystemError], tuple[str, int | None], Any]:
        # With notes, which are attributes.
        return type(self), (str(self), self.errno), self.__dict__ or None


class FileAccessError(FileSystemError, PermissionError):
    """The user may not read or write there, or the file system is read-only."""

    _default_errno = errno.EACCES


class StorageFullError(FileSystemError):
    """The file system has too little room left; ``errno`` is ``ENOSPC``."""

    _default_errno = errno.ENOSPC


class TooManyFilesError(FileSystemError):
    """The process or the machine has too many files open; ``errno`` is ``EMFILE``."""

    _default_errno = errno.EMFILE


class LocalDirectoryError(YogadlError, PermissionError):
    """Nothing can be kept in a directory of this machine, or what is there cannot be trusted."""


class MissingExtraError(YogadlError, ImportError):
    """An optional dependency is needed and not installed."""


class CacheFormatError(YogadlError, ValueError):
    """A file cannot be read as a cache; the base of the reasons below."""


class ForeignFileError(CacheFormatError):
    """The file is not a yogadl cache."""


class TruncatedCacheError(CacheFormatError):
    """The file does not have the size it was written with."""


class UnsupportedFormatError(CacheFormatError):
    """The file has a format version that this release does not know."""


class UnsafePickleError(CacheFormatError):
    """A cache written by yogadl 0.1.4 holds a pickle of more than plain data."""


class ChecksumError(CacheFormatError):
    """The bytes of a file are not those that were written."""


class StoreError(YogadlError, OSError):
    """An object store did not do as it was asked; the base of the reasons below.

    Attributes:
        is_transient: whether the same request may well succeed later.
    """

    is_transient = False


class BucketNotFoundError(StoreError, FileNotFoundError):
    """There is no such bucket."""


class AccessDeniedError(StoreError, PermissionError):
    """The credentials do not allow what was asked."""


class CredentialsError(StoreError, PermissionError):
    """The credentials are missing, wrong or expired."""


class WrongRegionError(StoreError):
    """The bucket is in another region than the one that was asked."""


class ThrottledError(StoreError):
    """The store gets too many requests, and retrying did not help."""

    is_transient = True


class StoreUnavailableError(StoreError):
    """The store is failing, and retrying did not help."""

    is_transient = True


class NetworkError(StoreError, ConnectionError):
    """The store cannot be reached, or broke off, and retrying did not help."""

    is_transient = True


class UnsafeStoreError(StoreError):
    """The store lacks an operation, or its conditional writes cannot be trusted with a lock."""


class LockError(YogadlError, RuntimeError):
    """A lock cannot be had."""


class CoordinatorUnreachableError(LockError, ConnectionError):
    """The lock server cannot be reached, or is not one."""


class LockLostError(LockError):
    """A lock that was held is held no longer."""


class StaleCacheWarning(UserWarning):
    """What is stored was made otherwise than it would be now."""


__dir__ = functools.partial(public_names, globals())
