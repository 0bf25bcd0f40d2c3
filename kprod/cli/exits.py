"""How a command ends: after a failure, or because of a signal."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Self

import typer

from kprod.cli.terminal import echo
from kprod.errors import KprodError, numbered

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def heeded_signals() -> list[signal.Signals]:
    """The stop signals that this process does not ignore. It may have inherited that it does."""
    return [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]


class CommandFailure(Exception):
    """A command failed for a reason that the user can act on. The text says how."""


def confirm(question: str) -> None:
    """Ask, and end the command with exit code 1 unless the answer is yes.

    Raises CommandFailure if nobody can answer.
    """
    if sys.stdin is None:
        raise CommandFailure("standard input is closed; pass --yes to do it unasked")
    typer.confirm(question, abort=True)


def check_output(what: str) -> None:
    """Raise CommandFailure if standard output is closed, so that ``what`` could not be printed."""
    if sys.stdout is None:
        raise CommandFailure(f"standard output is closed: {what} could not be printed")


@contextmanager
def reported_failures(command: str) -> Iterator[None]:
    """For a failure that the user can act on, print no traceback, and exit with code 1."""
    try:
        yield
    except BrokenPipeError:  # the reader of the output has gone: Typer exits silently
        raise
    except (CommandFailure, KprodError, OSError) as error:
        echo(f"{command}: {numbered(error)}", err=True)
        raise typer.Exit(1) from error


class Stopped(BaseException):
    """The user asked the command to stop. ``exit_code`` is what a shell expects: 130 for Ctrl-C."""

    def __init__(self, signal_number: int) -> None:
        self.exit_code = 128 + signal_number
        super().__init__(signal.Signals(signal_number).name)


def stop_signals() -> AbstractContextManager[None]:
    """Inside the block, the first stop signal raises Stopped. For the main thread only.

    Further signals are ignored, because a second signal must not interrupt the clean-up after the
    first. Every clean-up is limited in time.
    """
    return stop_signals_to(_raise_stopped)


class StopRequest:
    """Inside the block, a stop signal requests a stop. For the main thread only.

    The signal raises Stopped only where the program waits, so that no work is lost half done.
    Further signals are ignored. After ``grace`` seconds, ``late`` is set, and Stopped is raised
    again.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._waiting = False
        self._raised = True
        self.stopped: Stopped | None = None
        """The exception of the signal; None before one has come."""
        self.late = False
        self._since = 0.0
        self._exits = ExitStack()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A block that a signal interrupts, even if the signal came before it began."""
        try:
            self._waiting = True
            self._raise_once()
            yield
        finally:
            self._waiting = False

    def left(self, seconds: float) -> float:
        """How much is left of so many seconds after the signal; all if none has come."""
        if self.stopped is None:
            return seconds
        return max(0.0, self._since + seconds - time.monotonic())

    def __enter__(self) -> Self:
        self._exits.enter_context(stop_signals_to(self._came))
        self._exits.callback(signal.signal, signal.SIGALRM, signal.getsignal(signal.SIGALRM))
        self._exits.callback(signal.setitimer, signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._is_late)
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _came(self, number: int, _frame: FrameType | None) -> None:
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, self._grace)
        self.stopped = Stopped(number)
        self._since = time.monotonic()
        self._raised = False
        self._raise_once()

    def _is_late(self, _number: int, _frame: FrameType | None) -> None:
        self.late = True
        self._raised = False
        self._raise_once()

    def _raise_once(self) -> None:
        if self._waiting and self.stopped is not None and not self._raised:
            self._raised = True
            raise self.stopped


@contextmanager
def stop_signals_to(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Inside the block, ``handler`` handles the stop signals. For the main thread only.

    What the parent process had ignored stays ignored: SIGINT after ``trap '' INT``.
    """
    before = {number: signal.signal(number, handler) for number in heeded_signals()}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _raise_stopped(signal_number: int, _frame: FrameType | None) -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise Stopped(signal_number)
