"""A TCP proxy on loopback in its own thread; subclasses define what it forwards."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Self

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Streams(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class NotLetIn(Exception):
    """The client's connection is rejected."""


class LoopbackProxy(ABC):
    """Listens on ``port`` of loopback and connects to ``upstream_port`` for each client.

    ``port`` is known once the proxy was entered; ``upstream_port`` may be set later. With ``path``
    it listens on a Unix domain socket. ``connections`` counts accepted connections, ``refused``
    those closed at once because upstream was down.
    """

    def __init__(self, upstream_port: int = 0, path: str | None = None) -> None:
        self.upstream_port = upstream_port
        self._path = path
        self.port = 0
        self.connections = 0
        self.refused = 0
        self._open: set[asyncio.Task[None]] = set()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def connect(self, client: Streams) -> Streams:
        """Upstream. Raises NotLetIn."""
        return Streams(*await asyncio.open_connection("127.0.0.1", self.upstream_port))

    @abstractmethod
    def ways(self, client: Streams, server: Streams) -> list[Coroutine[Any, Any, None]]:
        """One coroutine per direction; when one returns or raises, both connections end."""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(20), "the proxy does not listen"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(20)

    async def _serve(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        if self._path is not None:
            server = await asyncio.start_unix_server(self._accept, self._path)
        else:
            server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._closing.wait()
        server.close()
        await end_tasks(self._open)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._carry(Streams(reader, writer)))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        # A task that is cancelled before it starts would not close it.
        task.add_done_callback(lambda _: writer.close())

    async def _carry(self, client: Streams) -> None:
        try:
            server = await self.connect(client)
        except NotLetIn:
            await close_streams(client.writer)
            return
        except OSError:
            self.refused += 1
            client.writer.transport.abort()
            await close_streams(client.writer)
            return
        ways = [asyncio.ensure_future(way) for way in self.ways(client, server)]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            abort_streams(server.writer, client.writer)
            raise
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            await close_streams(server.writer, client.writer)


async def copy(
    source: asyncio.StreamReader,
    target: asyncio.StreamWriter,
    change: Callable[[bytes], bytes] = bytes,
) -> None:
    while chunk := await source.read(65_536):
        await write(target, change(chunk))


async def read_frame(source: asyncio.StreamReader) -> bytes:
    """A message of Kafka's protocol, with its size."""
    size = await source.readexactly(4)
    return size + await source.readexactly(int.from_bytes(size, "big"))


async def write(target: asyncio.StreamWriter, data: bytes) -> None:
    target.write(data)
    await target.drain()


def reset_on_close(writer: asyncio.StreamWriter) -> None:
    """Let ``close`` send a reset instead of the end of the stream."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)


PATIENCE = 1.0


async def close_streams(*writers: asyncio.StreamWriter) -> None:
    """Flush and close each one; abort them when cancelled.

    A transport that outlives its loop warns when it is collected, during another test.
    """
    try:
        for writer in writers:
            writer.close()
        await _closed(writers)
    except asyncio.CancelledError:
        abort_streams(*writers)
        await _closed(writers)
        raise


def abort_streams(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.transport.abort()


async def end_tasks(tasks: set[asyncio.Task[None]]) -> None:
    """Wait for tasks whose peers have disconnected, then cancel the others.

    A task that is cancelled while it opens a connection cannot close it.
    """
    if tasks:
        _, left = await asyncio.wait(tasks, timeout=PATIENCE)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def _closed(writers: tuple[asyncio.StreamWriter, ...]) -> None:
    for writer in writers:
        with contextlib.suppress(OSError):
            await writer.wait_closed()
