"""Avro records of ten fields with a registry's id: kprod.schema and Confluent's serializer

The registry is on loopback and is asked once. Records are dicts; in a Spark task they are columns.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from typing import Any

from benchmarks.rivals.confluent_client import POLL_EVERY, Confluent
from benchmarks.rivals.kprod_client import Kprod
from benchmarks.rivals.settings import TOPIC, Settings
from benchmarks.rivals.spark_tasks import BATCH_ROWS, KprodTask

DIFFERENT = 1_000
"""Records that differ; more of them are the same again."""

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "country", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "quantity", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "voucher", "type": ["null", "string"], "default": None},
        {"name": "discount", "type": ["null", "double"], "default": None},
        {"name": "ordered", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "digest", "type": "bytes"},
    ],
}


def orders(count: int) -> list[dict[str, Any]]:
    """So many records, the first thousand over and over."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    made = [
        {
            "id": 1_000_000 + number,
            "customer": f"customer-{number % 97:05d}",
            "country": ("DE", "FR", "IT")[number % 3],
            "amount": number * 1.25,
            "quantity": number % 7,
            "paid": number % 2 == 0,
            "voucher": None if number % 4 else f"V{number}",
            "discount": None if number % 3 else 0.1,
            "ordered": start + timedelta(seconds=number, microseconds=number),
            "digest": number.to_bytes(16, "big"),
        }
        for number in range(DIFFERENT)
    ]
    return list(islice(cycle(made), count))


def _registry() -> Any:
    """A registry on loopback, not yet started.

    What it imports with it, a broker, would be in the memory of every client that is measured.
    """
    from tests.support.schema_registry import FakeRegistry

    return FakeRegistry()


class KprodAvro(Kprod):
    """``send`` with ``kprod.schema.AvroSerializer``, with every future kept and looked at."""

    def __init__(self, settings: Settings) -> None:
        from kprod import KafkaProducer
        from kprod.schema import AvroSerializer, SchemaRegistry

        super().__init__(settings)
        self._producer.close()
        self._registry = _registry()
        self._registry.__enter__()
        serializer = AvroSerializer(SchemaRegistry(self._registry.url), SCHEMA)
        self._producer = KafkaProducer(
            bootstrap_servers=settings.bootstrap_servers,
            linger_ms=settings.linger_ms,
            batch_size=settings.batch_size,
            value_serializer=serializer,
        )

    def prepare(self, values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
        """See Client."""
        rows: Any = orders(len(values))
        super().prepare(rows, keys)

    def close(self) -> None:
        """See Client."""
        super().close()
        self._registry.__exit__()


class ConfluentAvro(Confluent):
    """Confluent's AvroSerializer, and ``produce`` with a delivery callback that counts."""

    def __init__(self, settings: Settings) -> None:
        from confluent_kafka.schema_registry import SchemaRegistryClient
        from confluent_kafka.schema_registry.avro import AvroSerializer

        super().__init__(settings)
        self._registry = _registry()
        self._registry.__enter__()
        self._asking: Any = SchemaRegistryClient({"url": self._registry.url})
        self._serialize: Any = AvroSerializer(self._asking, json.dumps(SCHEMA))

    def prepare(self, values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
        """See Client."""
        rows: Any = orders(len(values))
        super().prepare(rows, keys)

    def _produce(self, **options: Any) -> None:
        self._produce_rows(self.values, self.keys, **options)

    def _produce_rows(self, rows: Any, keys: Any, **options: Any) -> None:
        from confluent_kafka.serialization import MessageField, SerializationContext

        context = SerializationContext(TOPIC, MessageField.VALUE)
        produce, poll, serialize = self._producer.produce, self._producer.poll, self._serialize
        for number, (row, key) in enumerate(zip(rows, keys, strict=True)):
            produce(TOPIC, serialize(row, context), key, **options)
            if number % POLL_EVERY == 0:
                poll(0)

    def close(self) -> None:
        """See Client."""
        super().close()
        self._asking.__exit__(None, None, None)
        self._registry.__exit__()


def _avro_batches(count: int, keys: Sequence[bytes]) -> list[Any]:
    """Columns as Spark types them: a struct as the value, and text keys."""
    import pyarrow as pa

    kinds = {
        **dict.fromkeys(("customer", "country", "voucher"), pa.string()),
        **dict.fromkeys(("amount", "discount"), pa.float64()),
        "id": pa.int64(),
        "quantity": pa.int32(),
        "paid": pa.bool_(),
        "digest": pa.binary(),
        "ordered": pa.timestamp("us", "UTC"),
    }
    struct = pa.struct([(field["name"], kinds[field["name"]]) for field in SCHEMA["fields"]])
    columns = {
        "value": pa.array(orders(count), struct),
        "key": pa.array([key.decode() for key in keys], pa.string()),
    }
    whole = pa.record_batch(columns)
    return [whole.slice(at, BATCH_ROWS) for at in range(0, count, BATCH_ROWS)]


class KprodAvroTask(KprodTask):
    """``kprod.spark.partition_writer`` with ``value_format="avro"``, called as Spark calls it."""

    def __init__(self, settings: Settings) -> None:
        from kprod.spark import partition_writer

        super().__init__(settings)
        with _registry() as registry:
            self._write = partition_writer(
                TOPIC,
                bootstrap_servers=settings.bootstrap_servers,
                linger_ms=settings.linger_ms,
                batch_size=settings.batch_size,
                value_format="avro",
                avro_schema=json.dumps(SCHEMA),
                schema_registry=registry.url,
                subject=f"{TOPIC}-value",
            )

    def prepare(self, values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
        """See Client."""
        assert keys is not None, "measured with keys only"
        self.values, self.keys = values, keys
        self._batches = _avro_batches(len(values), keys)


class ConfluentAvroTask(ConfluentAvro):
    """The same row by row: Confluent's serializer and ``produce`` for each."""

    @classmethod
    def exists(cls) -> bool:
        """See Client."""
        return KprodAvroTask.exists()

    def prepare(self, values: Sequence[bytes], keys: Sequence[bytes] | None) -> None:
        """See Client."""
        assert keys is not None, "measured with keys only"
        self.values, self.keys = values, keys
        self._batches = _avro_batches(len(values), keys)

    def _produce(self, **options: Any) -> None:
        for batch in self._batches:
            columns = (batch.column(name).to_pylist() for name in ("value", "key"))
            self._produce_rows(*columns, **options)
