"""A node without a network, for tests of what handlers answer."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from kprod.broker.dispatch import Dispatcher
from kprod.broker.handlers import HANDLERS
from kprod.broker.log.log_directories import LogDirectories
from kprod.broker.network.connection import HangUp
from kprod.broker.network.listener import Listener, Session
from kprod.broker.network.stream import Part
from kprod.broker.node import BrokerOptions, Node
from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.protocol.messages import Message, request_schema, response_schema
from kprod.broker.records.file_slice import in_memory
from kprod.broker.running_cluster import RunningCluster


class NoServer:
    """A server that nobody can reach."""

    listeners = (Listener(host="broker.example", port=9092),)
    node: Node

    def start(self, dispatch: Callable[..., object], _: object) -> None:
        """Keep the node whose requests it would dispatch."""
        self.node = cast(Any, dispatch).__self__._node

    def hang_up(self) -> None:
        """Nobody is connected."""

    def close(self, *, handlers_ended: bool = True) -> None:
        """Nothing is open."""


@contextmanager
def running_node(path: Path, *, clean: bool = True, **options: Any) -> Iterator[Node]:
    """A node with its data under ``path``; ``options`` are fields of ``BrokerOptions``."""
    given = BrokerOptions(**options)
    logs, server = LogDirectories([path], given.log_config), NoServer()
    cluster = RunningCluster(logs, [1], given)
    try:
        cluster.start_nodes({1: cast(Any, server)})
        yield server.node
    finally:
        cluster.hang_up()
        logs.close() if clean else logs.abandon()


def request(api: ApiKey, version: int, values: Message) -> bytes:
    """A request frame as a dispatcher takes it."""
    header = {
        "request_api_key": api,
        "request_api_version": version,
        "correlation_id": 77,
        "client_id": "test",
    }
    return request_schema(api, version).encode(header, values)[4:]


class WaitingReply:
    """Takes the one answer of a request, for a thread that waits for it."""

    def __init__(self) -> None:
        self._answer: queue.SimpleQueue[bytes | HangUp] = queue.SimpleQueue()

    def __call__(self, parts: Sequence[Part], close: str | None = None) -> None:
        """The response, or none."""
        self._answer.put(in_memory(parts) if close is None else HangUp(close))

    def wait(self, seconds: float = 30) -> bytes:
        """The response frame; empty when there is none. Raises ``HangUp``, and ``queue.Empty``."""
        answer = self._answer.get(timeout=seconds)
        if isinstance(answer, HangUp):
            raise answer
        return answer


def answer_of(node: Node, frame: bytes) -> bytes | None:
    """The response to a frame, once it is there; None for no response. Raises ``HangUp``."""
    reply = WaitingReply()
    Dispatcher(node, HANDLERS).dispatch(frame, Session(), reply)
    return reply.wait() or None


def ask(node: Node, api: ApiKey, version: int, **values: Any) -> Any:
    """kio's response to a request, by way of bytes in both directions; None for no response."""
    answer = answer_of(node, request(api, version, values))
    if answer is None:
        return None
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    header, body = response_schema(api, version).decode(answer[4:])
    assert header.correlation_id == 77
    return body
