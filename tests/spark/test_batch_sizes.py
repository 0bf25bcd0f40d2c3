"""How large the batches of a job are: larger when each task writes to one partition."""

from __future__ import annotations

import pytest

from kprod.spark.producer_options import config_of, job_options, with_large_batches


def test_one_partition_a_task_fills_whole_requests() -> None:
    config = config_of(job_options(with_large_batches({"bootstrap_servers": "b:1"})))
    assert config.batch_size == config.batch_max_size == config.max_request_size == 1_048_576


@pytest.mark.parametrize(
    "size",
    ["batch_size", "batch.size", "batch_max_size", "max_request_size", "max.request.size"],
)
def test_a_size_that_is_given_holds(size: str) -> None:
    options = {size: 200_000}
    assert with_large_batches(options) == options
