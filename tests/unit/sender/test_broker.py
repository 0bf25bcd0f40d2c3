"""One broker's connection: made when asked, given up when too slow, remade after a pause."""

from __future__ import annotations

import logging

import pytest

from kprod.errors import ConnectionLost, KprodError
from kprod.sender.exchange import Buffers
from kprod_ext import BufferPool, PooledBuffer
from tests.support.fake_clock import FakeClock
from tests.support.virtual_backend import VirtualBackend
from tests.unit.sender.broker_rig import REQUEST, BrokerRig
from tests.unit.sender.exchanges import Noted, answer
from tests.unit.sender.raw_server import RawServer

# Failures -----------------------------------------------------------------------------------------


def test_a_refused_connection_is_backed_off_from_longer_and_longer() -> None:
    rig = BrokerRig(None)
    delays = []
    for _ in range(7):
        rig.broker.connect(rig.clock.now)
        rig.poll()
        delays.append(rig.next_event())
        assert not rig.broker.may_connect(rig.clock.now)
        rig.clock.advance(1)
    assert delays == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    assert "broker 7 at host:9092" in str(rig.errors[0])
    assert "Connection refused" in str(rig.errors[0])


@pytest.mark.parametrize("expects_response", [True, False])
def test_a_request_that_succeeds_ends_the_back_off(*, expects_response: bool) -> None:
    rig = BrokerRig(RawServer())
    for _ in range(5):
        rig.connect()
        rig.broker.send(Noted(REQUEST, expects_response=expects_response), rig.clock.now)
        if expects_response:
            rig.transport.deliver(answer(1, b""))
            rig.poll()
        rig.transport.cut()
        rig.poll()
        assert rig.next_event() == pytest.approx(0.05)
        rig.clock.advance(1)


def test_a_handshake_alone_does_not_end_the_back_off() -> None:
    rig = BrokerRig(RawServer())
    delays = []
    for _ in range(3):
        rig.connect()
        rig.transport.cut()
        rig.poll()
        delays.append(rig.next_event())
        rig.clock.advance(1)
    assert delays == pytest.approx([0.05, 0.1, 0.2])


def test_a_name_that_cannot_be_resolved_is_a_failed_attempt() -> None:
    clock = FakeClock()
    rig = BrokerRig(None, VirtualBackend(clock, {}, unresolvable=["host"]))
    rig.broker.connect(rig.clock.now)
    assert not rig.broker.connected
    assert isinstance(rig.errors[0], ConnectionLost)
    assert "cannot resolve" in str(rig.errors[0])


class Lends(Noted):
    """Its bytes are a view of pooled memory; notes whether that was free when it ended."""

    def __init__(self, buffer: PooledBuffer, *, expects_response: bool = True) -> None:
        super().__init__(expects_response=expects_response)
        self.views_at_end: list[int] = []
        self._buffer = buffer

    def encode(self, version: int, correlation_id: int, client_id: str) -> Buffers:
        return [memoryview(self._buffer)]

    def answered(self, version: int, body: memoryview, now: float) -> int:
        self.views_at_end.append(self._buffer.lent)
        return 0

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        self.views_at_end.append(self._buffer.lent)


def test_the_memory_of_what_was_sent_is_free_when_it_ends() -> None:
    rig = BrokerRig(RawServer())
    rig.connect()
    request = Lends(BufferPool(1000, 100).allocate(100, 0), expects_response=False)
    rig.broker.send(request, rig.clock.now)
    assert request.views_at_end == [0]


@pytest.mark.parametrize("failing", [(), ("send",)])
def test_an_error_that_is_kept_does_not_keep_the_memory_of_what_was_sent(
    failing: tuple[str, ...],
) -> None:
    rig = BrokerRig(RawServer())
    rig.connect()
    buffer = BufferPool(1000, 100).allocate(100, 0)
    if failing:
        rig.mistakes.failing = failing
    else:
        rig.transport.cut()
    request = Lends(buffer)
    rig.broker.send(request, rig.clock.now)
    assert request.views_at_end == [0]
    assert len(rig.errors) == 1
    assert buffer.lent == 0


def test_only_a_loss_that_somebody_misses_is_worth_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    rig = BrokerRig(RawServer())
    rig.connect()
    rig.transport.hang_up()
    rig.poll()
    assert caplog.messages == []
    rig.clock.advance(1)
    rig.connect()
    rig.send()
    rig.transport.hang_up()
    rig.poll()
    (message,) = caplog.messages
    assert message.startswith("client: broker 7 at host:9092: the broker closed the connection;")
    rig.clock.advance(1)
    rig.connect()
    assert "broker 7 at host:9092 is connected again after 1 s" in caplog.messages[1]


# A transport that is not ours, and has a mistake in it --------------------------------------------


@pytest.mark.parametrize("call", ["dial", "advance", "send", "receive", "watch"])
def test_a_mistake_in_a_transport_is_a_lost_connection(
    call: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = BrokerRig(RawServer())
    rig.mistakes.failing = [call]
    rig.broker.connect(rig.clock.now)
    rig.poll()
    rig.poll()
    assert not rig.broker.connected
    assert isinstance(rig.errors[0], ConnectionLost)
    assert f"a mistake in {call}" in str(rig.errors[0])
    assert "unexpected failure" in caplog.text
    rig.mistakes.failing = []
    rig.clock.advance(1)
    rig.connect()


@pytest.mark.parametrize("call", ["forget", "close"])
def test_a_mistake_while_closing_still_fails_what_was_carried(call: str) -> None:
    rig = BrokerRig(RawServer())
    rig.connect()
    request = rig.send()
    rig.mistakes.failing = [call]
    rig.transport.cut()
    rig.poll()
    assert request.ends == [("failed", True)]
    assert len(rig.errors) == 1
