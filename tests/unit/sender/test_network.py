"""Connections to many brokers: choice, reuse, removal, and rebootstrapping."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from kprod.errors import KprodError, UnsupportedVersionError
from kprod.metrics import ProducerMetrics
from kprod.sender.broker import Broker
from kprod.sender.connection import Exchange
from kprod.sender.network import MOST_TRIES, PATIENCE, Network
from kprod.types import Broker as Address
from kprod.wire.versions import ApiKey
from tests.support.fake_clock import FakeClock
from tests.support.scripted_cluster import Answer, ScriptedCluster, silence, telling
from tests.support.sender_rig import SenderRig, rig_of
from tests.support.steady_random import SteadyRandom
from tests.support.virtual_backend import VirtualBackend
from tests.unit.sender.broker_rig import REQUEST
from tests.unit.sender.exchanges import SETTINGS, RawServer, RecordedExchange, Unwritable, answer


class NetworkRig:
    """A network over servers by host name, all at port 9092, in virtual time."""

    def __init__(self, *hosts: str, bootstrap: Sequence[str] = ("boot",)) -> None:
        self.clock = FakeClock()
        self.servers = {host: RawServer() for host in hosts}
        self.listeners = {(host, 9092): server.accept for host, server in self.servers.items()}
        self.backend = VirtualBackend(self.clock, self.listeners)
        self.backend.spins = True
        self.errors: list[KprodError] = []
        self.metrics = ProducerMetrics()
        self.network = Network(
            self.backend,
            [(host, 9092) for host in bootstrap],
            SETTINGS,
            self.metrics,
            self.clock,
            lambda broker, error: self.errors.append(error),
            SteadyRandom(1),
        )
        self.deadlines = self.network.deadlines

    def poll(self, seconds: float) -> None:
        """Wait for the network, then fire the deadlines that are due."""
        self.network.poll(seconds)
        self.deadlines.fire(self.clock.now)

    def next_event(self) -> float:
        """Seconds until the next deadline."""
        return max(0.0, self.deadlines.first - self.clock.now)

    def adopt(self, **hosts: int) -> None:
        """Adopt the brokers of new metadata: node ids by host."""
        self.network.adopt({n: Address(n, host, 9092) for host, n in hosts.items()})

    def any_usable(self) -> int | None:
        """The node that takes a request now, if any."""
        broker = self.network.any_usable(self.clock.now)
        return None if broker is None else broker.address.node_id

    def connect_any(self) -> int:
        """Poll until a node takes a request."""
        for _ in range(20):
            node = self.any_usable()
            if node is not None:
                return node
            self.poll(0.1)
        raise AssertionError(f"no usable broker: {self.errors}")

    def connect(self, node_id: int) -> None:
        for _ in range(20):
            if self.usable(node_id):
                return
            self.poll(0.1)
        raise AssertionError(f"node {node_id} cannot be reached: {self.errors}")

    def usable(self, node_id: int) -> Broker | None:
        """The broker, if it takes a request."""
        broker = self.network.broker(node_id)
        return broker if broker and self.network.ready(broker, self.clock.now) else None

    def send(self, node_id: int) -> RecordedExchange:
        exchange = RecordedExchange(REQUEST)
        self.send_exchange(node_id, exchange)
        return exchange

    def send_exchange(self, node_id: int, exchange: Exchange) -> None:
        broker = self.usable(node_id)
        assert broker is not None
        broker.send(exchange, self.clock.now)

    def answer(self, request: RecordedExchange) -> None:
        """On the first connection."""
        self.backend.connections[0].deliver(answer(request.correlation_ids[0], b"fine"))
        self.poll(0)

    def connections(self, host: str) -> int:
        """Open connections to this host."""
        return sum(transport.host == host for transport in self.backend.connections)


def test_the_broker_with_the_fewest_requests_is_chosen() -> None:
    rig = NetworkRig("one", "two")
    rig.adopt(one=1, two=2)
    rig.connect(1)
    rig.connect(2)
    rig.send(1)
    assert rig.any_usable() == 2


@pytest.mark.parametrize("idle", [True, False], ids=["idle", "busy"])
@pytest.mark.parametrize("known", [True, False], ids=["too old for it", "no version for it"])
def test_a_request_that_the_broker_is_too_old_for_fails_alone(*, known: bool, idle: bool) -> None:
    rig = NetworkRig("boot")
    node = rig.connect_any()
    before = [] if idle else [rig.send(node)]
    unfit = Unwritable(UnsupportedVersionError("METADATA: this broker is too old"))
    if not known:
        unfit.api = ApiKey.CREATE_TOPICS
    rig.send_exchange(node, unfit)
    assert unfit.ends == [("failed", False)]
    assert "boot:9092" in str(unfit.errors[0])
    assert bool(rig.usable(node)) is (known or not idle), "a new handshake may offer more"
    for request in before:
        rig.answer(request)
        assert request.ends == [("answered", b"fine")]


def test_an_encoding_error_is_raised_and_the_connection_stays_usable() -> None:
    rig = NetworkRig("boot")
    node = rig.connect_any()
    before = rig.send(node)
    unwritable = Unwritable(ValueError("bad encoding"))
    with pytest.raises(ValueError, match="bad encoding"):
        rig.send_exchange(node, unwritable)
    after = rig.send(node)
    for request in (before, after):
        rig.answer(request)
    assert before.ends == after.ends == [("answered", b"fine")]
    assert unwritable.ends == []


def wait_for_any(rig: NetworkRig) -> int:
    """As ``connect_any``, but waits exactly until the next deadline each time."""
    for _ in range(100):
        node = rig.any_usable()
        if node is not None:
            return node
        rig.poll(rig.next_event())
    raise AssertionError(f"no usable broker: {rig.errors}")


@pytest.mark.parametrize("silent", [0, 1, 2])
def test_another_address_is_tried_soon_when_a_handshake_is_not_answered(silent: int) -> None:
    hosts = ["boot-1", "boot-2", "boot-3"]
    rig = NetworkRig(*hosts, bootstrap=hosts)
    for host in hosts[:silent]:
        rig.servers[host].handshakes = False
    started = rig.clock.now
    assert rig.servers[hosts[-1 - wait_for_any(rig)]].handshakes
    assert rig.clock.now - started <= silent * PATIENCE
    assert len(rig.backend.connections) <= silent + 1
    assert rig.errors == [], "no connection was given up"


def test_another_broker_is_connected_when_the_connected_ones_stay_busy() -> None:
    rig = NetworkRig("one", "two")
    rig.adopt(one=1, two=2)
    rig.connect(1)
    for _ in range(5):
        rig.send(1)
    started = rig.clock.now
    assert wait_for_any(rig) == 2
    assert rig.clock.now - started == pytest.approx(PATIENCE)


def test_no_second_connection_to_the_same_address_is_opened() -> None:
    rig = NetworkRig("one", bootstrap=["one"])
    rig.adopt(one=1)
    rig.connect(1)
    for _ in range(5):
        rig.send(1)
    assert rig.any_usable() is None
    assert rig.next_event() == 30
    rig.poll(PATIENCE)
    assert rig.any_usable() is None
    assert len(rig.backend.connections) == 1


def search(rig: NetworkRig, seconds: float) -> int:
    """Try to find a usable broker, as the sender does; the number of iterations."""
    iterations, end = 0, rig.clock.now + seconds
    while rig.clock.now < end and rig.any_usable() is None:
        rig.poll(min(rig.next_event(), end - rig.clock.now))
        iterations += 1
    return iterations


def test_polling_for_a_usable_broker_does_not_delay_the_next_attempt() -> None:
    rig = NetworkRig(bootstrap=["dead"])
    for _ in range(2 * MOST_TRIES):
        assert rig.any_usable() is None
        rig.poll(0)
    assert len(rig.errors) == 1
    search(rig, 0.2)
    assert len(rig.errors) > 1, "the back-off is 0.05 s"


def test_a_new_connection_clears_the_error_of_an_earlier_one() -> None:
    rig = NetworkRig("one")
    rig.adopt(one=1)
    accept = rig.listeners.pop(("one", 9092))
    assert rig.usable(1) is None
    rig.poll(0)
    broker = rig.network.broker(1)
    assert broker is not None
    assert broker.last_error(rig.clock.now) is not None
    rig.listeners["one", 9092] = accept
    rig.connect(1)
    broker.close(rig.clock.now)
    assert broker.last_error(rig.clock.now) is None


def test_connection_attempts_to_many_refusing_brokers_are_rate_limited() -> None:
    """The list comes from a peer: its length must not set the number of attempts."""
    rig = NetworkRig(bootstrap=["dead"])
    rig.adopt(**{f"gone-{number}": number for number in range(3000)})
    iterations = search(rig, seconds=10)
    assert MOST_TRIES * 9 <= len(rig.errors) <= MOST_TRIES * 11
    assert iterations < 100 * MOST_TRIES
    assert len({str(error).split(":")[0] for error in rig.errors}) == len(rig.errors)


def test_bootstrap_addresses_are_tried_besides_many_unreachable_brokers() -> None:
    rig = NetworkRig("boot")
    rig.adopt(**{f"gone-{number}": number for number in range(50)})
    search(rig, seconds=60)
    assert rig.any_usable() == -1
    assert len(rig.errors) <= 50


def test_removed_brokers_are_counted_in_the_totals_only() -> None:
    rig = NetworkRig("one", "two", "three")
    rig.adopt(one=1, two=2)
    rig.connect(1)
    rig.connect(2)
    sent = rig.metrics.groups(0.0)["producer-metrics"]["request-total"]
    waiting = rig.send(1)
    rig.adopt(two=2, three=3)
    assert set(rig.metrics.nodes) == {1, 2}, "an answer is pending"
    rig.answer(waiting)
    rig.poll(0)
    assert set(rig.metrics.nodes) == {2}
    groups = rig.metrics.groups(0.0)
    assert groups["producer-metrics"]["request-total"] == sent + 1
    assert "producer-node-metrics.node-1" not in groups


def test_a_bootstrap_connection_is_reused_for_the_broker_it_reached() -> None:
    rig = NetworkRig("boot")
    node = rig.connect_any()
    rig.send(node)
    rig.adopt(boot=7)
    assert rig.network.connected
    assert rig.network.in_flight == 1
    assert rig.usable(7)
    assert len(rig.servers["boot"].ends) == 1


def test_a_bootstrap_connection_is_closed_once_a_broker_is_connected() -> None:
    rig = NetworkRig("boot", "one")
    rig.connect_any()
    rig.adopt(one=1)
    rig.poll(0)
    assert rig.connections("boot") == 1, "no other broker is connected"
    rig.connect(1)
    rig.poll(0)
    assert (rig.connections("boot"), rig.connections("one")) == (0, 1)


def test_bootstrap_addresses_are_tried_again_when_no_broker_is_reachable() -> None:
    rig = NetworkRig("boot", "one")
    rig.connect_any()
    rig.adopt(one=1)
    rig.connect(1)
    rig.poll(0)
    del rig.listeners["one", 9092]
    rig.backend.connections[0].cut()
    rig.poll(0)
    assert rig.connect_any() == -1
    rig.poll(0)
    assert rig.any_usable() == -1, "the only connection was closed"


@pytest.mark.parametrize("hosts", [{"other": 2}, {"other": 1}], ids=["left", "moved"])
def test_a_request_to_a_removed_broker_still_gets_its_answer(hosts: dict[str, int]) -> None:
    rig = NetworkRig("one", "other")
    rig.adopt(one=1)
    rig.connect(1)
    request = rig.send(1)
    rig.adopt(**hosts)
    assert request.ends == []
    assert rig.network.connected, "until the removed broker has answered"
    assert rig.network.in_flight == 1
    rig.answer(request)
    assert request.ends == [("answered", b"fine")]
    rig.poll(0)
    assert rig.connections("one") == 0


def test_only_a_waiting_caller_polls_eagerly_and_only_for_an_answer() -> None:
    """The backend's ``eager`` is set before each wait."""
    rig = NetworkRig("boot")
    node = rig.connect_any()

    def eager(*, caller: bool) -> bool:
        rig.network.may_connect = not caller
        rig.poll(0)
        return rig.backend.eager

    assert not eager(caller=True)
    rig.send(node)
    assert eager(caller=True)
    assert not eager(caller=False)
    rig.backend.connections[-1].deliver(answer(1, b""))
    rig.poll(0)
    assert not eager(caller=True)


# Rebootstrapping ----------------------------------------------------------------------------------


TRIGGER = 20.0


def no_brokers(error: int = 0) -> Answer:
    """A Metadata answer without brokers."""
    return telling(cluster_id=None, controller_id=-1, error_code=error)


class MovedCluster:
    """A producer that knows the old cluster; the bootstrap address leads to the new one."""

    def __init__(self, **options: Any) -> None:
        self.old = ScriptedCluster(topics={"t": [1, 1]}, leader_epoch=9)
        self.new = ScriptedCluster(topics={"t": [7, 7]}, leader_epoch=1)
        self.one, self.seven = self.old.add(1, "old"), self.new.add(7, "new")
        self.one.offered[ApiKey.METADATA] = (4, 13)
        listeners = self.old.listeners
        listeners["boot", 9092] = self.one.accept
        self.rig = SenderRig(
            self.old,
            bootstrap_servers="boot:9092",
            metadata_recovery_rebootstrap_trigger_ms=int(TRIGGER * 1000),
            delivery_timeout_ms=3_600_000,
            **options,
        )
        self.rig.know("t")
        assert self.rig.run(self.rig.queue().succeeded)
        listeners["boot", 9092] = listeners["new", 9092] = self.seven.accept
        self.rig.sender.metadata.request_update()

    def found(self) -> bool:
        return 7 in self.rig.sender.metadata.snapshot.brokers


def test_brokers_without_metadata_are_abandoned_after_the_trigger_time() -> None:
    moved = MovedCluster()
    moved.one.next(ApiKey.METADATA, *[no_brokers()] * 1000)
    assert not moved.rig.run(moved.found, seconds=TRIGGER - 1)
    assert moved.rig.run(moved.found, seconds=2)
    assert moved.rig.run(moved.rig.queue(b"later").succeeded, seconds=1)
    assert moved.new.values("t") == [b"later"]


def test_a_change_of_the_cluster_id_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    moved = MovedCluster(client_id="orders")
    moved.new.cluster_id = "second"
    moved.one.next(ApiKey.METADATA, no_brokers(129))
    assert caplog.messages == []
    assert moved.rig.run(moved.found, seconds=1)
    assert caplog.messages == [
        "orders: asking the bootstrap servers about the cluster: a broker asks for it",
        "orders: another cluster answers, second, no longer scripted:"
        " do the bootstrap servers lead to both?",
    ]


@pytest.mark.parametrize("error", [0, 129])
def test_without_the_rebootstrap_strategy_known_brokers_are_kept(error: int) -> None:
    moved = MovedCluster(metadata_recovery_strategy="none")
    moved.one.next(ApiKey.METADATA, *[no_brokers(error)] * 1000)
    assert not moved.rig.run(moved.found, seconds=5 * TRIGGER)


@pytest.mark.parametrize(("strategy", "found"), [("rebootstrap", True), ("none", False)])
def test_unreachable_brokers_cause_a_rebootstrap_at_once(strategy: str, *, found: bool) -> None:
    moved = MovedCluster(metadata_recovery_strategy=strategy)
    del moved.old.listeners["old", 9092]
    moved.rig.backend.connections[0].cut()
    assert moved.rig.run(moved.found, seconds=5) == found


def test_records_in_flight_are_resent_to_the_new_cluster() -> None:
    moved = MovedCluster()
    moved.one.next(ApiKey.PRODUCE, *[silence] * 1000)
    future = moved.rig.queue(b"in flight")
    moved.rig.run(lambda: moved.one.count(ApiKey.PRODUCE) == 2)
    moved.one.next(ApiKey.METADATA, *[no_brokers()] * 1000)
    assert moved.rig.run(lambda: future.is_done)
    assert future.succeeded()
    assert moved.new.values("t") == [b"in flight"]


def test_a_usable_answer_resets_the_rebootstrap_timer() -> None:
    moved = MovedCluster(metadata_max_age_ms=1_000)
    for _ in range(5):
        moved.one.next(ApiKey.METADATA, *[no_brokers()] * 10)  # for some seconds
        moved.rig.run(lambda: False, seconds=TRIGGER / 2)
    assert not moved.found()


def count(kind: type) -> int:
    gc.collect()
    return sum(isinstance(found, kind) for found in gc.get_objects())


def _knows(rig: SenderRig, node_id: int) -> bool:
    return node_id in rig.sender.metadata.snapshot.brokers


def test_replaced_brokers_are_freed() -> None:
    """As with agents that are replaced every few minutes, for weeks."""
    before = count(Broker)
    cluster = ScriptedCluster(topics={"t": [1]})
    cluster.add(1)
    rig = rig_of(cluster)
    for node_id in range(2, 32):
        rig.queue()
        assert rig.run(lambda: rig.sender.finished)
        cluster.add(node_id)
        cluster.topics["t"] = [node_id]
        del cluster.brokers[node_id - 1]
        rig.sender.metadata.request_update()
        assert rig.run(partial(_knows, rig, node_id))
    rig.run(lambda: False, seconds=10)
    assert len(cluster.values("t")) == 30
    assert count(Broker) - before <= 16, "some are kept by cancelled deadlines"
    assert len(rig.metrics.nodes) <= 3
    totals = rig.metrics.groups(rig.clock.now)["producer-metrics"]
    assert totals["record-send-total"] == 30
