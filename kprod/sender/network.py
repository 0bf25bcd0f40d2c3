"""All brokers, and the place where the sender waits for them (Kafka's ``NetworkClient``)."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from kprod.clock import Clock
from kprod.errors import KprodError
from kprod.metrics import ProducerMetrics
from kprod.sender.broker import Broker
from kprod.sender.connection import BrokerSettings
from kprod.sender.connection_log import ConnectionLog
from kprod.sender.deadlines import FOREVER, Deadlines, Owner
from kprod.transport.base import Backend
from kprod.types import Broker as Address
from kprod.wire.versions import ApiKey

PATIENCE = 0.5
"""Seconds that brokers may be busy or connecting before another broker is tried."""
MOST_TRIES = 10
"""Maximum number of brokers to try within a second if any broker will do. The list of brokers comes
from a peer and may be long."""


class Network:
    """Brokers by node id. Bootstrap addresses have the ids -1, -2, ...

    ``goes_back``: bootstrap addresses are tried even while brokers are known. ``waiting``: owners
    (see ``Deadlines``) that have found no broker for their request. They are queued when something
    happens to a connection, or when another broker is to be tried.

    Used only by the owner of the loop, except ``wake``, ``connected`` and ``in_flight``.
    """

    def __init__(
        self,
        backend: Backend,
        bootstrap: Sequence[tuple[str, int]],
        settings: BrokerSettings,
        metrics: ProducerMetrics,
        clock: Clock,
        on_failure: Callable[[str, KprodError], None],
        rng: random.Random,
        *,
        goes_back: bool = True,
        log: ConnectionLog | None = None,
    ) -> None:
        self.goes_back = goes_back
        self.backend = backend
        self.wake: Callable[[], None] = backend.wake  # ends a running or the next ``poll`` early
        self.settings = settings
        self.metrics = metrics
        self.clock = clock
        self.on_failure = on_failure
        self.log = log or ConnectionLog(settings.client_id)
        self.came_up = 0  # connections that were established
        self._rng = rng
        self._patient_until: float | None = None  # None: no request waits for any broker
        self._tries: deque[float] = deque([-FOREVER] * MOST_TRIES, MOST_TRIES)  # when, oldest first
        self._adopted: Mapping[int, Address] = {}
        self._brokers: dict[int, Broker] = {}
        self._leaving: list[Broker] = []  # they get no new request, and end after the last one
        self.may_connect = True  # False: the caller driving the sender cannot resolve names
        self.connect_requested = False  # a connection was not begun for that reason
        self._spins = getattr(backend, "spins", False)  # see Backend
        self.interruptible = getattr(backend, "interruptible", False)
        self.deadlines = Deadlines()  # of all that the sender does
        self.due = FOREVER  # see Deadlines: another broker is to be tried
        self.waiting: dict[Owner, None] = {}
        self.transports: dict[int, Broker] = {}  # the brokers with one, by its id
        self._asks_bootstrap = False  # some bootstrap address may be connected
        for number, (host, port) in enumerate(bootstrap, start=1):
            self._add(Address(-number, host, port))

    def _add(self, address: Address) -> None:
        self._brokers[address.node_id] = Broker(address, self)

    def adopt(self, cluster: Mapping[int, Address]) -> None:
        """``cluster`` is the new list of brokers: add new ones, and leave those that are gone."""
        if cluster is self._adopted:
            return
        self._adopted = cluster
        away = {broker.address[:3]: broker for broker in self._leaving if not broker.connected}
        reached = {
            broker.address[1:3]: node_id
            for node_id, broker in self._brokers.items()
            if node_id < 0 and broker.connected
        }
        for node_id, address in cluster.items():
            known = self._brokers.get(node_id)
            if known is None:
                self._take_over(address, away, reached)
            elif known.address[1:3] != address[1:3]:
                self._leaving.append(known)
                self._add(address)
                self._brokers[node_id].window = known.window  # the network carries as much
        for node_id in [known for known in self._brokers if known >= 0 and known not in cluster]:
            self._leaving.append(self._brokers.pop(node_id))
        used = set(self._brokers.values())
        self._leaving = [broker for broker in self._leaving if broker not in used]
        self._keep_nodes()

    def _keep_nodes(self) -> None:
        brokers = [*self._brokers.values(), *self._leaving]
        self.metrics.keep_nodes({broker.address.node_id for broker in brokers})

    def _take_over(
        self,
        address: Address,
        away: dict[tuple[int, str, int], Broker],
        reached: dict[tuple[str, int], int],
    ) -> None:
        """Use a new broker. If a bootstrap address has a connection to it, that connection is kept.

        A broker that was missing in the list for a moment keeps its back-off. ``away``: the brokers
        that were left, by address. ``reached``: the ids of the bootstrap addresses with a
        connection.
        """
        known = away.pop(address[:3], None)
        if known is not None:
            self._brokers[address.node_id] = known
            return
        bootstrap = reached.pop(address[1:3], None)
        if bootstrap is None:
            self._add(address)
            return
        found = self._brokers[address.node_id] = self._brokers[bootstrap]
        self._add(found.address)  # for bootstrapping again
        found.becomes(address)

    def rebootstrap(self, now: float) -> None:
        """Forget all brokers except the bootstrap addresses, which are resolved again.

        All connections are closed. Requests in flight fail as after a lost connection. A broker
        that is named again keeps its window.
        """
        self._patient_until = None
        self._adopted = {}
        for broker in self._brokers.values():
            broker.close(now)
        for node_id in [known for known in self._brokers if known >= 0]:
            self._leaving.append(self._brokers.pop(node_id))

    # Requests -------------------------------------------------------------------------------------

    def broker(self, node_id: int) -> Broker | None:
        """The broker with this id, or None."""
        return self._brokers.get(node_id)

    def ready(self, broker: Broker, now: float) -> bool:
        """True if ``broker`` takes a request at once. If not, a connection is begun if allowed.

        The name is that of Kafka's ``NetworkClient.ready``.
        """
        if broker.connection is not None:
            return broker.connection.can_send
        if broker.may_connect(now):
            self._connect(broker, now)
        return False

    def usable_for(self, api: ApiKey, preferred: int | None = None) -> Broker | None:
        """A connected broker that takes a request of this kind at once, or None.

        It is the ``preferred`` node if that takes one, otherwise the least busy. No connection is
        begun.
        """
        known = self._brokers.items()
        fit = {at: each for at, each in known if each.can_send and each.offers(api)}
        if preferred in fit:
            return fit[preferred]
        return min(fit.values(), key=lambda broker: broker.in_flight, default=None)

    def any_usable(self, now: float) -> Broker | None:
        """The least busy broker that takes a request at once, or None.

        If there is none, brokers without a connection are tried one after the other, even if the
        connected ones are only silent. The next one is tried when the last one has failed, or after
        ``PATIENCE``. At most ``MOST_TRIES`` are tried within a second.
        """
        usable = [broker for broker in self._brokers.values() if broker.can_send]
        if usable:
            self._patient_until = None
            return min(usable, key=lambda broker: broker.in_flight)
        until = self._patience_ends(now)
        if now >= until:
            if order := self._untried(now):
                # The one whose last attempt is the oldest (Kafka's ``leastLoadedNode``).
                self._rng.shuffle(order)
                self._connect(min(order, key=lambda broker: broker.setup_began), now)
                self._tries.append(now)
            self._patient_until = now + PATIENCE
            until = self._patience_ends(now)
        # Where there is no other one to try, something happens to a connection first.
        self.deadlines.set(self, until if self._untried(until) else FOREVER)
        return None

    def _patience_ends(self, now: float) -> float:
        """When to try another broker, for a request that any broker can answer."""
        if not any(broker.connected for broker in self._brokers.values()):
            self._patient_until = max(now, self._tries[0] + 1.0)
        elif self._patient_until is None:
            self._patient_until = now + PATIENCE
        return self._patient_until

    def _untried(self, now: float) -> list[Broker]:
        """The brokers to try: known ones, or also the bootstrap addresses (KIP-899).

        The bootstrap addresses are added if all known brokers back off, or if nothing is connected:
        of many brokers that are gone, some never back off. With ``goes_back=False``, they are added
        only while no broker is known. An address that already has a connection is left out.
        """
        taken = {broker.address[1:3] for broker in self._brokers.values() if broker.connected}
        able = [
            broker
            for broker in self._brokers.values()
            if broker.may_connect(now) and broker.address[1:3] not in taken
        ]
        known = [broker for broker in able if broker.address.node_id >= 0]
        stays = not self.goes_back and any(node_id >= 0 for node_id in self._brokers)
        return known if stays or (known and taken) else able

    def _connect(self, broker: Broker, now: float) -> None:
        if self.may_connect:
            self._asks_bootstrap = self._asks_bootstrap or broker.address.node_id < 0
            broker.connect(now)
        else:
            self.connect_requested = True

    # Waiting --------------------------------------------------------------------------------------

    def poll(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds, then move all bytes."""
        if self._spins:
            # Only a caller: the thread would take the processor of callers that go on sending.
            self.backend.eager = not self.may_connect and self._awaits_answer()
        ready = self.backend.poll(timeout if timeout < FOREVER else None)
        now = self.clock.monotonic()
        if now >= self.metrics.mark_due:
            self.metrics.mark(now)
        for transport, readable, _ in ready:
            broker = self.transports.get(id(transport))
            if broker is not None:
                broker.receive(now, readable=readable)
            else:
                # Nobody has it: letting go of it broke off, and it would be ready again and again.
                self.backend.forget(transport)
                transport.close()
        if ready:
            if self.waiting:
                self.look_again()
            if self._asks_bootstrap:
                self._close_idle_bootstrap(now)
        if self._leaving and self._adopted:
            self._close_leaving(now)

    def fire(self, now: float) -> None:
        """Another broker may be tried: queue the owners that wait for one (see ``Deadlines``)."""
        self.look_again()

    def look_again(self) -> None:
        """Something has happened to a connection: queue the owners that wait for a broker."""
        self.deadlines.queued.extend(self.waiting)
        self.waiting.clear()

    def let_connect(self) -> None:
        """Begin the connections that were requested while they could not be begun."""
        self.connect_requested = False
        self.look_again()

    def _awaits_answer(self) -> bool:
        return any(broker.in_flight for broker in self.transports.values())

    def _close_idle_bootstrap(self, now: float) -> None:
        """Close idle bootstrap connections once a broker of the cluster can be asked instead."""
        asked = [broker for broker in self.transports.values() if broker.address.node_id < 0]
        self._asks_bootstrap = bool(asked)
        idle = [broker for broker in asked if broker.can_send and not broker.in_flight]
        if idle and any(node >= 0 and broker.can_send for node, broker in self._brokers.items()):
            for broker in idle:
                broker.close(now)

    def _close_leaving(self, now: float) -> None:
        """Close connections of brokers that have left the cluster and have no more requests."""
        for broker in self._leaving:
            if broker.connected and not broker.in_flight:
                broker.close(now)
        left = [each for each in self._leaving if each.connected or not each.may_connect(now)]
        if len(left) < len(self._leaving):
            self._leaving = left
            self._keep_nodes()

    @property
    def connected(self) -> bool:
        """True if any connection exists or is being made. Any thread."""
        return bool(self.transports)

    @property
    def out_of_reach(self) -> bool:
        """True if the last attempt to connect has failed for every broker. Sender's thread only.

        While no broker is known, the bootstrap addresses count instead.
        """
        known = [broker for node_id, broker in self._brokers.items() if node_id >= 0]
        every = known or self._brokers.values()
        return all(broker.is_failing for broker in every)

    @property
    def in_flight(self) -> int:
        """The number of requests without a response. Any thread."""
        return sum(broker.in_flight for broker in list(self.transports.values()))

    def abandon(self) -> None:
        """Called in a forked child: drop the parent's connections without touching them."""
        self.backend.abandon()

    def close(self) -> None:
        """Close every connection and the backend. An exception of one of them is raised then."""
        now = self.clock.monotonic()
        with ExitStack() as later:
            later.callback(self.backend.close)
            for broker in self.transports.values():
                later.callback(broker.close, now)
