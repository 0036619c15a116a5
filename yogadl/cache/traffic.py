"""What was asked for of other machines."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Traffic:
    """Counted while it goes on.

    Attributes:
        requests: that were sent.
        nbytes: that arrived.
        waited: seconds that readers waited, summed up over their threads.
    """

    requests: int = 0
    nbytes: int = 0
    waited: float = 0.0
