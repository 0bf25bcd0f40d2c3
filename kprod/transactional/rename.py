"""One producer with several transactional ids, one after the other."""

from __future__ import annotations

from kprod.sender.transactions import Call
from kprod.transactional.transaction_calls import TransactionCalls


def rename(producer: TransactionCalls, transactional_id: str) -> None:
    """Let ``producer`` go on as a new producer with this id. Call ``init_transactions`` next.

    It keeps its connections and what it knows of the cluster, which a new object would have to
    make again. If it has prepared a transaction, the transaction stays prepared. If it is fenced,
    that is logged at INFO, because attempts of an exactly-once job fence each other.
    ``producer.config`` and client telemetry keep the first id. Raises IllegalStateError in a
    transaction, while a call has not ended, and if the producer can only be closed.
    """
    producer._ensure_usable()
    producer._transactional(Call.INIT).rename(transactional_id)
