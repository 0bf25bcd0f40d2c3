"""Jobs that are cancelled by Ctrl-C, or by stopping their query.

The driver is a separate process, as signals go to its main thread.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kprod.admin import open_transactions
from kprod.broker import EmbeddedBroker
from tests.spark.driver_process import program
from tests.spark.own_environment import connect_python
from tests.support.committed_records import committed
from tests.support.waiting import await_true

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

PARTITIONS = 2

DRIVER = """
import logging, signal, sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr
from kprod.spark import foreach_batch, sharded, write

servers, folder = sys.argv[1], Path(sys.argv[2])
logging.basicConfig(level=logging.WARNING)
is_connect = sys.argv[3] == "connect"
builder = SparkSession.builder
builder = builder.remote("local[2]") if is_connect else builder.master("local[2]")
settings = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.log.level": "OFF",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    "spark.buffer.size": "64",  # each row reaches Python as soon as it is there
}
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
(folder / "in").mkdir()
(folder / "in" / "1.txt").write_text("".join(f"row {n}\\n" for n in range(400)))

def slowly(rows):
    \"\"\"Take a tenth of a second for each row, after the shuffle.\"\"\"
    pause = "coalesce(reflect('java.lang.Thread', 'sleep', 100L), '')"
    return sharded(rows, 3).withColumn("value", expr(f"concat(value, {pause})"))

def rows():
    return spark.range(0, 400, 1, 2).selectExpr("concat('row ', id) value")

def written(topic, delivery, **options):
    write(slowly(rows()), topic, bootstrap_servers=servers, delivery=delivery, **options)

def saved(topic, delivery):
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "delivery": delivery}
    try:
        slowly(rows()).write.format("kprod").options(**options).mode("append").save()
    except KeyboardInterrupt:
        if not is_connect:
            spark.interruptAll()  # PySpark has left the job running
        raise

def stream(topic, delivery, by_function):
    lines = slowly(spark.readStream.text(str(folder / "in")))
    checkpoint = str(folder / f"checkpoint-{topic}")
    if by_function:
        sink = lines.writeStream.foreachBatch(
            foreach_batch(topic, bootstrap_servers=servers, delivery=delivery)
        )
    else:
        sink = lines.writeStream.format("kprod").options(
            **{"kafka.bootstrap.servers": servers, "topic": topic, "delivery": delivery}
        )
    return sink.option("checkpointLocation", checkpoint).start()

print("ready", flush=True)
of_spark = signal.getsignal(signal.SIGINT)  # it cancels all jobs; a notebook's does not
for line in sys.stdin:
    how, topic, delivery, *job_id = line.split()
    try:
        if how in ("write", "notebook"):
            notebook = how == "notebook"
            signal.signal(signal.SIGINT, signal.default_int_handler if notebook else of_spark)
            written(topic, delivery, **({"job_id": job_id[0]} if job_id else {}))
        elif how == "save":
            saved(topic, delivery)
        else:
            query = stream(topic, delivery, how == "function")
            print("started", flush=True)
            sys.stdin.readline()
            query.stop()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    else:
        print("stopped", flush=True)
"""


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    with EmbeddedBroker(default_partitions=PARTITIONS) as broker:
        yield broker.bootstrap_servers


@contextmanager
def started(
    kafka: str, folder: Path, session: str, python: str | Path
) -> Iterator[subprocess.Popen[str]]:
    with (folder / "log").open("w") as log:
        running = program(DRIVER, kafka, str(folder), session, stderr=log, python=python)
        try:
            assert read_line(running) == "ready"
            yield running
        finally:
            running.kill()
            running.wait()
            for pipe in (running.stdin, running.stdout):
                with suppress(BrokenPipeError):
                    pipe and pipe.close()


@pytest.fixture(scope="module")
def driver(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    with started(kafka, tmp_path_factory.mktemp("driver"), "classic", sys.executable) as running:
        yield running


def read_line(driver: subprocess.Popen[str]) -> str:
    assert driver.stdout is not None
    line = driver.stdout.readline().strip()
    assert line or driver.poll() is None, driver.stderr and driver.stderr.read()
    return line


def send_line(driver: subprocess.Popen[str], line: str) -> None:
    assert driver.stdin is not None
    driver.stdin.write(line + "\n")
    driver.stdin.flush()


def wait_for_open(kafka: str, at_least: int) -> None:
    await_true(lambda: len(open_transactions(kafka, states=("Ongoing",))) >= at_least)


def wait_until_none_is_open(kafka: str) -> None:
    half_the_transaction_timeout = 300
    await_true(lambda: not open_transactions(kafka), half_the_transaction_timeout)


def assert_nothing_open(kafka: str, topic: str) -> None:
    """Neither when the call has returned, nor after killed tasks have ended."""
    for _ in range(3):
        assert open_transactions(kafka) == []
        time.sleep(1.5)
    assert committed(kafka, topic, PARTITIONS) == [], "no task had all rows of its shard"


@pytest.mark.parametrize(
    ("how", "delivery", "job_id"),
    [
        ("write", "atomic", ""),
        ("write", "exactly_once", "mine"),
        ("notebook", "exactly_once", "yours"),  # a job that runs on commits its shards
    ],
)
def test_ctrl_c_leaves_no_open_transaction(
    driver: subprocess.Popen[str], kafka: str, how: str, delivery: str, job_id: str
) -> None:
    topic = f"interrupted-{how}-{delivery.replace('_', '-')}"
    send_line(driver, f"{how} {topic} {delivery} {job_id}")
    wait_for_open(kafka, 2)
    driver.send_signal(signal.SIGINT)
    assert read_line(driver) == "interrupted"
    assert_nothing_open(kafka, topic)


@pytest.mark.parametrize(
    ("session", "delivery"), [("classic", "exactly_once"), ("connect", "atomic")]
)
def test_ctrl_c_in_a_data_source_leaves_no_open_transaction(
    tmp_path: Path, kafka: str, session: str, delivery: str
) -> None:
    """The interrupted call does not wait until Spark has aborted the transactions of its tasks."""
    python = connect_python() if session == "connect" else sys.executable
    topic = f"saved-{session}-{delivery.replace('_', '-')}"
    with started(kafka, tmp_path, session, python) as driver:
        send_line(driver, f"save {topic} {delivery}")
        wait_for_open(kafka, 2)
        driver.send_signal(signal.SIGINT)
        assert read_line(driver) == "interrupted"
        wait_until_none_is_open(kafka)
        assert_nothing_open(kafka, topic)


@pytest.mark.parametrize(("how", "delivery"), [("save", "atomic"), ("write", "exactly_once")])
def test_a_killed_driver_leaves_no_open_transaction(
    tmp_path: Path, kafka: str, how: str, delivery: str
) -> None:
    """Its JVM ends with it, and the workers abort their transactions."""
    topic = f"killed-{how}-{delivery.replace('_', '-')}"
    with started(kafka, tmp_path, "classic", sys.executable) as driver:
        send_line(driver, f"{how} {topic} {delivery}")
        wait_for_open(kafka, 2)
        driver.kill()
        wait_until_none_is_open(kafka)
        assert_nothing_open(kafka, topic)


@pytest.mark.parametrize("delivery", ["atomic", "exactly_once"])
@pytest.mark.parametrize("how", ["source", "function"])
def test_a_stopped_query_leaves_no_open_transaction(
    driver: subprocess.Popen[str], kafka: str, how: str, delivery: str
) -> None:
    topic = f"stopped-{how}-{delivery.replace('_', '-')}"
    send_line(driver, f"{how} {topic} {delivery}")
    assert read_line(driver) == "started"
    wait_for_open(kafka, 2)
    send_line(driver, "stop")
    assert read_line(driver) == "stopped"
    assert_nothing_open(kafka, topic)
