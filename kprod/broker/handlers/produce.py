"""Produce (0): store record batches."""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from kprod.broker.batch_header import BatchHeader
from kprod.broker.call import Call, HangUp
from kprod.broker.handlers.transaction_answers import TransactionGate
from kprod.broker.incoming_batch import check_batch, check_keys, stamp
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.topic import Topic
from kprod.broker.transactions.transaction_rules import ProducerIdentity
from kprod.broker.verifications import VerificationGuard
from kprod.errors import BrokerError

_ACKS: Final = (-1, 0, 1)
_FIRST_WITH_ABORTABLE: Final = 11
_FIRST_THAT_ADDS: Final = 12
"""From this version on the first batch adds its partition to the transaction (KIP-890)."""


def produce(call: Call, node: Node) -> Message | None:
    """One batch per partition, stored or refused for itself.

    ``acks`` 1 and -1 are the same with one node: the answer comes when the batch is in the log.
    With 0 there is none, and a failure hangs up, which is all such a client can be told.
    """
    answers = [_topic(data, call, node) for data in call.body.topic_data]
    if call.body.acks != 0:
        return {"responses": answers}
    failed = [p for answer in answers for p in answer["partition_responses"] if p["error_code"]]
    if failed:
        raise HangUp(f"a batch sent with acks=0 was refused: {failed[0]['error_message']}")
    return None


def _topic(data: Any, call: Call, node: Node) -> Message:
    name, topic_id = getattr(data, "name", None), getattr(data, "topic_id", None)
    topic: Topic | BrokerError
    try:
        topic = node.topic(name, topic_id)
    except BrokerError as error:
        topic = error
    parts = [_partition(part, topic, call, node) for part in data.partition_data]
    return {"name": name, "topic_id": topic_id, "partition_responses": parts}


def _partition(part: Any, topic: Topic | BrokerError, call: Call, node: Node) -> Message:
    try:
        return {"index": part.index, "error_code": 0, **_append(part, topic, call, node)}
    except BrokerError as error:
        return {
            "index": part.index,
            "error_code": error.code,
            "base_offset": -1,
            "error_message": str(error),
        }


def _append(part: Any, topic: Topic | BrokerError, call: Call, node: Node) -> Message:
    if isinstance(topic, BrokerError):
        raise topic
    if topic.is_internal:
        raise BrokerError(ErrorCode.invalid_topic_exception, f"{topic.name} is the broker's own")
    log = node.partition(topic, part.index)
    if call.body.acks not in _ACKS:
        raise BrokerError(ErrorCode.invalid_required_acks, f"acks={call.body.acks}")
    now_ms = node.clock.wall_ms()
    header = check_batch(part.records, call.version, log.config, now_ms)
    records = part.records
    if log.config.compacts:
        check_keys(header, records, log.config)
    if log.config.message_timestamp_type == "LogAppendTime":
        header, records = stamp(header, records, now_ms)
    if header.is_transactional:
        guard = _guard(header, log, call, node)
        appended = log.append(header, records, guard, from_zero=call.version >= _FIRST_THAT_ADDS)
    else:
        appended = log.append(header, records)
    node.purgatory.wake(log.where)
    return {
        "base_offset": appended.base_offset,
        "log_append_time": now_ms if header.is_log_append_time else appended.log_append_time,
        "log_start_offset": appended.log_start_offset,
    }


def _guard(
    header: BatchHeader, log: PartitionLog, call: Call, node: Node
) -> VerificationGuard | None:
    """The coordinator says that the transaction is open, unless it has a batch here already."""
    name = call.body.transactional_id
    if name is None:
        raise BrokerError(
            ErrorCode.transactional_id_authorization_failed,
            "a transactional batch in a request without a transactional id",
        )
    gate = TransactionGate(
        adds=call.version >= _FIRST_THAT_ADDS,
        knows_abortable=call.version >= _FIRST_WITH_ABORTABLE,
    )
    who = ProducerIdentity(header.producer_id, header.producer_epoch)
    return gate.enter(node, log, name, who)
