"""Versions of data sets, stored or not."""

from __future__ import annotations

import abc
import pathlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Version(abc.ABC):
    """A version of a data set, in one storage.

    Attributes:
        dataset_id: as users give it, checked.
        dataset_version: likewise.
        name: that no other version has, in any storage.
    """

    dataset_id: str
    dataset_version: str
    name: str

    @abc.abstractmethod
    def claim(self) -> pathlib.Path:
        """The path of the file of this version on this machine, whose folder it makes.

        Raises:
            FileSystemError, LocalDirectoryError: it cannot be made.
        """

    @property
    def label(self) -> str:
        """Its names in short, for logs."""
        return f"{self.dataset_id}:{self.dataset_version}"

    def __str__(self) -> str:
        return f"data set {self.dataset_id!r} of version {self.dataset_version!r}"
