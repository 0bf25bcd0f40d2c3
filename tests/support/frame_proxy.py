"""A TCP proxy that knows Kafka's frames, and spoils a request or its response exactly as told."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

from kprod.broker.protocol.api_key import ApiKey
from tests.support.loopback_proxy import LoopbackProxy, Streams, reset_on_close

SIZE = 4


@dataclass(frozen=True, slots=True)
class Spoil:
    """What becomes of one exchange. All times in seconds, all positions in bytes of a whole frame.

    ``how``:

    * "cut-request": the broker gets ``at`` bytes of the request, then both connections end
    * "cut-response": the client gets ``at`` bytes of the response, then both connections end
    * "swallow": the broker's response is dropped, what follows is not
    * "silence": nothing comes back any more on this connection, which stays open (half-open TCP)
    * "delay": the response comes ``seconds`` later
    * "repeat-request": the broker gets the request twice; the first response is dropped
    * "repeat-response": the client gets the response twice
    * "swap": the response comes after that of the next request
    * "length": the response's size is told as ``at``
    * "flip-request", "flip-response": the lowest bit of byte ``at`` is inverted (from the end, if
      negative)

    ``reset``: connections that end do so by a reset towards the client.
    """

    api: ApiKey
    how: str
    at: int = 0
    seconds: float = 0.0
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
        self._held = b""
        self._silent = False

    async def pass_requests(self, source: asyncio.StreamReader) -> None:
        """Until the client hangs up, or this connection is to be cut."""
        while True:
            frame = await _frame(source)
            api = ApiKey(int.from_bytes(frame[SIZE : SIZE + 2], "big"))
            self._proxy.note(api, request=len(frame))
            spoil = self._proxy.take(api)
            if spoil is not None:
                frame = self._spoiled_request(api, frame, spoil)
            self._due.append((api, spoil))
            await _write(self._to_broker, frame)
            if spoil is not None and spoil.how == "cut-request":
                self._end(spoil)

    def _spoiled_request(self, api: ApiKey, frame: bytes, spoil: Spoil) -> bytes:
        match spoil.how:
            case "cut-request":
                return frame[: spoil.at]
            case "flip-request":
                return _flipped(frame, spoil.at)
            case "repeat-request":
                self._due.append((api, Spoil(api, "swallow")))
                return frame + frame
        return frame

    async def pass_responses(self, source: asyncio.StreamReader) -> None:
        """Until the broker hangs up, or this connection is to be cut."""
        while True:
            frame = await _frame(source)
            api, spoil = self._due.popleft()
            self._proxy.note(api, response=len(frame))
            if spoil is not None:
                frame = await self._spoiled_response(frame, spoil)
            elif self._held:
                frame, self._held = frame + self._held, b""
            if not self._silent:
                await _write(self._to_client, frame)
            if spoil is not None and spoil.how == "cut-response":
                self._end(spoil)

    async def _spoiled_response(self, frame: bytes, spoil: Spoil) -> bytes:
        match spoil.how:
            case "cut-response":
                frame = frame[: spoil.at]
            case "swallow":
                frame = b""
            case "silence":
                self._silent = True
            case "delay":
                await asyncio.sleep(spoil.seconds)
            case "repeat-response":
                frame += frame
            case "swap":
                self._held, frame = frame, b""
            case "length":
                frame = struct.pack(">i", spoil.at) + frame[SIZE:]
            case "flip-response":
                frame = _flipped(frame, spoil.at)
        return frame

    def _end(self, spoil: Spoil) -> None:
        if spoil.reset:
            reset_on_close(self._to_client)
        raise CutOff


async def _frame(source: asyncio.StreamReader) -> bytes:
    size = await source.readexactly(SIZE)
    return size + await source.readexactly(int.from_bytes(size, "big"))


async def _write(target: asyncio.StreamWriter, data: bytes) -> None:
    target.write(data)
    await target.drain()


def _flipped(frame: bytes, at: int) -> bytes:
    spoiled = bytearray(frame)
    spoiled[at] ^= 1
    return bytes(spoiled)
