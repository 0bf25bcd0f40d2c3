"""Errors of schema registries: a request that was refused, or one that got no answer"""

from __future__ import annotations

from kprod.errors import KprodError


class RegistryError(KprodError, number="KP-2001"):
    """The registry refused a request, or gave no answer in time.

    ``status`` is the HTTP status, None without an answer; ``code`` is the registry's own number,
    40401 for instance, or None.
    """

    def __init__(self, message: str, status: int | None = None, code: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retriable = status is None or status in RETRIED


class SchemaNotFoundError(RegistryError, number="KP-2002"):
    """The registry has no such subject, version or schema."""


class IncompatibleSchemaError(RegistryError, number="KP-2003"):
    """The subject's compatibility rule forbids the schema; the text says what differs."""


RETRIED = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed."""
