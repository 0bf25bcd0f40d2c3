"""A TCP proxy that ends all of its connections when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tests.support.loopback_proxy import LoopbackProxy, Streams

CHUNK = 64 * 1024


class SeveringProxy(LoopbackProxy):
    """Passes bytes on until ``sever``; connections made later are not concerned."""

    def __init__(self, upstream_port: int = 0) -> None:
        super().__init__(upstream_port)
        self._writers: set[asyncio.StreamWriter] = set()

    def sever(self) -> None:
        """End what is connected now. Any thread."""
        self._loop.call_soon_threadsafe(self._abort_all)

    def _abort_all(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def ways(self, client: Streams, server: Streams) -> list[Coroutine[Any, Any, None]]:
        return [
            self._pass_on(client.reader, server.writer),
            self._pass_on(server.reader, client.writer),
        ]

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while data := await reader.read(CHUNK):
                writer.write(data)
                await writer.drain()
        finally:
            self._writers.discard(writer)
