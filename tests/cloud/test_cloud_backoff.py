"""What is tried again, for how long, and what ends the waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from yogadl import backoff
from yogadl.backoff import Backoff, Limits, retried, timeouts
from yogadl.errors import AccessDeniedError, NetworkError, StoreError, ThrottledError


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "LIMITS", Limits(0.3, 4, 1.0, 3.0, 0.001, 0.01))


class Failing:
    """A request that fails so many times."""

    def __init__(self, error: Exception, times: int = 1 << 30) -> None:
        self._error = error
        self._times = times
        self.tries = 0

    def __call__(self) -> str:
        self.tries += 1
        if self.tries <= self._times:
            raise self._error
        return "done"


def nothing(_error: Exception) -> None:
    return None


@pytest.mark.parametrize("error", [NetworkError("x"), ThrottledError("x")])
def test_what_passes_is_tried_again(error: StoreError) -> None:
    request = Failing(error, 10)
    assert retried(request, nothing) == "done"
    assert request.tries == 11


@pytest.mark.parametrize("error", [AccessDeniedError("x"), KeyError("x"), KeyboardInterrupt()])
def test_what_does_not_is_raised_at_once(error: Exception) -> None:
    request = Failing(error)
    with pytest.raises(type(error)):
        retried(request, nothing)
    assert request.tries == 1


def test_errors_are_raised_as_they_were() -> None:
    """Whatever they mean."""
    translate: Callable[[Exception], StoreError] = lambda _: NetworkError("x")  # noqa: E731
    assert retried(Failing(KeyError("x"), 3), translate) == "done"
    with pytest.raises(KeyError):
        retried(Failing(KeyError("x")), translate)


def test_patience_ends() -> None:
    request = Failing(NetworkError("x"))
    with pytest.raises(NetworkError):
        retried(request, nothing)
    assert request.tries >= 4


def test_a_part_that_takes_longer_than_the_patience_has_some_tries(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="yogadl")
    monkeypatch.setattr(backoff, "LIMITS", Limits(-60.0, 4, 1.0, 3.0, 0.001, 0.01))
    request = Failing(NetworkError("x"))
    with pytest.raises(NetworkError):
        retried(request, nothing)
    assert request.tries == 4
    assert caplog.text.count("for at most 0 s") == 3


def test_a_short_patience_is_kept() -> None:
    request = Failing(NetworkError("x"))
    with pytest.raises(NetworkError):
        retried(request, nothing, patience=0.0)
    assert request.tries == 1
    assert retried(Failing(NetworkError("x"), 2), nothing, patience=5.0) == "done"
    assert timeouts(None) == (1.0, 3.0)
    assert timeouts(0.3) == pytest.approx((0.1, 0.1))
    assert timeouts(6.0) == (1.0, 2.0)


def test_who_need_not_go_on_does_not() -> None:
    stop = threading.Event()

    def request() -> None:
        stop.set()
        raise NetworkError("x")

    with pytest.raises(NetworkError):
        retried(request, nothing, stop=stop)


def test_progress_renews_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "LIMITS", Limits(0.0, 2, 1.0, 3.0, 0.001, 0.01))
    pauses = Backoff()
    for _ in range(10):
        assert pauses.waits(NetworkError("x"))
        pauses.progressed()
    assert pauses.waits(NetworkError("x"))
    assert not pauses.waits(NetworkError("x"))


def test_logs_have_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="yogadl")
    retried(Failing(NetworkError("http://me:sesame@host/x"), 1), nothing)
    assert "http://host/x" in caplog.text
    assert "sesame" not in caplog.text
