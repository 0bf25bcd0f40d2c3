"""A SOCKS5 and an HTTP proxy on loopback, as small as such can be"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from base64 import b64encode
from typing import NamedTuple, Self

CONNECTED = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"


class Wish(NamedTuple):
    """A place to connect to, what the client is answered then, and what the place is sent."""

    host: str
    port: int
    granted: bytes = b""
    request: bytes = b""


class LocalProxy:
    """Speaks SOCKS5 (RFC 1928, 1929) and HTTP on ``port``; ``login`` is asked for if set.

    HTTP by CONNECT or with the whole address in the request. Names below ``example`` are this
    machine. ``asked`` lists the places that were connected to.
    """

    def __init__(self, login: tuple[str, str] | None = None) -> None:
        self.port = 0
        self.asked: list[str] = []
        self._login = login
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(20)

    async def _serve(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._closing.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream: asyncio.StreamWriter | None = None
        try:
            first = await reader.readexactly(1)
            if first == b"\x05":
                wish = Wish(*await self._socks(reader, writer), granted=CONNECTED)
            else:
                wish = await self._http(first, reader, writer)
            self.asked.append(f"{wish.host}:{wish.port}")
            here = "127.0.0.1" if wish.host.endswith(".example") else wish.host
            back, upstream = await asyncio.open_connection(here, wish.port)
            writer.write(wish.granted)
            upstream.write(wish.request)
            ways = [asyncio.create_task(copy(reader, upstream))]
            ways.append(asyncio.create_task(copy(back, writer)))
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass
        finally:
            for each in (writer, upstream):
                if each is not None:
                    each.close()

    async def _socks(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, int]:
        await reader.readexactly((await reader.readexactly(1))[0])
        writer.write(b"\x05\x02" if self._login else b"\x05\x00")
        if self._login:
            await reader.readexactly(1)
            user = await reader.readexactly((await reader.readexactly(1))[0])
            password = await reader.readexactly((await reader.readexactly(1))[0])
            right = (user.decode(), password.decode()) == self._login
            writer.write(b"\x01\x00" if right else b"\x01\x01")
            if not right:
                raise ValueError("not let in")
        _, _, _, kind = await reader.readexactly(4)
        if kind == 1:
            host = socket.inet_ntoa(await reader.readexactly(4))
        else:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        (port,) = struct.unpack(">H", await reader.readexactly(2))
        return host, port

    async def _http(
        self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Wish:
        head = first + await reader.readuntil(b"\r\n\r\n")
        expected = b"basic " + b64encode(":".join(self._login or ()).encode())
        if self._login and expected.lower() not in head.lower():
            # Some repeat what they were told.
            writer.write(b"HTTP/1.1 407 " + head.replace(b"\r\n", b" ") + b"\r\n")
            writer.write(b"content-length: 0\r\n\r\n")
            raise ValueError("not let in")
        method, target = head.decode().split(" ")[:2]
        host, _, port = target.removeprefix("http://").partition("/")[0].rpartition(":")
        if method == "CONNECT":
            return Wish(host, int(port), granted=b"HTTP/1.1 200 OK\r\n\r\n")
        return Wish(host, int(port), request=head)


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while chunk := await source.read(65536):
        target.write(chunk)
        await target.drain()
