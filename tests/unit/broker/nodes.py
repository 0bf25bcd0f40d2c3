"""A node without a network, for tests of handlers."""

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
    """A server without a network."""

    listeners = (Listener(host="broker.example", port=9092),)
    node: Node

    def start(self, dispatch: Callable[..., object], _: object) -> None:
        """Keep the node."""
        self.node = cast(Any, dispatch).__self__._node

    def hang_up(self) -> None:
        """Without connections, there is nothing to do."""

    def close(self, *, handlers_ended: bool = True) -> None:
        """Without sockets, there is nothing to do."""


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
    """A request frame for a dispatcher."""
    header = {
        "request_api_key": api,
        "request_api_version": version,
        "correlation_id": 77,
        "client_id": "test",
    }
    return request_schema(api, version).encode(header, values)[4:]


class WaitingReply:
    """Receives the response to one request for a waiting thread."""

    def __init__(self) -> None:
        self._answer: queue.SimpleQueue[bytes | HangUp] = queue.SimpleQueue()

    def __call__(self, parts: Sequence[Part], close: str | None = None) -> None:
        """Take the response, or the end of the connection."""
        self._answer.put(in_memory(parts) if close is None else HangUp(close))

    def wait(self, seconds: float = 30) -> bytes:
        """The response frame, or empty. Raises ``HangUp`` and ``queue.Empty``."""
        answer = self._answer.get(timeout=seconds)
        if isinstance(answer, HangUp):
            raise answer
        return answer


def answer_of(node: Node, frame: bytes) -> bytes | None:
    """Wait for the response to a frame; None for no response. Raises ``HangUp``."""
    reply = WaitingReply()
    Dispatcher(node, HANDLERS).dispatch(frame, Session(), reply)
    return reply.wait() or None


def ask(node: Node, api: ApiKey, version: int, **values: Any) -> Any:
    """The response, decoded by kio; None for no response. Both messages are encoded to bytes."""
    answer = answer_of(node, request(api, version, values))
    if answer is None:
        return None
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    header, body = response_schema(api, version).decode(answer[4:])
    assert header.correlation_id == 77
    return body
