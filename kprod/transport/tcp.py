"""Sockets: TCP and those of the file system, name lookups, one place to wait for all of them."""

from __future__ import annotations

import encodings.idna  # noqa: F401  socket.getaddrinfo would, in the sender's thread (decision 0029)
import os
import re
import socket
import sys
import threading
from collections.abc import Callable

from kprod.errors import ConnectionLost, IllegalStateError
from kprod.transport.base import Backend, Readiness, Transport
from kprod.transport.tcp_transport import Address, TcpTransport
from kprod_ext import Poller, let_signals_in

__all__ = ["Address", "Resolver", "TcpBackend", "UnixBackend", "resolve"]


class NameLookup:
    """One question, asked in a daemon thread that ends with the answer.

    The thread holds no lock of ours, so a fork or the interpreter's exit may come at any time.
    """

    def __init__(self, ask: Callable[[], list[Address]], answered: Callable[[], None]) -> None:
        self._ask = ask
        self._answered = answered
        self._outcome: list[Address] | Exception | None = None

    def start(self, name: str) -> None:
        """Ask, in a thread of that name. Raises RuntimeError when there can be no more threads."""
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
    """At most one lookup of a name at a time, for all connections. Used by one thread.

    ``resolver`` may block and raise anything; ``answered`` is called after each answer, in the
    lookup's thread, for as long as one is under way, even when nobody is interested any more.
    """

    def __init__(
        self,
        resolver: Callable[[str, int], list[Address]],
        answered: Callable[[], None],
    ) -> None:
        self._resolver = resolver
        self._answered = answered
        self._latest: dict[tuple[str, int], NameLookup] = {}

    def ask(self, host: str, port: int) -> NameLookup:
        """A lookup that is under way: a new one, unless the same is asked already."""
        lookup = self._latest.get((host, port))
        if lookup is None or lookup.done:
            lookup = NameLookup(lambda: self._resolver(host, port), self._answered)
            lookup.start(f"kprod-resolver-{host}")
            self._latest[host, port] = lookup
        return lookup


Resolver = Callable[[str, int], list[Address]]
"""Every address of a name, in the order in which to try them. May block, and raise OSError.

Called in a thread of its own, several at a time for several names.
"""


def resolve(host: str, port: int) -> list[Address]:
    """The answer of the system's resolver, in its order of preference (RFC 6724). Blocks."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [Address(family, sockaddr) for family, _, _, _, sockaddr in found]


def _read_as_number(host: str, port: int) -> list[Address] | None:
    """The address of a host that is written as a number; None for a name. Resolves nothing."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return None
    return [Address(family, sockaddr) for family, _, _, _, sockaddr in found]


class TcpBackend(Backend):
    """Sockets with TCP_NODELAY and SO_KEEPALIVE; buffer sizes in bytes, None leaves the system's.

    ``busy_poll`` is how many seconds an eager ``poll`` may look without sleeping, 0 for not at all.
    ``resolver`` tells the addresses of names, and of numbers, too; None asks the system, about
    names only. Used by one thread at a time, except for ``wake``. ``poll`` and ``dial`` raise
    IllegalStateError once it is closed.
    """

    interruptible = True  # a ready descriptor stays ready until it is used

    def __init__(
        self,
        send_buffer_bytes: int | None = None,
        receive_buffer_bytes: int | None = None,
        resolver: Resolver | None = None,
        busy_poll: float = 0.0,
    ) -> None:
        # With one processor only, a broker on this machine cannot answer while we look.
        self._busy_poll = busy_poll if _processors() > 1 else 0.0
        self._options = _socket_options(send_buffer_bytes, receive_buffer_bytes)
        self._silent: dict[str, Address] = {}  # by name: the address last given up on
        self._stillborn: dict[TcpTransport, None] = {}  # refused by every address within dial()
        self._closed = False
        self._poller = Poller()
        self._reads_numbers = resolver is None
        self._lookups = NameLookups(resolver or resolve, self._poller.wake)
        self._resolving: dict[TcpTransport, NameLookup] = {}

    def dial(self, host: str, port: int) -> TcpTransport:
        """See ``Backend.dial``. Asks the resolver anew each time, in a thread of its own.

        Addresses that refuse are passed over at once. One that stays silent is not, for only the
        caller knows how long to wait; so when the caller gives up on it, the next connection to
        the name begins with the address behind it (KIP-602).
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
        """The addresses, if no resolver is needed for them; else None."""
        return _read_as_number(host, port) if self._reads_numbers else None

    def _begin(self, transport: TcpTransport, addresses: list[Address]) -> None:
        if not transport.resolved(_behind(self._silent.get(transport.name), addresses)):
            self._stillborn[transport] = None

    @property
    def _waits(self) -> bool:
        """Whether some connection has not been begun, for want of an answer."""
        return bool(self._resolving)

    def _begin_resolved(self) -> None:
        """Go on with the transports that have the answer of their lookup."""
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
        self._check_open()
        # Before waiting: an answer that comes later wakes us, and is seen here the next time.
        if self._waits:
            self._begin_resolved()
        ready = [Readiness(transport, True, True) for transport in self._stillborn]
        longest = 0.0 if ready else timeout
        busy = self._busy_poll if self.eager else 0.0
        found = let_signals_in(self._poller.wait, longest, busy)
        return ready + [Readiness(*each) for each in found]

    def forget(self, transport: Transport) -> None:
        """See ``Backend.forget``."""
        ours = _ours(transport)
        if ours.waits_for is not None:
            self._silent[ours.name] = ours.waits_for
        self._stillborn.pop(ours, None)
        self._resolving.pop(ours, None)
        ours.unwatch()

    def wake(self) -> None:
        """See ``Backend.wake``."""
        self._poller.wake()

    def close(self) -> None:
        """See ``Backend.close``. Closes the transports that are watched."""
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
        """See ``Backend.abandon``. Takes no lock: another thread of the parent may have held it."""
        self._closed = True
        self._resolving.clear()
        for transport in self._poller.watched():
            transport.abandon()
        self._poller.abandon()

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the TCP backend is closed")


def _processors() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_SO_NOSIGPIPE = 0x1022
"""Of macOS; Python has no name for it. Older kernels have no flag of a call that does the same."""


def _socket_options(
    send_bytes: int | None, receive_bytes: int | None
) -> list[tuple[int, int, int]]:
    """(level, option, value) of everything to be set on a socket before it connects."""
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
    """The addresses, beginning with the one that follows ``silent``."""
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
    """Connects to ``path``, in which ``{host}`` and ``{port}`` stand for the broker's own.

    Sizes of buffers in bytes, None leaves the system's. Threads as ``TcpBackend``.
    """

    def __init__(
        self,
        path: str,
        send_buffer_bytes: int | None = None,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        super().__init__(send_buffer_bytes, receive_buffer_bytes)
        self._options = [each for each in self._options if each[0] != socket.IPPROTO_TCP]
        self._path = path

    def _known(self, host: str, port: int) -> list[Address]:
        """Raises ConnectionLost for a host that would lead to another folder: brokers name them."""
        if "{host}" in self._path and (host in {".", ".."} or not _IN_FOLDER.fullmatch(host)):
            raise ConnectionLost(f"the host {host!r} does not fit into the path {self._path!r}")
        path = self._path.replace("{host}", host).replace("{port}", str(port))
        return [Address(socket.AF_UNIX, (path,))]
