"""Interceptors change records and get outcomes; plugins are closed once."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

import pytest

from kprod.errors import KprodError
from kprod.intake.interceptors import Interceptors, close_all
from kprod.types import ProducerRecord, RecordMetadata, TopicPartition
from tests.support.steady_names import steady_repr

RECORD = ProducerRecord("flights", b"value")
STORED = RecordMetadata("flights", 0, TopicPartition("flights", 0), 7, 1, None, -1, 5, 0)
LOGGER = "kprod.intake.interceptors"


class Suffix:
    def __init__(self, suffix: bytes) -> None:
        self.suffix = suffix

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return dataclasses.replace(record, value=record.value + self.suffix)


class Outcomes:
    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_acknowledgement(self, metadata: RecordMetadata) -> None:
        self.events.append(metadata)

    def on_send_error(self, record: ProducerRecord, error: BaseException) -> None:
        self.events.append((record, error))


class Returning:
    def __init__(self, result: Any) -> None:
        self.result = result

    def on_send(self, record: ProducerRecord) -> Any:
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


class Failing(Outcomes):
    def on_acknowledgement(self, metadata: RecordMetadata) -> None:
        raise ValueError("acknowledgement")

    def on_send_error(self, record: ProducerRecord, error: BaseException) -> None:
        raise ValueError("error")


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (ValueError("broken"), "ValueError: broken"),
        (None, "expected a ProducerRecord, got NoneType"),
        (ProducerRecord("no such topic"), "topic: expected 1 to 249"),
        (ProducerRecord("flights", headers=[("a", 1)]), "headers[0]: expected bytes"),  # type: ignore[list-item]
    ],
    ids=steady_repr,
)
def test_a_failing_on_send_is_logged_and_skipped(
    result: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    chain = Interceptors([Suffix(b"1"), Returning(result), Suffix(b"2")])
    assert chain.on_send(RECORD).value == b"value12"
    [logged] = [entry for entry in caplog.records if entry.name == LOGGER]
    assert logged.levelno == logging.ERROR
    assert "Returning.on_send failed; the record goes on as it was" in logged.getMessage()
    assert reason in caplog.text


def test_failing_outcome_hooks_are_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    last = Outcomes()
    chain = Interceptors([Failing(), last])
    chain.on_acknowledgement(STORED)
    chain.on_send_error(RECORD, KprodError("lost"))
    assert len(last.events) == 2
    assert "Failing.on_acknowledgement failed" in caplog.text
    assert "Failing.on_send_error failed" in caplog.text


def test_headers_added_by_on_send_are_copied() -> None:
    buffer = bytearray(b"then")
    with_header = dataclasses.replace(RECORD, headers=[("trace", buffer)])  # type: ignore[list-item]
    changed = Interceptors([Returning(with_header)]).on_send(RECORD)
    buffer[:] = b"now!"
    assert changed.headers == (("trace", b"then"),)


class Resending:
    """Sends from inside its hooks, as for an audit trail or a dead letter topic."""

    def __init__(self) -> None:
        self.send: Callable[[], Any] = lambda: None
        self.calls = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.calls += 1
        self.send()
        return record

    def on_send_error(self, record: ProducerRecord, error: BaseException) -> None:
        self.calls += 1
        self.send()


def test_a_hook_that_sends_is_not_entered_again() -> None:
    """Nor is the failure of a dead letter reported to it."""
    resending = Resending()
    chain = Interceptors([resending])
    resending.send = lambda: chain.on_send(RECORD)
    chain.on_send(RECORD)
    assert resending.calls == 1
    chain.on_send(RECORD)
    assert resending.calls == 2
    resending.send = lambda: chain.on_send_error(RECORD, KprodError("lost again"))
    chain.on_send_error(RECORD, KprodError("lost"))
    assert resending.calls == 3


class SendingHandler(logging.Handler):
    def __init__(self, chain: Interceptors) -> None:
        super().__init__()
        self.chain = chain
        self.sent = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.sent += 1
        self.chain.on_send(RECORD)


def test_a_log_handler_that_sends_causes_no_recursion() -> None:
    chain = Interceptors([Returning(ValueError("broken"))])
    handler = SendingHandler(chain)
    logging.getLogger(LOGGER).addHandler(handler)
    try:
        chain.on_send(RECORD)
    finally:
        logging.getLogger(LOGGER).removeHandler(handler)
    assert handler.sent == 1


class Plugin:
    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.closed = 0

    def close(self) -> None:
        self.closed += 1
        if self.error is not None:
            raise self.error


def test_each_plugin_with_a_close_method_is_closed_once(caplog: pytest.LogCaptureFixture) -> None:
    failing, other = Plugin(ValueError("no")), Plugin()
    without_close = [None, "json", str.encode, Plugin, object(), type("Odd", (), {"close": 5})()]
    close_all([*without_close, failing, other, failing])
    assert (failing.closed, other.closed) == (1, 1)
    (entry,) = caplog.records
    assert "Plugin.close failed" in entry.getMessage()
    assert entry.exc_info is not None
    assert str(entry.exc_info[1]) == "no"
