"""A plain socket to a broker, for requests that no client library sends."""

from __future__ import annotations

import socket
import struct
from typing import Any, Self

from kprod.broker.protocol.api_key import ApiKey
from kprod.broker.protocol.messages import Message, request_schema, response_schema


class WireClient:
    """Sends frames or raw bytes; timeouts are two minutes."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=120)

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send(self, api: ApiKey, version: int, values: Message, correlation_id: int = 1) -> None:
        header = {
            "request_api_key": api,
            "request_api_version": version,
            "correlation_id": correlation_id,
            "client_id": "wire",
        }
        self.send_bytes(request_schema(api, version).encode(header, values))

    def receive(self, api: ApiKey, version: int) -> tuple[int, Any]:
        (size,) = struct.unpack(">i", self._read(4))
        header, body = response_schema(api, version).decode(self._read(size))
        return header.correlation_id, body

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            assert part, "the broker closed the connection"
            data += part
        return data

    def is_closed_by_peer(self) -> bool:
        """Wait until the peer closes the connection or sends something."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
