"""The servers: conditions hold, also in races; who starts one and dies takes it along."""

from __future__ import annotations

import concurrent.futures
import contextlib
import io
import pathlib
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from faults import CUT_REQUEST, FLIP_REQUEST, LATE_500, LOSE_ANSWER, Fault
from flavours import Flavour
from rig import Rig

RACERS = 16
MEGABYTE = 1 << 20
DATA = bytes(range(251)) * 251


def race(write: Callable[[int], bool]) -> int:
    """How many of several writers at once succeed."""
    barrier = threading.Barrier(RACERS)

    def run(number: int) -> bool:
        barrier.wait(60)
        return write(number)

    with concurrent.futures.ThreadPoolExecutor(RACERS) as pool:
        return sum(pool.map(run, range(RACERS)))


# Conditions


@pytest.mark.parametrize("size", [100, 100_000])
def test_of_racing_writers_one_wins(size: int, rig: Rig) -> None:
    def write(number: int) -> bool:
        # Never the same twice: to S3, an object with the same contents is the same.
        return bool(rig.through.write_if("key", uuid.uuid4().bytes * (size // 16), tag))

    for _ in range(5):
        tag = ""
        assert race(write) == 1
        tag = rig.raw.tag("key")
        assert race(write) == 1
        assert rig.raw.tag("key") != tag
        rig.raw.delete("key")


def test_conditions_one_after_the_other(rig: Rig) -> None:
    assert rig.through.write_if("key", b"1", "")
    first = rig.raw.tag("key")
    assert not rig.through.write_if("key", b"2", "")
    assert rig.through.write_if("key", b"3", first)
    assert not rig.through.write_if("key", b"4", first)
    assert rig.raw.get("key") == b"3"
    rig.raw.delete("key")
    assert rig.through.write_if("key", b"5", "")


@pytest.fixture
def google(gcs: Rig) -> Iterator[Any]:
    """The bucket as a client finds it that was told nothing."""
    from google.cloud import storage

    with contextlib.closing(storage.Client()) as client:
        client._bucket_metadata_cache = None  # it asks for the bucket in the background
        yield client.bucket(gcs.bucket)


def begin_upload(bucket: Any, key: str, data: bytes, generation: int | None) -> Any:
    """An upload in pieces of 1 MiB, of which none was sent yet."""
    from google.cloud.storage.retry import DEFAULT_RETRY

    blob = bucket.blob(key, chunk_size=MEGABYTE)
    upload, _ = blob._initiate_resumable_upload(
        bucket.client,
        io.BytesIO(data),
        "application/octet-stream",
        len(data),
        if_generation_match=generation,
        checksum="crc32c",
        retry=DEFAULT_RETRY.with_delay(0.01, 0.01),
    )
    return upload


def send_pieces(bucket: Any, upload: Any) -> int:
    """Sends them; the status of the last answer."""
    from google.cloud.exceptions import GoogleCloudError
    from google.cloud.storage.exceptions import InvalidResponse

    try:
        while not upload.finished:
            answer = upload.transmit_next_chunk(bucket.client._http)
    except InvalidResponse as error:
        return int(error.response.status_code)
    except GoogleCloudError as error:
        return int(error.code or 0)
    return int(answer.status_code)


def test_of_google_an_upload_in_pieces_is_checked_at_its_end(google: Any) -> None:
    large = DATA * 50
    slow = begin_upload(google, "key", large, 0)
    google.blob("key").upload_from_string(b"quicker")
    assert send_pieces(google, slow) == 412
    assert google.blob("key").download_as_bytes() == b"quicker"
    generation = google.get_blob("key").generation
    assert send_pieces(google, begin_upload(google, "key", large, generation)) == 200
    assert google.blob("key").download_as_bytes() == large
    with pytest.raises(Exception, match="412"):
        begin_upload(google, "key", large, generation)


def test_of_google_generations_are_of_when_an_object_appears(google: Any) -> None:
    upload = begin_upload(google, "key", DATA * 50, None)
    google.blob("other").upload_from_string(b"x")
    assert send_pieces(google, upload) == 200
    found, other = google.get_blob("key"), google.get_blob("other")
    assert found.generation > other.generation
    assert found.time_created > other.time_created
    assert found.crc32c
    # The address that the metadata names reads the same.
    assert found.download_as_bytes() == DATA * 50


def test_of_google_an_old_generation_is_gone(google: Any) -> None:
    from google.api_core.exceptions import NotFound, PreconditionFailed

    google.blob("key").upload_from_string(b"1")
    old = google.get_blob("key").generation
    assert google.blob("key", generation=old).download_as_bytes() == b"1"
    google.blob("key").upload_from_string(b"22")
    new = google.get_blob("key").generation
    for ask in (
        lambda: google.blob("key", generation=old).download_as_bytes(),
        lambda: google.blob("key", generation=old).download_as_bytes(start=0, end=1),
        lambda: google.blob("key", generation=old).delete(),
        lambda: google.blob("key", generation=old).reload(),
        lambda: google.blob("none").delete(if_generation_match=old),
    ):
        with pytest.raises(NotFound):
            ask()
    for ask in (
        lambda: google.blob("key").delete(if_generation_match=old),
        lambda: google.blob("key").download_as_bytes(if_generation_match=old),
        lambda: google.blob("key").reload(if_generation_match=old),
    ):
        with pytest.raises(PreconditionFailed):
            ask()
    assert google.blob("key", generation=new).download_as_bytes(if_generation_match=new) == b"22"
    google.blob("key").delete(if_generation_match=new)
    assert google.get_blob("key") is None


@pytest.mark.parametrize("operation", ["part", "finish"])
@pytest.mark.parametrize("fault", [LOSE_ANSWER, CUT_REQUEST, LATE_500], ids=str)
def test_of_google_pieces_may_be_sent_again(
    fault: Fault, operation: str, gcs: Rig, google: Any
) -> None:
    large = DATA * 50
    upload = begin_upload(google, "key", large, 0)
    gcs.proxy.faults.add(fault, operation)
    assert send_pieces(google, upload) == 200
    assert google.blob("key").download_as_bytes() == large
    assert gcs.raw.pending() == []


def test_of_google_a_piece_that_was_altered_is_refused(gcs: Rig, google: Any) -> None:
    upload = begin_upload(google, "key", DATA * 50, None)
    gcs.proxy.faults.add(FLIP_REQUEST, "part", skip=1)
    assert send_pieces(google, upload) == 400
    assert gcs.raw.list() == []
    assert gcs.raw.pending() == ["key"]


def test_of_google_lists_come_in_pages(google: Any) -> None:
    for number in range(25):
        google.blob(f"k{number:02}").upload_from_string(b"")
    found = list(google.client.list_blobs(google, prefix="k", page_size=10))
    assert [blob.name for blob in found] == [f"k{number:02}" for number in range(25)]


def test_of_s3_uploads_in_parts(s3: Rig) -> None:
    client, refused = s3.through.client, s3.through.client.exceptions.ClientError

    def begin(*bodies: bytes) -> dict[str, Any]:
        target = {"Bucket": s3.bucket, "Key": "key"}
        target["UploadId"] = client.create_multipart_upload(**target)["UploadId"]
        parts = []
        for number, body in enumerate(bodies, 1):
            answer = client.upload_part(**target, PartNumber=number, Body=body)
            parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        return {**target, "MultipartUpload": {"Parts": parts}}

    first, second, third = (begin(DATA * 90, bytes([n])) for n in range(3))
    tag = client.complete_multipart_upload(**first, IfNoneMatch="*")["ETag"]
    with pytest.raises(refused, match="PreconditionFailed"):
        client.complete_multipart_upload(**second, IfNoneMatch="*")
    client.complete_multipart_upload(**second, IfMatch=tag)
    with pytest.raises(refused, match="PreconditionFailed"):
        client.complete_multipart_upload(**third, IfMatch=tag)
    assert s3.raw.get("key") == DATA * 90 + b"\1"
    assert s3.raw.uploads() == ["key"]
    s3.raw.delete("key")
    with pytest.raises(refused, match="NoSuchKey"):
        client.complete_multipart_upload(**third, IfMatch=tag)


def test_of_s3_an_upload_that_was_aborted_is_gone(s3: Rig) -> None:
    client = s3.through.client
    target = {"Bucket": s3.bucket, "Key": "key"}
    target["UploadId"] = client.create_multipart_upload(**target)["UploadId"]
    client.abort_multipart_upload(**target)
    finished = {"Parts": [{"PartNumber": 1, "ETag": "x"}]}
    for ask in (
        lambda: client.upload_part(**target, PartNumber=1, Body=b"x"),
        lambda: client.complete_multipart_upload(**target, MultipartUpload=finished),
        lambda: client.abort_multipart_upload(**target),
    ):
        with pytest.raises(client.exceptions.ClientError, match="NoSuchUpload"):
            ask()


def test_what_is_replaced_while_it_is_read(rig: Rig) -> None:
    def use(number: int) -> bool:
        if number % 2:
            rig.through.put("key", bytes([number]) * 500_000)
            return True
        return len(set(rig.through.get("key"))) == 1

    rig.raw.put("key", b"\0" * 500_000)
    for _ in range(3):
        assert race(use) == RACERS


def test_of_s3_what_was_altered_is_refused(s3: Rig) -> None:
    refused = s3.through.client.exceptions.ClientError
    with s3.failing(FLIP_REQUEST, "write"):
        with pytest.raises(refused, match="BadDigest"):
            s3.through.put("key", DATA)
        assert s3.raw.list() == []
        s3.proxy.flavour = "ignore_checksums"
        s3.through.put("key", DATA)
    assert s3.raw.get("key") != DATA


# Stores that are not what they should be


def test_a_store_that_ignores_conditions(rig: Rig) -> None:
    rig.proxy.flavour = "ignore_conditions"
    assert rig.through.write_if("key", b"1", "")
    assert rig.through.write_if("key", b"2", "")
    assert rig.through.write_if("key", b"3", "1234567890")
    assert rig.raw.get("key") == b"3"


def test_a_store_that_refuses_conditions(rig: Rig) -> None:
    rig.proxy.flavour = "refuse_conditions"
    with pytest.raises(Exception, match=r"501|NotImplemented"):
        rig.through.write_if("key", b"1", "")
    rig.through.put("key", b"2")
    assert rig.raw.get("key") == b"2"


def test_a_store_whose_conditions_race(rig: Rig) -> None:
    flavour: Flavour = "racy_conditions"
    rig.proxy.flavour = flavour
    assert rig.through.write_if("key", b"1", "")
    assert not rig.through.write_if("key", b"2", "")
    tag = rig.raw.tag("key")
    assert rig.through.write_if("key", b"3", tag)
    assert not rig.through.write_if("key", b"4", tag)
    tag = rig.raw.tag("key")
    assert race(lambda number: rig.through.write_if("key", b"%d" % number, tag)) > 1
    assert race(lambda number: rig.through.write_if("new", b"%d" % number, "")) > 1


# Their lives

STARTER = """
import servers, time
with servers.gcs_server() as server:
    print(server.port, flush=True)
    time.sleep(600)  # or until it is killed
"""


def is_there(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_server_ends_with_who_started_it() -> None:
    pytest.importorskip("gcp_storage_emulator")
    here = pathlib.Path(__file__).parent
    with subprocess.Popen(
        [sys.executable, "-c", STARTER], cwd=here, stdout=subprocess.PIPE
    ) as starter:
        assert starter.stdout is not None
        port = int(starter.stdout.readline())
        assert is_there(port)
        starter.kill()
    end = time.monotonic() + 20
    while is_there(port):
        assert time.monotonic() < end
        time.sleep(0.05)
