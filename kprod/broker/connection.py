"""One client's connection to the embedded broker."""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
from collections.abc import Callable
from typing import Final

from kprod.broker.call import HangUp

_SIZE: Final = struct.Struct(">i")
_SMALLEST_REQUEST: Final = 8
_IDLE_TIME: Final = struct.pack("@ll", 600, 0)
"""Seconds and microseconds after which a silent client is let go (``connections.max.idle.ms``)."""
_log = logging.getLogger(__name__)


class Connection:
    """Reads a request, answers it, reads the next: so requests are handled in order, one at a time.

    This is what Kafka's muting of channels amounts to. ``serve`` runs in a thread of its own;
    ``close`` may be called from any.
    """

    def __init__(
        self,
        client: socket.socket,
        peer: str,
        answer: Callable[[bytes], bytes | None],
        max_request_bytes: int,
    ) -> None:
        self._client = client
        self._peer = peer
        self._answer = answer
        self._max_request_bytes = max_request_bytes

    def serve(self) -> None:
        """Until the client leaves, breaks the protocol, or ``close`` is called."""
        try:
            self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _IDLE_TIME)
            while (frame := self._read_frame()) is not None:
                response = self._answer(frame)
                if response is not None:
                    self._client.sendall(response)
        except HangUp as reason:
            _log.warning("closing the connection of %s: %s", self._peer, reason)
        except OSError as error:
            _log.debug("lost the connection of %s: %s", self._peer, error)
        except Exception:
            # A fault of ours in one request must not end the broker: only this client notices.
            _log.exception("closing the connection of %s", self._peer)
        finally:
            self._client.close()

    def _read_frame(self) -> bytes | None:
        prefix = self._read(_SIZE.size)
        if len(prefix) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack(prefix)
        if not _SMALLEST_REQUEST <= size <= self._max_request_bytes:
            raise HangUp(f"{size} is not the size of a request; is this TLS or HTTP?")
        frame = self._read(size)
        return frame if len(frame) == size else None

    def _read(self, size: int) -> bytes:
        """``size`` bytes, or fewer when the client left.

        The kernel waits for all of them: one system call, and one wait for the interpreter. Memory
        that the client has announced but not filled stays untouched, and so costs nothing.
        """
        data = self._client.recv(size, socket.MSG_WAITALL)
        while 0 < len(data) < size:
            rest = self._client.recv(size - len(data), socket.MSG_WAITALL)
            if not rest:
                break
            data += rest
        return data

    def refuse(self) -> None:
        """Close the connection instead of serving it."""
        self._client.close()

    def close(self) -> None:
        """Cut the connection; ``serve`` ends soon. Idempotent, any thread."""
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)
