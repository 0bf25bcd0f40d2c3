"""The transactional calls as aiokafka has them, over kprod's own"""

from __future__ import annotations

import asyncio
from functools import partial
from types import TracebackType
from typing import Any, Self

from kprod.aio.errors import for_aiokafka
from kprod.aio.queueing import Queueing
from kprod.errors import KprodError

MAX_BLOCK = 60.0


class TransactionContext:
    """``async with producer.transaction()``: committed at the end, aborted by any exception."""

    def __init__(self, producer: TransactionCalls) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await self._producer.commit_transaction()
        else:
            await self._producer.abort_transaction()


class TransactionCalls:
    """Part of ``AIOKafkaProducer``; ``start`` has asked for the producer id already."""

    _queueing: Queueing

    async def begin_transaction(self) -> None:
        """Begin a transaction; a task that is cancelled meanwhile has begun none."""
        await asyncio.sleep(0)  # aiokafka's gives the loop a turn as well
        try:
            self._queueing.native.begin_transaction()
        except KprodError as error:
            raise for_aiokafka(error) from error

    async def commit_transaction(self) -> None:
        """Send what is queued, and commit."""
        await self._waits("commit_transaction", MAX_BLOCK)

    async def abort_transaction(self) -> None:
        """Give up the transaction."""
        await self._waits("abort_transaction", MAX_BLOCK)

    async def send_offsets_to_transaction(self, offsets: Any, group_id: str) -> None:
        """Let a group's offsets move with the transaction.

        ``offsets`` maps TopicPartition to an offset, to OffsetAndMetadata, or to both as a tuple.
        Raises IllegalOperation outside a transaction, and ValueError without a group.
        """
        if not group_id:
            await self._waits("send_offsets_to_transaction", {}, "none", MAX_BLOCK)  # in one?
            raise ValueError(f"group_id names no consumer group: {group_id!r}")
        plain = {
            place: offset[0] if type(offset) is tuple else offset
            for place, offset in offsets.items()
        }
        await self._waits("send_offsets_to_transaction", plain, group_id, MAX_BLOCK)

    def transaction(self) -> TransactionContext:
        """A transaction for ``async with``."""
        return TransactionContext(self)

    async def _waits(self, call: str, *arguments: Any) -> None:
        made = partial(getattr(self._queueing.native, call), *arguments)
        try:
            await self._queueing.elsewhere(made, call)
        except KprodError as error:
            raise for_aiokafka(error) from error
