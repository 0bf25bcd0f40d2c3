"""A TCP proxy that breaks connections off after some bytes, and carries so many in a second."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from tests.support.loopback_proxy import LoopbackProxy, Streams, reset_on_close

CHUNK = 16 * 1024
STEPS = 50
"""So many pieces are passed on in a second where a rate is kept."""


class PoorNetwork(LoopbackProxy):
    """Each connection ends after bytes to the server that are drawn with the mean ``mean_bytes``.

    They are drawn as a network has them that fails at any byte alike; half of the ends are resets.
    ``rate`` bytes of a second are carried to the server, over all connections. Both may be
    changed at any time, 0 is for a network without that fault; ``cuts`` counts.
    """

    def __init__(
        self, upstream_port: int = 0, *, mean_bytes: int = 0, rate: int = 0, seed: int = 1
    ) -> None:
        super().__init__(upstream_port)
        self.mean_bytes = mean_bytes
        self.rate = rate
        self.cuts = 0
        self._random = random.Random(seed)
        self._free_at = 0.0  # when the network has carried what it was given

    def ways(self, client: Streams, server: Streams) -> list[Coroutine[Any, Any, None]]:
        return [self._up(client, server), self._down(server, client)]

    async def _up(self, client: Streams, server: Streams) -> None:
        """Pass on what the client sends, and break off where that was drawn."""
        mean = self.mean_bytes
        left = self._draw(mean)
        with suppress(OSError):
            while left > 0:
                most = CHUNK if not self.rate else max(1, self.rate // STEPS)
                chunk = await client.reader.read(min(most, left))
                if not chunk:
                    return
                await self._carry_on(len(chunk))
                server.writer.write(chunk)
                await server.writer.drain()
                left -= len(chunk)
                if mean != self.mean_bytes:
                    mean = self.mean_bytes
                    left = self._draw(mean)
            self.cuts += 1
            if self._random.random() < 0.5:
                reset_on_close(client.writer)

    def _draw(self, mean: int) -> int:
        return 1 + int(self._random.expovariate(1 / mean)) if mean else 2**62

    async def _carry_on(self, nbytes: int) -> None:
        if self.rate:
            now = asyncio.get_running_loop().time()
            self._free_at = max(self._free_at, now) + nbytes / self.rate
            await asyncio.sleep(self._free_at - now)

    async def _down(self, server: Streams, client: Streams) -> None:
        with suppress(OSError):
            while chunk := await server.reader.read(CHUNK):
                client.writer.write(chunk)
                await client.writer.drain()
