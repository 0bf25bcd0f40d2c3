"""The batch sizes of a job: Kafka's and Arrow's."""

from __future__ import annotations

import pytest

from kprod.spark.options import config_of, job_options, with_large_batches
from kprod.spark.spark_job import ARROW_BYTES, ARROW_ROWS, UNCHECKED, UNIX_SOCKETS, faster_settings


def test_a_batch_of_a_job_fills_a_whole_request() -> None:
    config = config_of(job_options(with_large_batches({"bootstrap_servers": "b:1"})))
    assert config.batch_size == config.batch_max_size == config.max_request_size == 1_048_576


@pytest.mark.parametrize(
    "size", ["batch_size", "batch.size", "batch_max_size", "max_request_size", "max.request.size"]
)
def test_a_given_size_is_not_changed(size: str) -> None:
    options = {size: 200_000}
    assert with_large_batches(options) == options


def test_a_profile_overrides_the_defaults_of_a_job() -> None:
    config = config_of(job_options(with_large_batches({"profile": "throughput"})))
    assert (config.batch_size, config.compression_type) == (131_072, "lz4")
    assert config_of(job_options({"profile": "latency"})).linger_ms == 0


ROWS = {ARROW_ROWS: "4000"}
BYTES = {ARROW_BYTES: UNCHECKED}
SOCKETS = {UNIX_SOCKETS: "true"}


@pytest.mark.parametrize(
    ("settings", "version", "records", "nbytes", "found"),
    [
        ({}, "4.3.0", 1_000_000, 1_000_000_000, ROWS | BYTES | SOCKETS),
        ({}, "4.0.1", 1_000_000, 1_000_000_000, ROWS | BYTES),
        ({}, "3.5.7", 1_000_000, 1_000_000_000, ROWS),
        ({ARROW_ROWS: "1000"}, "4.1.0", 1_000_000, 1_000_000_000, BYTES | SOCKETS),
        ({ARROW_ROWS: "0"}, "4.2.0", 1_000_000, 1_000_000_000, ROWS | BYTES | SOCKETS),
        ({ARROW_BYTES: "64m"}, "4.2.0", 1_000_000, 1_000_000_000, ROWS | SOCKETS),
        ({UNIX_SOCKETS: "false"}, "4.2.0", 1_000_000, 1_000_000_000, ROWS | BYTES),
        (ROWS | BYTES | SOCKETS, "4.2.0", 1_000_000, 1_000_000_000, {}),
        ({}, "4.3.0", 10_000_000, 1_000_000_000, {ARROW_ROWS: "40000"} | BYTES | SOCKETS),
        ({}, "4.3.0", 4_000_000, 1_000_000_000, BYTES | SOCKETS),
        ({ARROW_ROWS: "9000"}, "4.3.0", 10_000_000, 1_000_000_000, BYTES | SOCKETS),
        ({ARROW_ROWS: "-1"}, "4.3.0", 1_000_000, 1_000_000_000, ROWS | BYTES | SOCKETS),
        ({}, "4.3.0", 100, 1_000_000_000, {ARROW_ROWS: "1", **SOCKETS}),
        ({}, "4.3.0", 10_000, 10_000_000, {}),
        ({}, "4.3.0", 0, 0, {}),
    ],
)
def test_spark_settings_are_recommended_for_large_jobs_unless_set(
    settings: dict[str, str], version: str, records: int, nbytes: int, found: dict[str, str]
) -> None:
    assert faster_settings(settings.get, lambda: version, records, nbytes) == found
