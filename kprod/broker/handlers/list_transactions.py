"""ListTransactions (66)."""

from __future__ import annotations

import re
from typing import Any

from kio.schema.errors import ErrorCode

from kprod.broker.call import Call
from kprod.broker.messages import Message
from kprod.broker.node import Node
from kprod.broker.transactions.transaction import Transaction, TransactionState

_STATES = {state.spelled for state in TransactionState}


def list_transactions(call: Call, node: Node) -> Message:
    """Those this node coordinates, of certain states, producers, ages and names if asked for.

    128 for a pattern of names that is none.
    """
    try:
        names = re.compile(getattr(call.body, "transactional_id_pattern", None) or "")
    except re.error:
        return {"error_code": ErrorCode.invalid_regular_expression}
    now_ms = node.clock.wall_ms()
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
            if node.coordinates_transaction(found.transactional_id)
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
