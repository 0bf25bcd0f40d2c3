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
    """Sends to one topic. Thread: the caller's; failures are told in the producer's, too."""

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
        self.refused = 0
        """Lines that never came into the producer; its own report counts those that did."""
        self._lock = threading.Lock()  # guards the one below: two threads complain
        self._complaints = 0

    def send_all(self, records: Iterable[LineRecord | NoKeyError]) -> None:
        """Send until the input ends. Raises KprodError when nothing at all can be sent any more."""
        for record in records:
            if isinstance(record, NoKeyError):
                self._refuse(str(record))
            else:
                self._send(record)

    def _send(self, record: LineRecord) -> None:
        where = f"line {record.number}"
        try:
            future = self._producer.send(
                self._topic, record.value, record.key, self._headers, self._partition
            )
        except RecordTooLargeError as error:  # this line's fault: the next one may do
            self._refuse(f"{where}: {error}")
        except KprodError as error:
            self._refuse(f"{where}: {error}")
            raise
        else:
            future.add_errback(lambda error: self._tell(f"{where}: {error}"))

    def _refuse(self, complaint: str) -> None:
        self.refused += 1
        self._tell(complaint)

    def _tell(self, complaint: str) -> None:
        with self._lock:
            self._complaints += 1
            number = self._complaints
        if number <= MOST_COMPLAINTS:
            self._complain(complaint)
        if number == MOST_COMPLAINTS:
            self._complain("further failures are only counted")
