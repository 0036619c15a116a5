"""Records that several functions make, or one function of several inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from yogadl.adapters._base import Source
from yogadl.adapters._iterable import as_spec
from yogadl.cache.writer import CacheWriter
from yogadl.errors import InvalidArgumentError, SpecMismatchError
from yogadl.format.spec_text import spec_text


class Pieces:
    """Data in pieces, each made by a call, that can be submitted; several workers can make them::

        storage.submit(yogadl.Pieces(read_file, paths), "texts", "1.0", workers=8)

    The records are in the order of the pieces. Can be pickled if the functions and inputs can.

    Args:
        make: a function of one input that returns anything that can be submitted. Or a list of
            functions without arguments, one for each piece; then there are no inputs.
        inputs: one for each piece, such as the paths of files.

    Raises:
        InvalidArgumentError: it is neither.
    """

    def __init__(
        self,
        make: Callable[[Any], Any] | Sequence[Callable[[], Any]],
        inputs: Sequence[Any] | None = None,
    ) -> None:
        self.make = make if callable(make) else _call
        if callable(make) == (inputs is None):
            raise InvalidArgumentError(
                "pieces are made by a function and a list of inputs, or by a list of functions "
                f"without arguments, not by {make!r:.100} and {inputs!r:.100}"
            )
        given: Any = inputs if callable(make) else make
        # As text, a single path would be as many pieces as it has letters.
        if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
            raise InvalidArgumentError(f"pieces need a list, not {given!r:.100}")
        self.inputs = tuple(given)
        for one in () if callable(make) else self.inputs:
            if not callable(one):
                raise InvalidArgumentError(f"a piece is made by a function, not by {one!r:.100}")

    def __len__(self) -> int:
        return len(self.inputs)

    def __call__(self, number: int) -> Any:
        """Makes the piece of a number."""
        return self.make(self.inputs[number])


def _call(function: Callable[[], Any]) -> Any:
    return function()


class PiecesSource(Source):
    """The records of pieces, one after the other. Can be pickled if the pieces can.

    Args:
        data: the pieces.
        spec: as users write it; that of the first piece without.
        open_it: makes a source of what a piece is made of, and of a spec or ``None``.

    Raises:
        InvalidArgumentError: there is no piece, and no spec is given.
    """

    def __init__(self, data: Pieces, spec: Any, open_it: Callable[[Any, Any], Source]) -> None:
        self.data = data
        self.count = None
        self._open = open_it
        if spec is not None:
            self.spec = as_spec(spec)
        elif len(data):
            first = self.open(0)
            self.spec, self.metadata = first.spec, first.metadata
        else:
            raise InvalidArgumentError("no pieces do not tell their element spec; give spec=")

    def open(self, number: int) -> Source:
        """The records of a piece.

        Raises:
            SpecMismatchError: they have another spec.
        """
        wanted = getattr(self, "spec", None)
        source = self._open(self.data(number), wanted)
        if wanted is not None and source.spec != wanted:
            raise SpecMismatchError(
                f"piece {number} has the spec {spec_text(source.spec)}, and the data set has "
                f"{spec_text(wanted)}; give spec="
            )
        source.tensorflow_config = self.tensorflow_config
        return source

    def feed(self, writer: CacheWriter) -> None:
        for number in range(len(self.data)):
            self.open(number).feed(writer)
