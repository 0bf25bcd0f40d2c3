"""One request and what becomes of it: the thing that connections carry and rounds define."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from kprod.errors import KprodError
from kprod.wire.versions import ApiKey
from kprod_ext import SealedBatch, SealedPiece

Buffers: TypeAlias = Sequence[bytes | memoryview | SealedBatch | SealedPiece]


class Exchange(Protocol):
    """A request on its way. Ends exactly once, by ``answered`` or by ``failed``.

    ``api`` and ``version_cap`` (None: no cap) choose the version; ``expects_response`` is False
    only for Produce with acks=0, which ends when its last byte was handed to the socket.
    """

    api: ApiKey
    version_cap: int | None
    expects_response: bool

    def encode(self, version: int, correlation_id: int, client_id: str) -> Buffers:
        """The whole frame, size prefix included."""
        ...

    def answered(self, version: int, body: memoryview, now: float) -> int:
        """The response came; return the milliseconds for which the broker throttles us (KIP-219).

        Raises ProtocolError when the body cannot be read, having changed nothing: the connection is
        closed then and ``failed`` follows.
        """
        ...

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        """There will be no response.

        ``sent``: its last byte may have left, so the broker may have acted on it. Before that the
        broker cannot: a request begins with its size, and is carried out when all of it is there.
        """
        ...
