"""What a URL asks for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yogadl.errors import InvalidArgumentError
from yogadl.rw_coordinator._request import (
    LONGEST_RESOURCE,
    LockRequest,
    find_secret,
    make_request,
    parse_target,
)

NAMES = st.text(min_size=1, max_size=20)


@given(NAMES, NAMES, NAMES, st.booleans())
def test_any_name_gets_through(
    storage_type: str, bucket: str, cache_path: str, shared: bool
) -> None:
    parts = storage_type, bucket, cache_path
    if not "/".join(parts).strip("/"):
        return
    request = make_request(*parts, shared=shared)
    assert request.target.isascii()
    assert request.target.isprintable()
    assert " " not in request.target
    assert str(request).isprintable()
    assert parse_target(request.target) == request
    assert request.resource == "/".join(parts).encode().lstrip(b"/")


def test_names_that_are_no_text() -> None:
    request = make_request("s", "b", "caf\udce9", shared=True)
    assert parse_target(request.target).resource == b"s/b/caf\xe9"


def test_names_that_cannot_be_encoded() -> None:
    with pytest.raises(InvalidArgumentError, match="must be text"):
        make_request("s", "b", "\ud800", shared=True)


# What lomond, 0.1.4's WebSocket, puts into the request line as it is.
@pytest.mark.parametrize(
    "path",
    ["aws_storage/bucket/team/a/1.0/cache.mdb", "s/b/a+b=c,d;e", "s/b/~x!$&'()*:@", "s/b/100%"],
)
def test_plain_names_mean_the_same_to_yogadl_0_1_4(path: str) -> None:
    old = parse_target(f"/{path}?read_lock=False")
    new = make_request(*path.split("/", 2), shared=False)
    assert old.resource == new.resource == path.encode()
    if "%" not in path:
        # 0.1.4's server compares paths without decoding them.
        assert new.target.partition("?")[0] == f"/{path}"
    assert new.target.partition("?")[2] == "read_lock=False&answers_pings=True"


def test_slashes_at_the_beginning() -> None:
    # The URL that was configured may end with one.
    assert parse_target("//s/b/p?read_lock=True") == LockRequest(b"s/b/p", shared=True)


def test_promise() -> None:
    assert not parse_target("/s?read_lock=True").answers_pings
    assert parse_target("/s?read_lock=True&answers_pings=True").answers_pings
    assert not parse_target("/s?read_lock=True&answers_pings=False").answers_pings
    assert not parse_target("/s?read_lock=True&answers_pings=").answers_pings


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("/s/b/p", "read_lock"),
        ("/s/b/p?", "read_lock"),
        ("/s/b/p?read_lock", "read_lock"),
        ("/s/b/p?read_lock=", "read_lock"),
        ("/s/b/p?read_lock=true", "read_lock"),
        ("/s/b/p?read_lock=1", "read_lock"),
        ("/s/b/p?read_lock=True&read_lock=False", "once"),
        ("/?read_lock=True", "empty"),
        ("?read_lock=True", "slash"),
        ("//?read_lock=True", "empty"),
        ("*", "slash"),
        ("http://host/s?read_lock=True", "slash"),
        ("/" + "x" * (LONGEST_RESOURCE + 1) + "?read_lock=True", "4097 bytes"),
        ("/s?read_lock=True" + "&x=1" * 50, "fields"),
    ],
)
def test_refused(target: str, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        parse_target(target)


@pytest.mark.parametrize("parts", [("", "b", "p"), ("s", "", "p"), ("s", "b", "")])
def test_nothing_is_no_name(parts: tuple[str, str, str]) -> None:
    with pytest.raises(InvalidArgumentError, match="must not be empty"):
        make_request(*parts, shared=True)


@pytest.mark.parametrize("parts", [(5, "b", "p"), ("s", None, "p"), ("s", "b", b"p")])
def test_names_are_strings(parts: tuple[Any, Any, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="must be a string, not"):
        make_request(*parts, shared=True)


def test_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_secret(None) is None
    assert find_secret("s3cret") == "s3cret"
    monkeypatch.setenv("YOGADL_COORDINATOR_SECRET", "from-environment")
    assert find_secret(None) == "from-environment"
    assert find_secret("given") == "given"


@pytest.mark.parametrize("secret", ["", "two words", "line\n", "schlüssel"])
def test_secret_that_no_header_can_hold(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError, match="printable ASCII") as caught:
        find_secret(secret)
    if secret:
        assert secret not in str(caught.value)
    monkeypatch.setenv("YOGADL_COORDINATOR_SECRET", secret)
    with pytest.raises(InvalidArgumentError, match="YOGADL_COORDINATOR_SECRET"):
        find_secret(None)
