"""The end of what the application plugged in."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

_log = logging.getLogger("kprod.intake.closing")


def closable(plugs: Iterable[Any]) -> list[Any]:
    """Those with a ``close()``, once even if they are there twice.

    Classes are left out: nothing of theirs is open.
    """
    distinct = {id(plug): plug for plug in plugs}.values()
    return [plug for plug in distinct if callable(_close_of(plug)) and not isinstance(plug, type)]


def close_all(plugs: Iterable[Any]) -> None:
    """Call ``close()`` of each object that has one. A failure is logged and stops nothing."""
    for plug in closable(plugs):
        _close(plug)


def _close_of(plug: Any) -> Any:
    return getattr(plug, "close", None)


def _close(plug: Any) -> None:
    try:
        plug.close()
    except Exception:
        _log.exception("%s.close failed", type(plug).__qualname__)
