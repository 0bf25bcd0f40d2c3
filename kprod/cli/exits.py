"""How a command ends: after a failure, or because of a signal."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

import typer

from kprod.errors import KprodError, numbered

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class CommandFailure(Exception):
    """A command cannot go on, and the user can act on it; the text says how."""


@contextmanager
def told_failures(command: str) -> Iterator[None]:
    """Print a failure that the user can act on, without a traceback, and end with exit code 1."""
    try:
        yield
    except BrokenPipeError:  # the reader of the output has seen enough: Typer ends in silence
        raise
    except (CommandFailure, KprodError, OSError) as error:
        typer.echo(f"{command}: {numbered(error)}", err=True)
        raise typer.Exit(1) from error


class Stopped(BaseException):
    """The user asked the command to stop. ``exit_code`` is what a shell expects: 130 for Ctrl-C."""

    def __init__(self, signal_number: int) -> None:
        self.exit_code = 128 + signal_number
        super().__init__(signal.Signals(signal_number).name)


def stop_signals() -> AbstractContextManager[None]:
    """Inside the block the first SIGINT or SIGTERM raises Stopped; main thread only.

    Further signals are ignored: a second one must not cut short the clean-up that the first has
    begun. Every clean-up is bounded in time.
    """
    return stop_signals_to(_raise_stopped)


@contextmanager
def exit_by_stop_signals() -> Iterator[None]:
    """As ``stop_signals``; what does not handle Stopped ends by its exit code, not a traceback."""
    try:
        with stop_signals():
            yield
    except Stopped as stopped:
        raise typer.Exit(stopped.exit_code) from None


@contextmanager
def stop_signals_to(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Inside the block ``handler`` gets SIGINT and SIGTERM; main thread only."""
    before = {number: signal.signal(number, handler) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _raise_stopped(signal_number: int, _frame: FrameType | None) -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise Stopped(signal_number)
