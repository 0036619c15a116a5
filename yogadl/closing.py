"""Context managers whose end is ``close``."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import TypeVar

Self = TypeVar("Self", bound="Closing")


class Closing(abc.ABC):
    """Closed by ``with`` or :meth:`close`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Lets go of what is held. May be called twice."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
