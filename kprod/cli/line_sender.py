"""Sends line records and keeps the account of what became of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kprod.cli.line_records import LineRecord, NoKeyError
from kprod.errors import KprodError, RecordTooLargeError

if TYPE_CHECKING:
    from kprod.producer import KafkaProducer
    from kprod.types import Header

MOST_COMPLAINTS = 10  # failures told one by one; the rest is only counted


class LineSender:
    """Sends to one topic. Thread: the caller's; outcomes are noted in the producer's."""

    def __init__(
        self,
        producer: KafkaProducer,
        topic: str,
        *,
        partition: int | None,
        headers: list[Header],
        complain: Callable[[str], object],
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._headers = headers
        self._complain = complain
        self._lock = threading.Lock()  # guards the one below: two threads count
        self._failed = 0

    @property
    def failed(self) -> int:
        """Lines known not to be delivered."""
        return self._failed

    def send_all(self, records: Iterable[LineRecord | NoKeyError]) -> None:
        """Send until the input ends. Raises KprodError when nothing at all can be sent any more."""
        for record in records:
            if isinstance(record, NoKeyError):
                self._fail(str(record))
            else:
                self._send(record)

    def _send(self, record: LineRecord) -> None:
        where = f"line {record.number}"
        try:
            future = self._producer.send(
                self._topic, record.value, record.key, self._headers, self._partition
            )
        except RecordTooLargeError as error:  # this line's fault: the next one may do
            self._fail(f"{where}: {error}")
        except KprodError as error:
            self._fail(f"{where}: {error}")
            raise
        else:
            future.add_errback(lambda error: self._fail(f"{where}: {error}"))

    def _fail(self, complaint: str) -> None:
        with self._lock:
            self._failed += 1
            number = self._failed
        if number <= MOST_COMPLAINTS:
            self._complain(complaint)
        if number == MOST_COMPLAINTS:
            self._complain("further failures are only counted")
