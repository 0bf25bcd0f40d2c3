"""A transaction that is prepared: all that another process needs to end it."""

from __future__ import annotations

from typing import NamedTuple, Self

from kprod.errors import InvalidRecordError


class PreparedTransaction(NamedTuple):
    """The transactional id, and the producer id and epoch the coordinator knows its producer by."""

    transactional_id: str
    producer_id: int
    epoch: int

    def __str__(self) -> str:
        """For a log or a checkpoint; ``parse`` reads it."""
        return f"{self.producer_id}:{self.epoch}:{self.transactional_id}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """What ``str`` has made of one. Raises InvalidRecordError."""
        producer_id, _, rest = text.partition(":")
        epoch, _, transactional_id = rest.partition(":")
        if not (producer_id.isdigit() and epoch.isdigit() and transactional_id):
            raise InvalidRecordError(f"{text!r} is not a prepared transaction")
        return cls(transactional_id, int(producer_id), int(epoch))
