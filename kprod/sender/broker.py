"""One broker.

It has at most one connection, which is made when needed, and again after a back-off.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from kprod.errors import (
    AuthenticationError,
    ConnectionLost,
    KprodError,
    ProtocolError,
    UnsupportedVersionError,
)
from kprod.metrics.producer_metrics import NodeCounters
from kprod.quantities import counted
from kprod.sender.connection import BrokerConnection, Exchange
from kprod.sender.connection_log import forget_frames
from kprod.sender.deadlines import FOREVER
from kprod.sender.login import Login
from kprod.transport.base import Transport
from kprod.types import Broker as Address
from kprod.wire.versions import ApiKey

if TYPE_CHECKING:
    from kprod.sender.network import Network
    from kprod.sender.partition import Partition

NEVER = -FOREVER
LONG_SILENCE = 5.0
"""Seconds. If a broker asks for a longer silence, it is logged."""
OFTEN = 60.0
"""Seconds. The log names a connection that is lost while idle twice within this time."""
RECEIVE_BYTES = 32 * 1024
"""Maximum of one system call. Answers are small, and a larger buffer comes from the kernel."""
READS_PER_TURN = 32
"""Reads in a row: other brokers and deadlines must not wait for a broker that sends without end."""
PORT_HINT = "; does this port expect TLS or a login? see security_protocol"
NOT_READY = "what logs us in was not ready"
PROVIDER_HINT = ": does the token's provider answer, or Kerberos?"


class Window:
    """The bytes that may be in flight to one broker, and the maximum size of its batches.

    It works like TCP's congestion window (RFC 5681): answers make it grow, and a loss halves it.
    Some networks break every connection after a number of bytes, or carry less than a request
    within ``request_timeout_ms``. Without a window, a large batch would never arrive there: its
    repetition is as large as the first attempt. Bytes are those of batches. Times are seconds of
    one clock.

    ``size`` begins with ``least``, which is the size of a batch that has not grown, and grows to
    ``most``. It grows by all answered bytes until it has half the size that it had before the last
    loss (slow start). Then it grows by ``least`` for each answered window. An answer that took
    longer than ``slow`` adds nothing, because twice as many bytes might take too long; nor does one
    while half of ``size`` or less is in flight, because more was not tried (RFC 7661). After a
    loss, ``size`` is half of the bytes that were in flight, but at least ``least``.

    ``size`` always limits batches. If ``limits`` is True, it limits the bytes in flight as well:
    from a loss until ``size`` is ``most`` again. ``in_flight``: the bytes of unanswered requests.
    The maker of a request adds them; ``answered`` or ``failed`` subtracts them.

    Used only by the owner of the loop.
    """

    def __init__(self, least: int, most: int, slow: float) -> None:
        self._least = least
        self._most = max(least, most)
        self._slow = slow
        self._half = self._most  # where slow start ends
        self._fell_at = -FOREVER
        self.in_flight = 0
        self.size = least
        self.limits = False  # True: it limits requests, too

    def room(self) -> int:
        """The bytes that another request may have now; 0: it must wait.

        If nothing is in flight, one batch may be sent, whatever its size.
        """
        if not self.limits:
            return self._most
        return max(self.size - self.in_flight, 0 if self.in_flight else 1)

    def answered(self, nbytes: int, seconds: float) -> None:
        """A request of ``nbytes`` was answered after ``seconds``."""
        size = self.size
        if size < self._most and seconds <= self._slow and 2 * self.in_flight > size:
            size += nbytes if size < self._half else nbytes * self._least // size
            self.size = size if size < self._most else self._most
            if self.size == self._most:
                self.limits = False  # the window has its former size again
        self.in_flight -= nbytes

    def failed(self, nbytes: int, sent_at: float, now: float, *, lost: bool) -> None:
        """A request of ``nbytes`` ended without an answer.

        ``lost``: because its connection was lost. The loss of a connection counts once, for all
        requests that it carried.
        """
        if lost and sent_at > self._fell_at:
            self._fell_at = now
            self.limits = True
            self._half = max(self._least, self.size // 2)
            self.size = max(self._least, min(self.size, self.in_flight) // 2)
        self.in_flight -= nbytes


class Broker:
    """Connects, moves bytes between transport and protocol, and enforces the time limits.

    ``ready``: the partitions that it leads whose place is READY, the one that has waited longest
    first. ``window`` limits their batches. It lasts as long as the node is in the cluster.

    A failure of the transport, the protocol or the peer ends the connection and fails its requests;
    it is not raised. Used only by the owner of the loop.
    """

    def __init__(self, address: Address, network: Network) -> None:
        self.address = address
        self.due = FOREVER  # see Deadlines
        self._network = network
        self._settings = network.settings
        self._log = network.log
        self.ready: OrderedDict[Partition, None] = OrderedDict()
        self.window = Window(*self._settings.window)
        self.transport: Transport | None = None
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
        self._failing_since: float | None = None  # None: the last connection was established
        self._failed = 0  # connections since then
        self._told = False  # the log has a line about one of them
        self._latest_failure: KprodError | None = None

    # Questions of the network -------------------------------------------------------------------

    @property
    def can_send(self) -> bool:
        """True if a request may be sent now, and would be written at once."""
        return self.connection is not None and self.connection.can_send

    def offers(self, api: ApiKey, cap: int | None = None) -> bool:
        """True if broker and kprod share a version of this request that is at most ``cap``."""
        versions = None if self.connection is None else self.connection.versions
        return versions is not None and versions.offers(api, cap)

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
        return len(connection.unanswered) if connection is not None else 0

    def last_error(self, now: float) -> KprodError | None:
        """Why requests cannot be sent. None if they can, or before the first attempt to connect."""
        if self.connection is None or not self.connection.established:
            return self._latest_failure
        left = self.throttled_for(now)
        return KprodError(_silenced(self.address, left)) if left > 0 else None

    def throttled_for(self, now: float) -> float:
        """The seconds left of a silence that the broker has asked for."""
        return 0.0 if self.connection is None else self.connection.throttled_for(now)

    def may_connect(self, now: float) -> bool:
        """True if there is no connection, and no back-off is running."""
        return self.transport is None and now >= self._retry_at

    def next_deadline(self, now: float) -> float:
        """When this broker must be checked again, even if no bytes arrive."""
        if self.transport is None:
            # After the back-off nothing is due: the next request for the broker connects.
            return self._retry_at if self._retry_at > now else FOREVER
        if self.connection is None:
            return self._deadline()
        return min(self._deadline(), self.connection.next_change)

    def _set_deadline(self, now: float) -> None:
        """Call this if the next deadline may be earlier than before. ``fire`` finds a later one."""
        self._network.deadlines.set(self, self.next_deadline(now))

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
        self._traffic = self._network.metrics.node(address.node_id)
        if self.connection is not None:
            self.connection.on_request = self._traffic.sent

    # Actions of the network ---------------------------------------------------------------------

    def connect(self, now: float) -> None:
        """Start a connection. A failure is reported, and a back-off follows it."""
        self._traffic = self._network.metrics.node(self.address.node_id)
        self.setup_began = self._last_active = now
        self._coming_up = True
        self._setup_limit = self._settings.setup.delay(self._setups_too_long + 1)
        self._log.debug("connecting to %s", self.address)
        try:
            self.transport = self._network.backend.dial(self.address.host, self.address.port)
        except Exception as error:
            explained = self._explained(error, now)
            self._tell_failure(explained, now)
            self._back_off(explained, now)
        else:
            self._network.transports[id(self.transport)] = self
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
            self._network.deadlines.set(self, now + self._settings.request_timeout)
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
            if self.connection is not None and self.connection.internal_error is error:
                raise
            failure = self._explained(error, now)
        else:
            return
        # After the except clause: the traceback refers to the views that were being written.
        self.drop(failure, now)

    def _advance(self, now: float) -> None:
        if self.transport is None or not self.transport.advance():
            return
        settings, host = self._settings, self.address.host
        login = None if settings.login is None else Login(settings.login, host, self._goes_on)
        connection = BrokerConnection(settings, login, self._traffic.sent)
        self.connection = connection
        self._network.metrics.connections_made += 1
        connection.open(now)

    def _goes_on(self) -> None:
        """The next message of a login is ready, or there is more to read. Any thread."""
        self._network.deadlines.queued.append(self)
        self._network.backend.wake()

    def fire(self, now: float) -> None:
        """A deadline has come, or a login or reading can go on (see ``Deadlines``)."""
        if self.connection is not None:
            self._move(now, readable=False, goes_on=True)
        self._check_time_limits(now)
        self._set_deadline(now)
        self._network.look_again()  # it may take a request though no byte came

    def _read(self, now: float) -> None:
        connection, traffic, self._unread = self.connection, self._traffic, False
        for _ in range(READS_PER_TURN):
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
                self._log.seldom(f"silence {self.address}", _silenced(self.address, silence), now)
            if self._coming_up and connection.established:
                self._coming_up, self._setups_too_long = False, 0
                self._latest_failure = None
                self._network.came_up += 1
                self._tell_success(now)
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
            self._network.backend.watch(transport, write=waits)
            self._waits_to_write = waits

    def _check_time_limits(self, now: float) -> None:
        """End a connection whose setup or answer takes too long, or which was idle for too long."""
        transport, connection = self.transport, self.connection
        if transport is None or now < self._deadline():
            return
        if connection is None:
            progress = transport.progress()
            why = f"not connected after {self._setup_limit:.3g} s" + (progress and f": {progress}")
        elif not connection.established:
            why = _silent_setup(self._setup_limit, connection.login)
        elif connection.waiting_since() is None:
            self.close(now)
            return
        elif connection.unanswered:
            why = f"no response within {self._settings.request_timeout:g} s"
        else:
            why = f"{NOT_READY} within {self._settings.request_timeout:g} s{PROVIDER_HINT}"
        if connection is None or not connection.established:
            self._setups_too_long += 1
        self.drop(self._explained(ConnectionLost(why), now), now)

    def drop(self, error: KprodError, now: float) -> None:
        """The connection has failed: end it, start a back-off, and fail its requests."""
        self._network.metrics.connections_lost += 1
        quietly = self.can_send and not self.in_flight
        if quietly:
            # Brokers close connections that are idle for minutes. A loss that comes again and again
            # has another cause: a firewall, or a broker that refuses requests after the handshake.
            quietly, self._idle_lost_at = now >= self._idle_lost_at + OFTEN, now
        self._end(error, now)
        if quietly:  # no request is lost: brokers close idle connections
            self._log.debug("%s", error)
        else:
            self._tell_failure(error, now)
        self._back_off(error, now)

    @property
    def is_failing(self) -> bool:
        """True if the last connection failed, or could not be made."""
        return self._failing_since is not None

    def _tell_failure(self, error: KprodError, now: float) -> None:
        if self._failing_since is None:
            self._failing_since, self._failed, self._told = now, 0, False
        self._failed += 1
        text = error.with_number()
        self._told = self._log.seldom(str(self.address), text, now, "failures") or self._told

    def _tell_success(self, now: float) -> None:
        since, self._failing_since = self._failing_since, None
        if since is None or not self._told:
            self._log.debug("connected to %s", self.address)
        else:
            after = f"after {now - since:.3g} s, {counted(self._failed, 'failure')}"
            self._log.info("%s is connected again %s", self.address, after)

    def close(self, now: float) -> None:
        """End the connection on purpose."""
        if self.transport is not None:
            self._log.debug("closing the connection to %s", self.address)
        self._end(ConnectionLost(f"the connection to {self.address} was closed"), now)
        self._set_deadline(now)

    def _end(self, error: KprodError, now: float) -> None:
        transport, self.transport = self.transport, None
        connection, self.connection = self.connection, None
        if transport is not None:
            self._network.transports.pop(id(transport), None)
            self._let_go(transport, now)
        if connection is not None:
            if connection.useful:
                # A handshake is not enough: a broker that breaks off at every request would be
                # tried at the shortest interval: lost requests have no back-off of their own.
                self._failures = 0
            self._network.metrics.connections_closed += 1
            connection.close(_as_lost(error), now)

    def _let_go(self, transport: Transport, now: float) -> None:
        """Close ``transport``.

        If that fails, the requests of the connection are failed nevertheless.
        """
        try:
            try:
                self._network.backend.forget(transport)
            finally:
                transport.close()
        except Exception as error:
            self._log.internal_error(
                f"{self.address}: the connection could not be closed", error, now
            )

    def _back_off(self, error: KprodError, now: float) -> None:
        self._failures += 1
        self._latest_failure = error
        self._retry_at = now + self._settings.reconnect.delay(self._failures)
        self._set_deadline(now)
        self._network.on_failure(str(self.address), error)

    def _explained(self, error: Exception, now: float) -> KprodError:
        """``error`` with the broker's name, for callers. What is not kprod's is a lost connection.

        The tracebacks of ``error`` are dropped (see ``forget_frames``).
        """
        explained: KprodError
        if isinstance(error, (AuthenticationError, ProtocolError, UnsupportedVersionError)):
            explained = type(error)(f"{self.address}: {error}")
        elif isinstance(error, KprodError) and not isinstance(error, ConnectionLost):
            explained = error
        else:
            # A port that expects TLS or a login behaves like this before the first request.
            new = self.connection is not None and not self.connection.useful
            hint = new and "security_protocol" not in str(error)
            explained = ConnectionLost(f"{self.address}: {error}{PORT_HINT if hint else ''}")
        if explained is not error:
            explained.__cause__ = error.__cause__ or error
        if not isinstance(error, KprodError):
            what = f"{self.address}: unexpected failure of the connection"
            self._log.internal_error(what, error, now)
        forget_frames(error)
        return explained


def _as_lost(error: KprodError) -> KprodError:
    """The error for the requests of a connection that ended because of ``error``.

    An AuthenticationError of a repeated login becomes a lost connection, so that the requests are
    sent again on the next connection.
    """
    if not isinstance(error, AuthenticationError):
        return error
    lost = ConnectionLost(str(error))
    lost.__cause__ = error
    return lost


def _silenced(broker: Address, seconds: float) -> str:
    return f"{broker} asks for {seconds:.3g} s without requests (throttle_time_ms)"


def _silent_setup(seconds: float, login: Login | None) -> str:
    """Why a connection whose setup got no answer within ``seconds`` ends."""
    limit = f"within {seconds:.3g} s of connecting"
    if login is not None and login.begun is not None:
        return f"{NOT_READY} {limit}{PROVIDER_HINT}"
    or_login = "" if login is None else " or to our login"
    return f"no answer to ApiVersions{or_login} {limit}: is it a Kafka broker?"
