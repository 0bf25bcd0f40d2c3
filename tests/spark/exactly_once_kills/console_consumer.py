"""A second judge, which shares no line with the first: the console consumer of Apache Kafka."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Sequence

from tests.spark.exactly_once_kills.jobs import Job
from tests.spark.exactly_once_kills.judge import Violation, check_rows
from tests.support.apache_kafka.jars import NEWEST, jars

JAVA = ("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
IDLE_MS = 15_000
"""It ends when no record has come for so long."""


def check_by_console_consumer(jobs: Sequence[Job], servers: str) -> None:
    """Raises Violation unless it reads all rows of these jobs once, in order, as committed.

    One start for all topics: each row says which one it belongs to.
    """
    command = [*JAVA, "-cp", f"{jars(NEWEST, 'tools')}/*", CONSUMER, "--include", "run-.*"]
    command += ["--bootstrap-server", servers, "--from-beginning", "--timeout-ms", str(IDLE_MS)]
    command += ["--isolation-level", "read_committed"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for line in ran.stdout.splitlines():
        found[line.rpartition(" ")[2]].append(line)
    if jobs and not found:
        raise Violation(f"the console consumer has read nothing: {ran.stderr[-2000:]}")
    for job in jobs:
        try:
            check_rows(job, found[job.topic])
        except Violation as wrong:
            raise Violation(f"by the console consumer, {job.topic}: {wrong}") from wrong
