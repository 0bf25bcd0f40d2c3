from collections.abc import Callable
from threading import Lock
from typing import TypeVar, TypeVarTuple

_R = TypeVar("_R")
_Ts = TypeVarTuple("_Ts")

def hold_signals(work: Callable[[*_Ts], _R], *args: *_Ts) -> _R:
    """Call ``work(*args)``; signal handlers that are Python code run after it.

    For the main thread; in others it is an ordinary call. An exception of a handler replaces the
    result of ``work``.
    """

def let_signals_in(wait: Callable[[*_Ts], _R], /, *args: *_Ts) -> _R:
    """Call ``wait(*args)``; handlers run before and during it, even in ``hold_signals``."""

def raised_by_signal(error: BaseException, /) -> bool:
    """Whether a handler raised ``error`` in the last ``let_signals_in``."""

def acquire_in_rounds(lock: Lock, timeout: float, /) -> bool:
    """Acquire ``lock`` within ``timeout`` seconds (below 0: no limit); return whether it was.

    Checks for signals every second. A signal interrupts a system call that waits, but not if it
    comes just before the call, or to another thread.
    """
