"""A node without a network, for tests of what handlers answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kprod.broker.api_key import ApiKey
from kprod.broker.dispatch import Dispatcher
from kprod.broker.handlers import HANDLERS
from kprod.broker.log.log_config import LogConfig
from kprod.broker.log.log_directory import LogDirectory
from kprod.broker.messages import Message, request_schema, response_schema
from kprod.broker.node import Node
from kprod.broker.producer_ids import ProducerIds
from kprod.broker.purgatory import Purgatory
from kprod.broker.topics import Topics
from kprod.clock import SystemClock


@contextmanager
def running_node(path: Path, **options: Any) -> Iterator[Node]:
    """A node with its data under ``path``; ``options`` replaces fields of ``Node``."""
    config = options.setdefault("log_config", LogConfig())
    logs = LogDirectory(path, config)
    fields: dict[str, Any] = {
        "cluster_id": logs.cluster_id,
        "host": "broker.example",
        "port": 9092,
        "topics": Topics(logs),
        "producer_ids": ProducerIds(path / "producer-ids-checkpoint"),
        "purgatory": Purgatory(),
        "clock": SystemClock(),
        "default_partitions": 1,
        "auto_create_topics": True,
    }
    try:
        yield Node(**{**fields, **options})
    finally:
        logs.close()


def request(api: ApiKey, version: int, values: Message) -> bytes:
    """A request frame as a dispatcher takes it."""
    header = {
        "request_api_key": api,
        "request_api_version": version,
        "correlation_id": 77,
        "client_id": "test",
    }
    return request_schema(api, version).encode(header, values)[4:]


def ask(node: Node, api: ApiKey, version: int, **values: Any) -> Any:
    """kio's response to a request, by way of bytes in both directions; None for no response."""
    answer = Dispatcher(node, HANDLERS).answer(request(api, version, values))
    if answer is None:
        return None
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    header, body = response_schema(api, version).decode(answer[4:])
    assert header.correlation_id == 77
    return body
