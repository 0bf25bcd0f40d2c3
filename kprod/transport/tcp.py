"""TCP and Unix sockets, DNS, and waiting for all of them."""

from __future__ import annotations

import encodings.idna  # noqa: F401  socket.getaddrinfo would, in the sender's thread (decision 0029)
import os
import re
import socket
import sys
import threading
from collections.abc import Callable

from kprod.errors import ConnectionLost, IllegalStateError
from kprod.transport.base import Backend, Readiness, Transport, readiness
from kprod.transport.tcp_transport import Address, TcpTransport
from kprod_ext import Poller, let_signals_in

MOST_SILENT = 1000
"""Number of names whose unresponsive address is remembered; beyond that all are forgotten."""

__all__ = ["Address", "Resolver", "TcpBackend", "UnixBackend", "resolve"]


class NameLookup:
    """A name lookup, in a daemon thread that ends with the answer.

    The thread holds no lock of kprod, so a fork or the interpreter's exit is safe at any time.
    """

    def __init__(self, ask: Callable[[], list[Address]], answered: Callable[[], None]) -> None:
        self._ask = ask
        self._answered = answered
        self._outcome: list[Address] | Exception | None = None

    def start(self, name: str) -> None:
        """Start a thread with this name. Raises RuntimeError if no more threads can start."""
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self._outcome = self._ask()
        except Exception as error:
            self._outcome = error
        self._answered()

    @property
    def done(self) -> bool:
        """True once there is an answer. Any thread."""
        return self._outcome is not None

    def addresses(self) -> list[Address]:
        """The answer, once ``done``. Raises the resolver's error."""
        if self._outcome is None:
            raise AssertionError("the resolver has not answered")
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class NameLookups:
    """At most one lookup per name at a time, shared by all connections. Used by one thread.

    ``resolver`` may block and raise anything. ``answered`` is called after each answer, in the
    lookup's thread, even if the answer is no longer needed.
    """

    def __init__(
        self,
        resolver: Callable[[str, int], list[Address]],
        answered: Callable[[], None],
    ) -> None:
        self._resolver = resolver
        self._answered = answered
        self._under_way: dict[tuple[str, int], NameLookup] = {}

    def ask(self, host: str, port: int) -> NameLookup:
        """The running lookup for this name and port; starts one if there is none."""
        lookup = self._under_way.get((host, port))
        if lookup is None or lookup.done:
            lookup = NameLookup(lambda: self._resolver(host, port), self._answered)
            lookup.start(f"kprod-resolver-{host}")
            under_way = {at: one for at, one in self._under_way.items() if not one.done}
            self._under_way = {**under_way, (host, port): lookup}
        return lookup


Resolver = Callable[[str, int], list[Address]]
"""Returns all addresses of a name, in the order to try them. May block, and raise OSError.

Called in separate threads, for several names at a time.
"""


def resolve(host: str, port: int) -> list[Address]:
    """Return the addresses from the system's resolver, in its order (RFC 6724). Blocks."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [Address(family, sockaddr) for family, _, _, _, sockaddr in found]


def _read_as_number(host: str, port: int) -> list[Address] | None:
    """The address of a numeric host; None for a name. Does not resolve names."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return None
    return [Address(family, sockaddr) for family, _, _, _, sockaddr in found]


class TcpBackend(Backend):
    """TCP sockets with TCP_NODELAY and SO_KEEPALIVE.

    Buffer sizes are in bytes; None means the system's default. While ``eager`` is set (see
    ``Backend``), ``poll`` may spin for ``busy_poll`` seconds before it sleeps; 0 turns this off. A
    ``resolver`` is called for host names and numeric addresses. None uses the system's resolver,
    for host names only. One thread at a time uses the backend; only ``wake`` may be called by any
    thread. After ``close``, ``poll`` and ``dial`` raise IllegalStateError.
    """

    interruptible = True  # a ready descriptor stays ready until it is used

    def __init__(
        self,
        send_buffer_bytes: int | None = None,
        receive_buffer_bytes: int | None = None,
        resolver: Resolver | None = None,
        busy_poll: float = 0.0,
    ) -> None:
        # With a single processor, a broker on this machine cannot answer while we spin.
        self._busy_poll = busy_poll if _processors() > 1 else 0.0
        self.spins = self._busy_poll > 0.0
        self._options = _socket_options(send_buffer_bytes, receive_buffer_bytes)
        self._silent: dict[str, Address] = {}  # by name: the last address that did not respond
        self._stillborn: dict[TcpTransport, None] = {}  # refused by every address within dial()
        self._closed = False
        self._poller = Poller()
        self._reads_numbers = resolver is None
        self._lookups = NameLookups(resolver or resolve, self._poller.wake)
        self._resolving: dict[TcpTransport, NameLookup] = {}

    def dial(self, host: str, port: int) -> TcpTransport:
        """See ``Backend.dial``. Resolves the host name each time, in a separate thread.

        An address that refuses the connection is skipped at once. If an address does not respond,
        the caller's timeout ends the attempt, and the next connection to this host starts with the
        following address (KIP-602).
        """
        self._check_open()
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        transport = TcpTransport(name, None, self._options, self._poller)
        known = self._known(host, port)
        if known is None:
            self._resolving[transport] = self._lookups.ask(host, port)
        else:
            self._begin(transport, known)
        return transport

    def _known(self, host: str, port: int) -> list[Address] | None:
        """The addresses, if no resolver is needed; else None."""
        return _read_as_number(host, port) if self._reads_numbers else None

    def _begin(self, transport: TcpTransport, addresses: list[Address]) -> None:
        if not transport.resolved(_behind(self._silent.get(transport.name), addresses)):
            self._stillborn[transport] = None

    def _begin_resolved(self) -> None:
        """Connect the transports whose names are resolved."""
        for transport in [known for known, lookup in self._resolving.items() if lookup.done]:
            try:
                addresses = self._resolving.pop(transport).addresses()
            except Exception as error:
                transport.unresolvable(error)
                self._stillborn[transport] = None
            else:
                self._begin(transport, addresses)

    def watch(self, transport: Transport, *, write: bool) -> None:
        """See ``Backend.watch``. No system call."""
        _ours(transport).watch(write=write)

    def poll(self, timeout: float | None) -> list[Readiness]:
        """See ``Backend.poll``."""
        if self._closed:
            self._check_open()
        # Before waiting: a later answer wakes the poll, and is handled in the next call.
        if self._resolving:
            self._begin_resolved()
        if self._stillborn:
            timeout = 0.0
        busy = self._busy_poll if self.eager else 0.0
        ready = list(map(readiness, let_signals_in(self._poller.wait, timeout, busy)))
        if self._stillborn:
            ready += [Readiness(transport, True, True) for transport in self._stillborn]
        return ready

    def forget(self, transport: Transport) -> None:
        """See ``Backend.forget``."""
        ours = _ours(transport)
        if ours.waits_for is not None:
            if len(self._silent) >= MOST_SILENT:
                self._silent.clear()
            self._silent[ours.name] = ours.waits_for
        self._stillborn.pop(ours, None)
        self._resolving.pop(ours, None)
        ours.unwatch()

    def wake(self) -> None:
        """See ``Backend.wake``."""
        self._poller.wake()

    def close(self) -> None:
        """See ``Backend.close``. Closes the watched transports."""
        if self._closed:
            return
        self._closed = True
        for resolving in self._resolving:
            resolving.close()
        self._resolving.clear()
        for transport in self._poller.watched():
            transport.close()
        self._poller.close()

    def abandon(self) -> None:
        """See ``Backend.abandon``. ``kprod_ext.process`` has already closed the descriptors."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the TCP backend is closed")


def _processors() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_SO_NOSIGPIPE = 0x1022
"""SO_NOSIGPIPE of macOS, which Python does not define. Older kernels have no MSG_NOSIGNAL."""


def _socket_options(
    send_bytes: int | None, receive_bytes: int | None
) -> list[tuple[int, int, int]]:
    """(level, option, value) of all options to set on a socket before it connects."""
    options = [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    ]
    if sys.platform == "darwin":
        options.append((socket.SOL_SOCKET, _SO_NOSIGPIPE, 1))
    if send_bytes is not None:
        options.append((socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes))
    if receive_bytes is not None:
        options.append((socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes))
    return options


def _behind(silent: Address | None, addresses: list[Address]) -> list[Address]:
    """The addresses, starting with the one after ``silent``."""
    if silent not in addresses:
        return addresses
    start = addresses.index(silent) + 1
    return addresses[start:] + addresses[:start]


def _ours(transport: Transport) -> TcpTransport:
    if not isinstance(transport, TcpTransport):
        raise TypeError(f"{transport!r} was not made by a TcpBackend")
    return transport


_IN_FOLDER = re.compile(r"[^/\0]+")


class UnixBackend(TcpBackend):
    """Connects to the Unix socket ``path``.

    If ``path`` contains ``{host}`` and ``{port}``, those of the broker replace them. The other
    arguments are those of ``TcpBackend``, and so are the threads that may use it.
    """

    def __init__(
        self,
        path: str,
        send_buffer_bytes: int | None = None,
        receive_buffer_bytes: int | None = None,
        busy_poll: float = 0.0,
    ) -> None:
        super().__init__(send_buffer_bytes, receive_buffer_bytes, busy_poll=busy_poll)
        self._options = [each for each in self._options if each[0] != socket.IPPROTO_TCP]
        self._path = path

    def _known(self, host: str, port: int) -> list[Address]:
        """The path. Raises ConnectionLost for a host that would change the folder."""
        if "{host}" in self._path and (host in {".", ".."} or not _IN_FOLDER.fullmatch(host)):
            raise ConnectionLost(f"the host {host!r} does not fit into the path {self._path!r}")
        path = self._path.replace("{host}", host).replace("{port}", str(port))
        return [Address(socket.AF_UNIX, (path,))]
