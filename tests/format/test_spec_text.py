"""Element specs in words."""

from __future__ import annotations

import collections
from typing import Any

import pytest

from yogadl.format.spec_text import spec_text
from yogadl.spec import NoneSpec, OptionalSpec, RaggedSpec, SparseSpec, TensorSpec

Point = collections.namedtuple("Point", ["left", "right"])
SCALAR = TensorSpec("int64", ())


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (SCALAR, "int64"),
        (TensorSpec("string", ()), "string"),
        (TensorSpec("float32", (28, None)), "float32[28, ?]"),
        (TensorSpec("float32", None), "float32[…]"),
        (RaggedSpec("int32", (None, None), 1), "ragged int32[?, ?]"),
        (SparseSpec("int32", (4, 5)), "sparse int32[4, 5]"),
        (OptionalSpec(SCALAR), "int64 or None"),
        ({"a": SCALAR, 3: NoneSpec()}, "{'a': int64, 3: None}"),
        ((SCALAR,), "(int64,)"),
        (Point(SCALAR, (SCALAR, SCALAR)), "Point(left=int64, right=(int64, int64))"),
    ],
)
def test_spec_text(spec: Any, text: str) -> None:
    assert spec_text(spec) == text


def test_a_long_one_is_cut() -> None:
    text = spec_text({f"feature{number}": SCALAR for number in range(1000)})
    assert len(text) == 300
    assert text.endswith("…")
