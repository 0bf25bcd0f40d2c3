"""Embedded brokers in simulated time, with the transaction coordinator that kprod ships."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, cast
from unittest import mock

from kprod.broker import Fault, TransactionConfig, running_cluster
from kprod.broker.faults import FaultPlan
from kprod.broker.groups.offsets_topic import OFFSETS_TOPIC
from kprod.broker.log.log_directories import LogDirectories
from kprod.broker.log.partition_log import PartitionLog
from kprod.broker.network.listener import Listener, Session
from kprod.broker.node import BrokerOptions
from kprod.broker.protocol.api_key import VERSIONS
from kprod.broker.purgatory import Appointment, Timer
from kprod.broker.records.file_slice import in_memory
from kprod.broker.transactions.transaction import Transaction
from kprod.broker.transactions.transaction_topic import TRANSACTION_TOPIC, write_transaction
from kprod.errors import BrokerError
from kprod.types import TopicPartition
from tests.simulation.events import EventQueue, SimClock
from tests.simulation.exactly_once.setup import READ, TRANSACTIONAL_ID, TransactionSetup
from tests.simulation.interference import Interference
from tests.simulation.model.host import Host
from tests.simulation.model.server_end import ServerEnd
from tests.simulation.wires import Wires

COORDINATION = TopicPartition(TRANSACTION_TOPIC, 0)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)


class SimTimer(Timer):
    def __init__(self, events: EventQueue) -> None:
        self._events = events

    def at(self, when: float, act: Callable[[], None]) -> Appointment:
        appointment = Appointment(when, 0, act)

        def run() -> None:
            if appointment.act is not None:
                appointment.act()

        self._events.at(when, run)
        return appointment

    def after(self, seconds: float, act: Callable[[], None]) -> Appointment:
        return self.at(self._events.now + seconds, act)

    def close(self) -> None:
        """There is no thread."""


class InlineHandlers:
    def __init__(self, *_: object, **_named: object) -> None:
        """The options are those of ``HandlerPool``."""

    def start(self) -> None:
        """There is no thread."""

    def submit(self, job: Callable[[], None]) -> None:
        job()

    close = start


class SimBrokers(running_cluster.RunningCluster):
    """All nodes, with their data in ``folder``; ``marked`` is called after each marker."""

    def __init__(
        self,
        setup: TransactionSetup,
        events: EventQueue,
        clock: SimClock,
        folder: Path,
    ) -> None:
        faults = FaultPlan()
        for api, newest in setup.newest_versions.items():
            faults.limit_versions(api, VERSIONS[api].lowest, newest)
        options = BrokerOptions(
            topics=dict(zip(setup.topics, setup.partitions, strict=True)) | {READ: 1},
            auto_create_topics=False,
            transaction_config=TransactionConfig(
                transaction_version=setup.level,
                marker_delay_ms=setup.marker_delay_ms,
                fences_late_commits=setup.fences_late_commits,
            ),
            clock=clock,
            faults=faults,
        )
        self.faults = faults
        self.marked: Callable[[], None] = lambda: None
        logs = LogDirectories([folder], options.log_config)
        with (
            mock.patch.object(running_cluster, "Timer", return_value=SimTimer(events)),
            mock.patch.object(running_cluster, "HandlerPool", InlineHandlers),
        ):
            super().__init__(logs, range(setup.nodes), options)
        for internal in (COORDINATION, OFFSETS):
            self.topics.find_or_create(internal.topic, *options.of_new_topic(internal.topic))
        if setup.coordinated_epoch >= 0:
            self._set_epoch(setup.coordinated_epoch, setup.level)

    def _set_epoch(self, epoch: int, level: int) -> None:
        known = Transaction(TRANSACTIONAL_ID, self.transactions.take_id(), epoch, 0)
        log = self._log(COORDINATION)
        write_transaction(log, TRANSACTIONAL_ID, known, level, self._options.clock.wall_ms())
        self.transactions.load(log)

    def _repeat(self, seconds: float, act: Callable[[], None]) -> None:
        """No maintenance within a run."""

    def _end_transaction(self, *ended: Any) -> None:
        super()._end_transaction(*ended)
        self.marked()

    def start_all(self, nodes: Sequence[SimNode]) -> None:
        self.start_nodes({node.node_id: cast(Any, node) for node in nodes})

    def logs_of(self, topics: Sequence[str]) -> list[PartitionLog]:
        found = [self.topics.find(name) for name in topics]
        return [log for topic in found if topic is not None for log in topic.partitions]

    def lead(self, where: TopicPartition, node_id: int) -> None:
        with suppress(BrokerError):
            self.move_leader(where, node_id % len(self.state.node_ids))

    def leader(self, where: TopicPartition) -> int:
        return max(self.state.leader(where), 0)

    def offset_partition(self, number: int) -> TopicPartition:
        """A partition whose offset no other transaction commits."""
        if number >= len(self.topics.find_or_create(READ, 1).partitions):
            self.topics.extend(READ, number + 1)
        return TopicPartition(READ, number)

    def become(self, cluster_id: str) -> None:
        self._logs.cluster_id = cluster_id

    def end(self) -> None:
        self.hang_up()
        self._logs.abandon()


class SimNode(Host):
    """One node: its cluster's server, which gets requests from the simulation."""

    def __init__(
        self, node_id: int, setup: TransactionSetup, wires: Wires, brokers: SimBrokers
    ) -> None:
        super().__init__(node_id, setup.service, wires)
        self.listeners = (Listener(host=f"node-{node_id}", port=9092),)
        self._brokers = brokers
        self._dispatch: Callable[..., None]

    @property
    def up(self) -> bool:
        return self.node_id in self._brokers.state.running

    def restart(self, *, from_snapshot: bool = False) -> None:
        if not self.up:
            self._brokers.start_all([self])

    def _stop(self, gap: float, *, lose_tail: bool) -> None:
        self._brokers.stop_node(self.node_id)

    def carry_out(self, end: ServerEnd, message: bytes, fault: Interference | None) -> None:
        how = "" if fault is None else fault.how
        answers: list[bytes] = []

        def reply(parts: Sequence[Any], close: str | None = None) -> None:
            answers.append(in_memory(parts))

        faulty: Any = nullcontext()
        if fault is not None and how in ("error-before", "error-after"):
            answered = Fault(error=fault.code, after_append=how == "error-after")
            faulty = self._brokers.faults.active(answered)
        with faulty:
            self._dispatch(message, Session(), reply)
        end.respond(answers[0], fault)

    # The cluster's calls ----------------------------------------------------------------------

    def start(self, dispatch: Callable[..., None], _pool: object) -> None:
        self._dispatch = dispatch

    def hang_up(self) -> None:
        """The simulation closes its connections."""

    def close(self, *, handlers_ended: bool = True) -> None:
        """There is no thread."""
