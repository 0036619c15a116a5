"""Records in a file, without a storage around it."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Any

from yogadl.cache.writer import CacheWriter
from yogadl.dataref import LMDBDataRef


def write(path: pathlib.Path, spec: Any, records: Iterable[Any]) -> LMDBDataRef:
    with CacheWriter(path, spec) as writer:
        for record in records:
            writer.append(record)
        writer.commit()
    return LMDBDataRef(path)
