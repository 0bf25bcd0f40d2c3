"""One Apache Kafka broker for clients that are measured, and a program for its Java client."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.apache_kafka.broker import ApacheKafka, Guards
from tests.support.apache_kafka.jars import NEWEST, jars

QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
BROKER_JVM = ("-Xmx1g", "-XX:TieredStopAtLevel=4")
"""More than the broker of the tests has: room, and the compiler that makes the fastest code."""


class MeasuredKafka:
    """A broker for the block, of the newest version. Needs Java and Maven. Thread: one.

    ``program`` is a file of Java with a class of its name, compiled against the Java client;
    ``properties`` are further ones of the broker.
    """

    def __init__(self, program: Path, properties: Mapping[str, object] | None = None) -> None:
        self._program = program
        self._properties = dict(properties or {})
        self._to_end = ExitStack()

    @property
    def bootstrap_servers(self) -> str:
        """Where it listens."""
        return self._kafka.bootstrap_servers

    def java(self, topic: str, *numbers: float) -> list[str]:
        """The command that runs the program, which is told this broker's address first."""
        command = ["java", QUIET, "-cp", f"{self._classes}:{jars(NEWEST)}/*", self._program.stem]
        return [*command, self.bootstrap_servers, topic, *map(str, numbers)]

    def __enter__(self) -> Self:
        with ExitStack() as to_end:
            folder = Path(to_end.enter_context(tempfile.TemporaryDirectory(prefix="kprod-kafka-")))
            self._classes = folder / "classes"
            compiler = ["javac", "-cp", f"{jars(NEWEST)}/*", "-d", str(self._classes)]
            subprocess.run([*compiler, str(self._program)], check=True)
            guards = Guards({}, self._properties, [], BROKER_JVM)
            kafka = ApacheKafka(folder / "kafka", NEWEST, guards=guards)
            self._kafka = to_end.enter_context(kafka)
            self._to_end = to_end.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._to_end.close()
