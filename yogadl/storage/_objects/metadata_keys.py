"""What the objects of versions say of themselves, in the metadata that buckets keep beside them."""

from __future__ import annotations

from yogadl.format import header as headers

DIGEST_KEY = "yogadl-digest"
"""XXH3-128 of the object's bytes; that of parts, too."""

CONTENT_KEY = "yogadl-content"
"""The digest that the file has in its header."""

FORMAT_KEY = "yogadl-format"
"""The format of the file."""

PARTS_KEY = "yogadl-parts"
"""Of how many parts it is a table."""

BYTES_KEY = "yogadl-bytes"
"""Bytes of the version with all its parts."""

RECORDS_KEY = "yogadl-records"
"""The number of its records."""


def told_by(header: headers.Header) -> dict[str, str]:
    """What the header of a version's file says."""
    found = {FORMAT_KEY: str(headers.FORMAT_VERSION), CONTENT_KEY: header.digest.hex()}
    return {**found, PARTS_KEY: str(header.part_count)} if header.part_count else found
