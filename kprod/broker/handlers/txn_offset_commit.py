"""TxnOffsetCommit (28): how far a group has come, if the transaction is committed."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.groups.offsets_topic import OffsetsTransaction
from kprod.broker.handlers.offset_commit import offsets_answer, offsets_in
from kprod.broker.handlers.transaction_answers import TransactionGate
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.transactions.transaction_rules import ProducerIdentity
from kprod.errors import BrokerError
from kprod.types import TopicPartition

_FIRST_WITH_ABORTABLE: Final = 4
_FIRST_THAT_ADDS: Final = 5
_UNAVAILABLE: Final = ErrorCode.coordinator_not_available


def txn_offset_commit(call: Call, node: Node) -> Message:
    """The offsets are pending until the marker; the group's coordinator answers, not the other."""
    wanted = offsets_in(call)
    known = {where: values for where, values in wanted.items() if node.has_partition(where)}
    errors: dict[TopicPartition, int] = dict.fromkeys(wanted, ErrorCode.unknown_topic_or_partition)
    try:
        if known:
            errors.update(_commit(call, node, known))
    except BrokerError as error:
        busy = error.code == ErrorCode.not_enough_replicas
        errors.update(dict.fromkeys(known, _UNAVAILABLE if busy else error.code))
    return offsets_answer(call, errors)


def _commit(
    call: Call, node: Node, offsets: dict[TopicPartition, tuple[int, int, str]]
) -> dict[TopicPartition, ErrorCode]:
    body = call.body
    node.check_coordinates(body.group_id)
    gate = TransactionGate(
        adds=call.version >= _FIRST_THAT_ADDS,
        knows_abortable=call.version >= _FIRST_WITH_ABORTABLE,
    )
    who = ProducerIdentity(body.producer_id, body.producer_epoch)
    log = node.groups.offsets_log_of(body.group_id)
    guard = gate.enter(node, log, body.transactional_id, who)
    return node.groups.commit(
        body.group_id,
        offsets,
        member_id=getattr(body, "member_id", ""),
        instance_id=getattr(body, "group_instance_id", None),
        generation=getattr(body, "generation_id", -1),
        transaction=OffsetsTransaction(*who, guard),
    )
