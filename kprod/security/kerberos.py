"""GSSAPI (RFC 4752): Kerberos logins, with the package gssapi."""

from __future__ import annotations

from typing import Any

from kprod.errors import SaslAuthenticationError
from kprod_ext.peer_text import printable

_NO_LAYER = 1
_SIZE = 4


class KerberosConversation:
    """Exchanges the tokens of the security context, and then agrees on having no security layer.

    Credentials come from the ticket cache, or from the key tab in ``KRB5_CLIENT_KTNAME``.
    """

    def __init__(self, service: str, host: str, principal: str | None) -> None:
        import gssapi

        exceptions: Any = gssapi.exceptions
        self._errors: type[Exception] = exceptions.GSSError
        name = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
        own = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
        self._host = host
        try:
            credentials = gssapi.Credentials(name=own, usage="initiate")
            self._context: Any = gssapi.SecurityContext(
                name=name, creds=credentials, usage="initiate", mech=gssapi.MechType.kerberos
            )
        except self._errors as error:
            raise self._explained(error) from None
        self._negotiated = False

    def respond(self, challenge: bytes | None) -> bytes | None:
        """See ``Conversation``. Waits for the key distribution centre."""
        try:
            if not self._context.complete:
                return self._context.step(challenge or None) or b""
            if self._negotiated:
                return None
            return self._choose_no_layer(challenge or b"")
        except self._errors as error:
            raise self._explained(error) from None

    def _choose_no_layer(self, challenge: bytes) -> bytes:
        """Choose no layer, and size 0, from the layers and the size that the broker offers."""
        offered = self._context.unwrap(challenge).message
        if len(offered) != _SIZE or not offered[0] & _NO_LAYER:
            raise SaslAuthenticationError("GSSAPI: the broker insists on a security layer")
        self._negotiated = True
        # Always with the realm: Kafka maps only such names to users.
        name = str(self._context.initiator_name).encode()
        wrapped: bytes = self._context.wrap(bytes([_NO_LAYER, 0, 0, 0]) + name, False).message
        return wrapped

    def _explained(self, error: Any) -> SaslAuthenticationError:
        """The error with the message of Kerberos. GSSAPI's only says that a problem occurred."""
        found = error.get_all_statuses(error.min_code, False) if error.min_code else ()
        said = printable(" ".join("; ".join(found or (str(error),)).split()))
        hint = next((hint for words, hint in _HINTS.items() if words in said), "")
        return SaslAuthenticationError(f"GSSAPI with {self._host}: {said}{hint}")


_HINTS = {
    "No Kerberos credentials": "; run kinit, or set KRB5_CLIENT_KTNAME",
    "expired": "; run kinit again, or set KRB5_CLIENT_KTNAME",
    "not found in Kerberos database": "; see sasl_kerberos_service_name and"
    " sasl_kerberos_domain_name",
}
