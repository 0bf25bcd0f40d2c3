"""A network backend with bugs, as an application's own transport may have."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kprod.transport.base import Backend, Readiness, Transport


class RaisingBackend(Backend):
    """Delegates to ``inner``, but calls named in ``failing`` raise an unexpected exception."""

    def __init__(self, inner: Backend) -> None:
        self.failing: Collection[str] = ()
        self._inner = inner
        self._transports: dict[Transport, RaisingTransport] = {}

    def check(self, call: str) -> None:
        if call in self.failing:
            raise ZeroDivisionError(f"a mistake in {call}")

    def dial(self, host: str, port: int) -> Transport:
        self.check("dial")
        inner = self._inner.dial(host, port)
        self._transports[inner] = RaisingTransport(self, inner)
        return self._transports[inner]

    def watch(self, transport: Transport, *, write: bool) -> None:
        self.check("watch")
        self._inner.watch(_inner(transport), write=write)

    def poll(self, timeout: float | None) -> list[Readiness]:
        self.check("poll")
        return [
            Readiness(self._transports[ready.transport], ready.readable, ready.writable)
            for ready in self._inner.poll(timeout)
        ]

    def forget(self, transport: Transport) -> None:
        self._inner.forget(_inner(transport))
        self.check("forget")

    def wake(self) -> None:
        self._inner.wake()

    def abandon(self) -> None:
        self._inner.abandon()

    def close(self) -> None:
        self._inner.close()


class RaisingTransport(Transport):
    def __init__(self, backend: RaisingBackend, inner: Transport) -> None:
        self.inner = inner
        self._backend = backend

    def advance(self) -> bool:
        self._backend.check("advance")
        return self.inner.advance()

    def send(self, buffers: Sequence[bytes | memoryview]) -> int:
        self._backend.check("send")
        return self.inner.send(buffers)

    def receive(self, limit: int) -> bytes | None:
        self._backend.check("receive")
        return self.inner.receive(limit)

    def close(self) -> None:
        self.inner.close()
        self._backend.check("close")


def _inner(transport: Transport) -> Transport:
    assert isinstance(transport, RaisingTransport)
    return transport.inner
