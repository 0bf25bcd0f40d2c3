"""What went wrong between two ends of TLS, in words that say what to do about it."""

from __future__ import annotations

import ssl

from kprod.errors import ConnectionLost, KprodError, TlsAuthenticationError

_HINTS = {
    9: "check the clocks",
    10: "the broker needs a new one",
    18: "trust it with ssl_cafile, if it is the broker's",
    19: "trust the CA it ends in with ssl_cafile, if that is right",
    20: "name the CA that issued it with ssl_cafile",
    21: "name the CA that issued it with ssl_cafile",
    3: "ssl_crlfile has no list of the CA that issued it",
    62: "is this the right broker, and the name it is known by?",
    64: "is this the right broker, and the address it is known by?",
}
"""By the verification codes of OpenSSL (x509_vfy.h)."""

_OURS = "the broker refused our certificate ({}): check ssl_certfile, and whom the broker trusts"
_PROTOCOL = "broker and kprod share no version of TLS; kprod takes 1.2 and 1.3"
_REASONS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker asks for a certificate: set ssl_certfile and"
    " ssl_keyfile",
    "TLSV1_ALERT_UNKNOWN_CA": _OURS.format("unknown CA"),
    "SSLV3_ALERT_BAD_CERTIFICATE": _OURS.format("bad certificate"),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": _OURS.format("expired"),
    "SSLV3_ALERT_CERTIFICATE_REVOKED": _OURS.format("revoked"),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _OURS.format("unknown"),
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": _OURS.format("unsupported"),
    "TLSV1_ALERT_DECRYPT_ERROR": _OURS.format("its signature does not fit"),
    "TLSV1_ALERT_ACCESS_DENIED": _OURS.format("access denied"),
    "TLSV1_ALERT_PROTOCOL_VERSION": _PROTOCOL,
    "UNSUPPORTED_PROTOCOL": _PROTOCOL,
    "NO_PROTOCOLS_AVAILABLE": _PROTOCOL,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the broker found nothing in common: no cipher of ssl_ciphers,"
    " or it asks for a certificate (ssl_certfile, ssl_keyfile)",
    "TLSV1_ALERT_INSUFFICIENT_SECURITY": "the broker asks for stronger ciphers than ssl_ciphers",
    "TLSV1_UNRECOGNIZED_NAME": "the broker knows no host of this name",
    "WRONG_VERSION_NUMBER": "what answered does not speak TLS",
}
"""By OpenSSL's own names for them; alerts are what the other end complained of (RFC 8446, 6)."""


def explained(error: ssl.SSLError, name: str, *, shaking: bool) -> KprodError:
    """The error for users. ``shaking``: the handshake was not over, so that it is about who we are.

    With TLS 1.3 the broker's opinion of our certificate comes after our end of the handshake.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = _HINTS.get(error.verify_code, "")
        said = error.verify_message.rstrip(".")
        return TlsAuthenticationError(
            f"the certificate of {name} was refused: {said}" + (hint and f"; {hint}")
        )
    reason = error.reason or ""
    said = _REASONS.get(reason, f"OpenSSL says {reason or error}")
    if shaking or "CERTIFICATE" in reason or reason == "TLSV1_ALERT_UNKNOWN_CA":
        return TlsAuthenticationError(f"no TLS with {name}: {said}")
    return ConnectionLost(f"TLS with {name} broke: {said}")


def not_tls(first: bytes, name: str) -> KprodError | None:
    """What answered instead, judged by its first bytes; None when it may be TLS."""
    if first[0] in b"\x14\x15\x16\x17":
        return None
    who = {b"HTTP": "an HTTP server", b"SSH-": "an SSH server"}.get(first[:4])
    found = f"it is {who}" if who else "what answered does not speak TLS"
    return TlsAuthenticationError(f"no TLS with {name}: {found}; is security_protocol right?")
