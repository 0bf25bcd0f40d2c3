"""EndTxn (26): commit or abort."""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.handlers.transaction_answers import fencing_code
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.transactions.transaction_rules import ProducerIdentity
from kprod.errors import BrokerError

_FIRST_WITH_FENCED: Final = 2
_FIRST_WITH_EPOCHS: Final = 5
"""Each transaction has an epoch of its own from here on; the answer tells the next (KIP-890)."""


def end_txn(call: Call, node: Node) -> Message:
    """Answered once it is decided for good, which the markers need not be."""
    body = call.body
    who = ProducerIdentity(body.producer_id, body.producer_epoch)
    version = 2 if call.version >= _FIRST_WITH_EPOCHS else 0
    try:
        node.check_coordinates_transaction(body.transactional_id)
        after = node.transactions.end(body.transactional_id, who, body.committed, version)
    except BrokerError as error:
        return {
            "error_code": fencing_code(error.code, call.version, _FIRST_WITH_FENCED),
            "producer_id": -1,
            "producer_epoch": -1,
        }
    return {
        "error_code": ErrorCode.none,
        "producer_id": after.producer_id,
        "producer_epoch": after.producer_epoch,
    }
