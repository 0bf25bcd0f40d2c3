"""What a producer is told about TLS: whom to trust, who it is itself, how strict to be."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

Password = Callable[[], str]
"""Tells a password when it is needed, so that nobody has to keep it where it could be seen."""


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
