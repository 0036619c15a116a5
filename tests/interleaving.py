"""Threads that come in between, one opcode of Python after the other, without any threads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any


def in_between(
    of: Callable[..., Any], make: Callable[[], Any], one: Callable[[Any], Any]
) -> Iterator[tuple[Any, Callable[[Callable[[], Any]], Any]]]:
    """Everything that another thread could do during a call, at any moment of a function.

    Args:
        of: the function during which something happens.
        make: makes what both threads use, anew for each moment.
        one: what the one thread does with it, which calls the function.

    Yields:
        What was made, and a function that takes what the other thread does and returns what ``one``
        returned. It is done before the next opcode of the function, in the last round after all.
    """
    code = of.__code__
    moment = 0
    done = True
    while done:
        thing = make()
        done = False

        def run(other: Callable[[], Any], thing: Any = thing, moment: int = moment) -> Any:
            nonlocal done
            seen = 0

            def trace(frame: FrameType, event: str, _argument: Any) -> Any:
                nonlocal seen, done
                if frame.f_code is not code:
                    return None
                frame.f_trace_opcodes = True
                if event == "opcode":
                    if seen == moment and not done:
                        done = True
                        other()
                    seen += 1
                return trace

            before = sys.gettrace()
            sys.settrace(trace)
            try:
                result = one(thing)
            finally:
                sys.settrace(before)
            if not done:
                other()
            return result

        yield thing, run
        moment += 1
