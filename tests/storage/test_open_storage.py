"""``open_storage``: storages by their URLs."""

from __future__ import annotations

import inspect
import os
import pathlib
import sys
from typing import Any

import pytest

import yogadl
from yogadl.dataref import LMDBDataRef
from yogadl.errors import InvalidArgumentError
from yogadl.storage import (
    GCSConfigurations,
    GCSStorage,
    LFSConfigurations,
    LFSStorage,
    S3Configurations,
    S3Storage,
    _open_storage,
    open_storage,
    register_scheme,
)
from yogadl.storage._configurations import SECRETS, CloudOptions


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The configurations of what is opened, without asking any bucket."""
    found: list[Any] = []
    for scheme, made in (("s3", S3Configurations), ("gs", GCSConfigurations)):
        opener = _open_storage._BUILT_IN[scheme]
        assert opener.args[1] is made
        fake = type(opener)(opener.func, found.append, made)
        monkeypatch.setitem(_open_storage._BUILT_IN, scheme, fake)
    return found


def test_paths_are_taken_as_they_are(tmp_path: pathlib.Path) -> None:
    for path in (tmp_path / "a", str(tmp_path / "what?x=1#2 %41")):
        storage = open_storage(path)
        assert isinstance(storage, LFSStorage)
        assert pathlib.Path(path).is_dir()
    with pytest.raises(InvalidArgumentError, match="no argument region"):
        open_storage(tmp_path / "a", region="x")


def test_files(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "a b?ü"
    for url in (folder.as_uri(), folder.as_uri().replace("file:///", "FILE://localhost/")):
        yogadl.open_storage(url).submit([1], "a", "1")
    assert (folder / "a" / "1" / "cache.mdb").is_file()
    # Names are bytes on Linux.
    odd = pathlib.Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    if sys.platform == "linux":
        for number, url in enumerate((odd.as_uri(), f"file://{odd}")):
            open_storage(url).submit([1], "a", str(number))
        assert len(list(odd.glob("a/*/cache.mdb"))) == 2
    for bad in ("file://host/data", "file://", "file://data"):
        with pytest.raises(InvalidArgumentError, match="file:///data/yogadl"):
            open_storage(bad)
    with pytest.raises(InvalidArgumentError, match="no argument region; it has none"):
        open_storage(f"{folder.as_uri()}?region=x")


@pytest.mark.parametrize("bad", ["\ud800", "\0"])
def test_what_no_path_can_have(bad: str, tmp_path: pathlib.Path) -> None:
    for url in (f"{tmp_path}/{bad}", f"file://{tmp_path}/{bad}"):
        with pytest.raises(InvalidArgumentError, match=r"as no path has|what no path"):
            open_storage(url)
    with pytest.raises(InvalidArgumentError, match=r"cache_filepath .* path"):
        LMDBDataRef(f"{tmp_path}/{bad}")
    no_paths: list[Any] = [5, None, b"x"]
    for none in no_paths:
        with pytest.raises(InvalidArgumentError, match="must be a string or a path, not"):
            LMDBDataRef(none)


def test_buckets(opened: list[Any], tmp_path: pathlib.Path) -> None:
    open_storage(
        "s3://bucket/my/dir%3F/?region=eu-west-1&endpoint_url=https%3A%2F%2Fhost%3A9000"
        "&lease_seconds=5.5&conditional_writes=false&local_cache_bytes=1000&skip_verify=TRUE",
        local_cache_dir=tmp_path,
        access_key="key",
        secret_key="secret",
    )
    open_storage("gs://bucket?project=mine&url=wss://locks")
    s3, gs = opened
    assert isinstance(s3, S3Configurations)
    assert (s3.bucket, str(s3.bucket_directory_path)) == ("bucket", "my/dir?")
    assert (s3.region, s3.endpoint_url) == ("eu-west-1", "https://host:9000")
    assert (s3.lease_seconds, s3.conditional_writes, s3.local_cache_bytes) == (5.5, False, 1000)
    assert (s3.skip_verify, s3.local_cache_dir) == (True, tmp_path)
    assert (s3.access_key, s3.secret_key) == ("key", "secret")
    assert isinstance(gs, GCSConfigurations)
    assert (gs.project, gs.url, str(gs.bucket_directory_path)) == ("mine", "wss://locks", ".")


@pytest.mark.parametrize("made", [S3Configurations, GCSConfigurations])
def test_every_argument_but_secrets_can_be_in_a_url(made: Any) -> None:
    arguments = {*inspect.signature(made).parameters, *CloudOptions.__annotations__}
    kinds = _open_storage._kinds(made)
    left_out = {"bucket", "bucket_directory_path", "options", *SECRETS}
    assert kinds.keys() == arguments - left_out
    assert set(kinds.values()) <= {"str", "int", "float", "bool"}


@pytest.mark.parametrize("name", SECRETS)
def test_secrets_are_refused_and_not_shown(name: str, opened: list[Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} is a secret") as error:
        open_storage(f"s3://bucket/dir?{name}=hunter2")
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://", "no bucket"),
        ("s3:///dir", "no bucket"),
        ("s3://user:hunter2@bucket/dir", "a user or a password"),
        ("s3://bucket/dir?hunter2", "name=value"),
        ("s3://bucket/dir?colour=hunter2", "no argument colour"),
        ("s3://bucket/dir?region=a&region=hunter2", "twice"),
        ("s3://bucket/dir#hunter2", "%23"),
        ("s3://bucket/?lease_seconds=long", "lease_seconds must be a number"),
        ("s3://bucket/?local_cache_bytes=1.5", "local_cache_bytes must be a number"),
        ("gs://bucket/?skip_verify=perhaps", "skip_verify must be true or false"),
        ("gs://bucket/?region=x", "no argument region"),
        ("s3://[bucket/", "no URL"),
        ("s3://bucket/%ff", "not UTF-8"),
        ("s3://bucket/?local_cache_dir=/%ff", "not UTF-8"),
        ("s3://bucket/a\tb", "%09"),
        ("file:///data\n", "%0A"),
        ("https://host/a/1/cache.mdb", "yogadl.from_url"),
        ("nobody://knows", "no storage is known"),
        ("file:data", "'./file:"),
        ("S3:hunter2/data", "'./S3:"),
    ],
)
def test_what_is_wrong_is_told(url: str, said: str, opened: list[Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=said) as error:
        open_storage(url)
    assert "hunter2" not in str(error.value)
    assert opened == []


def test_given_twice_or_unknown(opened: list[Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="region: given in the URL and besides"):
        open_storage("s3://bucket/dir?region=a", region="b")
    with pytest.raises(InvalidArgumentError, match="S3Configurations has no argument colour"):
        open_storage("s3://bucket/dir", colour="b")
    with pytest.raises(InvalidArgumentError, match="url must be"):
        open_storage(b"s3://bucket")  # type: ignore[arg-type]


def test_other_schemes_can_be_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_open_storage, "_registered", {})
    seen: list[Any] = []

    @register_scheme("Tape")
    def open_tape(url: str, **configuration: Any) -> Any:
        seen.append((url, configuration))
        return "a storage"

    assert open_storage("tape://4/x?y=1", speed=2) == "a storage"
    assert seen == [("tape://4/x?y=1", {"speed": 2})]
    for bad in ("", "c", "a b", "a://", None):
        with pytest.raises(InvalidArgumentError, match="scheme must be"):
            register_scheme(bad)  # type: ignore[arg-type]


def test_packages_bring_schemes(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an entry point, which is loaded when it is needed."""
    info = tmp_path / "brings-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brings\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[yogadl.storages]\nbrought = brings_it:open_it\n")
    (tmp_path / "brings_it.py").write_text("def open_it(url, **given): return url, given\n")
    monkeypatch.syspath_prepend(tmp_path)
    _open_storage._entry_points.cache_clear()
    try:
        open_storage(tmp_path / "storage")
        assert "brings_it" not in sys.modules
        assert open_storage("brought://x", y=1) == ("brought://x", {"y": 1})
    finally:
        _open_storage._entry_points.cache_clear()
        sys.modules.pop("brings_it", None)


@pytest.mark.parametrize("given", [None, 3, b"abc"])
def test_what_is_no_url(given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="url must be a string or a path"):
        yogadl.open_storage(given)


@pytest.mark.parametrize("made", [S3Configurations, GCSConfigurations])
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("bucket_directory_path", None),
        ("bucket_directory_path", b"x"),
        ("bucket_directory_path", "a\udcff"),
        ("bucket_directory_path", pathlib.Path("\ud800")),
        ("local_cache_dir", None),
        ("local_cache_dir", b"/tmp"),
        ("skip_verify", "no"),
        ("lease_seconds", "60"),
        ("lease_seconds", None),
        ("lease_seconds", True),
        ("conditional_writes", "false"),
        ("conditional_writes", []),
    ],
)
def test_arguments_of_another_type(made: Any, name: str, given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} must be"):
        made(**{"bucket": "bucket", "bucket_directory_path": "", name: given})


@pytest.mark.parametrize("name", ["region", "endpoint_url"])
def test_arguments_of_s3_of_another_type(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name} must be a string"):
        S3Configurations("bucket", "", **{name: 5})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="storage_dir_path must be a string or a path"):
        LFSConfigurations(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [S3Storage, GCSStorage])
@pytest.mark.parametrize("given", ["s3://bucket/folder", LFSConfigurations("/tmp"), None])
def test_what_is_no_configuration_of_a_bucket(kind: Any, given: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"Configurations, not a .*open_storage"):
        kind(given)


def test_a_url_is_no_name_of_a_bucket() -> None:
    for made in (S3Configurations, GCSConfigurations):
        with pytest.raises(InvalidArgumentError, match="open_storage takes one") as error:
            made("s3://me:secret@bucket", "")
        assert "secret" not in str(error.value)
    assert S3Configurations("arn:aws:s3:region:1:accesspoint/point", "").bucket.endswith("/point")
