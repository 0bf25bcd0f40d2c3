"""AddOffsetsToTxn (25): a producer says that it is going to commit a group's offsets."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.groups.offsets_topic import OFFSETS_TOPIC
from kprod.broker.handlers.transaction_answers import fencing_code
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.transactions.transaction_rules import ProducerIdentity
from kprod.errors import BrokerError
from kprod.types import TopicPartition

_FIRST_WITH_FENCED: Final = 2


def add_offsets_to_txn(call: Call, node: Node) -> Message:
    """The group's partition of the offsets topic becomes part of the transaction."""
    body = call.body
    where = TopicPartition(OFFSETS_TOPIC, node.groups.partition_of(body.group_id))
    who = ProducerIdentity(body.producer_id, body.producer_epoch)
    try:
        node.check_coordinates_transaction(body.transactional_id)
        node.transactions.add_partitions(body.transactional_id, who, [where])
    except BrokerError as error:
        return {"error_code": fencing_code(error.code, call.version, _FIRST_WITH_FENCED)}
    return {"error_code": ErrorCode.none}
