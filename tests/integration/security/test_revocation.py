"""Revocation lists: a broker's certificate must not be on that of its issuer."""

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
from tests.support.certificates import DAY, Certificates


def revocations(authority: trustme.CA, *certfiles: str, days: int = 1) -> bytes:
    """A list that is good for ``days``, from three days ago on if that is over."""
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
    """Raises what ``send`` raises."""
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


def test_a_certificate_that_was_revoked(certificates: Certificates, tmp_path: Path) -> None:
    good = certificates.server
    stolen = certificates.issue("stolen", "localhost", "127.0.0.1")
    file = tmp_path / "crl.pem"
    file.write_bytes(revocations(certificates.authority, stolen))
    connect(certificates, good, str(file))
    with pytest.raises(TlsAuthenticationError, match="certificate revoked"):
        connect(certificates, stolen, str(file))
    with pytest.raises(TlsAuthenticationError, match="certificate revoked"):
        connect(certificates, stolen, file.read_text())


def test_a_list_of_somebody_else(certificates: Certificates) -> None:
    crl = revocations(trustme.CA()).decode()
    with pytest.raises(TlsAuthenticationError, match="ssl_crlfile has no list of the CA"):
        connect(certificates, certificates.server, crl)


def test_a_list_that_is_out_of_date(certificates: Certificates) -> None:
    crl = revocations(certificates.authority, days=-1).decode()
    with pytest.raises(TlsAuthenticationError, match="CRL has expired"):
        connect(certificates, certificates.server, crl)


@pytest.mark.parametrize("text", ["", "no list", "-----BEGIN X509 CRL-----\nAAAA\n"])
def test_files_that_are_no_lists(text: str, certificates: Certificates, tmp_path: Path) -> None:
    file = tmp_path / "crl.pem"
    file.write_text(text)
    with pytest.raises(ConfigError, match="ssl_crlfile"):
        connect(certificates, certificates.server, str(file))
