"""Dead letters: records that failed permanently, written to a separate topic with the reason."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Any, Protocol

from kprod.errors import (
    BrokerError,
    ErrorCode,
    InvalidRecordError,
    InvalidTopicError,
    KprodError,
    PartitionError,
    RecordTooLargeError,
    RecordTypeError,
    TransactionAbortedError,
)
from kprod.latch import Latch
from kprod.lock import Lock
from kprod.types import Header, Persisted, ProducerRecord, owned
from kprod_ext import RecordClock

_log = logging.getLogger("kprod.intake.dead_letters")

PREFIX = "kprod.dlq."
EXCERPT = 16_384
"""Bytes that are kept of a key or value that is too large to be stored in any topic."""
MOST_WAITING = 10_000
"""Maximum number of letters that wait to be sent. Further ones are lost, and counted as lost."""

CLOSED = "the producer was closed"

ABOUT_THE_RECORD = (
    InvalidRecordError,
    InvalidTopicError,
    PartitionError,
    RecordTooLargeError,
    RecordTypeError,
)
"""Errors of ``send`` that are caused by the record, so that sending it again would not help."""


class Counts(Protocol):
    """Counts letters. Any thread."""

    def dead_letter(self, stored: bool) -> None: ...


class DeadLetters:
    """Sends the dead letters of one producer, with a separate producer in a separate thread.

    So neither callbacks nor event loops wait for the topic, and letters are never part of a
    transaction. ``make_producer`` is called for the first letter. That producer has no dead
    letters, so a letter that fails is lost and does not create another one. ``close`` waits at most
    ``seconds`` for letters to be sent. Thread-safe.
    """

    def __init__(
        self,
        topic: str,
        make_producer: Callable[[], Any],
        counts: Counts,
        name: str,
        seconds: float,
    ) -> None:
        self._topic = topic
        self._make_producer = make_producer
        self._counts = counts
        self._name = name
        self._seconds = seconds
        self._clock = RecordClock()
        self._waiting: SimpleQueue[Any] = SimpleQueue()
        self._starting = Lock()  # guards the next two, and putting while the thread may end
        self._thread: threading.Thread | None = None
        self._ended = False  # True: no thread takes what is put
        self._ending = False  # True: letters that still wait have no time left

    def refused(self, record: ProducerRecord, error: BaseException) -> None:
        """Send a letter for a record that ``send`` rejects, if the error is about the record.

        After other errors, the application can send the record again.
        """
        if isinstance(error, ABOUT_THE_RECORD):
            self.failed(record, error)

    def failed(self, record: ProducerRecord, error: BaseException) -> None:
        """Queue a letter for a record that was not, or may not have been, stored. Does not wait."""
        if record.topic == self._topic or isinstance(error, TransactionAbortedError):
            return
        if self._waiting.qsize() >= MOST_WAITING:
            self._lost(BufferError(f"{MOST_WAITING} others wait"))
            return
        try:  # now: what the application gave may change until it is sent
            made = letter(record, error, self._clock.wall_ms(), self._topic)
        except Exception as failure:
            self._lost(failure)
            return
        with self._starting:
            ended = self._ended
            if not ended:
                self._waiting.put(made)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        if ended:
            self._lost(TimeoutError(CLOSED))

    def flush(self, timeout: float | None) -> bool:
        """Wait until every letter so far has its result.

        Returns False after ``timeout`` seconds.
        """
        done = Latch()
        with self._starting:
            if self._thread is None or self._ended:
                return True
            self._waiting.put(done)
        return done.wait(timeout)

    def close(self) -> None:
        """Send the waiting letters, and end the thread."""
        with self._starting:
            thread = self._thread
        if thread is None:
            return
        self._waiting.put(None)
        thread.join(self._seconds)
        self._ending = True

    def _run(self) -> None:
        producer = None
        while (item := self._waiting.get()) is not None:
            if isinstance(item, Latch):
                _flush(producer)
                item.open()
            elif self._ending:
                self._lost(TimeoutError(CLOSED))
            else:
                producer = self._send(producer, item)
        if producer is not None:
            producer.close(self._seconds)
        with self._starting:
            self._ended = True
        while not self._waiting.empty():  # what was put behind the end
            item = self._waiting.get()
            if isinstance(item, Latch):
                item.open()
            elif item is not None:
                self._lost(TimeoutError(CLOSED))

    def _send(self, producer: Any, made: tuple[Any, ...]) -> Any:
        """Send one letter. Returns the producer, after creating it if necessary."""
        try:
            producer = producer or self._make_producer()
            try:
                future = producer.send(*made)
            except RecordTooLargeError:  # together with what the letter says
                future = producer.send(*shortened(*made))
            future.add_callback(lambda _: self._counts.dead_letter(True))
            future.add_errback(self._lost)
        except Exception as failure:
            self._lost(failure)
        return producer

    def _lost(self, failure: BaseException) -> None:
        self._counts.dead_letter(False)
        _log.error("a dead letter for topic %r was lost: %s", self._topic, failure)


def _flush(producer: Any) -> None:
    if producer is not None:
        try:
            producer.flush()
        except KprodError as error:
            _log.error("dead letters were not flushed: %s", error)


def letter(
    record: ProducerRecord, error: BaseException, moment: int, topic: str
) -> tuple[Any, ...]:
    """The arguments of ``send`` for a record that failed at ``moment`` (ms since 1970).

    Key, value, headers and timestamp are those of the record; a key or value that is not bytes is
    converted to JSON. Additional headers that begin with ``kprod.dlq.`` describe the failure.
    """
    key, value = _as_bytes(record.key), _as_bytes(record.value)
    headers: tuple[Header, ...] = tuple(record.headers)
    details: dict[str, Any] = {
        "reason": reason_of(error),
        "message": error,
        "topic": record.topic,
        "partition": record.partition,
        "timestamp": record.timestamp_ms,
        "time": moment,
    }
    if getattr(error, "persisted", Persisted.NO) is Persisted.MAYBE:
        details["persisted"] = "maybe"
    if is_too_large(error):
        details["truncated"] = sum(len(data) for data in (key, value) if data is not None)
        key, value, headers = beginning(key), beginning(value), ()
    headers = (*headers, *letter_headers(details))
    return topic, owned(value), owned(key), headers, None, record.timestamp_ms


def shortened(
    topic: str, value: bytes | None, key: bytes | None, headers: Iterable[Header], *others: Any
) -> tuple[Any, ...]:
    """The arguments of ``send`` for a letter that would be too large, shortened."""
    size = sum(len(data) for data in (key, value) if data is not None)
    kept = [(name, beginning(said)) for name, said in headers if name.startswith(PREFIX)]
    kept += letter_headers({"truncated": size})
    return topic, beginning(value), beginning(key), kept, *others


def letter_headers(details: dict[str, Any]) -> Iterator[Header]:
    """The headers of a letter that describe its record; None and empty texts are omitted."""
    for name, what in details.items():
        if what not in (None, ""):
            yield f"{PREFIX}{name}", _text(str(what))


def reason_of(error: BaseException) -> str:
    """The broker's name for the error, or for other errors the name of their class."""
    return error.name if isinstance(error, BrokerError) else type(error).__name__


def is_too_large(error: BaseException) -> bool:
    """Whether the record was rejected because of its size."""
    refused = isinstance(error, BrokerError) and error.code == ErrorCode.MESSAGE_TOO_LARGE
    return refused or isinstance(error, RecordTooLargeError)


def beginning(data: Any) -> bytes | None:
    """The part of a key or value that a letter keeps if the whole is too large."""
    return None if data is None else bytes(data[:EXCERPT])


def _as_bytes(data: Any) -> Any:
    if data is None or isinstance(data, bytes | bytearray | memoryview):
        return data
    import json  # only for such a record

    try:
        text = json.dumps(data, default=repr, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):  # a key that is no text, an object in itself
        text = json.dumps(repr(data), ensure_ascii=False)
    return _text(text)


def _text(text: str) -> bytes:
    """Encode as UTF-8. Invalid characters are replaced, so the letter is not lost."""
    return text.encode("utf-8", "replace")
