"""Iterables and generators of records."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Sized
from typing import Any

from yogadl import spec as specs
from yogadl.adapters._base import Source
from yogadl.cache.writer import CacheWriter
from yogadl.errors import InvalidArgumentError, SpecMismatchError


def as_spec(spec: Any) -> specs.Structure:
    """A spec of ``yogadl.spec`` leaves or of ``tf.TypeSpec``, in standard form."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None:
        leaves = list(_leaves(spec))
        if leaves and all(isinstance(leaf, tensorflow.TypeSpec) for leaf in leaves):
            from yogadl import tf_specs

            return tf_specs.from_tf(spec)
    return specs.normalize(spec)


def _leaves(nest: Any) -> Iterator[Any]:
    if isinstance(nest, dict | list | tuple):
        for child in nest.values() if isinstance(nest, dict) else nest:
            yield from _leaves(child)
    else:
        yield nest


class IterableSource(Source):
    """Records of an iterable, of a given spec or of the first record's."""

    def __init__(self, data: Iterable[Any], spec: Any = None) -> None:
        self.count = len(data) if isinstance(data, Sized) else None
        self._inferred = spec is None
        self._records = iter(data)
        if spec is not None:
            self.spec = as_spec(spec)
            return
        try:
            first = next(self._records)
        except StopIteration as error:
            raise InvalidArgumentError(
                "an iterable without records does not tell its element spec; give spec="
            ) from error
        self.spec = specs.infer(first)
        self._records = itertools.chain([first], self._records)

    def feed(self, writer: CacheWriter) -> None:
        try:
            for record in self._records:
                writer.append(record)
        except SpecMismatchError as error:
            if not self._inferred:
                raise
            raise SpecMismatchError(
                f"{error}. The spec was inferred from the first record; where records differ, "
                "give spec= with None for what varies"
            ) from error
