"""The index of a version that is read from afar, of which much or little is here."""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from remote_rig import Site, make_site
from test_remote_plan import store

from yogadl.errors import ChecksumError
from yogadl.format.entries import ENTRY
from yogadl.remote import _index
from yogadl.remote._fetching.fetcher import fetcher
from yogadl.remote._local.sparse_file import CELL

pytestmark = pytest.mark.once


@given(st.data())
def test_entries_are_those_of_the_file_however_they_are_read_together(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 3000))
    part_bytes = data.draw(st.sampled_from([None, 20_000, 200_000]))
    sizes = st.sampled_from([CELL, 4 * CELL, 64 << 10, 1 << 20])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_index, "_WINDOW", data.draw(sizes))
        patch.setattr(_index, "_MOST_TOGETHER", data.draw(st.sampled_from([0, 2 * CELL, 1 << 20])))
        site = make_site(pathlib.Path(folder))
        try:
            store(site, (count, 10), part_bytes, ragged=True)
            some = st.lists(st.integers(0, count - 1), min_size=1, max_size=60)
            with site.ref() as ref, site.ref() as whole:
                # One has all of the index at first, the other what it has asked for.
                whole.reader.look_up(np.arange(count))
                expected = whole.reader.look_up(np.arange(count))
                for positions in map(np.array, data.draw(st.lists(some, max_size=6))):
                    for each in (ref, whole):
                        numbers, entries = each.reader.look_up(positions)
                        assert numbers.tolist() == expected[0][positions].tolist()
                        assert entries.tolist() == expected[1][positions].tolist()
                        # And anew, of what is here.
                        each.reader._index._is_known[:] = False
        finally:
            site.web.close()


def test_the_record_whose_entry_is_damaged_is_told(site: Site, tmp_path: pathlib.Path) -> None:
    """Though its entry is read with those of others, which are not."""
    count, bad = 3000, 1600
    store(site, (count, 10), None, ragged=True)
    with site.ref() as ref:
        offset = int(ref.reader.files.entries[0]) + ENTRY.itemsize * bad
    with site.path().open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * 8)
    with dataclasses.replace(site, folder=tmp_path / "another").ref() as ref:
        fetcher().ensure(ref.reader.index_ranges(np.arange(count)))
        positions = np.arange(0, count, 400)
        assert len(ref.reader._index._pieces(*ref.reader.files.find(positions), True)) == 1
        with pytest.raises(ChecksumError, match=rf"damaged index at record {bad};"):
            ref.reader.look_up(positions)
