"""One broker.

It has at most one connection, which is made when needed, and again after a back-off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kprod.clock import ExponentialBackoff
from kprod.errors import ConnectionLost, KprodError, UnsupportedVersionError
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
from kprod.sender.deadlines import FOREVER, Deadlines
from kprod.sender.exchange import Exchange
from kprod.sender.login import LoginSettings
from kprod.transport.base import Backend, Transport
from kprod.types import Broker as Address
from kprod.wire.control import KPROD
from kprod.wire.versions import ApiKey, ApiVersions


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The settings that all brokers of a producer share. Times are in seconds.

    ``setup`` limits the time of connecting, handshake and login; the limit grows each time it was
    too short (KIP-601). ``needed``: the APIs that a broker must offer. ``login`` returns the
    settings of the login at a host; None: no login. ``learners`` are called after every handshake
    with the API versions that the broker offers. ``software``: the name and the version that
    brokers are told.
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
    learners: Sequence[Callable[[ApiVersions], None]] = ()
    software: tuple[str, str] = KPROD


NEVER = -FOREVER
LONG_SILENCE = 5.0
"""Seconds. If a broker asks for a longer silence, it is logged."""
OFTEN = 60.0
"""Seconds. The log names a connection that is lost while idle twice within this time."""
RECEIVE_BYTES = 32 * 1024
"""Maximum of one system call. Answers are small, and a larger buffer comes from the kernel."""
READS_PER_TURN = 32
"""Reads in a row: other brokers and deadlines must not wait for a broker that sends without end."""
READS = range(READS_PER_TURN)


class Broker:
    """Connects, moves bytes between transport and protocol, and enforces the time limits.

    A failure of the transport, the protocol or the peer ends the connection and fails its requests;
    it is not raised. Used only by the sender's thread.
    """

    __slots__ = (
        "_backend",
        "_changed",
        "_coming_up",
        "_counts_every_byte",
        "_deadlines",
        "_failures",
        "_idle_lost_at",
        "_last_active",
        "_latest_failure",
        "_log",
        "_metrics",
        "_on_failure",
        "_retry_at",
        "_settings",
        "_setup_limit",
        "_setups_too_long",
        "_traffic",
        "_transports",
        "_unread",
        "_waits_to_write",
        "address",
        "connection",
        "due",
        "setup_began",
        "transport",
    )

    def __init__(
        self,
        address: Address,
        backend: Backend,
        settings: BrokerSettings,
        metrics: ProducerMetrics,
        on_failure: Callable[[str, KprodError], None],
        log: ConnectionLog,
        deadlines: Deadlines,
        transports: dict[int, Broker],
        changed: Callable[[], None],
    ) -> None:
        self.address = address
        self.due = FOREVER  # see Deadlines
        self._deadlines = deadlines
        self._transports = transports  # brokers by the id of their transport
        self._changed = changed  # it may take a request though no byte came
        self.transport: Transport | None = None
        self._on_failure = on_failure
        self._log = log
        self._backend = backend
        self._settings = settings
        self._metrics = metrics
        # By the first ``connect``: most brokers of a large cluster are never asked for anything.
        self._traffic: NodeCounters
        self.connection: BrokerConnection | None = None
        self._counts_every_byte = False  # see Transport
        self._waits_to_write = True  # the last word to the backend
        self._unread = False  # there was more to read than an iteration has time for
        self.setup_began = NEVER  # when a connection was begun the last time
        self._setup_limit = 0.0
        self._setups_too_long = 0
        self._coming_up = False
        self._last_active = 0.0
        self._failures = 0
        self._retry_at = 0.0
        self._idle_lost_at = NEVER
        self._latest_failure: KprodError | None = None

    # Questions of the network -------------------------------------------------------------------

    @property
    def can_send(self) -> bool:
        """True if a request that is sent now would be written at once."""
        return self.connection is not None and self.connection.can_send

    def offers(self, api: ApiKey, cap: int | None = None) -> bool:
        """True if broker and kprod share a version of this request that is at most ``cap``."""
        return self.connection is not None and self.connection.offers(api, cap)

    @property
    def connected(self) -> bool:
        """True from the first attempt to connect until the connection ends."""
        return self.transport is not None

    @property
    def in_flight(self) -> int:
        """The number of requests without a response, including those of the handshake.

        Any thread.
        """
        connection = self.connection  # once: the sender may end it meanwhile
        return connection.in_flight if connection is not None else 0

    @property
    def idle_bootstrap(self) -> bool:
        """True if this is an idle connection to a bootstrap address."""
        return self.address.node_id < 0 and self.can_send and not self.in_flight

    def trouble(self, now: float) -> KprodError | None:
        """Why requests cannot be sent. None if they can, or before the first attempt to connect."""
        if self.connection is None or not self.connection.established:
            return self._latest_failure
        left = self.connection.throttled_for(now)
        return KprodError(silenced(self.address, left)) if left > 0 else None

    def may_connect(self, now: float) -> bool:
        """True if there is no connection, and no back-off is running."""
        return self.transport is None and now >= self._retry_at

    def next_deadline(self, now: float) -> float:
        """When this broker must be looked at again, even if no bytes arrive."""
        if self.transport is None:
            # After the back-off nothing is due: the next request for the broker connects.
            return self._retry_at if self._retry_at > now else FOREVER
        if self.connection is None:
            return self._deadline()
        return min(self._deadline(), self.connection.next_change)

    def _set_deadline(self, now: float) -> None:
        """Call this if the next deadline may be earlier than before. ``fire`` finds a later one."""
        self._deadlines.set(self, self.next_deadline(now))

    def _deadline(self) -> float:
        """When to end the connection if nothing happens until then."""
        if self.connection is None or not self.connection.established:
            return self.setup_began + self._setup_limit
        since = self.connection.waiting_since()
        if since is not None:
            return since + self._settings.request_timeout
        return self._last_active + self._settings.idle_timeout

    def becomes(self, address: Address) -> None:
        """This bootstrap address turned out to be the broker ``address`` of the metadata."""
        self.address = address
        self._traffic = self._metrics.node(address.node_id)
        if self.connection is not None:
            self.connection.on_request = self._traffic.sent

    # Actions of the network ---------------------------------------------------------------------

    def connect(self, now: float) -> None:
        """Start a connection. A failure is reported, and a back-off follows it."""
        self._traffic = self._metrics.node(self.address.node_id)
        self.setup_began = self._last_active = now
        self._coming_up = True
        self._setup_limit = self._settings.setup.delay(self._setups_too_long + 1)
        self._log.detail("connecting to %s", self.address)
        try:
            self.transport = self._backend.dial(self.address.host, self.address.port)
        except Exception as error:
            explained = self._explained(error, now)
            self._log.failed(str(self.address), explained, now)
            self._back_off(explained, now)
        else:
            self._transports[id(self.transport)] = self
            self._counts_every_byte = getattr(self.transport, "counts_every_byte", False)
            self._waits_to_write = True
            self._set_deadline(now)

    def send(self, exchange: Exchange, now: float) -> None:
        """Queue a request, and write as much of it as the socket takes. ``can_send`` must be True.

        An error that occurs immediately is passed to the exchange, and not raised.
        """
        connection = self.connection
        if connection is None:
            raise AssertionError(f"no connection to {self.address}")
        failure: KprodError | None = None
        try:
            connection.send(exchange, now)
        except UnsupportedVersionError as error:
            failure = UnsupportedVersionError(f"{self.address}: {error}")
            failure.retriable = True
        except KprodError as error:
            failure = error
        # After the except clauses: an error refers to the frames it passed until its clause ends.
        if failure is not None:
            self._not_sent(exchange, failure, now)
            return
        self._last_active = now
        if now + self._settings.request_timeout < self.due:  # answers only put off what is due
            self._deadlines.set(self, now + self._settings.request_timeout)
        self._move(now, readable=False)

    def _not_sent(self, exchange: Exchange, failure: KprodError, now: float) -> None:
        if not self.in_flight and not self.offers(exchange.api, exchange.version_cap):
            # The versions of the handshake were garbled, or the broker was changed since: after
            # another handshake the request may find a version. Requests in flight come first.
            self.drop(failure, now)
        exchange.failed(failure, now, sent=False)

    def receive(self, now: float, *, readable: bool) -> None:
        """The transport is ready: go on connecting, reading or writing."""
        connection = self.connection
        steady = connection is not None and connection.steady
        self._move(now, readable=readable)
        if not (steady and connection and connection.steady):  # one that has ended is not steady
            self._set_deadline(now)

    def _move(self, now: float, *, readable: bool, goes_on: bool = False) -> None:
        """Go on connecting, or read and write. A failure ends the connection.

        If an exchange raises while it handles an answer, the sender ends.
        """
        try:
            if self.connection is None:
                self._advance(now)
            elif readable:
                self._read(now)
            elif goes_on:
                self.connection.pass_time(now)
                if self._unread:
                    self._read(now)
            if self.connection is not None and self.connection.output:
                self._write(now)  # also output that reading caused: the handshake may ask again
        except Exception as error:
            if self.connection is not None and self.connection.mistake is error:
                raise
            failure = self._explained(error, now)
        else:
            return
        # After the except clause: the traceback refers to the views that were being written.
        self.drop(failure, now)

    def _advance(self, now: float) -> None:
        if self.transport is None or not self.transport.advance():
            return
        settings = self._settings
        connection = BrokerConnection(
            settings.client_id,
            software=settings.software,
            max_in_flight=settings.max_in_flight,
            max_frame_bytes=settings.max_frame_bytes,
            needed=settings.needed,
            login=settings.login(self.address.host) if settings.login is not None else None,
            wake=self._goes_on,
            learners=settings.learners,
            on_request=self._traffic.sent,
        )
        self.connection = connection
        self._metrics.connections_made += 1
        connection.open(now)

    def _goes_on(self) -> None:
        """The next message of a login is ready, or there is more to read. Any thread."""
        self._deadlines.queued.append(self)
        self._backend.wake()

    def fire(self, now: float) -> None:
        """A deadline has come, or a login or reading can go on (see ``Deadlines``)."""
        if self.connection is not None:
            self._move(now, readable=False, goes_on=True)
        self._check_time_limits(now)
        self._set_deadline(now)
        self._changed()

    def _read(self, now: float) -> None:
        connection, traffic, self._unread = self.connection, self._traffic, False
        for _ in READS:
            if self.transport is None or connection is None:
                return
            chunk = self.transport.receive(RECEIVE_BYTES)
            if chunk is None:
                return
            if not chunk:
                raise ConnectionLost("the broker closed the connection")
            if connection.steady or not connection.logs_in:
                self._last_active = now  # a login that is repeated keeps no idle connection open
            traffic.bytes_in += len(chunk)
            traffic.responses += connection.received(chunk, now)  # which may end it
            if not connection.steady and (silence := connection.throttled_for(now)) >= LONG_SILENCE:
                self._log.seldom(f"silence {self.address}", silenced(self.address, silence), now)
            if self._coming_up and connection.established:
                self._coming_up, self._setups_too_long = False, 0
                self._log.works(str(self.address), now)
            if len(chunk) < RECEIVE_BYTES:
                return
        self._unread = True
        self._goes_on()

    def _write(self, now: float) -> None:
        transport, connection = self.transport, self.connection
        if transport is None or connection is None:
            return
        output, taken = connection.output, -1
        while output and taken:
            if not self._counts_every_byte:
                connection.offered()
            connection.is_sending = True
            try:
                # The views die here: requests that ``wrote`` ends must be free to reuse memory.
                if len(output) == 1:
                    taken = transport.send(output[0].left)
                else:
                    taken = transport.send(connection.pending_output())
            except ConnectionLost:  # the transport has reported every byte that left
                connection.is_sending = False
                raise
            connection.wrote(taken, now)
            self._traffic.bytes_out += taken
        waits = bool(output)
        if waits != self._waits_to_write:
            self._backend.watch(transport, write=waits)
            self._waits_to_write = waits

    def _check_time_limits(self, now: float) -> None:
        """End a connection whose setup or answer takes too long, or which was idle for too long."""
        if self.transport is None or now < self._deadline():
            return
        if self.connection is None:
            self._give_up_setup(slow_setup(self._setup_limit, self.transport.progress()), now)
        elif not self.connection.established:
            logs_in, for_us = self._settings.login is not None, self.connection.prepares_login
            why = silent_setup(self._setup_limit, logs_in=logs_in, waits_for_us=for_us)
            self._give_up_setup(why, now)
        elif self.connection.waiting_since() is not None:
            limit = f"{self._settings.request_timeout:g} s"
            self.drop(self._explained(ConnectionLost(f"no response within {limit}"), now), now)
        else:
            self.close(now)

    def _give_up_setup(self, why: ConnectionLost, now: float) -> None:
        self._setups_too_long += 1
        self.drop(self._explained(why, now), now)

    def drop(self, error: KprodError, now: float) -> None:
        """The connection has failed: end it, start a back-off, and fail its requests."""
        self._metrics.connections_lost += 1
        quietly = self.can_send and not self.in_flight
        if quietly:
            # Brokers close connections that are idle for minutes. A loss that comes again and again
            # has another cause: a firewall, or a broker that refuses requests after the handshake.
            quietly, self._idle_lost_at = now >= self._idle_lost_at + OFTEN, now
        try:
            self._end(error, now)
            if quietly:  # no request is lost: brokers close idle connections
                self._log.detail("%s", error)
            else:
                self._log.failed(str(self.address), error, now)
        finally:
            self._back_off(error, now)

    def close(self, now: float) -> None:
        """End the connection on purpose."""
        if self.transport is not None:
            self._log.detail("closing the connection to %s", self.address)
        self._end(ConnectionLost(f"the connection to {self.address} was closed"), now)
        self._set_deadline(now)

    def _end(self, error: KprodError, now: float) -> None:
        transport, self.transport = self.transport, None
        connection, self.connection = self.connection, None
        try:
            if transport is not None:
                self._transports.pop(id(transport), None)
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
        """Close ``transport``.

        If that fails, the requests of the connection are failed nevertheless.
        """
        try:
            try:
                self._backend.forget(transport)
            finally:
                transport.close()
        except Exception as error:
            self._log.mistake(f"{self.address}: the connection could not be closed", error, now)

    def _back_off(self, error: KprodError, now: float) -> None:
        self._failures += 1
        self._latest_failure = error
        self._retry_at = now + self._settings.reconnect.delay(self._failures)
        self._set_deadline(now)
        self._on_failure(str(self.address), error)

    def _explained(self, error: Exception, now: float) -> KprodError:
        """The error for callers.

        The tracebacks of ``error`` are dropped (see ``forget_frames``).
        """
        new = self.connection is not None and not self.connection.useful
        explained = named(error, self.address, new=new)
        if not isinstance(error, KprodError):
            what = f"{self.address}: unexpected failure of the connection"
            self._log.mistake(what, error, now)
        forget_frames(error)
        return explained
