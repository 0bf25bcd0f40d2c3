"""What producers owe their process: nothing left behind at exit, a fresh start after a fork."""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import threading
import time
import warnings
import weakref
from contextlib import suppress
from typing import Protocol

from kprod.sender.engine import Engine
from kprod.sender.termination import process_ends


class Living(Protocol):
    """A producer, as far as the process is concerned."""

    def inherited_by_child(self) -> None:
        """This process is a fork: threads and connections belong to the parent."""
        ...


BEFORE_QUEUES = 20
"""Of multiprocessing's finalizers those with the highest number come first."""

_finalized: set[int] = set()  # processes in which multiprocessing's end is ours, too
_engines: dict[Engine, float] = {}
"""What runs in this process, and the seconds it may take to stop at exit."""
_producers: weakref.WeakSet[Living] = weakref.WeakSet()


def watch_over(producer: Living, engine: Engine, *, at_exit: float, dropped: float) -> None:
    """Stop ``engine`` when the interpreter exits, within ``at_exit`` seconds, and before that when
    nobody refers to ``producer`` any more, within ``dropped`` seconds; tell ``producer`` of forks.
    """
    _engines[engine] = at_exit
    _watch_over_child()
    _watch_over_celery()
    _producers.add(producer)
    weakref.finalize(producer, _end_dropped, engine, dropped).atexit = False


def _watch_over_child() -> None:
    """A child of multiprocessing ends without atexit, but with finalizers of that package's.

    Where its process is a child, the package has been imported by whoever made it.
    """
    process = sys.modules.get("multiprocessing.process")
    if os.getpid() in _finalized or process is None or process.parent_process() is None:
        return
    from multiprocessing.util import Finalize

    _finalized.add(os.getpid())
    # Before queues are closed, at 10: a delivery callback may put something into one.
    Finalize(None, _close_all, exitpriority=BEFORE_QUEUES)


def _watch_over_celery() -> None:
    """A worker of Celery's prefork pool ends by ``os._exit``, after it has sent a signal."""
    signals = sys.modules.get("celery.signals")
    if signals is not None:
        ends = signals.worker_process_shutdown
        ends.connect(_end_of_worker, weak=False, dispatch_uid="kprod")  # once, as often as asked


def _end_of_worker(**_: object) -> None:
    _close_all()


def forget(engine: Engine) -> None:
    """``engine`` has stopped."""
    _engines.pop(engine, None)


def _end_dropped(engine: Engine, seconds: float) -> None:
    if engine not in _engines:
        return
    if not engine.is_stopping:  # it is where close() did not wait until it had stopped
        warnings.warn(f"{engine!r} was not closed; it ends in the background", ResourceWarning, 2)
    # The garbage collector may call this in any thread at any moment, also where that thread holds
    # one of our locks, or one of the threading module. So another thread must do it, started by one
    # that is started without any. When the interpreter exits there is none: _close_all does it.
    with suppress(RuntimeError):
        _thread.start_new_thread(_stop_in_background, (engine, seconds))


def _stop_in_background(engine: Engine, seconds: float) -> None:
    with suppress(RuntimeError):
        threading.Thread(target=_stop, args=(engine, seconds), daemon=True).start()


def _stop(engine: Engine, seconds: float) -> None:
    if engine.stop(seconds):
        forget(engine)


def _close_all() -> None:
    process_ends()  # SIGTERM may arrive now, and SystemExit would leave the loop below
    started = time.monotonic()  # their times run together: what all have queued is sent meanwhile
    for engine, seconds in list(_engines.items()):
        engine.stop_at_exit(max(0.0, started + seconds - time.monotonic()))


def _tell_child() -> None:
    for engine in _engines:
        engine.abandon()
    _engines.clear()
    for producer in list(_producers):
        producer.inherited_by_child()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_tell_child)
