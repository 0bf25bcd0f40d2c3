"""Valid and invalid certificates of a test CA, as files."""

from __future__ import annotations

import datetime
import hashlib
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

DAY = datetime.timedelta(days=1)
KEY_PASSWORD = "open-sesame"


class Certificates:
    """Files below ``folder``. ``server`` is for localhost and 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca = self._write("ca.pem", self.authority.cert_pem.bytes())
        self.other_ca = self._write("other-ca.pem", trustme.CA().cert_pem.bytes())
        self.server = self.issue("server", "localhost", "127.0.0.1")
        self.client = self.issue("client", "client")

    def _write(self, name: str, data: bytes) -> str:
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def issue(
        self,
        name: str,
        *hosts: str,
        after: datetime.datetime | None = None,
        before: datetime.datetime | None = None,
        authority: trustme.CA | None = None,
    ) -> str:
        issued = (authority or self.authority).issue_cert(
            *hosts, not_before=after, not_after=before
        )
        return self._write(f"{name}.pem", issued.private_key_and_cert_chain_pem.bytes())

    def expired(self) -> str:
        now = datetime.datetime.now(datetime.UTC)
        return self.issue(
            "expired", "localhost", "127.0.0.1", after=now - 2 * DAY, before=now - DAY
        )

    def not_yet_valid(self) -> str:
        now = datetime.datetime.now(datetime.UTC)
        return self.issue("early", "localhost", "127.0.0.1", after=now + DAY, before=now + 2 * DAY)

    def of_another_authority(self, *hosts: str) -> str:
        return self.issue("strange", *hosts, authority=trustme.CA())

    def self_signed(self) -> str:
        another = trustme.CA()
        pem = another.private_key_pem.bytes() + another.cert_pem.bytes()
        return self._write("self-signed.pem", pem)

    def directory(self) -> str:
        """A directory with the CA, as made by ``openssl rehash``."""
        path = self.folder / "authorities"
        path.mkdir(exist_ok=True)
        authority = x509.load_pem_x509_certificate(self.authority.cert_pem.bytes())
        (path / f"{subject_hash(authority.subject)}.0").write_bytes(self.authority.cert_pem.bytes())
        return str(path)

    def encrypted_key(self) -> str:
        """The client's encrypted key and its certificates."""
        data = Path(self.client).read_bytes()
        private = load_pem_private_key(data, None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(KEY_PASSWORD.encode())
        )
        certificates = data[data.index(b"-----BEGIN CERTIFICATE") :]
        return self._write("encrypted.pem", private + certificates)

    def client_store(self) -> str:
        data = Path(self.client).read_bytes()
        key = load_pem_private_key(data, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        first, *others = x509.load_pem_x509_certificates(data)
        secret = BestAvailableEncryption(KEY_PASSWORD.encode())
        store = pkcs12.serialize_key_and_certificates(b"client", key, first, others, secret)
        return self._write("client.p12", store)


def subject_hash(subject: x509.Name) -> str:
    """OpenSSL's file name for a certificate: a hash of its lower-case subject."""
    attributes = [
        x509.NameAttribute(each.oid, " ".join(str(each.value).lower().split())) for each in subject
    ]
    encoded = x509.Name(attributes).public_bytes()
    content = encoded[2 if encoded[1] < 128 else 2 + (encoded[1] & 127) :]
    return f"{int.from_bytes(hashlib.sha1(content).digest()[:4], 'little'):08x}"
