"""CreatePartitions (37)."""

from __future__ import annotations

from typing import Any

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.topics import check_request
from kprod.errors import BrokerError


def create_partitions(call: Call, node: Node) -> Message:
    """Each topic gets the number of partitions asked for, or is refused for itself.

    All of them are refused where they get too many together.
    """
    total = sum(_added(wanted, node) for wanted in call.body.topics)
    return {"results": [_extend(wanted, total, call, node) for wanted in call.body.topics]}


def _added(wanted: Any, node: Node) -> int:
    known = node.topics.find(wanted.name)
    return 0 if known is None else max(0, wanted.count - len(known.partitions))


def _extend(wanted: Any, total: int, call: Call, node: Node) -> Message:
    try:
        check_request(total)
        if call.body.validate_only:
            node.topics.check_extension(wanted.name, wanted.count)
        else:
            node.topics.extend(wanted.name, wanted.count)
    except BrokerError as error:
        return {"name": wanted.name, "error_code": error.code, "error_message": str(error)}
    return {"name": wanted.name, "error_message": None}
