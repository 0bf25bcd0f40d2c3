"""A TLS handshake that ends at any byte of it, in a network within the process."""

from __future__ import annotations

import gc
import ssl
from pathlib import Path

import pytest

from kprod.errors import ConnectionLost
from kprod.transport.memory import MemoryBackend, ServerEnd
from kprod.transport.tls import TlsBackend, TlsTransport
from kprod.transport.tls_context import TlsContexts, TlsSettings
from tests.support.certificates import Certificates
from tests.support.held_resources import heap_bytes
from tests.support.tier import FULL

PLACE = ("localhost", 9092)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class TlsServer(ServerEnd):
    """Echoes what it decrypts. ``takes`` and ``gives``: bytes until it is gone."""

    def __init__(self, context: ssl.SSLContext, takes: int, gives: int) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._engine = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._ready = False
        self.takes, self.gives = takes, gives
        self.taken = self.given = 0

    def receive(self, data: bytes) -> bytes:
        self.taken += len(data)
        if self.taken > self.takes or self.given > self.gives:
            raise ConnectionResetError("Connection reset by peer")
        self._incoming.write(data)
        self._work()
        answer = self._outgoing.read()[: max(0, self.gives - self.given)]
        self.given += len(answer)
        if self.given >= self.gives:
            self.takes = 0
        return answer

    def _work(self) -> None:
        try:
            if not self._ready:
                self._engine.do_handshake()
                self._ready = True
            while data := self._engine.read():
                self._engine.write(data)
        except ssl.SSLWantReadError:
            pass


class Rig:
    """A client and its server; ``echoed`` is what came back of a message."""

    def __init__(self, certificates: Certificates, context: ssl.SSLContext) -> None:
        self._context = context
        self.contexts = TlsContexts(TlsSettings(cafile=certificates.ca))
        self.server = TlsServer(context, 0, 0)
        self.taken = self.given = 0  # by the server until the message had come back

    def memory(self, chunk: int | None = None) -> MemoryBackend:
        """A network that leads to ``server``, in pieces of at most ``chunk`` bytes."""
        return MemoryBackend({PLACE: lambda: self.server}, send_chunk=chunk, receive_chunk=chunk)

    def echoed(self, takes: int, gives: int, chunk: int | None = None) -> bytes:
        """Raises ConnectionLost when the server is gone before that."""
        self.server = TlsServer(self._context, takes, gives)
        backend = TlsBackend(self.memory(chunk), self.contexts)
        transport = backend.dial(*PLACE)
        try:
            return self._exchange(backend, transport)
        finally:
            backend.forget(transport)
            transport.close()
            backend.close()

    def is_lost(self, takes: int, gives: int) -> bool:
        """Whether that many bytes are too few; any other error goes on."""
        try:
            self.echoed(takes, gives)
        except ConnectionLost:
            return True
        return False

    def _exchange(self, backend: TlsBackend, transport: TlsTransport) -> bytes:
        message, found, up = b"0123456789" * 20, b"", False
        unsent = message
        for _ in range(20_000):
            for ready in backend.poll(0):
                assert ready.transport is transport
            up = up or transport.advance()
            if up and unsent:
                unsent = unsent[transport.send([unsent]) :]
            if up:
                chunk = transport.receive(1000)
                found += chunk or b""
                if chunk == b"" or len(found) == len(message):
                    self.taken, self.given = self.server.taken, self.server.given
                    return found
            if self.server.takes == 0 and self.server.given >= self.server.gives:
                raise ConnectionLost("the server is gone")
        raise AssertionError("nothing moves")


@pytest.fixture(scope="module", params=["TLSv1_2", "TLSv1_3"])
def rig(request: pytest.FixtureRequest, certificates: Certificates) -> Rig:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    context.minimum_version = context.maximum_version = ssl.TLSVersion[request.param]
    return Rig(certificates, context)


NEVER = 10**9


def test_a_handshake_that_is_cut_at_any_byte_is_a_lost_connection(rig: Rig) -> None:
    assert rig.echoed(NEVER, NEVER) == b"0123456789" * 20
    taken, given = rig.taken, rig.given
    limits = [(limit, NEVER) for limit in range(taken)] + [(NEVER, limit) for limit in range(given)]
    tried = limits[:: 1 if FULL else 16]
    lost = sum(rig.is_lost(takes, gives) for takes, gives in tried)
    # Signatures differ in length: a handshake may need some bytes less than the first one.
    assert lost > len(tried) - 16
    assert len(limits) > 1000
    assert rig.echoed(NEVER, NEVER) == b"0123456789" * 20


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_bytes_may_come_and_go_in_any_pieces(chunk: int, rig: Rig) -> None:
    assert rig.echoed(NEVER, NEVER, chunk) == b"0123456789" * 20


def test_the_second_connection_resumes_the_session(rig: Rig) -> None:
    backend = TlsBackend(rig.memory(), rig.contexts, resumes=True)
    resumed = [connect_once(backend, rig) for _ in range(2)]
    backend.close()
    assert resumed == [False, True]


def connect_once(backend: TlsBackend, rig: Rig) -> bool:
    """Send a byte to a new server, get it back, and close; whether the session was resumed."""
    rig.server = TlsServer(rig._context, NEVER, NEVER)
    transport = backend.dial(*PLACE)
    while not transport.advance():
        backend.poll(0)
    transport.send([b"x"])
    while transport.receive(10) is None:
        backend.poll(0)
    resumed = bool(transport.engine.session_reused)
    backend.forget(transport)
    transport.close()
    return resumed


def test_connections_leave_nothing_in_the_heap(rig: Rig) -> None:
    """Python before 3.12.8, and 3.13.0, lose a copy of a session, 7 KB, when it is read."""
    backend = TlsBackend(rig.memory(), rig.contexts)
    for _ in range(20):
        connect_once(backend, rig)
    gc.collect()
    before = heap_bytes()
    for _ in range(100):
        connect_once(backend, rig)
    gc.collect()
    assert heap_bytes() - before < 100 * 1024
    backend.close()


def test_certificates_are_read_again_when_their_files_change(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(Path(certificates.ca).read_bytes())
    contexts = TlsContexts(TlsSettings(cafile=str(trusted)))
    first = contexts.current()
    assert contexts.current() is first
    trusted.write_bytes(Path(certificates.other_ca).read_bytes() + b"\n")
    second = contexts.current()
    assert second is not first
    trusted.write_bytes(b"half of a file")
    assert contexts.current() is second
    assert "cannot be used" in caplog.text
