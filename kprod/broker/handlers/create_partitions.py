"""CreatePartitions (37)."""

from __future__ import annotations

from typing import Any

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.errors import BrokerError


def create_partitions(call: Call, node: Node) -> Message:
    """Each topic gets the number of partitions asked for, or is refused for itself."""
    return {"results": [_extend(wanted, call, node) for wanted in call.body.topics]}


def _extend(wanted: Any, call: Call, node: Node) -> Message:
    try:
        if call.body.validate_only:
            node.topics.check_extension(wanted.name, wanted.count)
        else:
            node.topics.extend(wanted.name, wanted.count)
    except BrokerError as error:
        return {"name": wanted.name, "error_code": error.code, "error_message": str(error)}
    return {"name": wanted.name, "error_message": None}
