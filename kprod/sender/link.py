"""The link to one broker: at most one connection, made when needed, remade after a back-off."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from kprod.clock import ExponentialBackoff
from kprod.errors import ConnectionLost, KprodError
from kprod.metrics import ProducerMetrics
from kprod.metrics.producer_metrics import NodeCounters
from kprod.sender.connection import BrokerConnection
from kprod.sender.connection_log import (
    ConnectionLog,
    as_lost,
    forget_frames,
    named,
    silenced,
    silent_setup,
    slow_setup,
)
from kprod.sender.exchange import Exchange
from kprod.sender.login import LoginSettings
from kprod.transport.base import Backend, Transport
from kprod.types import Broker
from kprod.wire.versions import ApiKey, ApiVersions


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The settings that all links of a producer share; times in seconds.

    ``setup`` is the time to connect and shake hands, longer after each time it was too short
    (KIP-601). ``needed``: the APIs without which a broker is of no use. ``login`` tells for a host
    how to log in there; None: nobody has to. ``on_versions`` is told what each broker offers, after
    every handshake.
    """

    client_id: str
    max_in_flight: int
    max_frame_bytes: int
    request_timeout: float
    setup: ExponentialBackoff
    idle_timeout: float
    reconnect: ExponentialBackoff
    needed: tuple[ApiKey, ...] = ()
    login: Callable[[str], LoginSettings] | None = None
    on_versions: Callable[[ApiVersions], None] | None = None


FOREVER = float("inf")
NEVER = -FOREVER
LONG_SILENCE = 5.0
"""Seconds of silence that a broker may ask for before the log says so."""
OFTEN = 60.0
"""Seconds; the log names a connection that is lost while idle twice within them."""
RECEIVE_BYTES = 32 * 1024
"""Of one system call: answers are small, and for more than this memory comes from the kernel."""
READS_PER_TURN = 32
"""A broker that sends without end must not keep other brokers and deadlines waiting."""


class BrokerLink:
    """Connects, moves bytes between transport and protocol, and enforces the time limits.

    Thread: the sender's only. Failures of the transport, the protocol or the peer end the
    connection and fail its requests; they never travel further.
    """

    __slots__ = (
        "_backend",
        "_broken",
        "_coming_up",
        "_connection",
        "_failures",
        "_idle_lost_at",
        "_last_active",
        "_latest_failure",
        "_log",
        "_metrics",
        "_on_failure",
        "_retry_at",
        "_settings",
        "_setup_began",
        "_setup_limit",
        "_setups_too_long",
        "_tended",
        "_traffic",
        "_unread",
        "_waits_to_write",
        "broker",
        "transport",
    )

    def __init__(
        self,
        broker: Broker,
        backend: Backend,
        settings: LinkSettings,
        metrics: ProducerMetrics,
        on_failure: Callable[[str, KprodError], None],
        log: ConnectionLog,
        tended: deque[BrokerLink] | None = None,
    ) -> None:
        self.broker = broker
        self._tended = deque() if tended is None else tended  # links that can go on with a login
        self.transport: Transport | None = None
        self._on_failure = on_failure
        self._log = log
        self._backend = backend
        self._settings = settings
        self._metrics = metrics
        # By the first ``connect``: most brokers of a large cluster are never asked for anything.
        self._traffic: NodeCounters
        self._broken: ConnectionLost  # for a failure that cannot be explained
        self._connection: BrokerConnection | None = None
        self._waits_to_write = True  # the last word to the backend
        self._unread = False  # there was more to read than a turn has time for
        self._setup_began = NEVER
        self._setup_limit = 0.0
        self._setups_too_long = 0
        self._coming_up = False
        self._last_active = 0.0
        self._failures = 0
        self._retry_at = 0.0
        self._idle_lost_at = NEVER
        self._latest_failure: KprodError | None = None

    # Questions of the network -------------------------------------------------------------------

    def usable(self, now: float) -> bool:
        """True when a request handed over now would leave at once."""
        return self._connection is not None and self._connection.can_send(now)

    def offers(self, api: ApiKey) -> bool:
        """True when the broker takes requests of this kind, as far as this connection knows."""
        return self._connection is not None and self._connection.offers(api)

    @property
    def connected(self) -> bool:
        """True from the first attempt to connect until the connection ends."""
        return self.transport is not None

    @property
    def last_attempt(self) -> float:
        """When a connection was begun the last time."""
        return self._setup_began

    @property
    def in_flight(self) -> int:
        """Requests without a response, the handshake among them. Any thread."""
        connection = self._connection  # once: the sender may end it meanwhile
        return connection.in_flight if connection is not None else 0

    @property
    def bytes_in_flight(self) -> int:
        """The bytes of the requests without a response."""
        return self._connection.bytes_in_flight if self._connection is not None else 0

    def idle_bootstrap(self, now: float) -> bool:
        """True when this is a connection to a bootstrap address that has nothing to do."""
        return (
            self.broker.node_id < 0
            and self._connection is not None
            and self._connection.can_send(now)
            and not self._connection.in_flight
        )

    def trouble(self, now: float) -> KprodError | None:
        """Why requests cannot be sent; None while they can, and before the first attempt."""
        if self._connection is None or not self._connection.established:
            return self._latest_failure
        left = self._connection.throttled_for(now)
        return KprodError(silenced(self.broker, left)) if left > 0 else None

    def may_connect(self, now: float) -> bool:
        """True when there is no connection and no back-off forbids one."""
        return self.transport is None and now >= self._retry_at

    def next_event(self, now: float) -> float:
        """Seconds until this link needs a look although no byte moved."""
        if self.transport is None:
            # After the back-off nothing is due: the next request for the broker connects.
            return self._retry_at - now if self._retry_at > now else FOREVER
        limit = max(0.0, self._deadline() - now)
        if self._connection is None:
            return limit
        silent = self._connection.throttled_for(now)
        limit = min(limit, self._connection.login_due_in(now))
        return min(limit, silent) if silent else limit

    def _deadline(self) -> float:
        """When the connection is ended if nothing happens before."""
        if self._connection is None or not self._connection.established:
            return self._setup_began + self._setup_limit
        since = self._connection.waiting_since()
        if since is not None:
            return since + self._settings.request_timeout
        return self._last_active + self._settings.idle_timeout

    def becomes(self, broker: Broker) -> None:
        """The bootstrap address turned out to be that of ``broker``."""
        self.broker = broker
        self._traffic = self._metrics.node(broker.node_id)

    # Actions of the network ---------------------------------------------------------------------

    def connect(self, now: float) -> None:
        """Start a connection; a failure is reported, and followed by a back-off."""
        self._traffic = self._metrics.node(self.broker.node_id)
        self._broken = ConnectionLost(f"the connection to {self.broker} broke")
        self._setup_began = self._last_active = now
        self._coming_up = True
        self._setup_limit = self._settings.setup.delay(self._setups_too_long + 1)
        self._log.detail("connecting to %s", self.broker)
        try:
            self.transport = self._backend.dial(self.broker.host, self.broker.port)
            self._waits_to_write = True
        except Exception as error:
            explained = self._explain(error, now)
            self._tell(explained, now)
            self._back_off(explained, now)

    def send(self, exchange: Exchange, now: float) -> None:
        """Queue a request and write as much as the socket takes. ``usable`` must have been true."""
        if self._connection is None:
            raise AssertionError(f"no connection to {self.broker}")
        self._connection.send(exchange, now)
        self._last_active = now
        self._write(now)

    def moved(self, now: float, readable: bool, writable: bool) -> None:
        """The transport can go on: connecting, reading or writing."""
        if self._connection is None:
            goes_on = self._attempt(self._advance, now)
        else:
            goes_on = not readable or self._attempt(self._read, now)
        if goes_on and self._connection is not None and (writable or self._connection.has_output):
            self._write(now)  # also output that reading caused: the handshake may ask again

    def _attempt(self, act: Callable[[float], None], now: float) -> bool:
        """Call ``act``; False when it failed, and the connection has ended.

        An exchange that is half done breaks off the turn; other errors cost the connection.
        """
        try:
            act(now)
        except Exception as error:
            if self._connection is not None and self._connection.mistake is error:
                raise
            failure = self._explain(error, now)
        else:
            return True
        # After the except clause: the traceback refers to the views that were being written.
        self.drop(failure, now)
        return False

    def _advance(self, now: float) -> None:
        if self.transport is None or not self.transport.advance():
            return
        settings = self._settings
        connection = BrokerConnection(
            settings.client_id,
            max_in_flight=settings.max_in_flight,
            max_frame_bytes=settings.max_frame_bytes,
            needed=settings.needed,
            login=settings.login(self.broker.host) if settings.login is not None else None,
            wake=self._goes_on,
            on_versions=settings.on_versions,
            on_request=self._count,
        )
        self._connection = connection
        self._metrics.connections_made += 1
        connection.open(now)
        self._write(now)

    def _count(self, nbytes: int) -> None:
        """A request of so many bytes was made, by a caller or by the connection itself."""
        self._traffic.sent(nbytes)

    def _goes_on(self) -> None:
        """The next message of a login has been worked out, or more can be read. Any thread."""
        self._tended.append(self)
        self._backend.wake()

    def tend(self, now: float) -> None:
        """Go on with a login, or with reading; a failure ends the connection."""
        if self._attempt(self._go_on, now) and self._connection is not None:
            self._write(now)

    def _go_on(self, now: float) -> None:
        if self._connection is not None:
            self._connection.tend_login(now)
            if self._unread:
                self._read(now)

    def _read(self, now: float) -> None:
        connection, self._unread = self._connection, False
        for _ in range(READS_PER_TURN):
            if self.transport is None or connection is None:
                return
            chunk = self.transport.receive(RECEIVE_BYTES)
            if chunk is None:
                return
            if not chunk:
                raise ConnectionLost("the broker closed the connection")
            if not connection.logs_in:  # a login that is repeated keeps no idle connection open
                self._last_active = now
            self._traffic.bytes_in += len(chunk)
            seen = connection.responses
            connection.received(chunk, now)  # which may end the connection
            self._traffic.responses += connection.responses - seen
            silence = connection.throttled_for(now)
            if silence >= LONG_SILENCE:
                self._log.seldom(f"silence {self.broker}", silenced(self.broker, silence), now)
            if self._coming_up and connection.established:
                self._coming_up, self._setups_too_long = False, 0
                self._log.works(str(self.broker), now)
            if len(chunk) < RECEIVE_BYTES:
                return
        self._unread = True
        self._goes_on()

    def _write(self, now: float) -> None:
        self._attempt(self._write_all, now)

    def _write_all(self, now: float) -> None:
        if self.transport is None or self._connection is None:
            return
        while self._connection.has_output:
            taken = self._write_some(self.transport, self._connection)
            self._connection.wrote(taken, now)
            if not taken:
                break
            self._traffic.bytes_out += taken
        waits = self._connection.has_output
        if waits != self._waits_to_write:
            self._backend.watch(self.transport, write=waits)
            self._waits_to_write = waits

    def _write_some(self, transport: Transport, connection: BrokerConnection) -> int:
        # The views die here: the requests that wrote() ends must be free to reuse their memory.
        if not getattr(transport, "tells_all", False):
            connection.offered()
        connection.is_sending = True
        try:
            return transport.send(connection.pending_output())
        except ConnectionLost:  # the transport has reported every byte that left
            connection.is_sending = False
            raise

    def check_deadlines(self, now: float) -> None:
        """End a connection that is too slow to come up, to answer, or was idle for too long."""
        if self._connection is not None and self._connection.login_due_in(now) <= 0:
            self.tend(now)
        if self.transport is None or now < self._deadline():
            return
        if self._connection is None:
            self._give_up_setup(slow_setup(self._setup_limit, self.transport.progress()), now)
        elif not self._connection.established:
            logs_in, for_us = self._settings.login is not None, self._connection.prepares_login
            why = silent_setup(self._setup_limit, logs_in=logs_in, waits_for_us=for_us)
            self._give_up_setup(why, now)
        elif self._connection.waiting_since() is not None:
            limit = f"{self._settings.request_timeout:g} s"
            self.drop(self._explain(ConnectionLost(f"no response within {limit}"), now), now)
        else:
            self.close(now)

    def _give_up_setup(self, why: ConnectionLost, now: float) -> None:
        self._setups_too_long += 1
        self.drop(self._explain(why, now), now)

    def drop(self, error: KprodError, now: float) -> None:
        """The connection failed: end it, back off, fail its requests."""
        self._metrics.connections_lost += 1
        quietly = self.usable(now) and not self.in_flight
        if quietly:
            # Brokers close connections that are idle for minutes. A loss that comes again and again
            # has another cause: a firewall, or a broker that refuses requests after the handshake.
            quietly, self._idle_lost_at = now >= self._idle_lost_at + OFTEN, now
        try:
            self._end(error, now)
            self._tell(error, now, quietly=quietly)
        finally:
            self._back_off(error, now)

    def close(self, now: float) -> None:
        """End the connection on purpose."""
        if self.transport is not None:
            self._log.detail("closing the connection to %s", self.broker)
        self._end(ConnectionLost(f"the connection to {self.broker} was closed"), now)

    def _end(self, error: KprodError, now: float) -> None:
        transport, self.transport = self.transport, None
        connection, self._connection = self._connection, None
        try:
            if transport is not None:
                self._let_go(transport, now)
        finally:
            if connection is not None:
                if connection.useful:
                    # A handshake is not enough: a broker that breaks off at every request would be
                    # tried at the shortest interval: lost requests have no back-off of their own.
                    self._failures = 0
                self._metrics.connections_closed += 1
                connection.close(as_lost(error), now)

    def _let_go(self, transport: Transport, now: float) -> None:
        """Close ``transport``; an error in it must not keep its requests from being failed."""
        try:
            try:
                self._backend.forget(transport)
            finally:
                transport.close()
        except Exception as error:
            self._log.mistake(f"{self.broker}: the connection could not be closed", error, now)

    def _tell(self, error: KprodError, now: float, *, quietly: bool = False) -> None:
        if quietly:  # no request is lost: brokers close idle connections
            self._log.detail("%s", error)
        else:
            self._log.failed(str(self.broker), error, now)

    def _back_off(self, error: KprodError, now: float) -> None:
        self._failures += 1
        self._latest_failure = error
        self._retry_at = now + self._settings.reconnect.delay(self._failures)
        self._on_failure(str(self.broker), error)

    def _explain(self, error: Exception, now: float) -> KprodError:
        """The error that callers get. Raises nothing: the connection must end anyway."""
        try:
            return self._named(error, now)
        except Exception:  # no memory for that, or a log handler that raises
            forget_frames(error)
        return self._broken

    def _named(self, error: Exception, now: float) -> KprodError:
        new = self._connection is not None and not self._connection.useful
        explained = named(error, self.broker, new=new)
        if not isinstance(error, KprodError):
            what = f"{self.broker}: unexpected failure of the connection"
            self._log.mistake(what, error, now)
        forget_frames(error)
        return explained
