"""produce_batch: many records with one call, those that cannot be queued marked"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kprod.confluent.errors import KafkaError, KafkaException


def produced(
    produce: Callable[..., None],
    topic: str,
    messages: Any,
    partition: int,
    on_delivery: Callable[..., object] | None,
) -> int:
    """How many of ``messages`` were queued. Raises TypeError before any of them is."""
    if not isinstance(messages, list):
        raise TypeError("messages must be a list")
    if not isinstance(partition, int):
        raise TypeError("partition must be int")
    for index, message in enumerate(messages):
        _check(index, message)
    queued = 0
    for message in messages:
        try:
            produce(
                topic,
                message.get("value"),
                message.get("key"),
                message.get("partition", partition),
                message.get("callback") or message.get("on_delivery") or on_delivery,
                headers=message.get("headers"),
            )
            queued += 1
        except BufferError:
            message["_error"] = KafkaError(KafkaError._QUEUE_FULL)
        except KafkaException as error:
            message["_error"] = error.args[0]
        except ValueError as error:
            message["_error"] = KafkaError(KafkaError._INVALID_ARG, str(error))
    return queued


def _check(index: int, message: Any) -> None:
    if not isinstance(message, dict):
        raise TypeError(f"Message at index {index} must be a dict")
    for name in ("value", "key"):
        if not isinstance(message.get(name), bytes | str | None):
            raise TypeError(f"Message {name} at index {index} must be bytes or str")
    if not isinstance(message.get("partition", 0), int):
        raise TypeError(f"Message partition at index {index} must be int")
    if message.get("timestamp") is not None:
        raise NotImplementedError(
            "Message timestamps are not currently supported by produce_batch(): produce() takes one"
        )
