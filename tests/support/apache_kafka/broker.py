"""Apache Kafka brokers as processes; the first is the controller too (KRaft combined mode)."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from tests.support.apache_kafka.jars import CACHE, jars
from tests.support.ports import HeldPort, listens

CLUSTER_ID = "a3Byb2QtdGVzdHMtMDAwMA"
JVM = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
STAMPED = "-Dorg.slf4j.simpleLogger.showDateTime=true"
STARTUP_SECONDS = 300.0
LOG_LINES = 20

# The shell becomes the broker. Its background child kills the broker at the end of standard input,
# that is when the tests' process has ended.
WITH_PARENT = 'exec 3<&0; { read -r _ <&3; kill -9 $$; } & exec "$@" 3<&- </dev/null'

UTF8 = {**os.environ, "LC_ALL": "C.UTF-8"}
"""Java decodes arguments, such as users' passwords, by the locale."""


def class_archive(version: str) -> Path:
    return CACHE / f"{version}.jsa"


class Guards(NamedTuple):
    """Further listeners' protocols by name, their properties, and users of SCRAM.

    ``users``: as for the storage tool, ``SCRAM-SHA-256=[name=...,password=...]``. ``java``: further
    arguments of the virtual machine. ``classes``: a folder with plugins.
    """

    protocols: dict[str, str]
    properties: dict[str, object]
    users: list[str]
    java: tuple[str, ...] = ()
    classes: Path | None = None


class ApacheKafka:
    """Keeps its ports and data when it restarts; ``kill`` is SIGKILL.

    ``front_port`` is a second listener, which advertises ``advertised_port`` (a proxy's) if set.
    A broker that ``joins`` another is node ``node_id`` of its cluster. ``patience``: seconds that
    its start may take.
    """

    def __init__(
        self,
        folder: Path,
        version: str,
        *,
        advertised_port: int | None = None,
        joins: ApacheKafka | None = None,
        node_id: int = 2,
        guards: Guards | None = None,
        patience: float = STARTUP_SECONDS,
    ) -> None:
        self._classpath = f"{jars(version)}/*"  # first: it may skip the test
        self.version = version
        self._patience = patience
        self.node_id = CONTROLLER if joins is None else node_id
        self._ports = [HeldPort() for _ in range(3)]
        direct, front, controller = (port.number for port in self._ports)
        self.controller_port: int = controller if joins is None else joins.controller_port
        self.bootstrap_servers = f"127.0.0.1:{direct}"
        self.front_port = front
        self._direct_port = direct
        self.data_dir = folder / "data"
        self._log = folder / "server.log"
        self._properties = folder / "server.properties"
        advertised = front if advertised_port is None else advertised_port
        listeners = {"DIRECT": (direct, direct), "FRONT": (front, advertised)}
        guarded = guards or Guards({}, {}, [])
        for name in guarded.protocols:
            port = HeldPort()
            self._ports.append(port)
            listeners[name] = (port.number, port.number)
        self.addresses = {name: f"127.0.0.1:{ports[0]}" for name, ports in listeners.items()}
        if guarded.classes is not None:
            self._classpath = f"{guarded.classes}:{self._classpath}"
        self._users = guarded.users
        self._java = guarded.java
        settings = server_properties(
            self.data_dir,
            self.node_id,
            listeners,
            self.controller_port,
            guarded.protocols,
            guarded.properties,
        )
        folder.mkdir(exist_ok=True)
        self._properties.write_text(settings)
        self._process: subprocess.Popen[bytes] | None = None

    def _command(self, main: str, *arguments: str) -> list[str]:
        java = [*JVM, *self._java, QUIET, STAMPED]
        if class_archive(self.version).exists():
            java.append(f"-XX:SharedArchiveFile={class_archive(self.version)}")
        return [*java, "-cp", self._classpath, main, *arguments]

    def _format_storage(self) -> None:
        """Format with the storage tool, or copy its cached result, which saves a virtual machine.

        The result depends only on the node and its users.
        """
        arguments = ["format", "-t", CLUSTER_ID]
        arguments += [word for user in self._users for word in ("--add-scram", user)]
        named = hashlib.sha256(repr((self.node_id, arguments)).encode()).hexdigest()[:16]
        kept = CACHE / f"{self.version}.formatted" / named
        if kept.is_dir():
            shutil.copytree(kept, self.data_dir)
            return
        command = self._command("kafka.tools.StorageTool", *arguments, "-c", str(self._properties))
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False, env=UTF8
        )
        assert ran.returncode == 0, f"the storage cannot be formatted:\n{ran.stdout}{ran.stderr}"
        kept.parent.mkdir(exist_ok=True)
        # Renamed when complete; another worker may have stored the same files.
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch, suppress(OSError):
            shutil.copytree(self.data_dir, Path(scratch, "data")).rename(kept)

    def start(self) -> None:
        """Start the broker, and wait until it accepts connections.

        It listens only after it has caught up with the controller and recovered its logs.
        """
        if not self.data_dir.exists():
            self._format_storage()
        command = self._command("kafka.Kafka", str(self._properties))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", WITH_PARENT, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + self._patience
        while not listens(self._direct_port):
            code = self._process.poll()
            if code is not None or time.monotonic() > deadline:
                self.kill()
                state = "did not listen in time" if code is None else f"ended with {code}"
                raise AssertionError(f"Apache Kafka {state}:\n{self.log_tail()}")
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log_tail(self) -> str:
        """The last warnings and errors, without stack frames."""
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if not line.startswith("\t")][-LOG_LINES:])

    def segments(self, topic: str, partition: int) -> list[Path]:
        return sorted(self.data_dir.glob(f"{topic}-{partition}/*.log"))

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGKILL)
        if process.stdin is not None:
            process.stdin.close()
        process.wait(20)

    def close(self) -> None:
        """Kill it, which is faster than an orderly end, and release its ports."""
        self.kill()
        for port in self._ports:
            port.release()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


CONTROLLER = 1

# A killed broker may restart only after its session has expired: a short one saves seconds.
SMALL = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": 300,
    "broker.session.timeout.ms": 1_500,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.backoff.ms": 1_000,
    "log.cleaner.dedupe.buffer.size": 4_194_304,
    "log.initial.task.delay.ms": 1_000,
    "log.retention.check.interval.ms": 1_000,
    "log.retention.ms": -1,  # records of tests may have timestamps of 1970
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 300,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
}


def server_properties(
    data_dir: Path,
    node_id: int,
    listeners: Mapping[str, tuple[int, int]],
    controller_port: int,
    guards: Mapping[str, str] | None = None,
    more: Mapping[str, object] | None = None,
) -> str:
    """The text of ``server.properties``; node 1 is the controller too.

    ``listeners`` by name: port and advertised port. Brokers use the first. ``guards``: the
    protocols of those that are not PLAINTEXT; ``more``: further lines.
    """
    bound = [f"{name}://127.0.0.1:{ports[0]}" for name, ports in listeners.items()]
    advertised = [f"{name}://127.0.0.1:{ports[1]}" for name, ports in listeners.items()]
    guarded = guards or {}
    protocols = [f"{name}:{guarded.get(name, 'PLAINTEXT')}" for name in [*listeners, "CONTROLLER"]]
    if node_id == CONTROLLER:
        bound.append(f"CONTROLLER://127.0.0.1:{controller_port}")
    values = SMALL | {
        "process.roles": "broker,controller" if node_id == CONTROLLER else "broker",
        "node.id": node_id,
        "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": next(iter(listeners)),
        "listener.security.protocol.map": ",".join(protocols),
        "listeners": ",".join(bound),
        "advertised.listeners": ",".join(advertised),
        "log.dirs": data_dir,
        **(more or {}),
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())
