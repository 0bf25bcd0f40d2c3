"""Serializer for AWS Glue, with the package aws-glue-schema-registry (``kprod[glue]``):

>>> from kprod.schema.glue import GlueSerializer
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, Self
from uuid import UUID

from kprod.errors import ConfigError
from kprod.intake.serializers import WouldWait
from kprod.schema.errors import RegistryError

__all__ = ["GlueSerializer"]


class GlueSerializer:
    """Serializes objects in the wire format of AWS Glue. Thread-safe.

    ``client`` is an ``aws_schema_registry.SchemaRegistryClient``, and ``schema`` an ``AvroSchema``
    or ``JsonSchema`` of that package. ``naming`` is a schema naming strategy of
    aws-glue-schema-registry. By default, schemas are named ``TOPIC-value`` and ``TOPIC-key``. A
    schema that does not exist is created with ``compatibility_mode``. None is written as null.
    Other values begin with a version byte, a compression byte and the UUID of the schema.

    The first ``send`` to a topic sends a request to Glue, and waits for the response. In
    ``kprod.aio``, only the sending task waits. ``send`` raises RegistryError if Glue rejects the
    request. The constructor raises ConfigError if the package is not installed.
    """

    def __init__(
        self,
        client: Any,
        schema: Any,
        *,
        is_key: bool = False,
        compatibility_mode: str = "BACKWARD",
        naming: Callable[[str, bool, Any], str] | None = None,
    ) -> None:
        try:
            from aws_schema_registry.codec import encode
            from aws_schema_registry.naming import topic_name_strategy
        except ImportError:
            raise ConfigError(
                "AWS Glue needs aws-glue-schema-registry: pip install 'kprod[glue]'"
            ) from None
        self._client = client
        self._schema = schema
        self._is_key = is_key
        self._mode = compatibility_mode
        self._naming = naming or topic_name_strategy
        self._encode = encode
        self._versions: dict[str, UUID] = {}
        self._waits = True

    def serialize(self, topic: str, headers: Any, data: Any) -> bytes | None:
        """The bytes of ``data``. Raises the package's exception if the schema does not match."""
        if data is None:
            return None
        if topic not in self._versions:
            if not self._waits:
                raise WouldWait(partial(self._ask, topic))
            self._ask(topic)
        encoded: bytes = self._encode(self._schema.write(data), self._versions[topic])
        return encoded

    def without_waiting(self) -> Self:
        """A copy for event loops, which raises ``WouldWait`` instead of waiting for Glue."""
        twin = copy.copy(self)
        twin._waits = False
        return twin

    def _ask(self, topic: str) -> None:
        from aws_schema_registry.exception import SchemaRegistryException

        name = self._naming(topic, self._is_key, self._schema)
        try:
            found = self._client.get_or_register_schema_version(
                definition=str(self._schema),
                schema_name=name,
                data_format=self._schema.data_format,
                compatibility_mode=self._mode,
            )
        except SchemaRegistryException as error:
            cause = error.__cause__ or error
            raise RegistryError(f"AWS Glue, schema {name!r}: {error}: {cause}") from error
        self._versions[topic] = found.version_id
