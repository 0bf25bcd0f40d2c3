"""A ``server.properties`` for one small broker on loopback."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

CONTROLLER = 1

# A broker that was killed may come back only when the controller has given up its predecessor: the
# session is short, so that a restart takes a few seconds and not a dozen.
SMALL = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": 300,
    "broker.session.timeout.ms": 1_500,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.backoff.ms": 1_000,
    "log.cleaner.dedupe.buffer.size": 4_194_304,
    "log.initial.task.delay.ms": 1_000,
    "log.retention.check.interval.ms": 1_000,
    "log.retention.ms": -1,  # records of tests may be from 1970, and stay all the same
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
    """The text of the file for node 1, which is the controller too, or for another.

    ``listeners`` by name: the port each has, and the one it tells of. Brokers use the first.
    ``guards``: the protocols of those that are not PLAINTEXT; ``more``: further lines.
    """
    bound = [f"{name}://127.0.0.1:{ports[0]}" for name, ports in listeners.items()]
    told = [f"{name}://127.0.0.1:{ports[1]}" for name, ports in listeners.items()]
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
        "advertised.listeners": ",".join(told),
        "log.dirs": data_dir,
        **(more or {}),
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())
