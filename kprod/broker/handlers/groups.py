"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup (11, 14, 12, 13): there are no groups here.

All say "not authorized for this group": the one code that every client reports at once instead
of trying again. Consumers assign partitions themselves.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node

_NO_GROUPS: Final[Message] = {"error_code": ErrorCode.group_authorization_failed}


def join_group(call: Call, node: Node) -> Message:
    """Refused."""
    return {**_NO_GROUPS, "generation_id": -1, "member_id": call.body.member_id}


def sync_group(call: Call, node: Node) -> Message:
    """Refused."""
    return _NO_GROUPS


def heartbeat(call: Call, node: Node) -> Message:
    """Refused."""
    return _NO_GROUPS


def leave_group(call: Call, node: Node) -> Message:
    """Refused."""
    return _NO_GROUPS
