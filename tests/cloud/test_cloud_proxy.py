"""The proxy: nobody notices it, until something is to go wrong."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import hypothesis
import hypothesis.strategies as st
import pytest
from exchange import Request
from faults import (
    CUT,
    CUT_ANSWER,
    CUT_REQUEST,
    ERROR_500,
    FLIP_ANSWER,
    FLIP_REQUEST,
    LATE_500,
    LOSE_ANSWER,
    PASSING,
    TRUNCATE,
    Fault,
    Faults,
    Kind,
)
from rig import Rig

SIZE = 300_000
DATA = bytes(range(251)) * (SIZE // 251)
# moto looks at who asks, but not at whether that is true.
ANYBODY = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, Signature=0"
BROKEN = (ConnectionError, http.client.HTTPException)

quick = hypothesis.settings(
    max_examples=20, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)


class Plain:
    """A client that knows nothing but HTTP: no digests, no second tries."""

    def __init__(self, rig: Rig, timeout: float = 30) -> None:
        self._rig = rig
        self._connection = http.client.HTTPConnection("127.0.0.1", rig.proxy.port, timeout=timeout)

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[http.client.HTTPResponse, bytes]:
        self._connection.request(method, path, body, {"Authorization": ANYBODY, **(headers or {})})
        answer = self._connection.getresponse()
        return answer, answer.read()

    def put(self, key: str, body: Any, **headers: str) -> int:
        if self._rig.dialect == "s3":
            answer, _ = self.ask("PUT", f"/{self._rig.bucket}/{quote(key)}", body, headers)
        else:
            path = f"/upload/storage/v1/b/{self._rig.bucket}/o?uploadType=media&name={quote(key)}"
            answer, _ = self.ask("POST", path, body, headers)
        return answer.status

    def get(self, key: str) -> tuple[http.client.HTTPResponse, bytes]:
        if self._rig.dialect == "s3":
            return self.ask("GET", f"/{self._rig.bucket}/{quote(key)}")
        name = quote(key, safe="")
        return self.ask("GET", f"/storage/v1/b/{self._rig.bucket}/o/{name}?alt=media")

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def plain(rig: Rig) -> Iterator[Plain]:
    with contextlib.closing(Plain(rig)) as client:
        yield client


def bits_apart(one: bytes, other: bytes) -> int:
    assert len(one) == len(other)
    return sum((a ^ b).bit_count() for a, b in zip(one, other, strict=True) if a != b)


# Nobody notices it


@quick
@hypothesis.given(
    data=st.one_of(st.binary(max_size=200), st.integers(0, SIZE).map(lambda size: DATA[:size])),
    key=st.text(
        st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), min_size=1, max_size=20
    ).filter(lambda key: not {"", ".", ".."} & set(key.split("/")) and "\\" not in key),
)
def test_objects_go_through(data: bytes, key: str, rig: Rig) -> None:
    rig.through.put(key, data, {"digest": hashlib.sha256(data).hexdigest()})
    assert rig.raw.list() == rig.through.list() == [key]
    assert rig.raw.get(key) == rig.through.get(key) == data
    assert rig.through.metadata(key) == {"digest": hashlib.sha256(data).hexdigest()}
    assert rig.through.created(key) == rig.raw.created(key)
    if len(data) > 1:
        assert rig.through.get_range(key, 1, len(data)) == data[1:]
        assert rig.through.get_range(key, 0, 1) == data[:1]
    rig.through.delete(key)
    assert rig.raw.list() == []


def test_large_objects_go_through(rig: Rig) -> None:
    """In one request, over 8 MiB with Google in several."""
    data = DATA * 60
    rig.through.put("large", data)
    assert rig.through.get("large") == data
    assert rig.through.get_range("large", 5_000_000, 9_000_001) == data[5_000_000:9_000_001]
    assert rig.raw.get("large") == data


def test_many_connections_at_once(rig: Rig) -> None:
    def use(number: int) -> bool:
        with contextlib.closing(Plain(rig)) as client:
            data = DATA[number:]
            return client.put(f"k{number}", data) == 200 and client.get(f"k{number}")[1] == data

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        assert all(pool.map(use, range(64)))


def test_forms_of_requests(rig: Rig, plain: Plain) -> None:
    assert plain.put("chunked", iter([b"abc", b"", DATA, b"x"])) == 200
    assert rig.raw.get("chunked") == b"abc" + DATA + b"x"
    assert plain.put("expecting", DATA, Expect="100-continue") == 200
    assert plain.put("last", DATA, Connection="close") == 200
    answer, data = plain.get("missing")
    assert answer.status == 404
    if rig.dialect == "s3":
        answer, data = plain.ask("HEAD", f"/{rig.bucket}/chunked")
        assert (answer.status, data) == (200, b"")
        assert answer.getheader("Content-Length") == str(len(DATA) + 4)
    assert plain.get("chunked")[1] == rig.raw.get("chunked")


def test_what_is_noted(rig: Rig, plain: Plain) -> None:
    with rig.counting() as requests:
        plain.put("a/b c", DATA)
        plain.get("a/b c")
        rig.through.tag("a/b c")
        rig.through.list("a")
    rig.through.delete("a/b c")
    assert [request.operation for request in requests] == ["write", "read", "head", "list"]
    assert [request.key for request in requests] == ["a/b c", "a/b c", "a/b c", ""]
    assert [request.status for request in requests] == [200] * 4
    assert requests[0].sent == requests[1].received == len(DATA)
    assert [request.publishes("a/b c") for request in requests] == [True, False, False, False]
    assert [request.is_metadata for request in requests] == [False, False, True, False]
    assert {request.bucket for request in rig.proxy.log} == {rig.bucket}
    assert [request.number for request in rig.proxy.log] == [0, 1, 2, 3, 4]


def test_keys_of_googles_uploads(gcs: Rig) -> None:
    gcs.through.bucket.blob("a", chunk_size=1 << 18).upload_from_string(DATA * 40)
    gcs.through.put("b", b"x")
    operations = collections.Counter((r.operation, r.key) for r in gcs.proxy.log)
    assert operations == {
        ("begin", "a"): 1,
        ("part", "a"): 45,
        ("finish", "a"): 1,
        ("write", "b"): 1,
    }


# Until something is to go wrong


@pytest.mark.parametrize(
    ("fault", "is_there"), [(CUT, False), (CUT_REQUEST, False), (LOSE_ANSWER, True)], ids=str
)
def test_writes_that_are_cut(fault: Fault, is_there: bool, rig: Rig, plain: Plain) -> None:
    with rig.failing(fault, "write"), pytest.raises(BROKEN):
        plain.put("key", DATA)
    end = time.monotonic() + 30
    while not rig.proxy.log:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert rig.raw.list() == (["key"] if is_there else [])
    assert [request.fault for request in rig.proxy.log] == [str(fault)]
    plain.close()
    assert plain.put("key", DATA) == 200


def test_answers_that_are_cut(rig: Rig, plain: Plain) -> None:
    rig.raw.put("key", DATA)
    with rig.failing(CUT_ANSWER, "read"), pytest.raises(BROKEN):
        plain.get("key")
    plain.close()
    with rig.failing(TRUNCATE, "read"), pytest.raises(http.client.IncompleteRead) as caught:
        plain.get("key")
    half = len(DATA) // 2
    assert (len(caught.value.partial), caught.value.expected) == (half, len(DATA) - half)
    plain.close()
    assert plain.get("key")[1] == DATA


def test_bits_that_flip(rig: Rig, plain: Plain) -> None:
    rig.raw.put("key", DATA)
    for at in (0.0, 0.5, 1.0):
        with rig.failing(Fault(Kind.FLIP_ANSWER, at=at), "read"):
            assert bits_apart(plain.get("key")[1], DATA) == 1
        with rig.failing(Fault(Kind.FLIP_REQUEST, at=at), "write"):
            assert plain.put("other", DATA) == 200
        assert bits_apart(rig.raw.get("other"), DATA) == 1


@pytest.mark.parametrize("at", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("size", [1, 10, 100_000])
def test_bits_flip_only_in_contents(at: float, size: int, rig: Rig) -> None:
    """Also where Google's clients send metadata before and a boundary after them."""
    rig.proxy.flavour = "ignore_checksums"
    with rig.failing(Fault(Kind.FLIP_REQUEST, at=at), "write"), contextlib.suppress(Exception):
        rig.through.put("key", DATA[:size])
    if rig.dialect == "s3":
        assert bits_apart(rig.raw.get("key"), DATA[:size]) == 1
    else:
        # Google's clients send the digest in a place where nothing can take it away.
        assert rig.raw.list() == []
        assert rig.proxy.log[-1].status == 400


@pytest.mark.parametrize("kind", [Kind.STALL, Kind.SLOW])
def test_slow_stores(kind: Kind, rig: Rig, plain: Plain) -> None:
    rig.raw.put("key", DATA)
    plain.get("key")
    with rig.failing(Fault(kind, seconds=0.5), "read"):
        start = time.monotonic()
        assert plain.get("key")[1] == DATA
        assert 0.45 < time.monotonic() - start < 5


def told(rig: Rig, answer: bytes) -> str:
    """What a store says that an error is."""
    if rig.dialect == "s3":
        return str(ET.fromstring(answer).findtext("Code"))
    error = json.loads(answer)["error"]
    assert error["code"] == rig.proxy.log[-1].status
    return str(error["errors"][0]["reason"])


@pytest.mark.parametrize(
    ("status", "s3_code", "gcs_reason"),
    [
        (403, "AccessDenied", "forbidden"),
        (429, "TooManyRequests", "rateLimitExceeded"),
        (500, "InternalError", "internalError"),
        (503, "SlowDown", "backendError"),
    ],
)
def test_errors(status: int, s3_code: str, gcs_reason: str, rig: Rig, plain: Plain) -> None:
    rig.raw.put("key", DATA)
    rig.proxy.faults.add(Fault(Kind.ERROR, status=status), times=3)
    for _ in range(3):
        answer, data = plain.get("key")
        assert answer.status == status
        assert told(rig, data) == (s3_code if rig.dialect == "s3" else gcs_reason)
    assert plain.get("key")[1] == DATA
    rig.proxy.faults.add(Fault(Kind.ERROR, status=status, code="Expired"))
    assert told(rig, plain.get("key")[1]) == "Expired"
    rig.proxy.faults.add(Fault(Kind.ERROR, status=status))
    assert plain.put("other", DATA) == status
    assert rig.raw.list() == ["key"]
    rig.proxy.faults.add(LATE_500)
    assert plain.put("other", DATA) == 500
    assert rig.raw.list() == ["key", "other"]


def test_a_network_that_is_down(rig: Rig, plain: Plain) -> None:
    assert plain.put("key", DATA) == 200
    with rig.proxy.cut_off():
        for _ in range(2):
            with pytest.raises(BROKEN):
                plain.get("key")
            plain.close()
        with rig.another_way() as (proxy, _):
            connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=30)
            with contextlib.closing(connection):
                connection.request("GET", "/")
                connection.getresponse().read()
    assert plain.get("key")[1] == DATA


# When it is to


def request(number: int, operation: str = "read", key: str = "key") -> Request:
    return Request(number, "GET", "/", {}, operation, "bucket", key)


def test_rules() -> None:
    faults = Faults("s3")
    faults.add(ERROR_500, "read", key="^a", skip=1, times=2)
    faults.add(CUT, where=lambda request: request.number > 10, times=None)
    asked = [("list", "a"), ("read", "b")] + [("read", "a")] * 5
    found = [faults.of(request(0, *which)) for which in asked]
    assert found == [None, None, None, ERROR_500, ERROR_500, None, None]
    assert [faults.of(request(number)) for number in (10, 11, 12)] == [None, CUT, CUT]
    faults.clear()
    assert faults.of(request(11)) is None


def test_chance() -> None:
    faults = Faults("gcs")
    faults.randomly(1, 0.05)
    found = [faults.of(request(number)) for number in range(4000)]
    assert found == [faults.of(request(number)) for number in range(4000)]
    kinds = collections.Counter(fault.kind for fault in found if fault)
    # Bits of this request's body, which it does not have, are not flipped.
    assert set(kinds) == {fault.kind for fault in PASSING} - {Kind.FLIP_REQUEST}
    assert 150 < kinds[Kind.CUT] < 250
    faults.randomly(2, 0.05)
    assert found != [faults.of(request(number)) for number in range(4000)]
    faults.randomly(1, {FLIP_REQUEST: 0.5, FLIP_ANSWER: 0.5})
    assert {faults.of(request(number, "begin")) for number in range(50)} == {None}
    found = [faults.of(request(number, "read")) for number in range(50)]
    assert {fault and fault.kind for fault in found} == {None, Kind.FLIP_ANSWER}


def test_nothing_is_lost_under_random_faults(rig: Rig, plain: Plain) -> None:
    """Whatever was answered with success is there, whole but for flipped bits."""
    rig.proxy.faults.randomly(7, 0.03)
    outcomes: collections.Counter[str] = collections.Counter()
    for number in range(150):
        plain.close()
        try:
            status = plain.put(f"k{number}", DATA)
        except BROKEN:
            outcomes["cut"] += 1
            continue
        outcomes[str(status)] += 1
        if status == 200:
            assert bits_apart(rig.raw.get(f"k{number}"), DATA) <= 1
    assert outcomes["200"] > 75
    assert outcomes.keys() >= {"cut", "200", "429", "500", "503"}


def test_a_port_that_refuses(rig: Rig, plain: Plain) -> None:
    assert plain.put("key", DATA) == 200
    for _ in range(2):
        with rig.proxy.refusing():
            with pytest.raises(BROKEN):
                plain.get("key")
            plain.close()
            with pytest.raises(ConnectionRefusedError):
                plain.get("key")
        plain.close()
        assert plain.get("key")[1] == DATA


def test_a_store_that_answers_nothing(rig: Rig) -> None:
    """Neither on connections that were open nor on new ones, nor later."""
    hasty, patient = Plain(rig, 2.0), Plain(rig)
    with contextlib.closing(hasty), contextlib.closing(patient):
        assert hasty.put("key", DATA) == 200
        with rig.proxy.swallowing():
            for _ in range(2):
                with pytest.raises(TimeoutError):
                    hasty.get("key")
                hasty.close()
        assert patient.get("key")[1] == DATA
