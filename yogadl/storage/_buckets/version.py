"""A version that is an object in a bucket, and what of it may be on this machine."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass

from yogadl.storage._buckets.local_copy import LocalCopy
from yogadl.storage._buckets.parts import BucketParts
from yogadl.storage._disk.folders import LocalFolders
from yogadl.storage._version import Version


@dataclass(frozen=True)
class ObjectVersion(Version):
    """A version that is an object in a bucket.

    Attributes:
        key: of the object.
        local: its copy on this machine.
        parts: of its id.
        folders: of this machine that something of it may be in.
    """

    key: str
    local: LocalCopy
    parts: BucketParts
    folders: LocalFolders

    def claim(self) -> pathlib.Path:
        return self.local.claim()

    def beside(self, name: str) -> str:
        """The key of another object of this version."""
        return str(pathlib.PurePosixPath(self.key).with_name(name))
