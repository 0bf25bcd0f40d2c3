"""InitProducerId (22) to EndTxn (26), DescribeProducers (61) to ListTransactions (66)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kprod.broker.groups.offsets_topic import OFFSETS_TOPIC
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.log.producer_state import VerificationGuard
from kprod.broker.node import Call, Node, or_error
from kprod.broker.protocol.messages import Message
from kprod.broker.transactions.transaction import Transaction, TransactionState
from kprod.broker.transactions.transaction_rules import ProducerIdentity
from kprod.errors import BrokerError
from kprod.types import TopicPartition

_BUSY: Final = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)


def verified(
    node: Node,
    log: PartitionLog,
    transactional_id: str,
    identity: ProducerIdentity,
    *,
    adds: bool,
    knows_abortable: bool,
    busy: ErrorCode = ErrorCode.not_enough_replicas,
) -> VerificationGuard | None:
    """Ask the coordinator whether a partition is part of a transaction; return the guard.

    The log requires the guard with the first batch of the transaction. If the transaction already
    has a batch in the log, the coordinator is not asked, and the result is None.

    With ``adds`` (KIP-890), the coordinator adds the partition to the transaction. Otherwise it
    only checks that the partition is part of it. If the check fails, raises ``BrokerError`` 120 to
    a client that ``knows_abortable``, and 48 to others.

    Error 90 of the coordinator becomes 47, which ends the transaction but not the producer. If the
    coordinator cannot answer now, raises ``busy``, after which every producer repeats the request
    without asking for metadata.
    """
    guard = log.verification(*identity, node.options.clock.wall_ms())
    if guard is None:
        return None
    try:
        if adds:
            node.transactions.add_partitions(transactional_id, identity, [log.where])
        else:
            node.transactions.verify(transactional_id, identity, log.where)
    except BrokerError as error:
        code = error.code
        if code == ErrorCode.producer_fenced:
            # That would be the end of the producer. This one says that of the transaction.
            code = ErrorCode.invalid_producer_epoch
        elif code == ErrorCode.transaction_abortable and not knows_abortable:
            code = ErrorCode.invalid_txn_state
        elif code in _BUSY or (code == ErrorCode.concurrent_transactions and not adds):
            code = busy
        raise BrokerError(code, str(error)) from error
    return guard


@contextmanager
def _fencing(call: Call, first_with_fenced: int) -> Iterator[None]:
    """Raise error 47 instead of 90 for clients that do not know 90 yet (KIP-588)."""
    try:
        yield
    except BrokerError as error:
        if error.code == ErrorCode.producer_fenced and call.version < first_with_fenced:
            raise BrokerError(ErrorCode.invalid_producer_epoch, str(error)) from error
        raise


_FENCED_SINCE_INIT: Final = 4


def init_producer_id(call: Call, node: Node) -> Message:
    """Return a producer id and an epoch.

    With a transactional id, the coordinator chooses the producer id that belongs to it, and the
    next epoch. Without one, the producer id is new and the epoch is 0.
    """
    body = call.body
    has_id = getattr(body, "producer_id", -1) >= 0
    has_epoch = getattr(body, "producer_epoch", -1) >= 0

    def initialize() -> Message:
        if has_id != has_epoch:
            raise BrokerError(ErrorCode.invalid_request)
        if body.transactional_id is None:
            return {"producer_id": node.transactions.take_id(), "producer_epoch": 0}
        present = ProducerIdentity(body.producer_id, body.producer_epoch) if has_id else None
        timeout_ms = round(body.transaction_timeout.total_seconds() * 1000)
        with _fencing(call, _FENCED_SINCE_INIT):
            node.check_coordinates_transaction(body.transactional_id)
            found = node.transactions.initialize(body.transactional_id, timeout_ms, present)
        return {"producer_id": found.producer_id, "producer_epoch": found.producer_epoch}

    return or_error({"producer_id": -1, "producer_epoch": -1}, initialize)


_FIRST_WITH_FENCED: Final = 2


def add_partitions_to_txn(call: Call, node: Node) -> Message:
    """Add partitions to a transaction: all of them or none.

    If one does not exist, its error is 3, and the error of those that exist is 55.
    """
    wanted = [
        (topic.name, [TopicPartition(topic.name, number) for number in topic.partitions])
        for topic in call.body.v3_and_below_topics
    ]
    errors = _add(call, node, [where for _, partitions in wanted for where in partitions])
    results = [
        {
            "name": name,
            "results_by_partition": [
                {"partition_index": where.partition, "partition_error_code": errors[where]}
                for where in partitions
            ],
        }
        for name, partitions in wanted
    ]
    return {"results_by_topic_v3_and_below": results}


def _add(call: Call, node: Node, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
    body = call.body
    absent = [where for where in wanted if not node.has_partition(where)]
    if absent:
        errors: dict[TopicPartition, int] = dict.fromkeys(wanted, ErrorCode.operation_not_attempted)
        return {**errors, **dict.fromkeys(absent, ErrorCode.unknown_topic_or_partition)}
    identity = ProducerIdentity(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
    name = body.v3_and_below_transactional_id
    try:
        with _fencing(call, _FIRST_WITH_FENCED):
            node.check_coordinates_transaction(name)
            node.transactions.add_partitions(name, identity, wanted)
    except BrokerError as error:
        return dict.fromkeys(wanted, error.code)
    return dict.fromkeys(wanted, ErrorCode.none)


def add_offsets_to_txn(call: Call, node: Node) -> Message:
    """Add to the transaction the partition of the offsets topic that stores the group."""
    body = call.body
    where = TopicPartition(OFFSETS_TOPIC, node.groups.partition_of(body.group_id))
    identity = ProducerIdentity(body.producer_id, body.producer_epoch)
    with _fencing(call, _FIRST_WITH_FENCED):
        node.check_coordinates_transaction(body.transactional_id)
        node.transactions.add_partitions(body.transactional_id, identity, [where])
    return {"error_code": ErrorCode.none}


_FIRST_WITH_EPOCHS: Final = 5
"""From this version on each transaction has its own epoch, and the answer the next (KIP-890)."""


def end_txn(call: Call, node: Node) -> Message:
    """End a transaction. When the answer is sent, the decision is stored.

    Some markers may not be written yet.
    """
    body = call.body
    identity = ProducerIdentity(body.producer_id, body.producer_epoch)
    version = 2 if call.version >= _FIRST_WITH_EPOCHS else 0
    with _fencing(call, _FIRST_WITH_FENCED):
        node.check_coordinates_transaction(body.transactional_id)
        after = node.transactions.end(body.transactional_id, identity, body.committed, version)
    return {
        "error_code": ErrorCode.none,
        "producer_id": after.producer_id,
        "producer_epoch": after.producer_epoch,
    }


def describe_producers(call: Call, node: Node) -> Message:
    """Describe the producers that each partition remembers, with their open transactions."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    or_error({"partition_index": index}, _producers, topic.name, index, node)
                    for index in dict.fromkeys(topic.partition_indexes)
                ],
            }
            for topic in dict.fromkeys(call.body.topics)
        ]
    }


def _producers(topic: str, index: int, node: Node) -> Message:
    log = node.partition(node.topic(topic, None), index)
    return {
        "active_producers": [
            {
                "producer_id": producer_id,
                "producer_epoch": entry.epoch,
                "last_sequence": entry.batches[-1].last_sequence if entry.batches else -1,
                "last_timestamp": entry.last_timestamp,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": entry.transaction_start,
            }
            for producer_id, entry in log.producers()
        ],
    }


def describe_transactions(call: Call, node: Node) -> Message:
    """Describe the state of each transactional id.

    The error is 105 for an unknown transactional id, 42 for an empty one.
    """

    def one(name: str) -> Message:
        fields = {"transactional_id": name, "producer_id": 0, "producer_epoch": 0}
        return or_error(fields, _describe, name, node)

    return {"transaction_states": list(map(one, call.body.transactional_ids))}


def _describe(name: str, node: Node) -> Message:
    node.check_coordinates_transaction(name)
    if not name:
        raise BrokerError(ErrorCode.invalid_request)
    found = node.transactions.find(name)
    if found is None:
        raise BrokerError(ErrorCode.transactional_id_not_found)
    topics = groupby(sorted(found.partitions), lambda where: where.topic)
    return {
        "transaction_state": found.state.spelled,
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": found.started_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": [where.partition for where in partitions]}
            for topic, partitions in topics
        ],
    }


_STATES = {state.spelled for state in TransactionState}


def list_transactions(call: Call, node: Node) -> Message:
    """List the transactions that this node coordinates, filtered by state, producer, age and id.

    The error is 128 if the pattern of transactional ids is invalid.
    """
    try:
        names = re.compile(getattr(call.body, "transactional_id_pattern", None) or "")
    except re.error:
        return {"error_code": ErrorCode.invalid_regular_expression}
    now_ms = node.options.clock.wall_ms()
    return {
        "error_code": ErrorCode.none,
        "unknown_state_filters": [s for s in call.body.state_filters if s not in _STATES],
        "transaction_states": [
            {
                "transactional_id": found.transactional_id,
                "producer_id": found.producer_id,
                "transaction_state": found.state.spelled,
            }
            for found in node.transactions.transactions()
            if node.transaction_coordinator(found.transactional_id) == node.node_id
            and _is_wanted(found, call.body, now_ms)
            and (not names.pattern or names.fullmatch(found.transactional_id))
        ],
    }


def _is_wanted(found: Transaction, body: Any, now_ms: int) -> bool:
    at_least_ms = getattr(body, "duration_filter", -1)
    return (
        (not body.producer_id_filters or found.producer_id in body.producer_id_filters)
        and (not body.state_filters or found.state.spelled in body.state_filters)
        and (at_least_ms < 0 or now_ms - found.started_ms > at_least_ms)
    )
