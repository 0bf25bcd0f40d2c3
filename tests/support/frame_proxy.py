"""A TCP proxy that knows Kafka's frames, and cuts connections at exact bytes of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

from kprod.broker.protocol.api_key import ApiKey
from tests.support.loopback_proxy import LoopbackProxy, Streams, read_frame, reset_on_close, write

SIZE = 4


@dataclass(frozen=True, slots=True)
class Spoil:
    """What becomes of one exchange. ``at`` is a position in bytes of a whole frame.

    ``how``:

    * "cut-request": the broker gets ``at`` bytes of the request, then both connections end
    * "cut-response": the client gets ``at`` bytes of the response, then both connections end
    * "pass": nothing

    ``reset``: connections that end do so by a reset towards the client.
    """

    api: ApiKey
    how: str
    at: int = 0
    reset: bool = False


class Sizes(NamedTuple):
    """Bytes of the latest request of a kind, and of the latest response, with their size fields."""

    request: int = 0
    response: int = 0


class CutOff(Exception):
    """The connection ends here."""


class FrameProxy(LoopbackProxy):
    """Passes frames on. Not for producers with acks=0, whose requests have no response.

    ``done`` counts what was spoiled, ``sizes`` tells how large messages were.
    """

    def __init__(self, upstream_port: int) -> None:
        super().__init__(upstream_port)
        self.done = 0
        self.sizes: dict[ApiKey, Sizes] = {}
        self._armed: deque[Spoil] = deque()

    def arm(self, *spoils: Spoil) -> None:
        """Spoil the next requests of those kinds, one each, in this order. Thread-safe."""
        self._armed.extend(spoils)

    @property
    def armed(self) -> int:
        """How many are still to be spoiled."""
        return len(self._armed)

    def take(self, api: ApiKey) -> Spoil | None:
        """What is to become of a request that has just come."""
        if not self._armed or self._armed[0].api is not api:
            return None
        self.done += 1
        return self._armed.popleft()

    def note(self, api: ApiKey, *, request: int = 0, response: int = 0) -> None:
        """Remember how large a message was."""
        known = self.sizes.get(api, Sizes())
        self.sizes[api] = Sizes(request or known.request, response or known.response)

    def ways(self, client: Streams, server: Streams) -> list[Coroutine[Any, Any, None]]:
        session = _Session(self, client.writer, server.writer)
        return [session.pass_requests(client.reader), session.pass_responses(server.reader)]


class _Session:
    """One connection of a client and the one behind it. ``_due`` are the answers still owed."""

    def __init__(
        self, proxy: FrameProxy, to_client: asyncio.StreamWriter, to_broker: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._to_client = to_client
        self._to_broker = to_broker
        self._due: deque[tuple[ApiKey, Spoil | None]] = deque()

    async def pass_requests(self, source: asyncio.StreamReader) -> None:
        """Until the client hangs up, or this connection is to be cut."""
        while True:
            frame = await read_frame(source)
            api = ApiKey(int.from_bytes(frame[SIZE : SIZE + 2], "big"))
            self._proxy.note(api, request=len(frame))
            spoil = self._proxy.take(api)
            if spoil is not None and spoil.how == "cut-request":
                frame = frame[: spoil.at]
            self._due.append((api, spoil))
            await write(self._to_broker, frame)
            if spoil is not None and spoil.how == "cut-request":
                self._end(spoil)

    async def pass_responses(self, source: asyncio.StreamReader) -> None:
        """Until the broker hangs up, or this connection is to be cut."""
        while True:
            frame = await read_frame(source)
            api, spoil = self._due.popleft()
            self._proxy.note(api, response=len(frame))
            if spoil is not None and spoil.how == "cut-response":
                frame = frame[: spoil.at]
            await write(self._to_client, frame)
            if spoil is not None and spoil.how == "cut-response":
                self._end(spoil)

    def _end(self, spoil: Spoil) -> None:
        if spoil.reset:
            reset_on_close(self._to_client)
        raise CutOff
