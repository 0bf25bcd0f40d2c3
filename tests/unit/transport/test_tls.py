"""TLS in memory: contexts, connections lost at any byte, and sessions."""

from __future__ import annotations

import gc
import logging
import os
import ssl
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kprod.errors import ConfigError, ConnectionLost
from kprod.security.client_credentials import trusting
from kprod.transport.memory import MemoryBackend, ServerEnd
from kprod.transport.tls import TlsBackend, TlsTransport
from kprod.transport.tls_context import TlsContexts, TlsSettings, read_pem
from tests.support.certificates import KEY_PASSWORD, Certificates
from tests.support.held_resources import heap_bytes
from tests.support.tier import FULL

CANARY = "canary-5ecret"
ADDRESS = ("localhost", 9092)
NEVER = 10**9  # more bytes than are sent


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_comments_in_a_ca_bundle_may_have_any_encoding(
    encoding: str, certificates: Certificates, tmp_path: Path
) -> None:
    """As in the bundles of Red Hat and curl."""
    bundle = tmp_path / "bundle.pem"
    text = f"# Autorité Föderal\n{Path(certificates.ca).read_text()}"
    bundle.write_text(text, encoding=encoding)
    for source in (str(bundle), text):
        assert len(TlsContexts(TlsSettings(cafile=source)).current().get_ca_certs()) == 1
        assert len(trusting(source).get_ca_certs()) == 1
    if encoding == "utf-8-sig":  # the byte order mark is removed
        bundle.write_bytes(b"\xef\xbb\xbf" + Path(certificates.ca).read_bytes())
        assert read_pem("ssl_cafile", str(bundle)).startswith("-----BEGIN CERTIFICATE")


def test_ca_certificates_are_found_in_a_directory(certificates: Certificates) -> None:
    """For brokers and issuers; only a handshake shows what a context finds."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.server)
    folder = certificates.directory()
    for context in (TlsContexts(TlsSettings(cafile=folder)).current(), trusting(folder)):
        shake_hands(context, server)


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Raises SSLError if the client refuses the certificate."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname="localhost"),
        server.wrap_bio(there, back, server_side=True),
    ]
    for end in ends * 2:
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    assert ends[0].version() is not None
    assert ends[0].getpeercert()


def test_a_directory_without_hashed_certificates_is_refused(certificates: Certificates) -> None:
    for option, use in (
        ("ssl_cafile", lambda path: TlsContexts(TlsSettings(cafile=path))),
        ("sasl_oauthbearer_cafile", trusting),
    ):
        with pytest.raises(ConfigError, match=f"{option}.*openssl rehash"):
            use(str(certificates.folder))


def failing() -> str:
    raise RuntimeError(CANARY)


def test_the_error_of_a_password_provider_is_named_by_type_only(certificates: Certificates) -> None:
    key = certificates.encrypted_key()
    with pytest.raises(ConfigError, match=r"builtins\.RuntimeError") as raised:
        TlsContexts(TlsSettings(certfile=key, key_password=failing))
    shown = traceback.TracebackException.from_exception(raised.value, capture_locals=True)
    assert CANARY not in "".join(shown.format())


def test_changed_files_are_reloaded_once_the_key_password_is_right(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    key, trusted = certificates.encrypted_key(), certificates.ca
    passwords: list[Callable[[], str]] = [lambda: KEY_PASSWORD]

    def latest() -> str:
        return passwords[0]()

    contexts = TlsContexts(TlsSettings(cafile=trusted, certfile=key, key_password=latest))
    before = contexts.current()
    for moment, password in enumerate((lambda: "the last one", failing), start=1):
        os.utime(key, (moment, moment))  # as if replaced by a key with the next password
        passwords[0] = password
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert contexts.current() is contexts.current() is before
        assert caplog.text.count("cannot be used") == 1
        assert CANARY not in caplog.text
    assert "RuntimeError" in caplog.text
    passwords[0] = lambda: KEY_PASSWORD
    after = contexts.current()
    assert after is not before
    assert contexts.current() is after
    os.utime(trusted, (3, 3))
    assert contexts.current() is not after


@pytest.mark.parametrize("host", ["kafka..example.com", ".example.com", "x" * 64 + ".com"])
def test_an_invalid_host_name_is_a_lost_connection(host: str) -> None:
    """As without TLS, where it cannot be resolved."""
    backend = TlsBackend(MemoryBackend({}), TlsContexts(TlsSettings()))
    with pytest.raises(ConnectionLost, match=rf"cannot resolve {host}:9093: .*label"):
        backend.dial(host, 9093)
    assert backend.poll(0) == []
    backend.close()


class TlsServer(ServerEnd):
    """Echoes what it decrypts. ``takes`` and ``gives``: bytes until the connection is lost."""

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
    """A client and its echo server."""

    def __init__(self, certificates: Certificates, context: ssl.SSLContext) -> None:
        self._context = context
        self.contexts = TlsContexts(TlsSettings(cafile=certificates.ca))
        self.server = TlsServer(context, 0, 0)
        self.taken = self.given = 0  # bytes of the server when the message was echoed

    def memory(self, chunk: int | None = None) -> MemoryBackend:
        """A network with ``server``, in chunks of at most ``chunk`` bytes."""
        return MemoryBackend({ADDRESS: lambda: self.server}, send_chunk=chunk, receive_chunk=chunk)

    def echoed(self, takes: int, gives: int, chunk: int | None = None) -> bytes:
        """The echo of a message; raises ConnectionLost if the limits are reached before."""
        self.server = TlsServer(self._context, takes, gives)
        backend = TlsBackend(self.memory(chunk), self.contexts)
        transport = backend.dial(*ADDRESS)
        try:
            return self._exchange(backend, transport)
        finally:
            backend.forget(transport)
            transport.close()
            backend.close()

    def is_lost(self, takes: int, gives: int) -> bool:
        """Whether the connection is lost with these limits."""
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
        raise AssertionError("no progress")


@pytest.fixture(scope="module", params=["TLSv1_2", "TLSv1_3"])
def rig(request: pytest.FixtureRequest, certificates: Certificates) -> Rig:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    context.minimum_version = context.maximum_version = ssl.TLSVersion[request.param]
    return Rig(certificates, context)


def test_a_handshake_that_is_cut_at_any_byte_is_a_lost_connection(rig: Rig) -> None:
    assert rig.echoed(NEVER, NEVER) == b"0123456789" * 20
    taken, given = rig.taken, rig.given
    limits = [(limit, NEVER) for limit in range(taken)] + [(NEVER, limit) for limit in range(given)]
    tried = limits[:: 1 if FULL else 16]
    lost = sum(rig.is_lost(takes, gives) for takes, gives in tried)
    # Signatures differ in length: a handshake may need fewer bytes than the first one.
    assert lost > len(tried) - 16
    assert len(limits) > 1000
    assert rig.echoed(NEVER, NEVER) == b"0123456789" * 20


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_bytes_may_be_sent_and_received_in_any_pieces(chunk: int, rig: Rig) -> None:
    assert rig.echoed(NEVER, NEVER, chunk) == b"0123456789" * 20


def test_the_second_connection_resumes_the_session(rig: Rig) -> None:
    backend = TlsBackend(rig.memory(), rig.contexts, resumes=True)
    resumed = [connect_once(backend, rig) for _ in range(2)]
    backend.close()
    assert resumed == [False, True]


def connect_once(backend: TlsBackend, rig: Rig) -> bool:
    """Echo a byte with a new server, and close; whether the session was resumed."""
    rig.server = TlsServer(rig._context, NEVER, NEVER)
    transport = backend.dial(*ADDRESS)
    while not transport.advance():
        backend.poll(0)
    transport.send([b"x"])
    while transport.receive(10) is None:
        backend.poll(0)
    resumed = bool(transport.engine.session_reused)
    backend.forget(transport)
    transport.close()
    return resumed


def test_connections_do_not_leak_memory(rig: Rig) -> None:
    """Python before 3.12.8, and 3.13.0, leak a copy of a session, 7 KB, when it is read."""
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
