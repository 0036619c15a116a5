"""What the objects of versions say of themselves, in the metadata that buckets keep beside them."""

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
