"""Fetch (1): read record batches, waiting for them if need be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call, Give, Later
from kprod.broker.handlers.list_offsets import READ_COMMITTED
from kprod.broker.log.transaction_index import AbortedTransaction
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.record_batch import CorruptBatch
from kprod.errors import BrokerError
from kprod.types import TopicPartition

_FULL_FETCH_EPOCHS: Final = (-1, 0)
_MOST_BYTES: Final = 55 * 1024 * 1024
"""Of records in one response, whatever the client allows (Kafka's ``fetch.max.bytes``)."""


_NO_PARTITION: Final = (ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id)


class _Answer(NamedTuple):
    message: Message
    bytes: int
    failed: bool


def fetch(call: Call, node: Node) -> Message | Later:
    """What there is, as soon as it is ``min_bytes``, an error, or ``max_wait`` is over.

    Fetch sessions (KIP-227) are never begun: the answer always has session id 0, which tells the
    client to name all its partitions each time.
    """
    if getattr(call.body, "session_epoch", -1) not in _FULL_FETCH_EPOCHS:
        return {"error_code": ErrorCode.fetch_session_id_not_found}
    answer = _read(call, node)
    if _settled(answer, call):
        return answer.message
    return Later(lambda give: _wait(call, node, give))


def _settled(answer: _Answer, call: Call) -> bool:
    return answer.failed or answer.bytes >= call.body.min_bytes or not call.body.topics


def _wait(call: Call, node: Node, give: Give) -> None:
    def attempt(last: bool) -> bool:
        try:
            answer = _read(call, node)
        except MemoryError:
            raise
        except Exception as error:
            give(error)
            return True
        complete = last or _settled(answer, call)
        if complete:
            give(answer.message)
        return complete

    node.purgatory.watch(_partitions(call, node), call.body.max_wait.total_seconds(), attempt)


def _partitions(call: Call, node: Node) -> list[TopicPartition]:
    keys: list[TopicPartition] = []
    for wanted in call.body.topics:
        topic = node.topics.find(wanted.topic) if hasattr(wanted, "topic") else None
        topic = topic or node.topics.find_id(getattr(wanted, "topic_id", None))
        if topic is not None:
            keys.extend(TopicPartition(topic.name, part.partition) for part in wanted.partitions)
    return keys


def _read(call: Call, node: Node) -> _Answer:
    """One pass over the partitions; the first that has data may exceed the limits by one batch."""
    left, total, failed = min(call.body.max_bytes, _MOST_BYTES), 0, False
    committed = call.body.isolation_level == READ_COMMITTED
    responses = []
    for wanted in call.body.topics:
        parts = []
        for part in wanted.partitions:
            answer = _partition(
                wanted, part, node, left, whole_first=total == 0, committed=committed
            )
            parts.append(answer.message)
            total += answer.bytes
            left = max(0, left - answer.bytes)
            failed = failed or answer.failed
        responses.append(
            {
                "topic": getattr(wanted, "topic", None),
                "topic_id": getattr(wanted, "topic_id", None),
                "partitions": parts,
            }
        )
    return _Answer({"responses": responses}, total, failed)


def _partition(
    wanted: Any, part: Any, node: Node, left: int, *, whole_first: bool, committed: bool
) -> _Answer:
    try:
        name, topic_id = getattr(wanted, "topic", None), getattr(wanted, "topic_id", None)
        epoch = getattr(part, "current_leader_epoch", -1)
        log = node.partition(node.topic(name, topic_id), part.partition, epoch)
        limit = min(left, part.partition_max_bytes)
        found = log.locate(part.fetch_offset, limit, whole_first=whole_first, committed=committed)
    except CorruptBatch as error:
        return _refusal(part, BrokerError(ErrorCode.corrupt_message, str(error)))
    except OSError as error:
        return _refusal(part, BrokerError(ErrorCode.kafka_storage_error, str(error)))
    except BrokerError as error:
        return _refusal(part, error)
    message = {
        "partition_index": part.partition,
        "high_watermark": found.high_watermark,
        "last_stable_offset": found.last_stable_offset,
        "log_start_offset": found.log_start_offset,
        "aborted_transactions": None if found.aborted is None else _spelled(found.aborted),
        "records": found.records,
    }
    return _Answer(message, len(found.records), False)


def _spelled(aborted: Sequence[AbortedTransaction]) -> list[Message]:
    return [{"producer_id": one.producer_id, "first_offset": one.first_offset} for one in aborted]


def _refusal(part: Any, error: BrokerError) -> _Answer:
    message = {
        "partition_index": part.partition,
        "error_code": error.code,
        "high_watermark": -1,
        # As Apache Kafka has it: no transactions where there is no partition, else not known.
        "aborted_transactions": () if error.code in _NO_PARTITION else None,
        "records": b"",
    }
    return _Answer(message, 0, True)
