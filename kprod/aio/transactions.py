"""The transactional calls for asyncio: each waits in a thread of its own, never in the loop"""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Any, Self

from kprod.aio.queueing import Queueing
from kprod.transactional.group_offsets import Offsets
from kprod.transactional.transaction_calls import Transaction


class AsyncTransaction:
    """One transaction for ``async with``: committed at the end, aborted by any exception.

    ``outcome`` as that of ``kprod.Transaction``. A task that is cancelled in the block aborts it.
    """

    def __init__(self, queueing: Queueing, transaction: Transaction) -> None:
        self._queueing = queueing
        self._transaction = transaction

    @property
    def outcome(self) -> str | None:
        """``"committed"``, ``"aborted"`` or ``"unknown"``; None before the end of the block."""
        return self._transaction.outcome

    async def send_offsets(self, offsets: Offsets, group_metadata: Any) -> None:
        """See ``KafkaProducer.send_offsets_to_transaction``."""
        send = partial(self._transaction.send_offsets, offsets, group_metadata)
        await self._queueing.elsewhere(send, "offsets")

    async def __aenter__(self) -> Self:
        await self._queueing.elsewhere(self._transaction.__enter__, "begin")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        end = partial(self._transaction.__exit__, kind, error, traceback)
        await self._queueing.elsewhere(end, "end")


class AsyncTransactionCalls:
    """Part of ``Producer``: see ``kprod.KafkaProducer`` for what each call does and raises.

    A ``timeout`` is seconds, None for ``max_block_ms``. Cancelling a task ends its wait and nothing
    else: as after a timeout, the same call is to be made again.
    """

    _queueing: Queueing
    _max_block: float

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Ask the coordinator for a producer id: once, before the first transaction."""
        await self._elsewhere("init_transactions", self._seconds(timeout))

    async def begin_transaction(self) -> None:
        """Begin a transaction; nothing is sent for that, and nothing waited for."""
        self._queueing.native.begin_transaction()

    async def send_offsets_to_transaction(
        self, offsets: Offsets, group_metadata: Any, timeout: float | None = None
    ) -> None:
        """Let a consumer group's offsets move with the transaction: both, or neither."""
        seconds = self._seconds(timeout)
        await self._elsewhere("send_offsets_to_transaction", offsets, group_metadata, seconds)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Send what is queued, and commit: every record becomes visible, and offsets move."""
        await self._elsewhere("commit_transaction", self._seconds(timeout))

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Give up the transaction: no reader of committed records ever sees one of it."""
        await self._elsewhere("abort_transaction", self._seconds(timeout))

    def transaction(self, timeout: float | None = None) -> AsyncTransaction:
        """A transaction for ``async with``; ``init_transactions`` is called if it was not."""
        transaction = self._queueing.native.transaction(self._seconds(timeout))
        return AsyncTransaction(self._queueing, transaction)

    def _seconds(self, timeout: float | None) -> float:
        return self._max_block if timeout is None else timeout

    async def _elsewhere(self, call: str, *arguments: Any) -> None:
        made = partial(getattr(self._queueing.native, call), *arguments)
        await self._queueing.elsewhere(made, call)
