"""Certificates and keys as PEM text: from text, a file, or a PKCS#12 store."""

from __future__ import annotations

import os
from typing import NamedTuple

from kprod.config.kinds import is_pem
from kprod.errors import ConfigError
from kprod.transport.tls_settings import Password

_JKS = b"\xfe\xed\xfe\xed"
_DER = 0x30  # what everything written in ASN.1 begins with, a PKCS#12 store as well
_CONVERT = "convert it: keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12"


class Stamp(NamedTuple):
    """What changes when a file does."""

    modified_ns: int
    size: int
    inode: int


def stamp(source: str | None) -> Stamp | None:
    """The present state of the file; None for text, and for a file that is not there."""
    if source is None or is_pem(source):
        return None
    try:
        found = os.stat(source)
    except OSError:
        return None
    return Stamp(found.st_mtime_ns, found.st_size, found.st_ino)


def read_pem(option: str, source: str, password: Password | None = None) -> str:
    """The PEM text that ``source`` stands for; of a PKCS#12 store the key, then the certificates.

    Raises ConfigError, naming ``option``, for a file that cannot be read or is something else.
    """
    if is_pem(source):
        return source
    data = _read(option, source)
    if data.startswith(_JKS):
        raise ConfigError(
            f"{option}: {source!r} is a JKS key store, which kprod cannot read; {_CONVERT}"
        )
    if data[:1] and data[0] == _DER:
        return _from_pkcs12(option, source, data, password)
    text = data.decode("utf-8", "replace")
    if "-----BEGIN " not in text:
        raise ConfigError(f"{option}: there is neither PEM nor PKCS#12 in {source!r}")
    return text


def _read(option: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"{option}: cannot read {path!r}: {error.strerror}") from error


def _from_pkcs12(option: str, path: str, data: bytes, password: Password | None) -> str:
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError:
        raise ConfigError(
            f"{option}: reading the PKCS#12 store {path!r} needs the package cryptography"
        ) from None
    try:
        store = pkcs12.load_pkcs12(data, password().encode() if password is not None else None)
    except ValueError:
        given = "is wrong, or the file is damaged" if password is not None else "is missing"
        raise ConfigError(f"{option}: cannot open {path!r}: its password {given}") from None
    parts = []
    if store.key is not None:
        plain = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        parts.append(store.key.private_bytes(*plain))
    own = [store.cert] if store.cert is not None else []
    parts += [each.certificate.public_bytes(Encoding.PEM) for each in own + store.additional_certs]
    return b"".join(parts).decode()
