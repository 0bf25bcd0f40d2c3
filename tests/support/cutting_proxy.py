"""A TCP proxy that cuts its connections at random bytes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, NamedTuple

from tests.support.loopback_proxy import LoopbackProxy, Streams, reset_on_close, write

CHUNK = 64 * 1024
HANDSHAKE_BYTES = 300
UNCUT = 2**62


class CutPlan(NamedTuple):
    """At most ``cuts`` connections are cut, each in one direction, chosen by ``seed``.

    ``most_up`` and ``most_down``: the maximum of bytes to the server and to the client. One in four
    ends within a few hundred bytes, during the handshake.
    """

    seed: int
    cuts: int
    most_up: int
    most_down: int


class CuttingProxy(LoopbackProxy):
    """Forwards bytes. A cut ends both connections, the client's sometimes by a reset.

    ``cuts`` counts those made.
    """

    def __init__(self, plan: CutPlan, path: str | None = None) -> None:
        super().__init__(path=path)
        self.cuts = 0
        self._plan = plan
        self._random = random.Random(plan.seed)

    def ways(self, client: Streams, server: Streams) -> list[Coroutine[Any, Any, None]]:
        most_up, most_down = self._draw()
        return [
            self._pass_on(client.reader, server.writer, most_up, client.writer),
            self._pass_on(server.reader, client.writer, most_down, client.writer),
        ]

    def _draw(self) -> tuple[int, int]:
        if self.cuts >= self._plan.cuts:
            return UNCUT, UNCUT
        up = self._random.random() < 0.5
        early = self._random.random() < 0.25
        most = self._plan.most_up if up else self._plan.most_down
        limit = self._random.randint(1, HANDSHAKE_BYTES if early else most)
        return (limit, UNCUT) if up else (UNCUT, limit)

    async def _pass_on(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        limit: int,
        to_client: asyncio.StreamWriter,
    ) -> None:
        with suppress(OSError):
            while limit > 0:
                chunk = await source.read(min(limit, CHUNK))
                if not chunk:
                    return
                await write(target, chunk)
                limit -= len(chunk)
            self.cuts += 1
            if self._random.random() < 0.5:
                reset_on_close(to_client)
