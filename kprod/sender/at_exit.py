"""Deliver what can be delivered when the interpreter exits with records still queued."""

from __future__ import annotations

import atexit
import logging
import weakref
from typing import Protocol

from kprod.types import DeliveryReport

log = logging.getLogger(__name__)


class Closeable(Protocol):
    """A producer, as far as leaving is concerned."""

    def close(self, timeout: float | None = None) -> DeliveryReport: ...


_open: weakref.WeakKeyDictionary[Closeable, float] = weakref.WeakKeyDictionary()


def close_at_exit(producer: Closeable, seconds: float) -> None:
    """Close ``producer`` within ``seconds`` when the interpreter exits, if it is still there."""
    _open[producer] = seconds


def forget(producer: Closeable) -> None:
    """``producer`` was closed."""
    _open.pop(producer, None)


def _close_all() -> None:
    for producer, seconds in list(_open.items()):
        before = producer.close(0.0) if seconds <= 0 else producer.close(seconds)
        if before.pending or before.failed:
            log.warning("%r was not closed before the interpreter exited: %r", producer, before)


atexit.register(_close_all)
