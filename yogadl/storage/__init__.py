"""Where data sets are kept."""

from yogadl.cards import Card
from yogadl.catalogue import CatalogueEntry
from yogadl.storage._base import CacheStorage
from yogadl.storage._building.build import Build
from yogadl.storage._cacheable import Why
from yogadl.storage._cloud import BaseCloudStorage
from yogadl.storage._collected import Collected, CollectedParts, StoredPart, StoredVersion
from yogadl.storage._commits.change import Change
from yogadl.storage._commits.diff import VersionDiff
from yogadl.storage._configurations import (
    BaseCloudConfigurations,
    FsspecConfigurations,
    GCSConfigurations,
    LFSConfigurations,
    S3Configurations,
)
from yogadl.storage._copying.sync import Synced
from yogadl.storage._disk.versions import LocalVersion, LocalVersions
from yogadl.storage._from_url import from_url
from yogadl.storage._fsspec import FsspecStorage
from yogadl.storage._gcs import GCSStorage
from yogadl.storage._lfs import LFSStorage
from yogadl.storage._open_storage import open_storage, register_scheme
from yogadl.storage._receipt import Receipt
from yogadl.storage._s3 import S3Storage

__all__ = [
    "BaseCloudConfigurations",
    "BaseCloudStorage",
    "Build",
    "CacheStorage",
    "Card",
    "CatalogueEntry",
    "Change",
    "Collected",
    "CollectedParts",
    "FsspecConfigurations",
    "FsspecStorage",
    "GCSConfigurations",
    "GCSStorage",
    "LFSConfigurations",
    "LFSStorage",
    "LocalVersion",
    "LocalVersions",
    "Receipt",
    "S3Configurations",
    "S3Storage",
    "StoredPart",
    "StoredVersion",
    "Synced",
    "VersionDiff",
    "Why",
    "from_url",
    "open_storage",
    "register_scheme",
]
