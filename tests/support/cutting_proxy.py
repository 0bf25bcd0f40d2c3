"""A TCP proxy that knows nothing of frames and cuts its connections at random bytes."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from types import TracebackType
from typing import NamedTuple, Self

from tests.support.closing_streams import abort_streams, close_streams, end_tasks

CHUNK = 64 * 1024
HANDSHAKE_BYTES = 300
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
UNCUT = 2**62


class CutPlan(NamedTuple):
    """At most ``cuts`` connections are cut, each in one direction, chosen by ``seed``.

    ``most_up`` and ``most_down``: bytes to the server, and to the client, that none outlives. One
    in four ends within its first few hundred bytes, while the peers are still greeting each other.
    """

    seed: int
    cuts: int
    most_up: int
    most_down: int


class CuttingProxy:
    """Listens on ``port`` of loopback and passes bytes on to ``upstream_port``, in its own thread.

    ``port`` is known once the proxy was entered; ``upstream_port`` may be set later. A cut is the
    end of the stream for one peer, and for the client sometimes a reset. ``cuts`` counts those
    made, ``refused`` the connections closed at once because upstream was not there.
    """

    def __init__(self, plan: CutPlan) -> None:
        self.port = 0
        self.upstream_port = 0
        self.cuts = 0
        self.refused = 0
        self._plan = plan
        self._random = random.Random(plan.seed)
        self._open: set[asyncio.Task[None]] = set()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(20), "the proxy does not listen"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(20)

    async def _serve(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._closing.wait()
        server.close()
        await end_tasks(self._open)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._pass_on(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        # A task that is cancelled before its first step closes nothing.
        task.add_done_callback(lambda _: writer.close())

    async def _pass_on(
        self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        except OSError:
            self.refused += 1
            to_client.transport.abort()
            await close_streams(to_client)
            return
        most_up, most_down = self._draw()
        ways = {
            asyncio.ensure_future(_copy(from_client, to_server, most_up)),
            asyncio.ensure_future(_copy(from_server, to_client, most_down)),
        }
        try:
            ended, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if any(way.result() for way in ended):
                self.cuts += 1
                if self._random.random() < 0.5:
                    _reset_on_close(to_client)
        except asyncio.CancelledError:
            abort_streams(to_server, to_client)
            raise
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            await close_streams(to_server, to_client)

    def _draw(self) -> tuple[int, int]:
        """The bytes a new connection may carry to the server and to the client."""
        if self.cuts >= self._plan.cuts:
            return UNCUT, UNCUT
        up = self._random.random() < 0.5
        early = self._random.random() < 0.25
        most = self._plan.most_up if up else self._plan.most_down
        limit = self._random.randint(1, HANDSHAKE_BYTES if early else most)
        return (limit, UNCUT) if up else (UNCUT, limit)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, limit: int) -> bool:
    """Pass on at most ``limit`` bytes; True when the limit ended it, not a peer."""
    try:
        while limit > 0:
            chunk = await source.read(min(limit, CHUNK))
            if not chunk:
                return False
            target.write(chunk)
            await target.drain()
            limit -= len(chunk)
    except OSError:
        return False
    return True


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
