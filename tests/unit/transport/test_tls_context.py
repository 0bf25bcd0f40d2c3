"""What contexts are made of: files with comments, and passwords that code of others tells."""

from __future__ import annotations

import logging
import os
import ssl
import traceback
from contextlib import suppress
from pathlib import Path

import pytest

from kprod.errors import ConfigError, ConnectionLost
from kprod.security.client_credentials import trusting
from kprod.transport.memory import MemoryBackend
from kprod.transport.tls import TlsBackend
from kprod.transport.tls_context import TlsContexts, TlsSettings, read_pem
from tests.support.certificates import KEY_PASSWORD, Certificates

CANARY = "canary-5ecret"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_names_of_authorities_may_have_any_letters(
    encoding: str, certificates: Certificates, tmp_path: Path
) -> None:
    """As in the bundle of Red Hat's systems, and in that of curl."""
    bundle = tmp_path / "bundle.pem"
    text = f"# Autorité Föderal\n{Path(certificates.ca).read_text()}"
    bundle.write_text(text, encoding=encoding)
    for source in (str(bundle), text):
        assert len(TlsContexts(TlsSettings(cafile=source)).current().get_ca_certs()) == 1
        assert len(trusting(source).get_ca_certs()) == 1


def test_a_mark_of_the_byte_order_is_no_part_of_a_certificate(
    certificates: Certificates, tmp_path: Path
) -> None:
    marked = tmp_path / "marked.pem"
    marked.write_bytes(b"\xef\xbb\xbf" + Path(certificates.ca).read_bytes())
    assert read_pem("ssl_cafile", str(marked)).startswith("-----BEGIN CERTIFICATE")
    assert len(TlsContexts(TlsSettings(cafile=str(marked))).current().get_ca_certs()) == 1


def test_authorities_are_found_in_a_directory(certificates: Certificates) -> None:
    """Both for brokers and for issuers; nothing but a handshake shows what a context would find."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.server)
    folder = certificates.directory()
    for context in (TlsContexts(TlsSettings(cafile=folder)).current(), trusting(folder)):
        shake_hands(context, server)


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Raises SSLError where the client refuses the certificate."""
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


def test_a_directory_without_a_certificate_that_can_be_found_is_refused(
    certificates: Certificates,
) -> None:
    for option, use in (
        ("ssl_cafile", lambda path: TlsContexts(TlsSettings(cafile=path))),
        ("sasl_oauthbearer_cafile", trusting),
    ):
        with pytest.raises(ConfigError, match=f"{option}.*openssl rehash"):
            use(str(certificates.folder))


def failing() -> str:
    raise RuntimeError(CANARY)


def test_what_a_password_fails_with_is_told_by_its_type(certificates: Certificates) -> None:
    key = certificates.encrypted_key()
    with pytest.raises(ConfigError, match=r"builtins\.RuntimeError") as raised:
        TlsContexts(TlsSettings(certfile=key, key_password=failing))
    shown = traceback.TracebackException.from_exception(raised.value, capture_locals=True)
    assert CANARY not in "".join(shown.format())


def test_a_password_that_comes_after_its_key_is_found(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    key = certificates.encrypted_key()
    password = [KEY_PASSWORD]
    contexts = TlsContexts(TlsSettings(certfile=key, key_password=lambda: password[0]))
    before = contexts.current()
    os.utime(key, (1, 1))  # as replaced by one that has the next password
    password[0] = "the last one"
    with caplog.at_level(logging.WARNING):
        assert contexts.current() is contexts.current() is before
    assert caplog.text.count("cannot be used") == 1
    password[0] = KEY_PASSWORD
    assert contexts.current() is not before


def test_a_password_that_fails_later_leaves_what_was_read(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    key = certificates.encrypted_key()
    fails: list[bool] = []
    contexts = TlsContexts(
        TlsSettings(certfile=key, key_password=lambda: failing() if fails else KEY_PASSWORD)
    )
    before = contexts.current()
    fails.append(True)
    os.utime(key, (1, 1))
    with caplog.at_level(logging.WARNING):
        assert contexts.current() is before
    assert "RuntimeError" in caplog.text
    assert CANARY not in caplog.text


@pytest.mark.parametrize("host", ["kafka..example.com", ".example.com", "x" * 64 + ".com"])
def test_a_name_that_no_host_can_have_is_not_connected_to(host: str) -> None:
    """As without TLS, where it cannot be resolved; it was logged as a mistake, with its stack."""
    backend = TlsBackend(MemoryBackend({}), TlsContexts(TlsSettings()))
    with pytest.raises(ConnectionLost, match=rf"cannot resolve {host}:9093: .*label"):
        backend.dial(host, 9093)
    assert backend.poll(0) == []
    backend.close()
