"""How a command ends: after a failure, or because of a signal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """The user asked the command to stop. ``exit_code`` is what a shell expects: 130 for Ctrl-C."""

    def __init__(self, signal_number: int) -> None:
        self.exit_code = 128 + signal_number
        super().__init__(signal.Signals(signal_number).name)


@contextmanager
def stop_signals() -> Iterator[None]:
    """Inside the block the first SIGINT or SIGTERM raises Stopped; main thread only.

    Further ones are ignored: what is cleaned up because of the first must not be cut short. Every
    clean-up is bounded in time.
    """
    before = {number: signal.signal(number, _raise_stopped) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise_stopped(signal_number: int, _frame: FrameType | None) -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise Stopped(signal_number)


class DemoFailure(Exception):
    """Something the user can act on; the text says how."""
