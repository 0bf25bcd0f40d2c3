"""TLS settings, certificates and keys, and the OpenSSL contexts made from them."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from kprod.config.kinds import is_pem
from kprod.errors import ConfigError

Password = Callable[[], str]
"""Returns a password when it is needed, so that no object has to store it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Certificates and keys as the path of a file, or as PEM text. Immutable.

    ``context`` is a context of the application, which replaces all other settings. ``cafile`` may
    be a directory; None means the system's trusted certificates. ``certfile`` and ``keyfile`` are
    the client's, for brokers that require them. ``cafile`` and ``certfile`` may be PKCS#12 stores.
    ``ciphers`` is the list for TLS 1.2 in OpenSSL's syntax. Without ``verify`` anyone can
    impersonate the broker.
    """

    context: ssl.SSLContext | None = None
    cafile: str | None = None
    cafile_password: Password | None = None
    certfile: str | None = field(default=None, repr=False)  # may be text, with the key in it
    certfile_password: Password | None = None
    keyfile: str | None = field(default=None, repr=False)
    key_password: Password | None = None
    crlfile: str | None = None
    ciphers: str | None = None
    check_hostname: bool = True
    verify: bool = True
    minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    maximum_version: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED


_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")
_JKS = b"\xfe\xed\xfe\xed"
_DER = 0x30  # the first byte of an ASN.1 sequence, and so of a PKCS#12 store
_CONVERT = "convert it: keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12"


class Stamp(NamedTuple):
    """The state of a file, which changes with its content."""

    modified_ns: int
    size: int
    inode: int


def stamp(source: str | None) -> Stamp | None:
    """The current state of the file; None for PEM text, and for a missing file."""
    if source is None or is_pem(source):
        return None
    try:
        found = os.stat(source)
    except OSError:
        return None
    return Stamp(found.st_mtime_ns, found.st_size, found.st_ino)


def read_pem(option: str, source: str, password: Password | None = None) -> str:
    """The PEM text of ``source``; for a PKCS#12 store the key, then the certificates.

    If the file is unreadable or has another format, raises a ConfigError that names ``option``.
    """
    if is_pem(source):
        return _ascii(source)
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
    return _ascii(text)


def _ascii(text: str) -> str:
    """The text without other characters, which occur in comments only: ``ssl`` rejects them."""
    return text.encode("ascii", "ignore").decode()


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


_log = logging.getLogger("kprod.transport")


class TlsContexts:
    """The context for the next connection. Used by one thread at a time.

    The constructor raises ConfigError that names the option. If files become unusable later, a
    warning is logged, and the last valid context stays in use.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._read = self._stamps()
        self._trouble = ""
        self._context = settings.context or _made(settings)

    def current(self) -> ssl.SSLContext:
        """The context for the current files; a new one only if a file has changed."""
        found = self._stamps()
        if found != self._read and self._settings.context is None:
            try:
                self._context = _made(self._settings)
            except ConfigError as error:  # retried: a password may be replaced after its key
                if str(error) != self._trouble:
                    _log.warning("certificates were changed and cannot be used: %s", error)
                self._trouble = str(error)
            else:
                self._read, self._trouble = found, ""
        return self._context

    def _stamps(self) -> list[Stamp | None]:
        settings = self._settings
        sources = (settings.cafile, settings.certfile, settings.keyfile, settings.crlfile)
        return [stamp(source) for source in sources]


def _made(settings: TlsSettings) -> ssl.SSLContext:
    failure: ConfigError
    try:
        return _make(settings)
    except ConfigError as error:
        failure = error
    except Exception as error:  # of a password callable: its text may contain the password
        kind = f"{type(error).__module__}.{type(error).__qualname__}"
        failure = ConfigError(f"certificates and keys cannot be read: {kind}")
    failure.__traceback__ = None  # its frames hold keys, which an error report may show
    raise failure


def _make(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = settings.minimum_version
    context.maximum_version = settings.maximum_version
    # With renegotiation (TLS 1.2) a peer could request endless handshakes; Kafka does not need it.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF  # an end without an alert is an error
    context.check_hostname = settings.check_hostname and settings.verify
    context.verify_mode = ssl.CERT_REQUIRED if settings.verify else ssl.CERT_NONE
    # The trusted certificate may be a broker's own, as in Java's trust stores.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if settings.ciphers is not None:
        unknown = "OpenSSL knows none of these ciphers"
        _use("ssl_ciphers", lambda: context.set_ciphers(settings.ciphers or ""), unknown)
    _trust(context, settings)
    if settings.certfile is not None:
        _identify(context, settings, settings.certfile)
    return context


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    trust("ssl_cafile", settings.cafile, context, settings.cafile_password)
    if settings.crlfile is not None:
        lists = read_pem("ssl_crlfile", settings.crlfile)
        with _as_file(lists) as path:  # OpenSSL reads revocation lists from files only
            load = partial(context.load_verify_locations, path)
            _use("ssl_crlfile", load, "no revocation list in it can be read")
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def trust(
    option: str, source: str | None, context: ssl.SSLContext, password: Password | None = None
) -> None:
    """Make ``context`` trust the certificates of a file, PEM text or directory; None: the system's.

    OpenSSL looks up certificates of a directory by name at each handshake. Raises ConfigError that
    names ``option``, also for a directory without usable certificates.
    """
    if source is None:
        context.load_default_certs()
    elif not is_pem(source) and os.path.isdir(source):
        _use(option, partial(_trust_directory, option, source, context), "it cannot be read")
    else:
        _read_certificates(option, read_pem(option, source, password), context)


def _trust_directory(option: str, path: str, context: ssl.SSLContext) -> None:
    if not any(map(_HASHED.fullmatch, os.listdir(path))):
        raise ConfigError(
            f"{option}: no certificate in the directory {path!r} is named by its hash: run"
            f" 'openssl rehash {path}', or name a file"
        )
    context.load_verify_locations(capath=path)


def _identify(context: ssl.SSLContext, settings: TlsSettings, certfile: str) -> None:
    """Load the client's certificate and key, which may be in one file or in two."""
    text = read_pem("ssl_certfile", certfile, settings.certfile_password)
    key = text if settings.keyfile is None else read_pem("ssl_keyfile", settings.keyfile)
    where = "ssl_certfile" if settings.keyfile is None else "ssl_keyfile"
    if "PRIVATE KEY-----" not in key:
        raise ConfigError(f"{where}: there is no private key in it; set ssl_keyfile")
    password = settings.key_password
    if password is None and "ENCRYPTED" in key:
        raise ConfigError(f"{where}: the private key is encrypted; set ssl_password")

    def load() -> None:
        # Never None: OpenSSL would prompt at the terminal.
        try:
            context.load_cert_chain(path, key_path, password=password or (lambda: ""))
        except ssl.SSLError:  # the same for a damaged certificate and a damaged key
            _read_certificates("ssl_certfile", text, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
            raise

    with _as_file(text) as path, _as_file(key) as key_path:
        _use(where, load, "the private key cannot be read: is ssl_password right?")


def _read_certificates(option: str, text: str, context: ssl.SSLContext) -> None:
    load = partial(context.load_verify_locations, cadata=text)
    _use(option, load, "no certificate in it can be read")


_SAID = {
    "KEY_VALUES_MISMATCH": "the private key does not belong to the certificate",
    "NO_START_LINE": "there is no certificate in it",
    "BAD_DECRYPT": "the private key cannot be decrypted: ssl_password is wrong",
    "NO_CERTIFICATE_OR_CRL_FOUND": "there is neither a certificate nor a revocation list in it",
}


def _use(option: str, act: Callable[[], None], unread: str) -> None:
    """Call ``act``. Its error becomes a ConfigError that names ``option``.

    The text is the meaning of OpenSSL's reason, or ``unread`` if the reason is unknown.
    """
    try:
        act()
    except ConfigError:
        raise
    except ssl.SSLError as error:
        reason = getattr(error, "reason", None) or ""
        raise ConfigError(f"{option}: {_SAID.get(reason, unread)}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{option}: {error}") from None


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A path at which OpenSSL can read the text; in memory if possible, because it has keys."""
    data = text.encode()
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("pem", os.MFD_CLOEXEC)
        try:
            os.write(fd, data)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
        return
    with tempfile.NamedTemporaryFile() as file:  # only its owner may read it
        file.write(data)
        file.flush()
        yield file.name
