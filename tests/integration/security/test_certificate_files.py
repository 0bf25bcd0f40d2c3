"""Ways to give certificates and keys, and files that cannot be used: told before any start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.errors import ConfigError
from kprod.transport.tls_context import TlsSettings
from tests.support.certificates import KEY_PASSWORD, Certificates
from tests.support.guarded_broker import GuardedBroker


def configured(certificates: Certificates, **options: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        KafkaProducer(**{"security_protocol": "SSL", "ssl_cafile": certificates.ca, **options})
    return str(raised.value)


def test_files_that_cannot_be_used(certificates: Certificates, tmp_path: Path) -> None:
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
    for options, words in (
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
        ({"ssl_ciphers": "NOTHING"}, "none of these ciphers"),
    ):
        assert words in configured(certificates, **options), options


def test_a_key_that_is_given_as_text_is_not_told() -> None:
    """Found by a search through the objects of a whole run."""
    key = "-----BEGIN PRIVATE KEY-----\ncanary\n"
    assert "canary" not in repr(TlsSettings(certfile=key, keyfile=key))


@pytest.mark.parametrize("way", ["encrypted", "text", "store", "two"])
def test_ways_to_give_a_certificate(way: str, guarded: GuardedBroker) -> None:
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
    }[way]
    with KafkaProducer(**options) as producer:
        producer.send("t", b"x").get(timeout=20)
