"""A producer and its process: exit, SIGTERM, forks and green threads."""

from __future__ import annotations

import _thread
import atexit
import logging
import os
import signal
import sys
import threading
import warnings
import weakref
from contextlib import suppress
from types import FrameType
from typing import Protocol

from kprod.clock import monotonic
from kprod.errors import IllegalStateError
from kprod.lock import Lock
from kprod.sender.engine import Engine
from kprod_ext import generation

_ADVICE = (
    "%s has replaced Python's threads by green ones, on which a producer would hang: it needs a"
    " thread of its own. %s, or send from a process that is not patched"
)
_GEVENT = "Call gevent.monkey.patch_all(thread=False, queue=False, select=False, socket=False)"
_EVENTLET = "Call eventlet.monkey_patch(os=True, time=True) without thread, select and socket"


def refuse_green_threads() -> None:
    """Raise IllegalStateError if gevent or eventlet has replaced Python's threads."""
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        raise IllegalStateError(_ADVICE % ("gevent", _GEVENT))
    eventlet = sys.modules.get("eventlet.patcher")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        raise IllegalStateError(_ADVICE % ("eventlet", _EVENTLET))


log = logging.getLogger(__name__)

STATUS = 128 + signal.SIGTERM
"""The exit status that a shell reports for a process that SIGTERM has ended."""


_ends = False  # True while the process ends, and delivers queued records


def exit_on_sigterm() -> None:
    """Turn SIGTERM into SystemExit in the main thread, unless the application has a handler.

    Without a handler, the signal ends the process at once, and no more Python code runs. This
    handler only raises, because it may interrupt code that holds a lock.
    """
    if threading.current_thread() is not threading.main_thread():
        log.warning("close_on_sigterm has no effect: the producer is not made in the main thread")
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(_signal: int, frame: FrameType | None) -> None:
    if not _ends and not _is_finalizing(frame):
        sys.exit(STATUS)


def _is_finalizing(frame: FrameType | None) -> bool:
    """Whether multiprocessing is about to run its finalizers in this process, including kprod's.

    A pool that is terminated asks a worker to end, and sends it SIGTERM at the same time.
    SystemExit would skip the finalizers, and queued records would be lost.
    """
    while frame is not None:
        where = (frame.f_globals.get("__name__"), frame.f_code.co_name)
        if where == ("multiprocessing.util", "_exit_function"):
            return True
        frame = frame.f_back
    return False


class ForkAware(Protocol):
    """A producer, as far as this module needs it."""

    def inherited_by_child(self) -> None:
        """This process is a fork: threads and connections belong to the parent."""
        ...


class Waiting(Protocol):
    """Records that no engine has yet, as far as this module needs them."""

    def await_at_exit(self, seconds: float) -> None:
        """Wait at most ``seconds`` until an engine has the records."""
        ...


BEFORE_QUEUES = 20
"""The priority of kprod's finalizer. multiprocessing runs finalizers with a higher number first."""

_finalized: set[int] = set()  # processes in which multiprocessing's end is ours, too
_engines: dict[Engine, float] = {}
"""The engines of this process, with the maximum seconds of each to stop at exit."""
_producers: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_waiting: weakref.WeakKeyDictionary[Waiting, float] = weakref.WeakKeyDictionary()


def watch_over(producer: ForkAware, engine: Engine, *, at_exit: float, dropped: float) -> None:
    """Stop ``engine`` when ``producer`` is garbage-collected or the interpreter exits.

    That may take ``dropped`` seconds in the first case, and ``at_exit`` seconds in the second.
    ``producer`` is notified of forks.
    """
    tell_of_forks(producer)
    _engines[engine] = at_exit
    _watch_over_child()
    _watch_over_celery()
    weakref.finalize(producer, _end_dropped, engine, dropped).atexit = False


def tell_of_forks(producer: ForkAware) -> None:
    """Call ``producer.inherited_by_child`` in each forked child. ``watch_over`` calls this."""
    after_fork()
    _producers.add(producer)


def await_at_exit(records: Waiting, seconds: float) -> None:
    """When the interpreter exits, wait at most ``seconds`` for ``records`` before engines stop."""
    _waiting[records] = seconds


def _watch_over_child() -> None:
    """Close the producers of a child process of multiprocessing, which does not run atexit.

    It runs the finalizers of multiprocessing instead. Such a child has already imported that
    package.
    """
    process = sys.modules.get("multiprocessing.process")
    if os.getpid() in _finalized or process is None or process.parent_process() is None:
        return
    from multiprocessing.util import Finalize

    _finalized.add(os.getpid())
    # Before queues are closed, at 10: a delivery callback may put something into one.
    Finalize(None, _close_all, exitpriority=BEFORE_QUEUES)


def _watch_over_celery() -> None:
    """Close the producers of a worker of Celery's prefork pool, which ends by ``os._exit``.

    Celery sends its signal ``worker_process_shutdown`` before that.
    """
    signals = sys.modules.get("celery.signals")
    if signals is not None:
        ends = signals.worker_process_shutdown
        ends.connect(_close_all, weak=False, dispatch_uid="kprod")  # once, as often as asked


def forget(engine: Engine) -> None:
    """``engine`` has stopped."""
    _engines.pop(engine, None)


def _end_dropped(engine: Engine, seconds: float) -> None:
    if engine not in _engines or generation() != _generation:  # it has ended, or is the parent's
        return
    is_stopping = engine.is_stopping
    # The garbage collector may call this in any thread at any moment, also where that thread holds
    # one of our locks, or one of the threading module. So another thread must do it, started by one
    # that is started without any. When the interpreter exits there is none: _close_all does it.
    with suppress(RuntimeError):
        _thread.start_new_thread(_stop_in_background, (engine, seconds))
    if not is_stopping:  # it is where close() did not wait until it had stopped
        warnings.warn(f"{engine!r} was not closed; it ends in the background", ResourceWarning, 2)


def _stop_in_background(engine: Engine, seconds: float) -> None:
    with suppress(RuntimeError):
        threading.Thread(target=_stop, args=(engine, seconds), daemon=True).start()


def _stop(engine: Engine, seconds: float) -> None:
    if engine.stop(seconds):
        forget(engine)


def _close_all(**_: object) -> None:
    global _ends  # noqa: PLW0603  (one process, one end)
    after_fork()
    _ends = True  # SIGTERM may arrive now, and SystemExit would leave the loop below
    began = monotonic()  # one start for all: all producers work at the same time
    for records, seconds in list(_waiting.items()):
        records.await_at_exit(max(0.0, began + seconds - monotonic()))
    started = monotonic()  # not `began`: what waits in vain takes no time from what is queued
    for engine, seconds in list(_engines.items()):
        engine.stop_at_exit(max(0.0, started + seconds - monotonic()))


_generation = generation()
"""The generation of the process to which the engines and producers above belong."""
_locks: dict[int, Lock] = {}
"""By generation. In a forked child, the parent's lock may be held by a thread that does not exist
there."""


def after_fork() -> None:
    """In a forked child, make the parent's producers begin anew, unless that was done.

    It is called at the first use of a producer, because C code may have forked. Idempotent and
    thread-safe.
    """
    if generation() != _generation:
        # Python has not set up its own lock anew. If a thread of the parent waited for that, who
        # gives it up first waits until some thread has taken it, and there may be none in here.
        _thread.start_new_thread(int, ())
        _begin_anew()


def _begin_anew() -> None:
    global _generation  # noqa: PLW0603  (one process, one generation)
    now = generation()
    with _locks.setdefault(now, Lock()):
        if now == _generation:
            return
        engines = list(_engines)
        _engines.clear()
        for engine in engines:
            engine.abandon()
        for producer in list(_producers):
            producer.inherited_by_child()
        _generation = now  # last: other threads wait until then


atexit.register(_close_all)
os.register_at_fork(after_in_child=_begin_anew)
