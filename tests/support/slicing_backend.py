"""A transport as an application would write one: it delays and splits every write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kprod.transport import Readiness, Transport
from kprod.transport.tcp import TcpBackend


class SlicingBackend(TcpBackend):
    """Of what is to be sent, every second call takes nothing and the others 1,000 bytes."""

    def dial(self, host: str, port: int) -> Any:
        return SlicingTransport(super().dial(host, port))

    def watch(self, transport: Any, *, write: bool) -> None:
        super().watch(transport.inner, write=write)

    def poll(self, timeout: float | None) -> list[Readiness]:
        found = super().poll(timeout)
        return [Readiness(SLICED[inner], reads, writes) for inner, reads, writes in found]

    def forget(self, transport: Any) -> None:
        super().forget(transport.inner)


SLICED: dict[Transport, Any] = {}


class SlicingTransport:
    def __init__(self, inner: Any) -> None:
        self.inner, self.calls = inner, 0
        self.advance, self.progress, self.receive = inner.advance, inner.progress, inner.receive
        self.close = inner.close
        SLICED[inner] = self

    def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        self.calls += 1
        sent: int = self.inner.send([memoryview(buffers[0])[:1000]]) if self.calls % 2 else 0
        return sent
