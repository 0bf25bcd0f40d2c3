"""One Spark for the tests that need one: in the full run a cluster of two executor processes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kprod.broker import EmbeddedBroker
from kprod.spark.executor_producer import process_cache
from tests.spark.driver_process import ROOT, SETTINGS
from tests.support.tier import FULL

# Only make campaign runs these: they take minutes.
collect_ignore = (
    []
    if os.environ.get("KPROD_CAMPAIGN") == "long"
    else [
        "test_acceptance.py",
        "test_kills_exactly_once.py",
        "test_shipping.py",
        "test_type_matrix.py",
    ]
)

# JVMs that run for seconds: a quick compiler, one collector thread, and no verification of the jars
# start several times faster than the defaults.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)

CLUSTER = {
    **SETTINGS,
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    "spark.task.maxFailures": "4",
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(scope="module", autouse=True)
def no_producer_outlives_its_brokers() -> Iterator[None]:
    """An open one would connect to ports that later tests use."""
    yield
    process_cache().close()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two executors of one core each, or two threads; they run this interpreter and checkout."""
    scratch = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("SPARK_LOCAL_DIRS", str(scratch))
        master = "local-cluster[2,1,1024]" if FULL else "local[2]"
        builder = SparkSession.Builder().master(master).appName("kprod tests")
        for name, value in CLUSTER.items():
            builder = builder.config(name, value)
        builder = builder.config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        spark = builder.getOrCreate()
        application = spark.sparkContext.applicationId
        try:
            yield spark
        finally:
            spark.stop()
            _remove_sandbox(application)


def _remove_sandbox(application: str) -> None:
    work = Path(os.environ["SPARK_HOME"], "work")
    shutil.rmtree(work / application, ignore_errors=True)
    with suppress(OSError):  # others' logs are there
        work.rmdir()


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """The address of an embedded broker whose topics have three partitions."""
    with EmbeddedBroker(default_partitions=3) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of an embedded broker of the module, which is made as its ``BROKER`` says."""
    with EmbeddedBroker(**request.module.BROKER) as broker:
        yield broker.bootstrap_servers
