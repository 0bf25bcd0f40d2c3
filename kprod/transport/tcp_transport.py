"""One TCP connection: tries the addresses of a name until one accepts, then carries bytes."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

from kprod.errors import ConnectionLost
from kprod_ext import Descriptor, Poller, receive, send_buffers

_CONNECTING = frozenset({errno.EINPROGRESS, errno.EALREADY, errno.EWOULDBLOCK, errno.EINTR})


class Address(NamedTuple):
    """A resolved address of a host: its family, and the ``sockaddr`` for ``socket.connect``."""

    family: int
    sockaddr: tuple[Any, ...]

    def __str__(self) -> str:
        return str(self.sockaddr[0])


class TcpTransport:
    """A ``Transport`` to ``name`` ("host:port") at the first of its ``addresses`` that accepts.

    Without addresses, ``resolved`` or ``unresolvable`` is called later. ``poller`` watches its
    sockets, and reports this object. Not thread-safe.
    """

    counts_every_byte = True

    def __init__(
        self,
        name: str,
        addresses: Sequence[Address] | None,
        options: Sequence[tuple[int, int, int]],
        poller: Poller,
    ) -> None:
        self.name = name
        self._resolving = addresses is None
        self.awaits = "the name is not resolved yet"
        self._lost: ConnectionLost | None = None
        self._untried = list(reversed(addresses or ()))
        self._options = options
        self._poller = poller
        self._address: Address | None = None
        self._socket: Descriptor | None = None  # no socket.socket: see kprod_ext.process
        self._fd = -1  # its number
        self._writing: bool | None = None  # watched for writing, too; None: not watched
        self._connected = False
        self._closed = False
        self._failures: list[str] = []  # "address: cause" of every address that did not answer

    def __repr__(self) -> str:
        return f"TcpTransport({self.name})"

    # Connecting ---------------------------------------------------------------------------------

    def resolved(self, addresses: Sequence[Address]) -> bool:
        """Start to connect to the name's addresses; False if none can be tried."""
        self._resolving = False
        self._untried = list(reversed(addresses))
        return self.start()

    def unresolvable(self, cause: Exception) -> None:
        """The name could not be resolved."""
        lost = ConnectionLost(f"cannot resolve {self.name}: {cause}")
        lost.__cause__ = cause
        self.failed(lost)

    def failed(self, lost: ConnectionLost) -> None:
        """The connection could not be opened by other code, such as a proxy."""
        self._resolving = False
        self._lost = lost

    def adopt(self, sock: socket.socket) -> bool:
        """Continue with a non-blocking socket that other code has connected.

        False if its peer has already gone.
        """
        self._resolving = False
        try:
            for level, option, value in self._options:
                sock.setsockopt(level, option, value)
            self._address = Address(sock.family, sock.getpeername())
            self._own(sock)
        except OSError as error:
            sock.close()
            cause = error.strerror or error
            self._lost = ConnectionLost(f"the connection to {self.name} broke at once: {cause}")
            return False
        self.watch(write=True)
        return True

    def _own(self, sock: socket.socket) -> None:
        self._socket = Descriptor(sock.fileno())
        self._fd = sock.detach()

    def start(self) -> bool:
        """Start to connect to the next address that can be tried; False if none is left."""
        while self._untried:
            self._address = self._untried.pop()
            try:
                self._begin(self._address)
            except OSError as error:
                self._note(error)
                continue
            self.watch(write=True)
            return True
        return False

    def _begin(self, address: Address) -> None:
        """Start to connect a socket to ``address``; it may be connected immediately."""
        sock = socket.socket(address.family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            for level, option, value in self._options:
                sock.setsockopt(level, option, value)
            where = address.sockaddr
            local = address.family == socket.AF_UNIX
            code = sock.connect_ex(where[0] if local else where)
            # If a local listener's queue is full, it fails at once; no connection is in progress.
            if code and (code not in _CONNECTING or (local and code == errno.EAGAIN)):
                raise _os_error(code)
            self._own(sock)
        except BaseException:
            sock.close()
            raise

    def advance(self) -> bool:
        """See ``Transport.advance``."""
        if self._connected:
            return True
        if self._resolving:
            return False
        while self._address is not None and self._socket is not None:
            try:
                self._connected = _has_connected(self._address.family, self._fd)
            except OSError as error:
                self._note(error)
                self._drop_socket()
                self.start()
            else:
                return self._connected
        raise self._no_socket()

    @property
    def waits_for(self) -> Address | None:
        """The address that has neither accepted nor refused yet, if any."""
        return None if self._connected or self._socket is None else self._address

    def progress(self) -> str:
        """See ``Transport.progress``."""
        if self._resolving:
            return self.awaits
        silent = [] if self.waits_for is None else [f"{self._address} does not answer"]
        return "; ".join(self._failures + silent)

    def _note(self, error: OSError) -> None:
        self._failures.append(f"{self._address}: {error.strerror or error}")

    def _no_socket(self) -> ConnectionLost:
        if self._closed:
            return ConnectionLost(f"the connection to {self.name} is closed")
        if self._lost is not None:
            return self._lost
        causes = "; ".join(self._failures) or "the name has no address"
        return ConnectionLost(f"cannot connect to {self.name} ({causes})")

    # Moving bytes -------------------------------------------------------------------------------

    def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        """See ``Transport.send``. One system call; at most IOV_MAX buffers of one call are sent."""
        if self._fd < 0:
            if self._resolving:
                return 0
            raise self._no_socket()
        try:
            return send_buffers(self._fd, buffers)
        except OSError as error:
            raise self._broke(error) from error

    def receive(self, limit: int) -> bytes | None:
        """See ``Transport.receive``. One system call."""
        if self._fd < 0:
            if self._resolving:
                return None
            raise self._no_socket()
        try:
            return receive(self._fd, limit)
        except OSError as error:
            raise self._broke(error) from error

    def _broke(self, error: OSError) -> ConnectionLost:
        cause = error.strerror or error
        return ConnectionLost(f"the connection to {self.name} ({self._address}) broke: {cause}")

    # Being waited for ---------------------------------------------------------------------------

    def watch(self, *, write: bool) -> None:
        """Watch for readability, and for writability if ``write``."""
        if self._fd >= 0 and self._writing is not write:
            self._poller.watch(self._fd, self, write)
            self._writing = write

    def unwatch(self) -> None:
        """Watch for nothing."""
        if self._writing is not None:
            self._poller.forget(self._fd)
            self._writing = None

    def close(self) -> None:
        """See ``Transport.close``."""
        self._closed, self._resolving = True, False
        self._untried.clear()
        self._drop_socket()

    def _drop_socket(self) -> None:
        self.unwatch()
        self._fd, self._connected = -1, False
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _has_connected(family: int, fd: int) -> bool:
    """Whether the socket is connected. Raises OSError if connecting has failed."""
    sock = socket.socket(family, socket.SOCK_STREAM, 0, fd)
    try:
        return _is_connected(sock)
    finally:
        sock.detach()


def _is_connected(sock: socket.socket) -> bool:
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise _os_error(code)
    try:
        peer = sock.getpeername()
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            return False
        raise
    # If nothing listens on a local port of the ephemeral range, the system may give our end the
    # same port: TCP then connects the socket to itself (RFC 9293, 3.5), and keeps the broker from
    # binding its port again.
    if peer == sock.getsockname():
        raise _os_error(errno.ECONNREFUSED)
    return True


def _os_error(code: int) -> OSError:
    return OSError(code, os.strerror(code))
