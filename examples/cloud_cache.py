"""One data set for many machines: built once, kept in a bucket, read from the local disk.

    python examples/cloud_cache.py s3 BUCKET            # or: gcs BUCKET
    python examples/cloud_cache.py s3 BUCKET --endpoint-url http://localhost:9000
    python examples/cloud_cache.py s3 BUCKET --lock-server ws://coordinator:8080

Start it on as many machines as you like, at once: one of them builds, the others wait, and all read
the same records. Credentials come from where the SDKs look for them.
"""

import argparse
import logging
import tempfile
import time

import numpy as np

import yogadl.storage


def open_storage(arguments):
    """The storage in the bucket that the command line names."""
    common = {
        "bucket": arguments.bucket,
        "bucket_directory_path": "yogadl-example",
        "local_cache_dir": arguments.local_cache_dir,
        "url": arguments.lock_server,  # without one, a lease in the bucket decides who builds
    }
    if arguments.provider == "gcs":
        return yogadl.storage.GCSStorage(yogadl.storage.GCSConfigurations(**common))
    return yogadl.storage.S3Storage(
        yogadl.storage.S3Configurations(**common, endpoint_url=arguments.endpoint_url)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("provider", choices=["s3", "gcs"])
    parser.add_argument("bucket")
    parser.add_argument("--endpoint-url", help="of a store that is not AWS")
    parser.add_argument(
        "--lock-server", help="ws://… or wss://…, as of python -m yogadl.rw_coordinator"
    )
    parser.add_argument("--local-cache-dir", default=tempfile.gettempdir())
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("yogadl").setLevel(logging.INFO)
    for chatty in ("botocore", "boto3", "urllib3", "google"):
        logging.getLogger(chatty).setLevel(logging.WARNING)

    storage = open_storage(arguments)

    @storage.cacheable("squares", "1.0")
    def make_squares():
        print("Building.")
        time.sleep(1)  # as if it were much work
        return ({"x": np.int64(number), "square": np.int64(number**2)} for number in range(1000))

    squares = make_squares()
    stream = squares.stream(shuffle=True, shuffle_seed=23)
    total = sum(int(record["square"]) for record in stream)
    print(f"{len(squares)} records, sum of squares {total}.")
    for stored in storage.list():
        print(f"Stored: {stored.dataset_id}:{stored.dataset_version}, {stored.size:,} bytes.")


if __name__ == "__main__":
    main()
