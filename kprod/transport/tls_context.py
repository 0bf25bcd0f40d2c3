"""TLS settings, the certificates and keys they name, and the OpenSSL contexts made of them."""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from kprod.config.kinds import is_pem
from kprod.errors import ConfigError

Password = Callable[[], str]
"""Returns a password when it is needed, so that no object has to keep it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Certificates and keys as the path of a file, or as PEM text. Immutable.

    ``context`` is the application's own and makes the rest unnecessary. ``cafile`` None means the
    certificates the system trusts. ``certfile`` and ``keyfile`` are ours, for brokers that ask for
    them; a PKCS#12 store may be given for ``cafile`` and ``certfile``. ``ciphers`` is the list for
    TLS 1.2, as OpenSSL writes it. ``verify`` off means that the broker may be anybody.
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


_JKS = b"\xfe\xed\xfe\xed"
_DER = 0x30  # the first byte of every ASN.1 sequence, of a PKCS#12 store as well
_CONVERT = "convert it: keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12"


class Stamp(NamedTuple):
    """The state of a file, which changes with its content."""

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
    """Without other characters, which stand in comments only: ``ssl`` takes no text with them."""
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

    Making one raises ConfigError, naming the option, when it cannot be done. Later, files that have
    become unusable are told to the log, and what was read before stays in use.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._read = self._stamps()
        self._trouble = ""
        self._context = settings.context or _made(settings)

    def current(self) -> ssl.SSLContext:
        """One made of the files as they are now; the same as before unless one has changed."""
        found = self._stamps()
        if found != self._read and self._settings.context is None:
            try:
                self._context = _made(self._settings)
            except ConfigError as error:  # tried again: a password may have come after its key
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
    except Exception as error:  # of code that tells a password: the text might have it
        kind = f"{type(error).__module__}.{type(error).__qualname__}"
        failure = ConfigError(f"certificates and keys cannot be read: {kind}")
    failure.__traceback__ = None  # its frames hold keys, which an error report may show
    raise failure


def _make(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = settings.minimum_version
    context.maximum_version = settings.maximum_version
    # By renegotiation a peer could ask for handshakes without end (TLS 1.2); Kafka needs none.
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
    if settings.cafile is None:
        context.load_default_certs()
    else:
        text = read_pem("ssl_cafile", settings.cafile, settings.cafile_password)
        _read_certificates("ssl_cafile", text, context)
    if settings.crlfile is not None:
        lists = read_pem("ssl_crlfile", settings.crlfile)
        with _as_file(lists) as path:  # OpenSSL takes revocations from files only
            load = partial(context.load_verify_locations, path)
            _use("ssl_crlfile", load, "no revocation list in it can be read")
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _identify(context: ssl.SSLContext, settings: TlsSettings, certfile: str) -> None:
    """Load our certificate and its key, which may be in one file or in two."""
    text = read_pem("ssl_certfile", certfile, settings.certfile_password)
    key = text if settings.keyfile is None else read_pem("ssl_keyfile", settings.keyfile)
    where = "ssl_certfile" if settings.keyfile is None else "ssl_keyfile"
    if "PRIVATE KEY-----" not in key:
        raise ConfigError(f"{where}: there is no private key in it; set ssl_keyfile")
    password = settings.key_password
    if password is None and "ENCRYPTED" in key:
        raise ConfigError(f"{where}: the private key is encrypted; set ssl_password")

    def load() -> None:
        # Never None: OpenSSL would ask at the terminal.
        try:
            context.load_cert_chain(path, key_path, password=password or (lambda: ""))
        except ssl.SSLError:  # which does not tell a damaged certificate from a damaged key
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
    """Raises ConfigError: what OpenSSL's reason means, or ``unread`` where it has no clear one."""
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
    """A path at which OpenSSL finds the text; in memory where the system can: keys are in it."""
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
