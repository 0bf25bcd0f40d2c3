"""Failed TLS handshakes and logins raise the cause immediately; limits before the login."""

from __future__ import annotations

import socket
import ssl
import struct
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.broker import Authentication, EmbeddedBroker, make_listener, tls_context
from kprod.errors import (
    AuthenticationError,
    KprodError,
    SaslAuthenticationError,
    TlsAuthenticationError,
)
from tests.support.answering_server import answering
from tests.support.certificates import Certificates
from tests.support.guarded_broker import PASSWORD, USER, GuardedBroker

MAX_BLOCK_MS = 20_000
"""Longer than any of these takes: an error raised only at the timeout fails the test."""


def error_of_send(kind: type[KprodError] = AuthenticationError, **options: Any) -> str:
    """The error of ``send``, raised long before the timeout."""
    with (
        KafkaProducer(max_block_ms=MAX_BLOCK_MS, **options) as producer,
        pytest.raises(kind) as raised,
    ):
        producer.send("t", b"never")
    return str(raised.value)


@contextmanager
def tls_broker(
    certfile: str, change: Callable[[ssl.SSLContext], None] | None = None
) -> Iterator[str]:
    context = tls_context(certfile)
    if change is not None:
        change(context)
    with EmbeddedBroker(listeners=[make_listener("SSL", tls=context)]) as broker:
        yield broker.bootstrap_servers


NAMES = [
    ("localhost", ("localhost",), True),
    ("localhost.", ("localhost",), True),
    ("LOCALHOST", ("localhost",), True),
    ("127.0.0.1", ("127.0.0.1",), True),
    ("localhost", ("broker.example.org",), False),
    ("localhost", ("127.0.0.1",), False),
    ("127.0.0.1", ("localhost",), False),
    ("127.0.0.1", ("127.0.0.2",), False),
    ("example.test", ("*.example.test",), False),
    ("a.example.test", ("*.example.test",), True),
    ("a.b.example.test", ("*.example.test",), False),
    ("xn--bcher-kva.localhost", ("bücher.localhost",), True),
    ("xn--bcher-kva.localhost", ("localhost",), False),
    ("bücher.localhost", ("bücher.localhost",), True),
    ("bücher.localhost", ("b\xfccher2.localhost",), False),
]


@pytest.mark.parametrize(("host", "names", "matches"), NAMES, ids=str)
def test_the_certificate_must_match_the_broker_name(
    host: str, names: tuple[str, ...], matches: bool, certificates: Certificates
) -> None:
    certfile = certificates.issue(f"names-{abs(hash(names))}", *names)
    options: dict[str, Any] = {"security_protocol": "SSL", "ssl_cafile": certificates.ca}
    with tls_broker(certfile) as address:
        port = int(address.rpartition(":")[2])
        options["bootstrap_servers"] = f"{host}:{port}"
        backend = resolving_to_loopback()
        if matches:
            with KafkaProducer(transport=backend, max_block_ms=MAX_BLOCK_MS, **options) as producer:
                producer.connect()
        else:
            text = error_of_send(TlsAuthenticationError, transport=backend, **options)
            assert "certificate" in text
            assert "is this the right broker" in text
            without_check = {**options, "ssl_check_hostname": False}
            with KafkaProducer(transport=resolving_to_loopback(), **without_check) as producer:
                producer.connect()


def resolving_to_loopback() -> Any:
    """Resolve every name to loopback: only the certificate's names are tested."""
    from kprod.transport.tcp import Address, TcpBackend

    def resolve(host: str, port: int) -> list[Address]:
        return [Address(socket.AF_INET, ("127.0.0.1", port))]

    return TcpBackend(resolver=resolve)


def old(context: ssl.SSLContext) -> None:
    context.maximum_version = ssl.TLSVersion.TLSv1_2


def ancient(context: ssl.SSLContext) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")


def only_one_cipher(context: ssl.SSLContext) -> None:
    old(context)
    context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")


def new(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3


Serve = Callable[[Certificates], AbstractContextManager[str]]


def with_certificate(made: Callable[[Certificates], str]) -> Serve:
    return lambda certificates: tls_broker(made(certificates))


def with_settings(change: Callable[[ssl.SSLContext], None]) -> Serve:
    return lambda certificates: tls_broker(certificates.server, change)


@contextmanager
def server_sending(answer: bytes) -> Iterator[str]:
    with answering(lambda _: [answer], often=True, until=b"") as server:
        yield f"127.0.0.1:{server.port}"


def with_answer(answer: bytes) -> Serve:
    return lambda _: server_sending(answer)


@pytest.mark.parametrize(
    ("serve", "options", "message"),
    [
        (with_certificate(Certificates.expired), {}, "has expired"),
        (with_certificate(Certificates.not_yet_valid), {}, "not yet valid"),
        (with_certificate(Certificates.self_signed), {}, "self-signed"),
        (with_certificate(lambda all_: all_.of_another_authority("localhost")), {}, "ssl_cafile"),
        (with_settings(old), {"ssl_minimum_version": "TLSv1.3"}, "share no TLS version"),
        (with_settings(new), {"ssl_enabled_protocols": "TLSv1.2"}, "share no TLS version"),
        (with_settings(ancient), {}, "share no TLS version"),
        (
            with_settings(only_one_cipher),
            {"ssl_ciphers": "ECDHE-ECDSA-AES128-GCM-SHA256"},
            "nothing in common",
        ),
        (with_answer(b"HTTP/1.1 400 Bad Request\r\n\r\n"), {}, "an HTTP server"),
        (with_answer(b"SSH-2.0-OpenSSH_9.0\r\n"), {}, "an SSH server"),
        (with_answer(b"\x00\x00\x00\x0a0123456789"), {}, "does not speak TLS"),
        (with_answer(b"\x15\x03\x03\x00\x02\x02\x46"), {}, "share no TLS version"),
        (with_answer(b"\x15\x03\x03\x00\x02\x02\x28"), {}, "nothing in common"),
        (with_answer(b"\x15\x03\x03\x00\x02\x02\x70"), {}, "knows no host of this name"),
        (with_answer(b"\x16\x03\x03\x00\x04\x02\x00\x00\x00"), {}, "no TLS with"),
    ],
)
def test_the_error_explains_a_failed_tls_handshake(
    serve: Serve, options: dict[str, Any], message: str, certificates: Certificates
) -> None:
    with serve(certificates) as address:
        text = error_of_send(
            TlsAuthenticationError,
            bootstrap_servers=address.replace("127.0.0.1", "localhost"),
            security_protocol="SSL",
            ssl_cafile=certificates.ca,
            **options,
        )
    assert message in text


def test_the_error_asks_for_the_required_client_certificate(guarded: GuardedBroker) -> None:
    options = guarded.options("mtls", "none")
    options.pop("ssl_certfile")
    assert "set ssl_certfile" in error_of_send(TlsAuthenticationError, **options)


def test_the_error_reports_an_untrusted_client_certificate(guarded: GuardedBroker) -> None:
    untrusted = guarded.certificates.of_another_authority("client")
    options = {**guarded.options("mtls", "none"), "ssl_certfile": untrusted}
    assert "refused our certificate" in error_of_send(TlsAuthenticationError, **options)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    "invalid",
    [
        {"sasl_plain_username": "mallory"},
        {"sasl_plain_password": PASSWORD + " "},
        {"sasl_plain_password": PASSWORD.upper()},
    ],
    ids=str,
)
def test_wrong_credentials_are_refused(
    invalid: dict[str, str], mechanism: str, guarded: GuardedBroker
) -> None:
    text = error_of_send(
        SaslAuthenticationError, **{**guarded.options("tls", mechanism), **invalid}
    )
    assert f"refused {mechanism}" in text or "the broker refused" in text


def test_the_error_lists_the_offered_mechanisms() -> None:
    login = Authentication({USER: PASSWORD}, ("SCRAM-SHA-256",))
    with EmbeddedBroker(listeners=[make_listener("SASL", authentication=login)]) as broker:
        text = error_of_send(
            SaslAuthenticationError,
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username=USER,
            sasl_plain_password=PASSWORD,
        )
    assert "does not offer sasl_mechanism='PLAIN'; it offers SCRAM-SHA-256" in text


def fail() -> str:
    raise RuntimeError(PASSWORD)


@pytest.mark.parametrize(
    ("provider", "message"),
    [
        (fail, "RuntimeError"),
        (lambda: None, "neither a token"),
        (lambda: "", "not a token"),
        (lambda: "two words", "not a token"),
        (lambda: "with\x01control", "not a token"),
        (lambda: ("token", 1.0), "already expired"),
        (lambda: b"bytes", "neither a token"),
        (lambda: "a.b.c", "refused"),
        (lambda: ("dG9rZW4", 4e9), "refused"),
    ],
)
def test_invalid_tokens_are_refused(
    provider: Callable[[], Any], message: str, guarded: GuardedBroker
) -> None:
    options = {**guarded.options("tls", "OAUTHBEARER"), "sasl_oauth_token_provider": provider}
    text = error_of_send(SaslAuthenticationError, **options)
    assert message in text
    assert PASSWORD not in text


def test_the_error_reports_a_port_without_logins(guarded: GuardedBroker) -> None:
    address = guarded.address("plain", "none")
    options = {**guarded.options("plain", "PLAIN"), "bootstrap_servers": address}
    assert "takes no logins" in error_of_send(SaslAuthenticationError, **options)


def first_warning(caplog: pytest.LogCaptureFixture, **options: Any) -> str:
    """The first warning about a broker."""
    messages: list[str] = []
    deadline = time.monotonic() + 20
    with KafkaProducer(max_block_ms=300, **options) as producer:
        while not messages and time.monotonic() < deadline:
            with suppress(KprodError):
                producer.send("t", b"never")
            messages = [text for text in caplog.messages if "broker" in text]
    return messages[0]


@pytest.mark.parametrize(
    ("client", "listener"),
    [
        (("tls", "none"), ("plain", "none")),
        (("plain", "none"), ("tls", "none")),
        (("plain", "none"), ("plain", "PLAIN")),
        (("tls", "none"), ("tls", "PLAIN")),
        (("tls", "PLAIN"), ("plain", "PLAIN")),
        (("plain", "PLAIN"), ("tls", "PLAIN")),
    ],
)
def test_the_first_warning_hints_at_a_wrong_security_protocol(
    client: tuple[str, str],
    listener: tuple[str, str],
    guarded: GuardedBroker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {**guarded.secrets(*client), "bootstrap_servers": guarded.address(*listener)}
    assert "security_protocol" in first_warning(caplog, **options)


MAX_SIZE = 512 * 1024


def begin_request(address: str, size: int) -> socket.socket:
    """A connection with the start of a request of that size."""
    host, _, port = address.rpartition(":")
    client = socket.create_connection((host, int(port)), timeout=20)
    client.sendall(struct.pack(">ihh", size, 18, 0))
    return client


def is_closed(client: socket.socket) -> bool:
    """Whether the broker closes it; by a reset if unread data was left."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("size", [MAX_SIZE + 1, 2**31 - 1, -1, 0])
def test_requests_of_invalid_size_are_refused(size: int, guarded: GuardedBroker) -> None:
    """The announced size is enough: no memory is allocated for them."""
    with begin_request(guarded.address("plain", "PLAIN"), size) as client:
        assert is_closed(client)


def test_larger_requests_are_accepted_after_the_login(guarded: GuardedBroker) -> None:
    options = guarded.options("plain", "PLAIN")
    with KafkaProducer(max_request_size=2 * MAX_SIZE, **options) as producer:
        producer.send("t", bytes(MAX_SIZE + 100_000)).get(timeout=20)


@pytest.mark.parametrize("api", [0, 1, 3, 19, 22])
def test_other_requests_are_refused_before_the_login(api: int, guarded: GuardedBroker) -> None:
    """Produce, Fetch, Metadata, CreateTopics, InitProducerId."""
    host, _, port = guarded.address("plain", "PLAIN").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(struct.pack(">ihhih", 10, api, 3, 1, -1))
        assert is_closed(client)
