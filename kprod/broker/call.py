"""One request on its way to a handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from kprod.broker.messages import Message
from kprod.broker.node import Node


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request. ``body`` is kio's message: which fields it has depends on ``version``."""

    version: int
    client_id: str | None
    body: Any


Handler: TypeAlias = Callable[[Call, Node], Message | None]
"""Answers a request; None sends nothing. Raises ``HangUp`` to close the connection."""


class HangUp(Exception):
    """The only answer left is to close the connection."""
