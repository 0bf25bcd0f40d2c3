"""One request on its way to a handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.session import Session


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request. ``body`` is kio's message: which fields it has depends on ``version``."""

    version: int
    client_id: str | None
    body: Any
    session: Session = field(default_factory=Session)


Give: TypeAlias = Callable[[Message | Exception], None]
"""Takes a late answer."""


@dataclass(frozen=True, slots=True)
class Later:
    """An answer that has to wait for something (a fetch for data, a join for other members).

    ``begin`` is called once with the function that takes the answer. That function is then called
    exactly once, from any thread, perhaps before ``begin`` returns. An exception instead of an
    answer ends the connection.
    """

    begin: Callable[[Give], None]


Handler: TypeAlias = Callable[[Call, Node], Message | Later | None]
"""Answers a request; None sends nothing. Raises ``HangUp`` to close the connection."""


def one_by_one(handler: Callable[[Call, Node], Message]) -> Handler:
    """The handler of requests that change topics: the controller's thread runs it."""

    def handle(call: Call, node: Node) -> Later:
        def run(give: Give) -> None:
            try:
                answer: Message | Exception = handler(call, node)
            except Exception as error:
                answer = error
            give(answer)

        return Later(lambda give: node.controller(lambda: run(give)))

    return handle


class HangUp(Exception):
    """The only answer left is to close the connection."""
