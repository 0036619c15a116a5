"""What to do about records that do not fit the spec of the first one."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import numpy as np
import pytest
from adapter_rig import stored

from yogadl.errors import SpecMismatchError
from yogadl.spec import TensorSpec


@pytest.mark.parametrize(
    ("records", "dtype"),
    [
        ([[], [1, 2], [3]], "int64"),
        ([[], [0.5], [1.5, 2.5]], "float64"),
        ([[], [True], []], "bool"),
        ([[], ["a", "b"], ["c"]], "string"),
        ([[1, 2], [], [3]], "int64"),
    ],
)
def test_an_empty_list_says_nothing_of_a_dtype(
    records: list[list[Any]], dtype: str, tmp_path: pathlib.Path
) -> None:
    advised = TensorSpec(dtype, (None,))
    with pytest.raises(SpecMismatchError, match=re.escape(f"give spec= with {advised!r}")):
        stored(tmp_path, records)
    found = stored(tmp_path, records, spec=advised)
    given = [[it.encode() if isinstance(it, str) else it for it in row] for row in records]
    assert [np.asarray(row).tolist() for row in found.stream()] == given
