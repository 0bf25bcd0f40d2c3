"""The end of what the application plugged in."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

_log = logging.getLogger("kprod.intake.closing")


def close_all(plugs: Iterable[Any]) -> None:
    """Call ``close()`` of each object that has one, once even if it is there twice.

    A failure is logged and stops nothing. Classes are left alone: nothing of theirs is open.
    """
    for plug in {id(plug): plug for plug in plugs}.values():
        close = getattr(plug, "close", None)
        if callable(close) and not isinstance(plug, type):
            _close(plug, close)


def _close(plug: Any, close: Any) -> None:
    try:
        close()
    except Exception:
        _log.exception("%s.close failed", type(plug).__qualname__)
