"""Another Python on the executors is found before the job, or said in words by its first task."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kprod.errors import ConfigError
from kprod.spark.errors import WriteFailed
from kprod.spark.job_tasks import raise_in_words
from kprod.spark.python_worker import problem_of, python_failure

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def program(folder: Path, text: str) -> str:
    made = folder / "python"
    made.write_text(f"#!/bin/sh\n{text}\n")
    made.chmod(0o755)
    return str(made)


def test_this_python_is_right() -> None:
    assert problem_of(sys.executable) is None


def test_another_path_to_the_same_environment_is_right(tmp_path: Path) -> None:
    assert problem_of(program(tmp_path, f'exec {sys.executable} "$@"')) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo 3.8", rf"is Python 3\.8, but the driver runs Python {HERE}: set PYSPARK_PYTHON"),
        ("exit 3", "not a Python interpreter"),
        (f"echo {HERE}; echo 'no kprod' >&2; exit 1", r"kprod cannot be imported \(no kprod\)"),
    ],
)
def test_another_python_is_found_before_the_job(tmp_path: Path, text: str, said: str) -> None:
    found = problem_of(program(tmp_path, text))
    assert found is not None
    with pytest.raises(ConfigError, match=said):
        raise ConfigError(found)


def test_a_program_that_is_not_there() -> None:
    assert "cannot be run" in (problem_of(os.path.join(os.sep, "no", "python")) or "")


JVM = """Job aborted due to stage failure: Task 3 in stage 1.0 failed 4 times, most recent failure:
Lost task 3.3 in stage 1.0 (TID 7) (host executor 1): org.apache.spark.api.python.PythonException:
Traceback (most recent call last):
  File "/site-packages/kprod/spark/partition_writer.py", line 223, in _write
    remaining = iter(items)
{error}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(x.scala:1)
"""


@pytest.mark.parametrize(
    ("error", "said"),
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
    ],
)
def test_what_the_first_task_has_found(error: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
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
def test_errors_of_others_are_left_alone(error: str) -> None:
    raise_in_words(JVM.format(error=error))
    assert python_failure(JVM.format(error=error)) is None
