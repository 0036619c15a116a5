"""Commits: whatever is changed, the version is that of the same records in one file."""

from __future__ import annotations

import tempfile

from changed import Model, changed_specs, changes
from hypothesis import given
from hypothesis import strategies as st
from strategies import records

from yogadl.storage import LFSStorage


@given(st.data())
def test_changes_are_those_of_a_list(data: st.DataObject) -> None:
    spec = data.draw(changed_specs)
    model = Model(spec, data.draw(st.lists(records(spec), max_size=6)))
    part_bytes = st.sampled_from([None, 1, 300])
    with tempfile.TemporaryDirectory() as folder:
        storage = LFSStorage(folder)
        storage.submit(model.records, "a", "0", spec=spec, part_bytes=data.draw(part_bytes))
        storage.tag("a", "main", "0")
        known = {"0": model}
        for number in range(1, data.draw(st.integers(1, 4)) + 1):
            apply, model = data.draw(changes(model))
            with storage.change(
                "a", "main", version=str(number), part_bytes=data.draw(part_bytes)
            ) as change:
                apply(change)
            known[change.version] = model
            assert storage.tags("a") == {"main": change.version}
        for version, expected in known.items():
            with storage.fetch("a", version) as ref:
                expected.check(ref)
                ref.verify()
                storage.submit(expected.records, "plain", version, spec=expected.spec)
                with storage.fetch("plain", version) as plain:
                    expected.check_equal(ref, plain)
