"""An exchange is a request, and what to do with its answer. Connections carry exchanges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

from kprod.errors import KprodError
from kprod.wire.versions import ApiKey

Buffers: TypeAlias = Sequence[bytes | memoryview]


class Failed(Protocol):
    """See ``Exchange.failed``."""

    def __call__(self, error: KprodError, now: float, *, sent: bool) -> None: ...


class Exchange:
    """A request in flight. It ends exactly once, by ``answered`` or by ``failed``.

    ``api`` and ``version_cap`` (None: no cap) determine the version. ``expects_response`` is False
    only for Produce with acks=0, which ends when the socket has taken its last byte.

    The connection uses the other attributes. ``since`` is when the request was queued, when the
    socket last took bytes of it, or the end of a silence that the broker asked for, whichever is
    latest. ``left`` are the bytes that the socket has not taken, and ``left_bytes`` is their
    number. ``may_be_read``: the last byte may have reached the broker.
    """

    api: ApiKey
    version_cap: int | None = None
    expects_response = True

    version = correlation_id = 0
    since = 0.0
    left: Buffers = ()
    left_bytes = 0
    may_be_read = False

    def encode(self, version: int, correlation_id: int, client_id: str) -> Buffers:
        """Return the whole frame, including the size prefix.

        Raises UnsupportedVersionError if this version cannot express the request. The request then
        fails, but the connection continues.
        """
        raise NotImplementedError

    def answered(self, version: int, body: memoryview, now: float) -> int:
        """Handle the response, and return its ``throttle_time_ms`` (KIP-219).

        Raises ProtocolError for a body that cannot be read, before it changes anything. The
        connection is then closed, and ``failed`` follows.
        """
        raise NotImplementedError

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        """No response will come.

        ``sent``: the last byte may have been sent, so the broker may have acted on the request.
        Before the last byte, a broker cannot act: a request begins with its size, and the broker
        waits for all of it.
        """
        raise NotImplementedError

    def took(self, nbytes: int) -> None:
        """The socket took the first ``nbytes`` of the remaining bytes, but not all of them."""
        self.left_bytes -= nbytes
        for place, buffer in enumerate(self.left):
            if nbytes < len(buffer):
                self.left = [memoryview(buffer)[nbytes:], *self.left[place + 1 :]]
                return
            nbytes -= len(buffer)


def connection_ends(error: KprodError, now: float, *, sent: bool) -> None:
    """Do nothing: after a failed handshake, the connection ends anyway, with a reason."""


class Reply(Protocol):
    """A decoded answer."""

    @property
    def throttle_ms(self) -> int: ...


R = TypeVar("R", bound=Reply)


class ControlRequest(Exchange, Generic[R]):
    """Any request except Produce. Functions write it, read its answer, and handle its end.

    ``encode`` takes version, correlation id and client id, and returns the whole frame. ``decode``
    takes version and body. ``answered`` takes the result of ``decode``.
    """

    def __init__(
        self,
        api: ApiKey,
        encode: Callable[[int, int, str], bytes],
        decode: Callable[[int, memoryview], R],
        answered: Callable[[R, float], object],
        failed: Failed = connection_ends,
        version_cap: int | None = None,
    ) -> None:
        self.api = api
        self.version_cap = version_cap
        self._encode = encode
        self._decode = decode
        self._answered = answered
        self._failed = failed

    def encode(self, version: int, correlation_id: int, client_id: str) -> Buffers:
        encode = self._encode
        del self._encode  # a request is written once, and may hold a password
        return [encode(version, correlation_id, client_id)]

    def answered(self, version: int, body: memoryview, now: float) -> int:
        reply = self._decode(version, body)
        self._answered(reply, now)
        return reply.throttle_ms

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        self._failed(error, now, sent=sent)
