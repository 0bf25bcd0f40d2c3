"""SerializingProducer: for serializers of Confluent's package, Schema Registry's among them"""

from __future__ import annotations

from typing import Any

from kprod.confluent.errors import KeySerializationError, ValueSerializationError
from kprod.confluent.producer import Producer
from kprod_ext.confluent import CLOSED


class SerializingProducer(Producer):
    """A Producer whose ``key.serializer`` and ``value.serializer`` are called with every record.

    They are ``f(object, SerializationContext) -> bytes``, as those of
    ``confluent_kafka.schema_registry``; the package confluent-kafka has the context they expect.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        from confluent_kafka.serialization import MessageField, SerializationContext

        self._context, self._fields = SerializationContext, MessageField
        own = dict(conf)
        self._key_serializer = own.pop("key.serializer", None)
        self._value_serializer = own.pop("value.serializer", None)
        super().__init__(own)

    def produce(  # type: ignore[override]
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        partition: int = -1,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Queue one record. Raises KeySerializationError, ValueSerializationError, and as above."""
        if self._native is None:
            raise RuntimeError(CLOSED)
        if not isinstance(topic, str):
            raise TypeError(f"topic must be a str, not {type(topic).__name__}")
        context = self._context(topic, self._fields.KEY, headers)
        if self._key_serializer is not None:
            try:
                key = self._key_serializer(key, context)
            except Exception as error:
                raise KeySerializationError(error) from error
        context.field = self._fields.VALUE
        if self._value_serializer is not None:
            try:
                value = self._value_serializer(value, context)
            except Exception as error:
                raise ValueSerializationError(error) from error
        super().produce(topic, value, key, partition, on_delivery, timestamp, headers)
