"""What a broker does when time runs out: while it comes up, waits for an answer, or has no use."""

from __future__ import annotations

from kprod.transport.memory import MemoryTransport
from tests.support.fake_clock import FakeClock
from tests.support.virtual_backend import VirtualBackend
from tests.unit.sender.broker_rig import BrokerRig
from tests.unit.sender.exchanges import Noted, answer, frame
from tests.unit.sender.raw_server import RawServer


class NeverConnects(VirtualBackend):
    """Dials, and hears nothing from the other end."""

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
    rig = BrokerRig(RawServer(shakes=False))
    rig.broker.connect(rig.clock.now)
    rig.poll()
    assert not rig.broker.can_send
    rig.pass_time(4)
    assert rig.next_event() == 6
    rig.pass_time(6)
    assert not rig.broker.connected
    assert "no answer to ApiVersions within 10 s of connecting" in str(rig.errors[0])


def test_a_connection_that_comes_up_ends_the_growth_of_the_setup_timeout() -> None:
    server = RawServer(shakes=False)
    rig = BrokerRig(server)
    rig.broker.connect(rig.clock.now)
    rig.pass_time(10)
    rig.clock.advance(1)
    server.shakes = True
    rig.connect()
    rig.transport.cut()
    rig.poll()
    server.shakes = False
    rig.clock.advance(1)
    rig.broker.connect(rig.clock.now)
    assert rig.next_event() == 10


def test_a_broker_that_does_not_answer_a_request_is_given_up() -> None:
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


def test_a_request_is_not_timed_while_the_network_goes_on_taking_it() -> None:
    server = RawServer()
    backend = VirtualBackend(FakeClock(), {("host", 9092): server.accept}, send_chunk=10)
    rig = BrokerRig(server, backend)
    rig.connect()
    request = Noted(frame(b"x" * 91))  # ten pieces of ten bytes
    rig.broker.send(request, rig.clock.now)
    for _ in range(8):
        rig.pass_time(29)
        rig.poll()
    assert request.ends == []
    rig.pass_time(29)
    assert rig.broker.connected
    rig.pass_time(1)
    assert request.ends == [("failed", True)]


def test_an_answer_after_the_time_limit_reaches_nobody() -> None:
    rig = BrokerRig(RawServer())
    rig.connect()
    late = rig.transport
    request = rig.send()
    rig.pass_time(30)
    rig.pass_time(10)
    rig.connect()
    again = rig.send()
    late.deliver(answer(1, b"late"))
    rig.poll()
    assert request.ends == [("failed", True)]
    assert again.ends == []
