"""A TCP proxy that parses Kafka's frames and cuts connections at exact bytes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

from kprod.broker.protocol.api_key import ApiKey
from tests.support.loopback_proxy import LoopbackProxy, Streams, read_frame, reset_on_close, write

SIZE = 4


@dataclass(frozen=True, slots=True)
class Spoil:
    """The fault of one exchange. ``at`` is a byte position in the whole frame.

    ``how``:

    * "cut-request": the broker gets ``at`` bytes of the request, then both connections end
    * "cut-response": the client gets ``at`` bytes of the response, then both connections end
    * "pass": no fault

    ``reset``: the client's connection ends by a reset.
    """

    api: ApiKey
    how: str
    at: int = 0
    reset: bool = False


class Sizes(NamedTuple):
    request: int = 0
    response: int = 0


class CutOff(Exception):
    """The connection ends here."""


class FrameProxy(LoopbackProxy):
    """Passes frames on. Not for producers with acks=0, whose requests have no response.

    ``done`` counts faults, ``sizes`` has the sizes of messages.
    """

    def __init__(self, upstream_port: int) -> None:
        super().__init__(upstream_port)
        self.done = 0
        self.sizes: dict[ApiKey, Sizes] = {}
        self._armed: deque[Spoil] = deque()

    def arm(self, *spoils: Spoil) -> None:
        """Apply these faults to the next requests of their APIs, in this order. Thread-safe."""
        self._armed.extend(spoils)

    @property
    def armed(self) -> int:
        return len(self._armed)

    def take(self, api: ApiKey) -> Spoil | None:
        """The fault of a new request, or None."""
        if not self._armed or self._armed[0].api is not api:
            return None
        self.done += 1
        return self._armed.popleft()

    def note(self, api: ApiKey, *, request: int = 0, response: int = 0) -> None:
        known = self.sizes.get(api, Sizes())
        self.sizes[api] = Sizes(request or known.request, response or known.response)

    def ways(self, client: Streams, server: Streams) -> list[Coroutine[Any, Any, None]]:
        due: deque[tuple[ApiKey, Spoil | None]] = deque()  # of the pending responses

        def asked(frame: bytes) -> tuple[ApiKey, Spoil | None]:
            api = ApiKey(int.from_bytes(frame[SIZE : SIZE + 2], "big"))
            due.append((api, self.take(api)))
            return due[-1]

        def answered(_frame: bytes) -> tuple[ApiKey, Spoil | None]:
            return due.popleft()

        return [
            self._pass_on("request", client.reader, server.writer, asked, client.writer),
            self._pass_on("response", server.reader, client.writer, answered, client.writer),
        ]

    async def _pass_on(
        self,
        way: str,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        exchange_of: Callable[[bytes], tuple[ApiKey, Spoil | None]],
        to_client: asyncio.StreamWriter,
    ) -> None:
        while True:
            frame = await read_frame(source)
            api, spoil = exchange_of(frame)
            self.note(api, **{way: len(frame)})
            if spoil is None or spoil.how != f"cut-{way}":
                await write(target, frame)
                continue
            await write(target, frame[: spoil.at])
            if spoil.reset:
                reset_on_close(to_client)
            raise CutOff
