"""A small blocking client for control requests and fetches, to look at what a broker stored."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from kprod.broker.api_key import ApiKey
from kprod.broker.client_security import NO_SECURITY, ClientSecurity
from kprod.broker.messages import Message, request_schema, response_schema
from kprod.errors import ConnectionLost, KprodTimeoutError, ProtocolError, UnsupportedVersionError

_SIZE: Final = struct.Struct(">i")
_MAX_RESPONSE_BYTES: Final = 512 * 1024 * 1024
_CLIENT_ID: Final = "kprod-log-reader"
_RANGES_VERSION: Final = 0

_SPOKEN: Final[Mapping[ApiKey, tuple[int, int]]] = {
    ApiKey.FETCH: (4, 12),
    ApiKey.LIST_OFFSETS: (1, 7),
    ApiKey.METADATA: (4, 12),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.FIND_COORDINATOR: (0, 3),
    ApiKey.OFFSET_COMMIT: (2, 8),
    ApiKey.OFFSET_FETCH: (1, 7),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 1),
    ApiKey.SASL_HANDSHAKE: (1, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
}
"""Lowest and highest version of each request below, the ones that go by topic names."""


class BrokerClient:
    """One connection to one broker, one request at a time, until ``deadline``.

    The deadline is in seconds of ``time.monotonic``. Not thread-safe. Raises ``ConnectionLost``,
    ``KprodTimeoutError``, ``ProtocolError`` and ``AuthenticationError``.
    """

    def __init__(
        self, host: str, port: int, deadline: float, security: ClientSecurity = NO_SECURITY
    ) -> None:
        self._name = f"{host}:{port}"
        self._deadline = deadline
        self._correlation_id = 0
        try:
            plain = socket.create_connection((host, port), self._left())
        except OSError as error:
            raise ConnectionLost(f"{self._name}: {error}") from error
        self._socket = security.secured(plain, host)
        try:
            self._ranges = self._learn_ranges()
            security.log_in(host, self.call)
        except BaseException:
            self.close()
            raise

    def _left(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise KprodTimeoutError(f"{self._name}: out of time")
        return left

    def _learn_ranges(self) -> dict[int, tuple[int, int]]:
        answer = self._exchange(ApiKey.API_VERSIONS, _RANGES_VERSION, {})
        if answer.error_code:
            raise ProtocolError(f"{self._name}: ApiVersions says {answer.error_code!r}")
        return {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}

    def call(self, api: ApiKey, values: Message) -> Any:
        """Send a request at the highest version both sides have; returns kio's response."""
        lowest, highest = _SPOKEN[api]
        theirs = self._ranges.get(api, (0, -1))
        version = min(highest, theirs[1])
        if version < max(lowest, theirs[0]):
            raise UnsupportedVersionError(
                f"{api.name}: {self._name} has {theirs}, needed {lowest}..{highest}"
            )
        return self._exchange(api, version, values)

    def _exchange(self, api: ApiKey, version: int, values: Message) -> Any:
        self._correlation_id += 1
        header = {
            "request_api_key": api,
            "request_api_version": version,
            "correlation_id": self._correlation_id,
            "client_id": _CLIENT_ID,
        }
        frame = request_schema(api, version).encode(header, values)
        try:
            self._socket.settimeout(self._left())
            self._socket.sendall(frame)
            answer = self._read_frame()
        except TimeoutError as error:
            raise KprodTimeoutError(f"{self._name}: no answer to {api.name}") from error
        except OSError as error:
            raise ConnectionLost(f"{self._name}: {error}") from error
        response_header, body = response_schema(api, version).decode(answer)
        if response_header.correlation_id != self._correlation_id:
            raise ProtocolError(f"{self._name}: the answer to another request")
        return body

    def _read_frame(self) -> bytes:
        (size,) = _SIZE.unpack(self._read(_SIZE.size))
        if not 0 < size <= _MAX_RESPONSE_BYTES:
            raise ProtocolError(f"{self._name}: a response of {size} bytes")
        return self._read(size)

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            self._socket.settimeout(self._left())
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionLost(f"{self._name} closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
