"""The end of what the application plugged in."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

_log = logging.getLogger("kprod.intake.closing")


def closable(plugins: Iterable[Any]) -> list[Any]:
    """Those with a ``close()``, once even if they are there twice.

    Classes are left out: nothing of theirs is open.
    """
    distinct = {id(plugin): plugin for plugin in plugins}.values()
    return [
        plugin
        for plugin in distinct
        if callable(_close_of(plugin)) and not isinstance(plugin, type)
    ]


def close_all(plugins: Iterable[Any]) -> None:
    """Call ``close()`` of each object that has one. A failure is logged and stops nothing."""
    for plugin in closable(plugins):
        _close(plugin)


def _close_of(plugin: Any) -> Any:
    return getattr(plugin, "close", None)


def _close(plugin: Any) -> None:
    try:
        plugin.close()
    except Exception:
        _log.exception("%s.close failed", type(plugin).__qualname__)
