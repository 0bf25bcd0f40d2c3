"""Errors of tasks on the driver: ConfigError for a wrong Python, otherwise WriteFailed."""

from __future__ import annotations

import pytest

from kprod.errors import ConfigError
from kprod.spark.errors import WriteFailed
from kprod.spark.job_tasks import raise_in_words
from kprod.spark.python_worker import python_failure

JVM = """Job aborted due to stage failure: Task 3 in stage 1.0 failed 4 times, most recent failure:
Lost task 3.3 in stage 1.0 (TID 7) (host executor 1): org.apache.spark.api.python.PythonException:
Traceback (most recent call last):
  File "/site-packages/kprod/spark/partition_writer.py", line 223, in _write
    remaining = iter(items)
{error}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(x.scala:1)
"""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python"
            " in worker has different version: 3.9 than that in driver: 3.12, PySpark cannot run",
            "the executors run Python 3.9, but the driver runs 3.12",
        ),
        (
            "ModuleNotFoundError: No module named 'kprod'",
            "a package is missing on the executors: No module named 'kprod'",
        ),
        ("ModuleNotFoundError: No module named 'pyarrow'", "No module named 'pyarrow'"),
        (
            "ModuleNotFoundError: kprod.spark needs pyarrow, which is not installed: pip install",
            "a package is missing on the executors: kprod.spark needs pyarrow; set PYSPARK_PYTHON",
        ),
    ],
)
def test_a_wrong_python_on_the_executors_is_a_config_error(error: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        raise_in_words(JVM.format(error=error))


def test_an_error_of_a_task_is_one_line() -> None:
    error = "kprod.errors.DeliveryTimeoutError: orders-0: no broker at 10.0.0.1:9092 (KP-1101)"
    with pytest.raises(WriteFailed) as raised:
        raise_in_words(JVM.format(error=error))
    assert str(raised.value) == (
        "task 3 failed 4 times: DeliveryTimeoutError: orders-0: no broker at 10.0.0.1:9092"
        " (KP-1101)"
    )
    assert raised.value.task == 3
    assert raised.value.__suppress_context__


@pytest.mark.parametrize("error", ["ZeroDivisionError: division by zero", "", "MyError: kprod.x"])
def test_errors_that_are_not_from_kprod_are_not_translated(error: str) -> None:
    raise_in_words(JVM.format(error=error))
    assert python_failure(JVM.format(error=error)) is None
