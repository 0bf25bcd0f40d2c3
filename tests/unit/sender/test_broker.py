"""One broker's connection: opened on request, closed at timeouts, reopened after a back-off."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from kprod.errors import ConnectionLost, KprodError
from kprod.security.steps import Begun, InlineSteps, Mechanism, Message, Steps
from kprod.sender.connection import Buffers
from kprod.sender.login import LoginSettings
from kprod.transport.memory import MemoryTransport
from kprod.wire.versions import ApiKey
from kprod_ext import BufferPool, PooledBuffer
from tests.support.fake_clock import FakeClock
from tests.support.scripted_cluster import ScriptedBroker, ScriptedCluster, telling
from tests.support.virtual_backend import VirtualBackend
from tests.unit.sender.broker_rig import REQUEST, BrokerRig
from tests.unit.sender.exchanges import SASL, SETTINGS, RawServer, RecordedExchange, answer, frame


def test_the_back_off_grows_with_each_refused_connection() -> None:
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


@pytest.mark.parametrize(
    ("sent", "delays"),
    [(None, [0.05, 0.1, 0.2]), ("answered", [0.05] * 3), ("not answered", [0.05] * 3)],
)
def test_a_successful_request_resets_the_back_off_and_a_handshake_does_not(
    sent: str | None, delays: list[float]
) -> None:
    rig = BrokerRig(RawServer())
    for delay in delays:
        rig.connect()
        if sent is not None:
            request = RecordedExchange(REQUEST, expects_response=sent == "answered")
            rig.broker.send(request, rig.clock.now)
        if sent == "answered":
            rig.transport.deliver(answer(1, b""))
            rig.poll()
        rig.transport.cut()
        rig.poll()
        assert rig.next_event() == pytest.approx(delay)
        rig.clock.advance(1)


class ViewingExchange(RecordedExchange):
    """Its bytes are a view of pooled memory; records the number of views at its end."""

    def __init__(self, buffer: PooledBuffer, *, expects_response: bool) -> None:
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


@pytest.mark.parametrize("end", ["sent", "the connection is cut", "the transport fails"])
def test_no_view_of_a_request_is_left_when_it_ends(end: str) -> None:
    """Also while its error exists."""
    rig = BrokerRig(RawServer())
    rig.connect()
    buffer = BufferPool(1000, 100).allocate(100, 0)
    memoryview(buffer)[:] = frame(bytes(96))
    if end == "the transport fails":
        rig.mistakes.failing = ["send"]
    elif end == "the connection is cut":
        rig.transport.cut()
    request = ViewingExchange(buffer, expects_response=end != "sent")
    rig.broker.send(request, rig.clock.now)
    assert request.views_at_end == [0]
    assert len(rig.errors) == (end != "sent")
    assert buffer.lent == 0


def test_only_a_connection_lost_with_requests_is_logged(caplog: pytest.LogCaptureFixture) -> None:
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


@pytest.mark.parametrize("call", ["dial", "advance", "send", "receive", "watch"])
def test_a_failing_transport_is_disconnected(call: str, caplog: pytest.LogCaptureFixture) -> None:
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
def test_an_exception_while_closing_still_fails_requests_in_flight(call: str) -> None:
    rig = BrokerRig(RawServer())
    rig.connect()
    request = rig.send()
    rig.mistakes.failing = [call]
    rig.transport.cut()
    rig.poll()
    assert request.ends == [("failed", True)]
    assert len(rig.errors) == 1


class NeverConnects(VirtualBackend):
    """Dials, and the server never accepts."""

    def dial(self, host: str, port: int) -> MemoryTransport:
        transport = super().dial(host, port)
        transport.unwatch()
        return transport


def test_connecting_is_given_up_after_the_setup_timeout_which_doubles_up_to_a_limit() -> None:
    clock = FakeClock()
    rig = BrokerRig(None, NeverConnects(clock, {}))
    for limit in (10, 20, 30, 30):
        rig.broker.connect(rig.clock.now)
        assert rig.next_event() == limit
        rig.pass_time(limit - 0.1)
        assert rig.broker.connected
        rig.pass_time(0.1)
        assert not rig.broker.connected
        assert f"broker 7 at host:9092: not connected after {limit} s" in str(rig.errors[-1])
        rig.clock.advance(1)


def test_the_setup_timeout_covers_the_handshake() -> None:
    rig = BrokerRig(RawServer(handshakes=False))
    rig.broker.connect(rig.clock.now)
    rig.poll()
    assert not rig.broker.can_send
    rig.pass_time(4)
    assert rig.next_event() == 6
    rig.pass_time(6)
    assert not rig.broker.connected
    assert "no answer to ApiVersions within 10 s of connecting" in str(rig.errors[0])


def test_an_established_connection_resets_the_setup_timeout() -> None:
    server = RawServer(handshakes=False)
    rig = BrokerRig(server)
    rig.broker.connect(rig.clock.now)
    rig.pass_time(10)
    rig.clock.advance(1)
    server.handshakes = True
    rig.connect()
    rig.transport.cut()
    rig.poll()
    server.handshakes = False
    rig.clock.advance(1)
    rig.broker.connect(rig.clock.now)
    assert rig.next_event() == 10


def test_an_unanswered_request_closes_the_connection() -> None:
    rig = BrokerRig(RawServer())
    rig.connect()
    rig.clock.advance(100)
    requests = [rig.send(), rig.send()]
    assert rig.next_event() == 30
    rig.pass_time(29.9)
    assert [request.ends for request in requests] == [[], []]
    rig.pass_time(0.1)
    assert [request.ends for request in requests] == [[("failed", True)]] * 2
    assert "broker 7 at host:9092: no response within 30 s" in str(rig.errors[0])
    assert rig.metrics.connections_lost == 1


def test_the_request_timeout_does_not_run_while_bytes_are_being_written() -> None:
    server = RawServer()
    backend = VirtualBackend(FakeClock(), {("host", 9092): server.accept}, send_chunk=10)
    rig = BrokerRig(server, backend)
    rig.connect()
    request = RecordedExchange(frame(b"x" * 91))  # ten chunks of ten bytes
    rig.broker.send(request, rig.clock.now)
    for _ in range(8):
        rig.pass_time(29)
        rig.poll()
    assert request.ends == []
    rig.pass_time(29)
    assert rig.broker.connected
    rig.pass_time(1)
    assert request.ends == [("failed", True)]


def login_server() -> ScriptedBroker:
    """Accepts every login, for ten seconds."""
    server = ScriptedCluster().add(7, "host")
    server.offered |= SASL
    server.next(ApiKey.SASL_HANDSHAKE, *[telling(mechanisms=("ONCE",))] * 100)
    welcome = telling(error_message=None, session_lifetime=10_000)
    server.next(ApiKey.SASL_AUTHENTICATE, *[welcome] * 100)
    return server


class Once:
    def respond(self, challenge: bytes | None) -> bytes | None:
        return b"it is me" if challenge is None else None


def at_once(host: str, wake: Callable[[], None]) -> Steps:
    return InlineSteps(Begun(Mechanism("ONCE", lambda host: Once()), "host"))


class NeverReady:
    """A login provider that does not answer."""

    def begin(self, challenge: bytes | None) -> None:
        """Do nothing."""

    def take(self) -> Message | None:
        return None


def rig_with(
    start: Callable[[str, Callable[[], None]], Steps], server: ScriptedBroker
) -> BrokerRig:
    login = LoginSettings("ONCE", start, lambda: 0.9)
    return BrokerRig(server, settings=replace(SETTINGS, login=login))


def test_repeated_logins_do_not_keep_an_idle_connection_open() -> None:
    """Logins may be repeated more often than idle connections are closed."""
    server = login_server()
    rig = rig_with(at_once, server)
    began = rig.clock.now
    rig.connect()
    while rig.broker.connected:
        rig.pass_time(rig.next_event())
        for _ in range(10):
            rig.poll()
    assert rig.clock.now == began + SETTINGS.idle_timeout
    assert server.count(ApiKey.SASL_AUTHENTICATE) >= SETTINGS.idle_timeout // 9
    assert rig.errors == []


def test_requests_and_responses_of_logins_are_counted() -> None:
    rig = rig_with(at_once, login_server())
    rig.connect()
    traffic = rig.metrics.node(7)
    assert (traffic.requests, traffic.responses) == (3, 3)  # versions, mechanism, login
    rig.pass_time(rig.next_event())
    for _ in range(10):
        rig.poll()
    assert (traffic.requests, traffic.responses) == (5, 5)


@pytest.mark.parametrize("logins", [0, 1], ids=["the first", "a later one"])
def test_the_error_names_a_login_provider_that_does_not_answer(logins: int) -> None:
    left = iter(range(logins))

    def start(host: str, wake: Callable[[], None]) -> Steps:
        return NeverReady() if next(left, None) is None else at_once(host, wake)

    rig = rig_with(start, login_server())
    if logins:
        rig.connect()
        rig.pass_time(rig.next_event())
    else:
        rig.broker.connect(rig.clock.now)
    for _ in range(10):
        rig.poll()
    rig.pass_time(SETTINGS.request_timeout if logins else 10)
    assert not rig.broker.connected
    limit = "30 s" if logins else "10 s of connecting"
    assert f"what logs us in was not ready within {limit}" in str(rig.errors[0])
