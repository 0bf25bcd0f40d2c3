"""The results of a task's rows: acknowledged, rejected by the broker, or invalid."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, get_args

from kprod.bulk.delivery import BulkDelivery
from kprod.config.topic_options import is_topic_name
from kprod.errors import (
    BrokerError,
    ConfigError,
    DeliveryError,
    ErrorCode,
    InvalidTopicError,
    KprodError,
    PartitionError,
)
from kprod.intake.dead_letters import (
    ABOUT_THE_RECORD,
    beginning,
    is_too_large,
    letter_headers,
    reason_of,
)
from kprod.schema.columns.encoded_columns import in_short
from kprod.schema.columns.record_plan import Rows, SendArguments, size_of
from kprod.spark.errors import RowErrorLimitExceeded
from kprod.spark.options import OnRowError
from kprod.spark.python_worker import TaskIdentity, this_task
from kprod.spark.write_result import OffsetRange
from kprod.types import Persisted, TopicPartition
from kprod_ext import SentRecords
from kprod_ext.futures import FutureRecordMetadata


def dead_letter(
    row: SendArguments, error: BaseException, task: TaskIdentity, topic: str
) -> SendArguments:
    """Make the dead letter of a ``row`` that failed with ``error``, to be sent to ``topic``.

    Key, value, headers and timestamp are those of the row. Additional headers, which begin with
    ``kprod.dlq.``, say why the row failed, in which task, and which topic it was meant for. If the
    row is too large, the dead letter has only the beginnings of its key and value, none of its
    headers, and an additional header with the original size.
    """
    wanted, value, key, headers, partition, timestamp = row
    facts: dict[str, Any] = {
        "reason": reason_of(error),
        "message": in_short(error),
        "topic": wanted,
        "partition": partition,
        "timestamp": timestamp,
        "column": _column(error),
        "application": task.application,
        "stage": task.stage,
        "task": task.partition,
        "attempt": task.attempt,
    }
    if is_too_large(error):
        key, value = letter_bytes(key), letter_bytes(value)
        facts["truncated"] = sum(len(data) for data in (key, value) if data is not None)
        value, key, headers = beginning(value), beginning(key), []
    possible = timestamp is not None and 0 <= timestamp < 1 << 62
    headers = [*(headers or ()), *letter_headers(facts)]
    return topic, value, key, headers, None, timestamp if possible else None


class LetterBytes(bytes):
    """Key or value of a dead letter. The application's serializers must not see it."""


def letter_bytes(data: Any) -> LetterBytes | None:
    """Convert to bytes without a serializer: as JSON if it is neither text nor bytes."""
    if data is None:
        return None
    if isinstance(data, bytes | bytearray | memoryview):
        return LetterBytes(data)
    text = data if isinstance(data, str) else json.dumps(data, default=repr, ensure_ascii=False)
    return LetterBytes(text.encode("utf-8", "replace"))


def _column(error: BaseException) -> str:
    """The role of the column that caused the error. If the error does not say, it is "value"."""
    if isinstance(error, PartitionError):
        return "partition"
    if isinstance(error, InvalidTopicError):
        return "topic"
    said = str(error)
    named = ("timestamp", "header", "topic", "key")
    return next((name for name in named if f"its {name}" in said or f"no {name}" in said), "value")


REFUSED_CODES = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD}
)
"""Error codes for an invalid record: a retry cannot succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPolicy:
    """What to do with an invalid row.

    ``on_row_error`` is "fail" (the task fails), "skip" (the row is counted) or "dead_letter" (the
    row is sent to ``dead_letter_topic``). A task also fails if it has more than ``most`` such rows;
    None means no limit. Immutable.
    """

    on_row_error: OnRowError = "fail"
    dead_letter_topic: str | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        if self.on_row_error not in get_args(OnRowError):
            raise ConfigError(
                f"on_row_error: expected one of {list(get_args(OnRowError))};"
                f" got {self.on_row_error!r}"
            )
        if (self.on_row_error == "dead_letter") is not (self.dead_letter_topic is not None):
            raise ConfigError('on_row_error="dead_letter" and dead_letter_topic require each other')
        topic: Any = self.dead_letter_topic
        most: Any = self.most
        if topic is not None and not (isinstance(topic, str) and is_topic_name(topic)):
            raise ConfigError(f"dead_letter_topic: {topic!r} is not a valid topic name")
        if most is not None and (type(most) is not int or most < 0):
            raise ConfigError(
                f"max_row_errors: expected a whole number of at least 0, or None; got {most!r}"
            )


def policy_of(options: Mapping[str, Any]) -> RowPolicy:
    """The policy that a writer's options describe. Raises ConfigError."""
    return RowPolicy(
        on_row_error=options.get("on_row_error", "fail"),
        dead_letter_topic=options.get("dead_letter_topic"),
        most=options.get("max_row_errors"),
    )


def is_about_the_record(error: BaseException | None) -> bool:
    """Whether the record itself caused the error, so that a retry cannot succeed."""
    if isinstance(error, BrokerError):
        return error.code in REFUSED_CODES
    return isinstance(error, ABOUT_THE_RECORD)


MOST_REASONS = 10


class RejectedRows:
    """Counts invalid rows, and sends them to the dead-letter topic, if any. For one thread only."""

    def __init__(self, policy: RowPolicy, send: Callable[..., Any]) -> None:
        """``send`` sends a dead letter; it has the parameters of ``KafkaProducer.send``."""
        self.skipped = 0
        self.dead_letters = 0
        self._policy = policy
        self._send = send
        self._reasons: Counter[str] = Counter()

    def take(self, row: SendArguments, error: BaseException) -> None:
        """Apply the policy to the row. Raises RowErrorLimitExceeded after too many such rows."""
        kind, said = type(error).__name__, in_short(error)
        self._reasons[f"{kind}: {said}" if len(self._reasons) < MOST_REASONS else kind] += 1
        topic = self._policy.dead_letter_topic
        if topic is None:
            self.skipped += 1
        else:
            self._send(*dead_letter(row, error, this_task(), topic))
            self.dead_letters += 1
        most = self._policy.most
        if most is not None and self.skipped + self.dead_letters > most:
            raise RowErrorLimitExceeded(
                f"more than {most:,} rows of this task are invalid; the last: {said}"
            ) from error

    def figures(self) -> dict[str, Any]:
        """The fields of a ``PartitionReport`` about invalid rows."""
        numbers = {"skipped": self.skipped, "dead_letters": self.dead_letters}
        return {**numbers, "reasons": list(self._reasons)}


KEPT_BYTES = 32 << 20  # of rows that may still be refused; then wait for the oldest
LOOK_EVERY = 256  # records sent between two checks of the oldest; no bulk call counts as more
MOST_PENDING = 65_536  # records held at most: then wait for the oldest

Refused: TypeAlias = Callable[[SendArguments, KprodError], bool]
"""Handles a row that was not stored. Returns False if its error must fail the task."""


class _Sent(NamedTuple):
    """One record, or the records of a bulk call. Their keys and values have ``nbytes``."""

    handle: FutureRecordMetadata | BulkDelivery
    nbytes: int
    rows: Rows | SendArguments | None
    kept: int  # bytes of ``rows``
    weight: int


class Acknowledgements:
    """Collects results of futures and bulk calls in the order of sending, and then drops them.

    At most ``MOST_PENDING`` futures are kept, however many records a task sends. A bulk call counts
    as at most ``LOOK_EVERY`` futures. The first failed record raises, unless ``refused`` is given
    and handles the record. For ``refused``, up to ``KEPT_BYTES`` of rows are kept until they have a
    result. For one thread only, the task's.
    """

    def __init__(self, timeout: float, refused: Refused | None = None) -> None:
        """``timeout`` is the maximum time in seconds to wait for the oldest record's result."""
        self.records = 0
        self.bytes = 0
        self.sent = 0  # whatever became of them
        self._calls = 0  # of ``expect``
        self._unseen = 0  # since the last look
        self._held = 0  # that are pending
        self._kept = 0  # bytes of rows
        self._is_settling = False
        self._timeout = timeout
        self._refused = refused
        self._pending: deque[_Sent] = deque()
        self._ranges: dict[TopicPartition, list[int]] = {}  # first, last, records

    def expect(
        self,
        handle: FutureRecordMetadata | BulkDelivery,
        rows: Rows | SendArguments | None = None,
        nbytes: int = 0,
    ) -> None:
        """Add a record, or a bulk call whose keys and values have ``nbytes``.

        ``rows`` are the rows that the record or call was made of; ``refused`` may need them. Raises
        DeliveryError if an earlier record has failed.
        """
        kept = 0
        if self._refused is None:
            rows = None
        elif rows is not None:
            kept = rows.nbytes if isinstance(rows, Rows) else size_of(rows[1], rows[2])
        self._kept += kept
        records = 1 if isinstance(handle, FutureRecordMetadata) else len(handle)
        weight = min(records, LOOK_EVERY)
        self._pending.append(_Sent(handle, nbytes, rows, kept, weight))
        self.sent += records
        self._calls += 1
        self._held += weight
        self._unseen += weight
        if self._is_settling:
            # A call is being settled, and this row of it is sent again. The call is the oldest one
            # until all its rows are: to settle from here would send each of them once more.
            return
        if self._unseen >= LOOK_EVERY or self._kept > KEPT_BYTES:
            self._unseen = 0
            self._settle_done()
            while self._held >= MOST_PENDING or (
                self._kept > KEPT_BYTES and len(self._pending) > 1
            ):
                self._wait_for_oldest()

    def finish(self, flush: Callable[[], None] = lambda: None) -> None:
        """Collect all remaining results, after calling ``flush`` to wait for them.

        Raises DeliveryError unless every record was acknowledged, or handled by ``refused``.
        """
        flush()
        while self._settle_done():
            flush()  # what was sent again
        if self._pending:
            raise self._failure()

    def ranges(self) -> list[OffsetRange]:
        """The ranges of offsets acknowledged so far, by topic and partition."""
        return [
            OffsetRange(topic=tp.topic, partition=tp.partition, first=f, last=last, records=n)
            for tp, (f, last, n) in sorted(self._ranges.items())
        ]

    def _settle_done(self) -> bool:
        """Collect available results, in order; return whether any record was sent again."""
        calls, self._is_settling = self._calls, True
        try:
            while self._pending and self._pending[0].handle.is_done:
                self._settle(self._pending[0])
                done = self._pending.popleft()
                self._held -= done.weight
                self._kept -= done.kept
        finally:
            self._is_settling = False
        return self._calls > calls

    def _settle(self, sent: _Sent) -> None:
        handle, nbytes, rows, *_ = sent
        if isinstance(handle, FutureRecordMetadata):
            metadata = handle.value
            if metadata is None:
                self._think_again(handle.exception, rows, 0)
            else:
                self.bytes += max(0, metadata.serialized_key_size)
                self.bytes += max(0, metadata.serialized_value_size)
                self._count(metadata.topic_partition, metadata.offset, metadata.offset, 1)
            return
        if not handle.progress().failed:
            for tp, found in handle.get(0).offsets.items():
                self._count(tp, found.first, found.last, found.records)
        else:
            for number, outcome in enumerate(handle):
                if isinstance(outcome, KprodError):
                    nbytes -= self._think_again(outcome, rows, number)
                elif outcome is not None:
                    self._count(outcome.topic_partition, outcome.offset, outcome.offset, 1)
        self.bytes += nbytes

    def _think_again(
        self, error: BaseException | None, rows: Rows | SendArguments | None, at: int
    ) -> int:
        """Let ``refused`` handle a failed row; return the row's bytes.

        Raises DeliveryError if ``refused`` does not handle the row.
        """
        if self._refused is None or rows is None or not isinstance(error, KprodError):
            raise self._failure()
        row = rows.arguments(at) if isinstance(rows, Rows) else rows
        if not self._refused(row, error):
            raise self._failure()
        self.sent -= 1  # it is counted where it went
        return size_of(row[1], row[2])

    def _wait_for_oldest(self) -> None:
        oldest = self._pending[0]
        with suppress(KprodError):  # what became of it is read from its state
            oldest.handle.get(self._timeout)
        self._settle_done()
        if self._pending and self._pending[0] is oldest:
            raise self._failure()

    def _count(self, tp: TopicPartition, first: int, last: int, records: int) -> None:
        self.records += records
        seen = self._ranges.get(tp)
        if seen is None:
            self._ranges[tp] = [first, last, records]
            return
        seen[2] += records
        if first >= 0:
            seen[0] = min(seen[0], first) if seen[0] >= 0 else first
            seen[1] = max(seen[1], last)

    def _failure(self) -> DeliveryError:
        """The error for the results known so far. The task fails without waiting for the rest."""
        # Each is read once: the sender continues meanwhile.
        known = [_as_call(handle).progress() for handle, *_ in self._pending]
        failures = [one.failure for one in known if one.failure is not None]
        failed = sum(one.failed for one in known)
        unknown = sum(one.pending for one in known)
        acknowledged = self.sent - failed - unknown
        places = [one.topic_partition for one in failures] + [one.waits_for for one in known]
        place = next(filter(None, places), None)
        cause, why = None, f"no outcome after {self._timeout:g} s"
        if failures:
            cause = failures[0].__cause__
            why = f"{type(cause).__name__}: {cause}"
        error = DeliveryError(
            f"{failed:,} of {self.sent:,} records failed, {unknown:,} have no outcome yet,"
            f" {acknowledged:,} were acknowledged; {f'first: {place}: ' if place else ''}{why}",
            acknowledged=acknowledged,
            failed=failed,
            pending=unknown,
            topic_partition=place,
        )
        error.__cause__ = cause
        if unknown or any(one.persisted is Persisted.MAYBE for one in failures):
            error.persisted = Persisted.MAYBE
        return error


def _as_call(handle: FutureRecordMetadata | BulkDelivery) -> BulkDelivery:
    """The handle of a bulk call. A single record is one, too."""
    if isinstance(handle, BulkDelivery):
        return handle
    sent = SentRecords()
    sent.add(handle.delivery, handle.index)
    return BulkDelivery(sent)
