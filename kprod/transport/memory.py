"""A network within the process: for tests, and to reach a broker in the same process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping

from kprod.errors import ConnectionLost, IllegalStateError
from kprod.transport.base import Backend, Readiness, Transport
from kprod.transport.memory_transport import MemoryTransport, ServerEnd

__all__ = ["MemoryBackend", "MemoryTransport", "ServerEnd"]


class MemoryBackend(Backend):
    """Connects to ``listeners``: host and port to what makes the server's end of a connection.

    The mapping is looked at whenever a connection is made: where nobody listens, connections are
    refused, and whoever is put there later is found. ``send_chunk`` is the most bytes one ``send``
    takes, and the next one none until ``poll`` has been called; ``receive_chunk`` is the most one
    ``receive`` returns. Hosts in ``unresolvable`` have no address. Nothing depends on time, except
    ``poll`` when there is nothing to report.

    Used by one thread only, except for ``wake`` and ``connections``.
    """

    def __init__(
        self,
        listeners: Mapping[tuple[str, int], Callable[[], ServerEnd]],
        *,
        send_chunk: int | None = None,
        receive_chunk: int | None = None,
        unresolvable: Collection[str] = (),
    ) -> None:
        self._listeners = listeners
        self._send_chunk = send_chunk
        self._receive_chunk = receive_chunk
        self._unresolvable = unresolvable
        self._changed = threading.Condition()  # guards what follows, and every transport
        self._transports: list[MemoryTransport] = []
        self._woken = False
        self._closed = False

    def dial(self, host: str, port: int) -> MemoryTransport:
        """See ``Backend.dial``."""
        if host in self._unresolvable:
            raise ConnectionLost(f"cannot resolve {host}:{port}")

        def accept() -> ServerEnd | None:
            listener = self._listeners.get((host, port))
            return None if listener is None else listener()

        transport = MemoryTransport(
            host,
            port,
            accept=accept,
            changed=self._changed,
            send_chunk=self._send_chunk,
            receive_chunk=self._receive_chunk,
        )
        with self._changed:
            self._check_open()
            self._transports.append(transport)
        return transport

    def watch(self, transport: Transport, *, write: bool) -> None:
        """See ``Backend.watch``."""
        with self._changed:
            ours = self._ours(transport)
            ours.watch(write=write)
            if ours not in self._transports:
                self._transports.append(ours)

    def poll(self, timeout: float | None) -> list[Readiness]:
        """See ``Backend.poll``. Transports are reported in the order they were dialled."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            self._check_open()
            for transport in self._transports:
                transport.make_room()
            while not (ready := self._ready()) and not self._woken:
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    break
                self._changed.wait(remaining)
            self._woken = False
            return ready

    def _ready(self) -> list[Readiness]:
        every = self._transports
        return [known for transport in every if (known := transport.readiness()) is not None]

    def forget(self, transport: Transport) -> None:
        """See ``Backend.forget``."""
        with self._changed:
            ours = self._ours(transport)
            ours.unwatch()
            if ours in self._transports:
                self._transports.remove(ours)

    def wake(self) -> None:
        """See ``Backend.wake``."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def close(self) -> None:
        """See ``Backend.close``."""
        with self._changed:
            self._closed = True
            transports, self._transports = self._transports, []
        for transport in transports:
            transport.close()

    def abandon(self) -> None:
        """See ``Backend.abandon``. Memory is the child's own copy: nothing to let go of."""

    @property
    def connections(self) -> list[MemoryTransport]:
        """Those that stand, in the order they were dialled. Any thread."""
        with self._changed:
            return [transport for transport in self._transports if transport.connected]

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateError("the memory backend is closed")

    @staticmethod
    def _ours(transport: Transport) -> MemoryTransport:
        if not isinstance(transport, MemoryTransport):
            raise TypeError(f"{transport!r} was not made by a MemoryBackend")
        return transport
