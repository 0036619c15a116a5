"""One record, and many at once, are taken apart by different code: it finds the same records in the
same bytes, and the same bytes impossible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import element_specs, records, same

from yogadl.cache.columns import ColumnReader, copied_rows, records_of
from yogadl.errors import ChecksumError
from yogadl.format.codec import RecordCodec
from yogadl.format.index import ENTRY
from yogadl.format.layout import LEAD, lead_of

pytestmark = pytest.mark.once

REFUSED = "refused"


def alone(codec: RecordCodec, content: bytes) -> Any:
    try:
        return codec.decode(content)
    except ChecksumError:
        return REFUSED


def among_others(codec: RecordCodec, contents: list[bytes], which: int) -> Any:
    """What the columns of some contents have for one of them."""
    values = [bytes(lead_of(len(content))) + content for content in contents]
    ends = np.cumsum([len(value) for value in values])
    entries = np.zeros(len(values), ENTRY)
    entries["length"] = [len(value) for value in values]
    entries["offset"] = ends - entries["length"]
    buffer = np.frombuffer(b"".join(values) + bytes(LEAD), "u1")
    try:
        columns = ColumnReader(codec).read(
            buffer, entries["offset"].astype("i8"), entries["length"].astype("i8")
        )
    except ChecksumError:
        return REFUSED
    return list(records_of(codec.spec, [copied_rows(column) for column in columns]))[which]


@settings(max_examples=300, deadline=None)
@given(data=st.data(), spec=element_specs)
def test_decoders_agree(data: st.DataObject, spec: Any) -> None:
    codec = RecordCodec(spec)
    good = codec.encode(data.draw(records(spec)))
    content = bytearray(codec.encode(data.draw(records(spec))))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    if codec.layout.content_size is None:
        # The index has entries of other lengths for fixed sizes refused, as any too short.
        kept = data.draw(st.integers(codec.layout.smallest_content, len(content) + 16))
        content = content[:kept] + bytes(max(0, kept - len(content)))
    damaged = bytes(content)
    found = alone(codec, damaged)
    assert same(among_others(codec, [damaged], 0), found)
    assert same(among_others(codec, [good, damaged, good], 1), found)
