from collections.abc import Callable
from threading import Lock
from typing import TypeVar, TypeVarTuple

_R = TypeVar("_R")
_Ts = TypeVarTuple("_Ts")

def hold_signals(work: Callable[[*_Ts], _R], *args: *_Ts) -> _R:
    """``work(*args)``; signal handlers that are Python code run after it. Main thread; in others
    it is a call like any other. An exception of a handler replaces the result of ``work``.
    """

def let_signals_in(wait: Callable[[*_Ts], _R], /, *args: *_Ts) -> _R:
    """``wait(*args)``, before and during which handlers run as ever, also in ``hold_signals``."""

def raised_by_signal(error: BaseException, /) -> bool:
    """Whether a handler raised ``error`` when signals were let in last."""

def acquire_in_rounds(lock: Lock, timeout: float, /) -> bool:
    """True once ``lock`` was acquired, within ``timeout`` seconds; below 0: without limit.

    Every second Python looks for signals. A system call ends at once for a signal that comes while
    it waits; one that comes just before the call, or to another thread, would wait for its end.
    """
