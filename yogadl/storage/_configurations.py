"""What storages are configured with."""

from __future__ import annotations

import numbers
import os
import pathlib
import re
import urllib.parse
from typing import TYPE_CHECKING, Any, TypedDict

from yogadl.arguments import as_flag, as_index, as_path
from yogadl.errors import InvalidArgumentError
from yogadl.redaction import without_password, without_secrets

if TYPE_CHECKING:
    from typing_extensions import Unpack

DEFAULT_LEASE_SECONDS = 60.0
SHORTEST_LEASE_SECONDS = 0.5
LONGEST_LEASE_SECONDS = 3600.0

SECRETS = ("access_key", "secret_key", "session_token", "coordinator_secret")
"""Arguments that are not shown, pickled, or written into URLs."""


# Of what fsspec's file systems take.
_SECRET = re.compile(r"pass|secret|token|key|cred|auth|cookie|header|connection", re.IGNORECASE)

_BUCKETS = {"s3": "yogadl.storage.S3Storage", "gs": "yogadl.storage.GCSStorage"}


def as_directory(name: str, given: str | os.PathLike[str]) -> pathlib.Path:
    """The absolute path of a directory as users give it.

    Raises:
        InvalidArgumentError: it is no path, empty, a URL, in the home of somebody unknown, or below
            a current directory that is gone.
    """
    text = as_path(name, given)
    if not text:
        raise InvalidArgumentError(f"{name} is empty; the current directory is '.'")
    scheme = re.match(r"([a-z][a-z0-9+]+):/", text)
    if scheme:
        storage = _BUCKETS.get(scheme[1])
        advice = f"; for a bucket, there is {storage}" if storage else ""
        raise InvalidArgumentError(f"{name} must be a directory, not the URL {text!r}{advice}")
    try:
        # A program may change its current directory later.
        return pathlib.Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise InvalidArgumentError(f"{name} {text!r} is in no known home: {error}") from error
    except FileNotFoundError as error:
        raise InvalidArgumentError(
            f"{name} {text!r} is below the current directory, which is gone; give an absolute path"
        ) from error


def _is_address(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url.strip())
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


class LFSConfigurations:
    """Where an :class:`LFSStorage` keeps its data sets.

    Args:
        storage_dir_path: a directory; the storage makes it if its parent is there. Renames within
            it must be atomic and file locks must work: a local file system, not NFS. A ``~`` at its
            beginning is the user's home; a relative path stays what it is now when the program
            changes its current directory.

    Raises:
        InvalidArgumentError: it is empty, or a URL.
    """

    def __init__(self, storage_dir_path: str | os.PathLike[str]) -> None:
        self.storage_dir_path = as_directory("storage_dir_path", storage_dir_path)
        self.cache_format = "LMDB"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.storage_dir_path)!r})"


class CloudOptions(TypedDict, total=False):
    """What 0.1.4 did not have; see ``BaseCloudConfigurations``."""

    coordinator_client_cert: str | None
    coordinator_client_key: str | None
    coordinator_secret: str | None
    lease_seconds: float
    conditional_writes: bool | None
    local_cache_bytes: int | None


class BaseCloudConfigurations:
    """Where a cloud storage keeps its data sets, and how its users agree on who builds one.

    Its ``repr`` shows no secrets. Nor does a pickle hold any: where it is read, they come from the
    SDK's usual chain of credentials.

    Args:
        bucket: its name; it must exist.
        bucket_directory_path: what all keys begin with; may be empty.
        url: of a lock server, ``ws://…`` or ``wss://…``; ``None`` for leases in the bucket.
        local_cache_dir: an existing directory for the copies on this machine, on a local file
            system.
        skip_verify: do not verify the lock server's certificate.
        coordinator_cert_file: certificates to trust of a lock server, instead of the system's.
        coordinator_cert_name: the name in the lock server's certificate, if it is not its host.
        coordinator_client_cert: this client's certificate, for a lock server that asks for it.
        coordinator_client_key: its key, if it is not in the same file.
        coordinator_secret: the secret that the lock server shares with its clients.
        lease_seconds: how long others wait, at most, for a builder that died while it held a lease;
            ``0.5 … 3600``.
        conditional_writes: whether the bucket's conditional writes are atomic, without which there
            are no leases: ``None`` has it tried out where the store is not known for it.
        local_cache_bytes: keep no more copies in ``local_cache_dir``, with all processes and
            storages that use it together. Versions that nobody has open go first; of what is read
            without being downloaded, what has no room is fetched again in each epoch. ``None`` for
            as much as there is room for.

    Raises:
        InvalidArgumentError: one of them cannot be right.
    """

    def __init__(
        self,
        bucket: str,
        bucket_directory_path: str,
        url: str | None,
        local_cache_dir: str | pathlib.Path,
        skip_verify: bool,
        coordinator_cert_file: str | None,
        coordinator_cert_name: str | None,
        *,
        coordinator_client_cert: str | None = None,
        coordinator_client_key: str | None = None,
        coordinator_secret: str | None = None,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        conditional_writes: bool | None = None,
        local_cache_bytes: int | None = None,
    ) -> None:
        if not isinstance(bucket, str) or not bucket:
            raise InvalidArgumentError(f"bucket must be a non-empty string, not {bucket!r}")
        path: Any = bucket_directory_path
        text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
        if not isinstance(text, str):
            raise InvalidArgumentError(
                "bucket_directory_path must be a string, which may be empty, not "
                f"{bucket_directory_path!r:.100}"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(
                f"bucket_directory_path must be text that UTF-8 can hold: {error}"
            ) from None
        if url is not None and not str(url).startswith(("ws://", "wss://")):
            raise InvalidArgumentError(
                "url must be that of a lock server, ws://… or wss://…, or None, not "
                f"{_shown(url)!r}"
            )
        given: Any = lease_seconds
        is_number = isinstance(given, numbers.Real) and not isinstance(given, bool)
        if not is_number or not SHORTEST_LEASE_SECONDS <= lease_seconds <= LONGEST_LEASE_SECONDS:
            raise InvalidArgumentError(
                f"lease_seconds must be in [{SHORTEST_LEASE_SECONDS:g}, "
                f"{LONGEST_LEASE_SECONDS:g}], not {lease_seconds!r:.100}"
            )
        self.bucket = bucket
        self.bucket_directory_path = pathlib.Path(bucket_directory_path)
        self.url = url
        self.local_cache_dir = as_directory("local_cache_dir", local_cache_dir)
        self.cache_format = "LMDB"
        self.skip_verify = as_flag("skip_verify", skip_verify)
        self.coordinator_cert_file = coordinator_cert_file
        self.coordinator_cert_name = coordinator_cert_name
        self.coordinator_client_cert = coordinator_client_cert
        self.coordinator_client_key = coordinator_client_key
        self.coordinator_secret = coordinator_secret
        self.lease_seconds = float(lease_seconds)
        if conditional_writes is not None:
            conditional_writes = as_flag("conditional_writes", conditional_writes)
        self.conditional_writes = conditional_writes
        if local_cache_bytes is not None:
            local_cache_bytes = as_index("local_cache_bytes", local_cache_bytes)
        self.local_cache_bytes = local_cache_bytes
        self._lost_secrets = False

    @property
    def hint(self) -> str:
        """What to say where credentials are missing or wrong."""
        if not self._lost_secrets:
            return ""
        return "The storage was pickled, and its keys are never pickled. "

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: None if name in SECRETS else _shown(v) for name, v in self.__dict__.items()}
        kept["_lost_secrets"] = self._lost_secrets or kept != self.__dict__
        return kept

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={'…' if name in SECRETS else _shown(value)!r}"
            for name, value in self.__dict__.items()
            if value is not None and name not in ("cache_format", "_lost_secrets")
        )
        return f"{type(self).__name__}({shown})"


class S3Configurations(BaseCloudConfigurations):
    """Where an :class:`S3Storage` keeps its data sets.

    What is not given of keys, endpoint and region, boto3 finds where it always does: in the
    environment, in its files of profiles, or from the machine's role.

    Args:
        bucket: see ``BaseCloudConfigurations``, as for all that is not described here.
        access_key: id of an access key.
        secret_key: the secret of it.
        endpoint_url: of a store that is not AWS, ``https://…``.
        session_token: of temporary keys.
        region: of the bucket.

    Raises:
        InvalidArgumentError: one of them cannot be right.
    """

    def __init__(
        self,
        bucket: str,
        bucket_directory_path: str,
        url: str | None = None,
        access_key: str | None = None,
        secret_key: str | None = None,
        endpoint_url: str | None = None,
        local_cache_dir: str | pathlib.Path = "/tmp/",  # noqa: S108 - as in 0.1.4
        skip_verify: bool = False,
        coordinator_cert_file: str | None = None,
        coordinator_cert_name: str | None = None,
        *,
        session_token: str | None = None,
        region: str | None = None,
        **options: Unpack[CloudOptions],
    ) -> None:
        if not isinstance(endpoint_url, str | None):
            raise InvalidArgumentError("endpoint_url must be a string, or None")
        if endpoint_url is not None and not _is_address(endpoint_url):
            # What boto3 says of it would show a password.
            raise InvalidArgumentError(
                "endpoint_url must be that of a store, https://… or http://…, or None, not "
                f"{endpoint_url.rpartition('@')[2]!r}"
            )
        _check_no_url(bucket)
        super().__init__(
            bucket,
            bucket_directory_path,
            url,
            local_cache_dir,
            skip_verify,
            coordinator_cert_file,
            coordinator_cert_name,
            **options,
        )
        self.access_key = access_key
        self.secret_key = secret_key
        self.session_token = session_token
        self.endpoint_url = endpoint_url
        if not isinstance(region, str | None):
            raise InvalidArgumentError(f"region must be a string, or None, not {region!r:.100}")
        if region == "":
            raise InvalidArgumentError("region is empty; leave it out to have boto3 find it")
        self.region = region


class GCSConfigurations(BaseCloudConfigurations):
    """Where a :class:`GCSStorage` keeps its data sets.

    Credentials are found as Google's libraries always do: in the environment, in the files of
    ``gcloud auth application-default login``, or from the machine's service account.

    Args:
        bucket: see ``BaseCloudConfigurations``, as for all that is not described here.
        project: of the bucket, where the credentials do not say.
    """

    def __init__(
        self,
        bucket: str,
        bucket_directory_path: str,
        url: str | None = None,
        local_cache_dir: str | pathlib.Path = "/tmp/",  # noqa: S108 - as in 0.1.4
        skip_verify: bool = False,
        coordinator_cert_file: str | None = None,
        coordinator_cert_name: str | None = None,
        *,
        project: str | None = None,
        **options: Unpack[CloudOptions],
    ) -> None:
        _check_no_url(bucket)
        super().__init__(
            bucket,
            bucket_directory_path,
            url,
            local_cache_dir,
            skip_verify,
            coordinator_cert_file,
            coordinator_cert_name,
            **options,
        )
        self.project = project


class FsspecConfigurations(BaseCloudConfigurations):
    """Where an :class:`FsspecStorage` reads its data sets.

    Args:
        url: as fsspec has it, chained ones (``zip://inside::https://…``), too.
        local_cache_dir: see ``BaseCloudConfigurations``.
        local_cache_bytes: likewise.
        **options: what fsspec's file system takes, such as ``username`` and ``password`` of
            ``sftp://``. They are not shown; those that may be secrets are not pickled.

    Raises:
        InvalidArgumentError: one of them cannot be right.
    """

    def __init__(
        self,
        url: str,
        *,
        local_cache_dir: str | pathlib.Path = "/tmp/",  # noqa: S108 - as in 0.1.4
        local_cache_bytes: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            url,
            "",
            None,
            local_cache_dir,
            False,
            None,
            None,
            conditional_writes=False,
            local_cache_bytes=local_cache_bytes,
        )
        self.location = url
        self.options = options

    def __getstate__(self) -> dict[str, Any]:
        kept = super().__getstate__()
        options = {name: it for name, it in self.options.items() if not _SECRET.search(name)}
        is_less = options != self.options
        return {**kept, "options": options, "_lost_secrets": kept["_lost_secrets"] or is_less}

    def __repr__(self) -> str:
        options = "".join(f", {name}=…" for name in self.options)
        return (
            f"{type(self).__name__}({_shown(self.location)!r}, "
            f"local_cache_dir={str(self.local_cache_dir)!r}{options})"
        )


def _shown(value: Any) -> Any:
    return without_password(value) if isinstance(value, str) else value


def _check_no_url(bucket: Any) -> None:
    if "://" in str(bucket):
        raise InvalidArgumentError(
            f"bucket must be the name of a bucket, not the URL {without_secrets(str(bucket))!r}; "
            "yogadl.open_storage takes one"
        )
