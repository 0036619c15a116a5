"""Asking for the beginning of an object, before there is anything to be read of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from yogadl.backoff import Backoff
from yogadl.errors import StoreError
from yogadl.remote._fetching.fetcher import fetcher

Result = TypeVar("Result")

# Who is refused asks as often as this at least, so that it is there when others give way.
_ASKS_SECONDS = 2.0
# A server has closed a connection so long after its client.
_CLOSED_SECONDS = 0.05


def opened(ask: Callable[[], Result], server: str) -> Result:
    """What is answered, after as many tries as it takes.

    Args:
        ask: asks once.
        server: whose threads give way to this one if they have all that it permits.

    Raises:
        StoreError: of the last try.
    """
    # Only who fetches needs it.
    from yogadl.remote._fetching.judging import is_refusal

    pauses = Backoff()
    while True:
        try:
            return ask()
        except StoreError as error:
            pause = pauses.next_pause(error)
            if pause is None:
                raise
            if is_refusal(error):
                _await_turn(server, min(pause, _ASKS_SECONDS))
            else:
                time.sleep(pause)


def _await_turn(server: str, seconds: float) -> None:
    """Waits until a thread has given way, but for so long at most."""
    office = fetcher().office
    with office.mutex:
        desk = office.desk(server)
    with desk.refusals.opening.waiting() as waiter:
        with office.mutex:
            desk.refusals.note()
            desk.refusals.cut()
            # Those that rest have connections, too.
            desk.crew.call_all()
        waiter.wait(seconds)
    time.sleep(_CLOSED_SECONDS)
