from collections.abc import Callable
from threading import Lock
from typing import TypeVar, TypeVarTuple

_R = TypeVar("_R")
_Ts = TypeVarTuple("_Ts")

def hold_signals(work: Callable[[*_Ts], _R], *args: *_Ts) -> _R:
    """Call ``work(*args)``. Signal handlers written in Python run only after it.

    For the main thread; in other threads it is an ordinary call. If a handler raises, that
    exception replaces the result of ``work``.
    """

def let_signals_in(wait: Callable[[*_Ts], _R], /, *args: *_Ts) -> _R:
    """Call ``wait(*args)``; signal handlers run before and during it, even in ``hold_signals``."""

def raised_by_signal(error: BaseException, /) -> bool:
    """Whether a handler raised ``error`` in the last ``let_signals_in``."""

def acquire_in_rounds(lock: Lock, timeout: float, /) -> bool:
    """Acquire ``lock`` within ``timeout`` s (below 0: no limit); return whether that succeeded.

    Checks for signals every second, because a signal does not always interrupt a waiting system
    call: it may come just before the call, or to another thread.
    """
