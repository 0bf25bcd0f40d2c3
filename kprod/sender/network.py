"""The links to all brokers, and one place to wait for them (Kafka's ``NetworkClient``)."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from kprod.clock import Clock
from kprod.errors import KprodError, UnsupportedVersionError
from kprod.metrics import ProducerMetrics
from kprod.sender.connection_log import ConnectionLog
from kprod.sender.exchange import Exchange
from kprod.sender.link import BrokerLink, LinkSettings
from kprod.transport.base import Backend, Readiness
from kprod.types import Broker
from kprod.wire.versions import ApiKey

FOREVER = float("inf")
PATIENCE = 0.5
"""Seconds that brokers may be busy or coming up before another broker is tried."""


class Network:
    """Links by node id; bootstrap addresses have ids -1, -2, ...

    ``goes_back`` tells whether bootstrap addresses are tried while brokers are known.
    Thread: the sender's only, but for ``wake``, ``connected`` and ``in_flight``.
    """

    def __init__(
        self,
        backend: Backend,
        bootstrap: Sequence[tuple[str, int]],
        settings: LinkSettings,
        metrics: ProducerMetrics,
        clock: Clock,
        on_failure: Callable[[str, KprodError], None],
        rng: random.Random | None = None,
        *,
        goes_back: bool = True,
    ) -> None:
        self._goes_back = goes_back
        self._backend = backend
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._on_failure = on_failure
        self.log = ConnectionLog(settings.client_id)
        self._rng = rng or random.Random()
        self._patient_until: float | None = None  # None: no request waits for a broker
        self._adopted: Mapping[int, Broker] = {}
        self._links: dict[int, BrokerLink] = {}
        self._tended: deque[BrokerLink] = deque()  # any thread: their logins can go on
        self._leaving: list[BrokerLink] = []  # they get no new request, and end after the last one
        self.may_connect = True  # False: the caller driving the sender cannot resolve names
        self.wants_to_connect = False  # a connection was not begun for that reason
        self._answers_due = False  # some request was unanswered when it was last looked at
        self._knows_eager = hasattr(backend, "eager")
        self._look_at = 0.0  # no link has a deadline before this time; 0.0: unknown
        for number, (host, port) in enumerate(bootstrap, start=1):
            self._add(Broker(-number, host, port))

    def _add(self, broker: Broker) -> None:
        self._links[broker.node_id] = self._link(broker)

    def _link(self, broker: Broker) -> BrokerLink:
        return BrokerLink(
            broker,
            self._backend,
            self._settings,
            self._metrics,
            self._on_failure,
            self.log,
            self._tended,
        )

    def wake(self) -> None:
        """End a running or the next ``poll`` early. Any thread."""
        self._backend.wake()

    @property
    def interruptible(self) -> bool:
        """See ``Backend.interruptible``."""
        return getattr(self._backend, "interruptible", False)

    def follow(self, brokers: Mapping[int, Broker]) -> None:
        """``adopt`` them unless this very mapping was adopted last."""
        if brokers is not self._adopted:
            self.adopt(brokers)

    def adopt(self, brokers: Mapping[int, Broker]) -> None:
        """The cluster consists of ``brokers`` now: keep, add, and let go of links accordingly."""
        self._adopted = brokers
        away = {link.broker[:3]: link for link in self._leaving if not link.connected}
        reached = {
            link.broker[1:3]: node_id
            for node_id, link in self._links.items()
            if node_id < 0 and link.connected
        }
        for node_id, broker in brokers.items():
            link = self._links.get(node_id)
            if link is None:
                self._take_over(broker, away, reached)
            elif link.broker[1:3] != broker[1:3]:
                self._leaving.append(link)
                self._add(broker)
        gone = [known for known in self._links if known >= 0 and known not in brokers]
        for node_id in gone:
            self._leaving.append(self._links[node_id])  # first: see _all_links
            del self._links[node_id]
        self._leaving[:] = [link for link in self._leaving if self._is_away(link)]

    def _is_away(self, link: BrokerLink) -> bool:
        """True unless the link has got its place back."""
        return self._links.get(link.broker.node_id) is not link

    def _take_over(
        self,
        broker: Broker,
        away: dict[tuple[int, str, int], BrokerLink],
        reached: dict[tuple[str, int], int],
    ) -> None:
        """A broker turned up; if it is one we bootstrapped from, go on using that connection.

        If it is one that was gone from the list for a moment, its back-off holds. ``away`` are the
        links that were left, by what they led to, ``reached`` the bootstrap addresses with a
        connection.
        """
        known = away.pop(broker[:3], None)
        if known is not None:
            self._links[broker.node_id] = known  # before it leaves _leaving: see _all_links
            return
        address = reached.pop(broker[1:3], None)
        if address is None:
            self._add(broker)
            return
        link = self._links[address]
        fresh = self._link(link.broker)  # for bootstrapping again
        link.becomes(broker)
        self._links[broker.node_id] = link  # first: see _all_links
        self._links[address] = fresh

    def rebootstrap(self, now: float) -> None:
        """Forget all brokers but the bootstrap addresses, which are resolved anew.

        Requests on their way fail as on a lost connection.
        """
        self._patient_until = None
        for node_id in [known for known in self._links if known >= 0]:
            self._links.pop(node_id).close(now)
        for link in self._links.values():
            link.close(now)

    # Requests -------------------------------------------------------------------------------------

    def usable(self, node_id: int, now: float) -> bool:
        """True when a request to the node would leave at once; else start to connect if allowed."""
        link = self._links.get(node_id)
        if link is None:
            return False
        if link.may_connect(now):
            self._connect(link, now)
        return link.usable(now)

    def under_way(self, node_id: int) -> int:
        """The bytes of all requests to the node that are not answered."""
        link = self._links.get(node_id)
        return 0 if link is None else link.bytes_in_flight

    def trouble(self, node_id: int, now: float) -> KprodError | None:
        """Why no request can be sent to the node; None when there is no reason, or none yet."""
        link = self._links.get(node_id)
        return None if link is None else link.trouble(now)

    def usable_for(self, api: ApiKey, now: float, preferred: int | None = None) -> int | None:
        """A node that takes requests of this kind at once; None: no connection leads to one.

        The ``preferred`` one if it does, else the least busy. Begins no connection.
        """
        fit = {
            link.broker.node_id: link
            for link in self._links.values()
            if link.usable(now) and link.offers(api)
        }
        if preferred in fit:
            return preferred
        return min(fit, key=lambda node_id: fit[node_id].in_flight, default=None)

    def any_usable(self, now: float) -> int | None:
        """The least busy node a request may go to; None while there is none.

        One after the other is tried then, the next as soon as the last has failed or has been
        coming up for ``PATIENCE``; so is another broker when those that are connected are silent.
        """
        usable = [link for link in self._links.values() if link.usable(now)]
        if usable:
            self._patient_until = None
            return min(usable, key=lambda link: link.in_flight).broker.node_id
        if not any(link.connected for link in self._links.values()):
            self._patient_until = now
        elif self._patient_until is None:
            self._patient_until = now + PATIENCE
        if now >= self._patient_until:
            self._connect_any(now)
            self._patient_until = now + PATIENCE
        return None

    def _connect_any(self, now: float) -> None:
        """Connect to the one that was tried longest ago, as Kafka's ``leastLoadedNode`` does."""
        if order := self._untried(now):
            self._rng.shuffle(order)
            self._connect(min(order, key=lambda link: link.last_attempt), now)

    def _untried(self, now: float) -> list[BrokerLink]:
        """Known brokers or, when all of those back off, the bootstrap addresses (KIP-899).

        Where another connection leads already, nothing is to be gained.
        """
        taken = {link.broker[1:3] for link in self._links.values() if link.connected}
        able = [
            link
            for link in self._links.values()
            if link.may_connect(now) and link.broker[1:3] not in taken
        ]
        known = [link for link in able if link.broker.node_id >= 0]
        stays = not self._goes_back and any(node_id >= 0 for node_id in self._links)
        return known if known or stays else able

    def _connect(self, link: BrokerLink, now: float) -> None:
        if self.may_connect:
            link.connect(now)
        else:
            self.wants_to_connect = True

    def send(self, node_id: int, exchange: Exchange, now: float) -> None:
        """Send a request to a usable node. The exchange gets an error that comes at once."""
        failure: KprodError | None = None
        unfit: UnsupportedVersionError | None = None
        try:
            self._links[node_id].send(exchange, now)
        except UnsupportedVersionError as error:
            named = f"{self._links[node_id].broker}: {error}"
            unfit = UnsupportedVersionError(named)
            failure = unfit
        except KprodError as error:
            failure = error
        # After the except clauses: an error refers to the frames it passed until its clause ends.
        if unfit is not None:
            # The versions of the handshake were garbled, or the broker was changed since. After
            # another handshake the request may find a version; on this connection it never would.
            unfit.retriable = True
            self._links[node_id].drop(unfit, now)
        if failure is not None:
            exchange.failed(failure, now, sent=False)

    # Waiting --------------------------------------------------------------------------------------

    def poll(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds, then move all bytes, and end connections when due."""
        if self._knows_eager:
            # Only a caller: the thread would take the processor of callers that go on sending.
            self._backend.eager = self._answers_due and not self.may_connect
        ready = self._backend.poll(timeout if timeout < FOREVER else None)
        now = self._clock.monotonic()
        if now >= self._metrics.mark_due:
            self._metrics.mark(now)
        if ready:
            self._move(ready, now)
        for _ in range(len(self._tended)):  # links added meanwhile wake the next poll
            self._tended.popleft().tend(now)
        if now >= self._look_at:
            for link in self._all_links():
                link.check_deadlines(now)
        self._look_at = 0.0
        if ready:
            self._let_bootstrap_go(now)
        if self._leaving:
            self._let_leaving_go(now)

    def _move(self, ready: Sequence[Readiness], now: float) -> None:
        for transport, readable, writable in ready:
            # Anew for each: moving one transport may end a connection, or begin another one.
            for link in self._all_links():
                if link.transport is transport:
                    link.moved(now, readable, writable)
                    break
            else:
                # No link has it: letting go of it broke off, and it would be ready again and again.
                self._backend.forget(transport)
                transport.close()

    def _all_links(self) -> list[BrokerLink]:
        """Every link. Any thread: one that gets another place meanwhile may be there twice.

        It gets the new place before it loses the old one, the one among ``_leaving`` being looked
        at last. So nobody sees a connection go that stands.
        """
        return [*self._links.values(), *self._leaving]

    def _let_bootstrap_go(self, now: float) -> None:
        """A bootstrap connection is of no use once a real broker can be asked instead."""
        idle = [link for link in self._links.values() if link.idle_bootstrap(now)]
        if idle and any(node_id >= 0 and link.usable(now) for node_id, link in self._links.items()):
            for link in idle:
                link.close(now)

    def _let_leaving_go(self, now: float) -> None:
        """End links of brokers that left the list, once their requests have ended."""
        for link in self._leaving:
            if link.connected and not link.in_flight:
                link.close(now)
        self._leaving[:] = [
            link for link in self._leaving if link.connected or not link.may_connect(now)
        ]

    def next_event(self, now: float) -> float:
        """Seconds until some link needs a look, or another is to be tried, though no byte moved."""
        wait = FOREVER
        self._answers_due = False
        for link in self._all_links():
            wait = min(wait, link.next_event(now))
            if link.in_flight:
                self._answers_due = True
        self._look_at = now + wait
        return min(wait, self._next_try(now))

    def _next_try(self, now: float) -> float:
        until = self._patient_until
        # Afterwards nothing is due: the next request for any broker begins to wait anew.
        if until is None or until <= now or not self._untried(until):
            return FOREVER
        return until - now

    @property
    def connected(self) -> bool:
        """True when some connection exists or is being made. Any thread."""
        return any(link.connected for link in self._all_links())

    @property
    def out_of_reach(self) -> bool:
        """True when the last attempt to connect has failed with every broker. The sender's thread.

        The bootstrap addresses count while no broker is known.
        """
        brokers = [link for node_id, link in self._links.items() if node_id >= 0]
        links = brokers or self._links.values()
        return all(self.log.is_failing(str(link.broker)) for link in links)

    @property
    def in_flight(self) -> int:
        """Requests without a response. Any thread."""
        return sum(link.in_flight for link in set(self._all_links()))

    def abandon(self) -> None:
        """In a forked child: let go of the parent's connections without touching them."""
        self._backend.abandon()

    def close(self) -> None:
        """End every connection and the backend. Raises what one of them raised, after all."""
        now = self._clock.monotonic()
        mistake: Exception | None = None
        for link in self._all_links():
            try:
                link.close(now)
            except Exception as error:
                mistake = error
        self._backend.close()
        if mistake is not None:
            raise mistake
