"""A minimal SOCKS5 and HTTP proxy on loopback."""

from __future__ import annotations

import asyncio
import socket
import struct
from base64 import b64encode
from collections.abc import Coroutine
from typing import Any, NamedTuple

from tests.support.loopback_proxy import LoopbackProxy, NotLetIn, Streams, copy

CONNECTED = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"


class Target(NamedTuple):
    """Where to connect, the answer to the client, and the first bytes to send there."""

    host: str
    port: int
    granted: bytes = b""
    request: bytes = b""


class LocalProxy(LoopbackProxy):
    """Speaks SOCKS5 (RFC 1928, 1929) and HTTP on ``port``, with ``login`` if set.

    HTTP by CONNECT or with an absolute URL. Names below ``example`` are this machine. ``asked``
    lists the addresses of connections.
    """

    def __init__(self, login: tuple[str, str] | None = None) -> None:
        super().__init__()
        self.asked: list[str] = []
        self._login = login

    async def connect(self, client: Streams) -> Streams:
        try:
            first = await client.reader.readexactly(1)
            if first == b"\x05":
                upstream = Target(*await self._socks(*client), granted=CONNECTED)
            else:
                upstream = await self._http(first, *client)
            self.asked.append(f"{upstream.host}:{upstream.port}")
            here = "127.0.0.1" if upstream.host.endswith(".example") else upstream.host
            server = Streams(*await asyncio.open_connection(here, upstream.port))
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            raise NotLetIn from error
        client.writer.write(upstream.granted)
        server.writer.write(upstream.request)
        return server

    def ways(self, client: Streams, server: Streams) -> list[Coroutine[Any, Any, None]]:
        return [copy(client.reader, server.writer), copy(server.reader, client.writer)]

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
                raise NotLetIn
        _, _, _, kind = await reader.readexactly(4)
        if kind == 1:
            host = socket.inet_ntoa(await reader.readexactly(4))
        else:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        (port,) = struct.unpack(">H", await reader.readexactly(2))
        return host, port

    async def _http(
        self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Target:
        head = first + await reader.readuntil(b"\r\n\r\n")
        expected = b"basic " + b64encode(":".join(self._login or ()).encode())
        if self._login and expected.lower() not in head.lower():
            # Some proxies repeat the request, credentials included.
            writer.write(b"HTTP/1.1 407 " + head.replace(b"\r\n", b" ") + b"\r\n")
            writer.write(b"content-length: 0\r\n\r\n")
            raise NotLetIn
        method, url = head.decode().split(" ")[:2]
        host, _, port = url.removeprefix("http://").partition("/")[0].rpartition(":")
        if method == "CONNECT":
            return Target(host, int(port), granted=b"HTTP/1.1 200 OK\r\n\r\n")
        return Target(host, int(port), request=head)
