"""The rows of one task that no topic takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from kprod.spark.dead_letter import dead_letter
from kprod.spark.errors import RowErrorLimitExceeded
from kprod.spark.record_shapes import SendArguments
from kprod.spark.row_policy import RowPolicy
from kprod.spark.task_identity import this_task

MOST_REASONS = 10


class RejectedRows:
    """Counts them, and sends them to the dead-letter topic where there is one. Thread: one."""

    def __init__(self, policy: RowPolicy, send: Callable[..., Any]) -> None:
        """``send`` sends a dead letter, given the arguments of ``KafkaProducer.send``."""
        self.skipped = 0
        self.dead_letters = 0
        self._policy = policy
        self._send = send
        self._reasons: Counter[str] = Counter()

    def take(self, row: SendArguments, error: BaseException) -> None:
        """Do with the row what the policy says. Raises RowErrorLimitExceeded beyond its limit."""
        kind = type(error).__name__
        self._reasons[f"{kind}: {error}" if len(self._reasons) < MOST_REASONS else kind] += 1
        topic = self._policy.dead_letter_topic
        if topic is None:
            self.skipped += 1
        else:
            self._send(*dead_letter(row, error, this_task(), topic))
            self.dead_letters += 1
        most = self._policy.most
        if most is not None and self.skipped + self.dead_letters > most:
            raise RowErrorLimitExceeded(
                f"more than {most:,} rows of this task are no records; the last: {error}"
            ) from error

    def reasons(self) -> list[str]:
        """The first of them, in words, and after those their kinds."""
        return list(self._reasons)
