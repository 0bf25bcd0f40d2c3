"""Options for certificates, keys and revocation lists, and unusable files."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker, make_listener, tls_context
from kprod.errors import ConfigError, TlsAuthenticationError
from kprod.transport.tls_context import TlsSettings
from tests.support.certificates import DAY, KEY_PASSWORD, Certificates
from tests.support.guarded_broker import GuardedBroker


def config_error(certificates: Certificates, **options: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        KafkaProducer(**{"security_protocol": "SSL", "ssl_cafile": certificates.ca, **options})
    return str(raised.value)


def test_errors_of_unusable_files_name_options(certificates: Certificates, tmp_path: Path) -> None:
    empty, text = tmp_path / "empty", tmp_path / "text"
    empty.write_bytes(b"")
    text.write_text("not a certificate")
    jks = tmp_path / "store.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    missing = str(tmp_path / "missing")
    encrypted, store = certificates.encrypted_key(), certificates.client_store()
    only_certificate = Path(certificates.client).read_text()
    only_certificate = only_certificate[only_certificate.index("-----BEGIN CERT") :]
    damaged = only_certificate.replace("MII", "M*I", 1)
    damaged_key = Path(certificates.server).read_text().replace("KEY-----\nM", "KEY-----\n*", 1)
    for options, message in (
        ({"ssl_cafile": damaged}, "ssl_cafile: no certificate in it can be read"),
        ({"ssl_crlfile": damaged}, "ssl_crlfile: no revocation list in it can be read"),
        (
            {"ssl_certfile": damaged, "ssl_keyfile": certificates.server},
            "ssl_certfile: no certificate in it can be read",
        ),
        (
            {"ssl_certfile": only_certificate, "ssl_keyfile": damaged_key},
            "ssl_keyfile: the private key cannot be read",
        ),
        ({"ssl_cafile": missing}, "ssl_cafile: cannot read"),
        ({"ssl_cafile": str(empty)}, "neither PEM nor PKCS#12"),
        ({"ssl_cafile": text}, "neither PEM nor PKCS#12"),
        ({"ssl_cafile": str(jks)}, "keytool -importkeystore"),
        ({"ssl_certfile": missing}, "ssl_certfile: cannot read"),
        ({"ssl_certfile": certificates.client, "ssl_keyfile": missing}, "ssl_keyfile: cannot read"),
        ({"ssl_certfile": only_certificate}, "no private key in it; set ssl_keyfile"),
        ({"ssl_certfile": encrypted}, "is encrypted; set ssl_password"),
        ({"ssl_certfile": encrypted, "ssl_password": "wrong"}, "ssl_password"),
        ({"ssl_certfile": store}, "its password is missing"),
        ({"ssl_certfile": store, "ssl_keystore_password": "wrong"}, "is wrong, or"),
        ({"ssl_certfile": only_certificate, "ssl_keyfile": certificates.server}, "does not belong"),
        ({"ssl_crlfile": missing}, "ssl_crlfile: cannot read"),
        ({"ssl_crlfile": str(empty)}, "ssl_crlfile"),
        ({"ssl_crlfile": str(text)}, "ssl_crlfile"),
        ({"ssl_ciphers": "NOTHING"}, "none of these ciphers"),
    ):
        assert message in config_error(certificates, **options), options


def test_a_key_given_as_text_is_not_in_the_repr() -> None:
    """A regression found by a search through all objects of a run."""
    key = "-----BEGIN PRIVATE KEY-----\ncanary\n"
    assert "canary" not in repr(TlsSettings(certfile=key, keyfile=key))


@pytest.mark.parametrize("form", ["encrypted", "text", "store", "two"])
def test_a_certificate_can_be_given_in_every_form(form: str, guarded: GuardedBroker) -> None:
    certificates, options = guarded.certificates, guarded.options("mtls", "none")
    data = Path(certificates.client).read_text()
    at = data.index("-----BEGIN CERT")
    options |= {
        "encrypted": {"ssl_certfile": certificates.encrypted_key(), "ssl_password": KEY_PASSWORD},
        "text": {"ssl_certfile": data, "ssl_cafile": Path(certificates.ca).read_text()},
        "store": {
            "ssl_certfile": certificates.client_store(),
            "ssl_keystore_password": KEY_PASSWORD,
        },
        "two": {"ssl_certfile": data[at:], "ssl_keyfile": data[:at]},
    }[form]
    with KafkaProducer(**options) as producer:
        producer.send("t", b"x").get(timeout=20)


def revocations(authority: trustme.CA, *certfiles: str, days: int = 1) -> bytes:
    """A revocation list issued three days ago and valid for ``days`` from now."""
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    key = load_pem_private_key(authority.private_key_pem.bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.subject)
        .last_update(now - 3 * DAY)
        .next_update(now + days * DAY)
    )
    for certfile in certfiles:
        found = x509.load_pem_x509_certificates(Path(certfile).read_bytes())[0]
        revoked = x509.RevokedCertificateBuilder().serial_number(found.serial_number)
        built = built.add_revoked_certificate(revoked.revocation_date(now - DAY).build())
    return built.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def connect(certificates: Certificates, certfile: str, crlfile: str) -> None:
    """Send a record over TLS."""
    listener = make_listener("SSL", tls=tls_context(certfile))
    options: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_cafile": certificates.ca,
        "ssl_crlfile": crlfile,
        "max_block_ms": 20_000,
    }
    with (
        EmbeddedBroker(listeners=[listener], topics={"t": 1}) as broker,
        KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **options) as producer,
    ):
        producer.send("t", b"x").get(timeout=20)


def test_a_revoked_certificate_is_refused(certificates: Certificates, tmp_path: Path) -> None:
    good = certificates.server
    stolen = certificates.issue("stolen", "localhost", "127.0.0.1")
    file = tmp_path / "crl.pem"
    file.write_bytes(revocations(certificates.authority, stolen))
    connect(certificates, good, str(file))
    with pytest.raises(TlsAuthenticationError, match="certificate revoked"):
        connect(certificates, stolen, str(file))
    with pytest.raises(TlsAuthenticationError, match="certificate revoked"):
        connect(certificates, stolen, file.read_text())


def test_a_revocation_list_of_another_authority_is_refused(certificates: Certificates) -> None:
    crl = revocations(trustme.CA()).decode()
    with pytest.raises(TlsAuthenticationError, match="ssl_crlfile has no list of the CA"):
        connect(certificates, certificates.server, crl)


def test_an_expired_revocation_list_is_refused(certificates: Certificates) -> None:
    crl = revocations(certificates.authority, days=-1).decode()
    with pytest.raises(TlsAuthenticationError, match="CRL has expired"):
        connect(certificates, certificates.server, crl)
