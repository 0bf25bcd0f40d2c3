"""Every option of Spark's functions has a type, for editors and type checkers."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from kprod.config.option_types import ClientOptions
from kprod.errors import ConfigError
from kprod.spark.data_source import source_writer
from kprod.spark.delivery import DELIVERIES
from kprod.spark.options import OF_THE_JOB, OF_THE_WRITER, Delivery, WriteOptions
from kprod.spark.partition_writer import partition_writer, task_writer


def test_the_options_of_a_job_are_those_of_its_parts() -> None:
    producers = ClientOptions.__annotations__.keys() | {"bootstrap_servers"}
    assert WriteOptions.__annotations__.keys() == producers | OF_THE_WRITER | OF_THE_JOB
    assert producers & OF_THE_WRITER == {"dead_letter_topic"}
    assert not OF_THE_JOB & OF_THE_WRITER


def test_the_type_of_delivery_has_the_values_that_are_accepted() -> None:
    assert get_args(Delivery) == DELIVERIES


def test_brokers_have_to_be_named() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers: the option is missing"):
        task_writer("t", client_id="c")  # type: ignore[call-arg]


def test_brokers_may_be_named_as_in_java() -> None:
    options: Any = {"bootstrap.servers": "127.0.0.1:9092"}
    assert task_writer("t", **options).producer.options["bootstrap.servers"] == "127.0.0.1:9092"


@pytest.mark.parametrize("make", [task_writer, partition_writer])
@pytest.mark.parametrize("name", ["dead_letter_topic", "dead.letter.topic"])
def test_dead_letters_are_those_of_the_writer_in_any_spelling(make: Any, name: str) -> None:
    options = {"bootstrap_servers": "127.0.0.1:9092", "on_row_error": "dead_letter"}
    source = {"topic": "t", "onRowError": "dead_letter", f"kafka.{name}": "dlq"}
    source["kafka.bootstrap.servers"] = "127.0.0.1:9092"
    for writer in (make("t", **{**options, name: "dlq"}), source_writer(source)):
        assert writer.producer.policy.dead_letter_topic == "dlq"
        assert name not in writer.producer.options
    with pytest.raises(ConfigError, match="dead_letter_topic is set twice"):
        make("t", **{**options, "dead_letter_topic": "dlq", "dead.letter.topic": "dlq"})
