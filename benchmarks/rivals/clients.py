"""Every client that can be measured, by name."""

from __future__ import annotations

from benchmarks.limits.raw_clients import MemoryCopy, RawLoopback
from benchmarks.rivals.aiokafka_client import Aiokafka
from benchmarks.rivals.avro_clients import (
    ConfluentAvro,
    ConfluentAvroTask,
    KprodAvro,
    KprodAvroTask,
)
from benchmarks.rivals.client import Client
from benchmarks.rivals.confluent_client import (
    Confluent,
    ConfluentBatch,
    ConfluentBounded,
    ConfluentPlain,
)
from benchmarks.rivals.faces import (
    AiokafkaFace,
    AioNative,
    AioNativeAll,
    ConfluentFace,
)
from benchmarks.rivals.kafka_python_client import KafkaPython
from benchmarks.rivals.kprod_client import Kprod, KprodArrow, KprodForgetting, KprodMany
from benchmarks.rivals.spark_tasks import ConfluentTask, KprodTask, KprodTaskByRow

_KNOWN: dict[str, type[Client]] = {
    "kprod send": Kprod,
    "kprod send, futures dropped": KprodForgetting,
    "kprod send_many": KprodMany,
    "kprod send_arrow": KprodArrow,
    "confluent produce + callback": Confluent,
    "confluent produce + callback, bounded": ConfluentBounded,
    "confluent produce": ConfluentPlain,
    "confluent produce_batch": ConfluentBatch,
    "kprod.spark in a task": KprodTask,
    "kprod.spark in a task, row by row": KprodTaskByRow,
    "confluent in a task": ConfluentTask,
    "kafka-python send": KafkaPython,
    "aiokafka send": Aiokafka,
    "kprod.confluent produce + callback": ConfluentFace,
    "kprod.aio AIOKafkaProducer": AiokafkaFace,
    "kprod.aio Producer": AioNative,
    "kprod.aio Producer send_all": AioNativeAll,
    "kprod send, Avro": KprodAvro,
    "confluent produce + callback, Avro": ConfluentAvro,
    "kprod.spark in a task, Avro": KprodAvroTask,
    "confluent in a task, Avro row by row": ConfluentAvroTask,
    "raw loopback": RawLoopback,
    "memory copy": MemoryCopy,
}

CLIENTS = {name: client for name, client in _KNOWN.items() if client.exists()}

PACKAGES = ("kprod", "confluent-kafka", "kafka-python", "aiokafka", "fastavro", "pyarrow")
"""What is measured, as packages with a version."""
