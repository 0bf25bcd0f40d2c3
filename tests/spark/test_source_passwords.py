"""Options of ``format("kprod")`` are texts: numbers only where numbers are wanted."""

from __future__ import annotations

from kprod.config.secret import exposed
from kprod.spark.data_source import source_writer


def test_a_password_of_digits_is_text() -> None:
    options = {
        "topic": "t",
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "007",
        "kafka.sasl.password": "12345",
        "kafka.linger.ms": "7",
    }
    writer = source_writer(options)
    names = ("sasl.username", "sasl.password", "linger.ms")
    given = {name: exposed(writer.producer.options[name]) for name in names}
    assert given == {"sasl.username": "007", "sasl.password": "12345", "linger.ms": 7}
