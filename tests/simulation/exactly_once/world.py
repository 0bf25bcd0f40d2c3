"""One run: producers with transactions, their network, a cluster, and what happens to them."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from kprod.metrics import ProducerMetrics
from kprod.sender.assembly import assemble
from tests.simulation.app import App
from tests.simulation.backend import SimBackend
from tests.simulation.clock import SimClock
from tests.simulation.configured import configured
from tests.simulation.events import EventQueue
from tests.simulation.exactly_once.application import Application
from tests.simulation.exactly_once.coordinator import Coordinator
from tests.simulation.exactly_once.group import Group
from tests.simulation.exactly_once.judge import Judge
from tests.simulation.exactly_once.marked_log import MarkedLog
from tests.simulation.exactly_once.markers import Markers
from tests.simulation.exactly_once.node import Transacting, TransactionNode
from tests.simulation.exactly_once.plan import COORDINATOR, GROUP_COORDINATOR, Script
from tests.simulation.exactly_once.producer import SimProducer
from tests.simulation.exactly_once.readers import Readers
from tests.simulation.exactly_once.setup import TRANSACTIONAL_ID
from tests.simulation.exactly_once.silent_watcher import SilentWatcher
from tests.simulation.exactly_once.wire import Who
from tests.simulation.model.cluster import Cluster
from tests.simulation.trace import Trace
from tests.simulation.wires import Wires
from tests.simulation.world import Assemble

MOST_LATE_EVENTS = 20_000
MOST_TURNS = 50_000
UIDS_OF_ONE = 1_000_000
SETTLED = 90.0  # seconds after which no transaction is open any more


@dataclass(frozen=True, slots=True)
class Result:
    """What one run came to; ``digest`` is the same for every run of one script."""

    violations: list[str]
    digest: str
    fates: list[str]
    trace: list[str]


class TransactionWorld:
    """What a script describes, ready to ``run`` once."""

    def __init__(
        self, script: Script, make: Assemble = assemble, *, keep_trace: bool = False
    ) -> None:
        self.setup = script.setup
        self.clock = SimClock()
        self.events = EventQueue(self.clock)
        self.calm_since = 0.0
        self._script = script
        self._make = make
        self._trace = Trace(self.clock, keep=keep_trace)
        self._rng = random.Random(script.seed ^ 3)
        self._violations: list[str] = []
        self._turns = 0
        self._producers: list[SimProducer] = []
        self._build_cluster(script.seed)
        self._readers = Readers(self._cluster.logs, self.violated)
        self._application: Application | None = None

    def _build_cluster(self, seed: int) -> None:
        setup = self.setup
        self._cluster = Cluster(setup, self.events, random.Random(seed ^ 1), MarkedLog)
        self._wires = Wires(
            self.events,
            self._trace,
            random.Random(seed ^ 2),
            SilentWatcher(self.violated),
            latency=setup.latency,
            window=setup.window,
            lost_on_close=setup.lost_on_close,
        )
        self.group = Group()
        markers = Markers(
            setup, self._cluster, self.group, self.events, self._is_paused, self._look
        )
        self._coordinator = Coordinator(setup, self.events, random.Random(seed ^ 4), markers)
        self._shared = Transacting(self._coordinator, self.group)
        self._nodes = [
            TransactionNode(number, setup, self._cluster, self._wires, self._shared)
            for number in range(setup.nodes)
        ]

    def _is_paused(self, node: int) -> bool:
        return self._nodes[node].paused

    def _look(self) -> None:
        self._readers.look()

    def violated(self, what: str) -> None:
        if len(self._violations) < 20:
            self._violations.append(what)

    # What the application asks for ------------------------------------------------------------

    @property
    def generation(self) -> int:
        return self.group.generation

    def start_producer(self) -> SimProducer:
        backend = SimBackend(self.clock, self.events, self._wires)
        for node, address in zip(self._nodes, self._cluster.addresses, strict=True):
            backend.listen(address.host, address.port, node.node_id, node.accept)
        setup, number = self.setup, len(self._producers)
        config = configured(
            setup,
            self._cluster.addresses,
            backend,
            transactional_id=TRANSACTIONAL_ID,
            transaction_timeout_ms=setup.transaction_timeout_ms,
        )
        sender = self._make(config, ProducerMetrics(), self.clock, self._rng)
        turn = partial(self._turn_of, number)
        first = number * UIDS_OF_ONE
        app = App(setup, sender, self.clock, self._rng, self._trace, turn, first)
        patience = setup.max_block_ms / 1000
        producer = SimProducer(number, sender, app, backend, self.clock, patience)
        self._producers.append(producer)
        self._trace.note("producer", number)
        return producer

    def _turn_of(self, number: int, longest: float) -> bool:
        return self.turn(self._producers[number], longest)

    def turn(self, producer: SimProducer, longest: float) -> bool:
        """One turn of its sender; False when there should be no other one."""
        self._turns += 1
        producer.sender.run_once(longest)
        producer.app.go_on()
        if self._turns > MOST_TURNS:
            raise RuntimeError("the sender takes turn after turn")
        return not producer.backend.stuck

    def takes_abort(self, producer: SimProducer) -> bool:
        """Whether the coordinator would let it go on after an abort (protocol 2)."""
        who = producer.identity
        return who is not None and self._coordinator.takes_abort(Who(*who))

    # What happenings ask for ------------------------------------------------------------------

    def node(self, number: int) -> TransactionNode:
        if number == COORDINATOR:
            number = self._coordinator.node
        elif number == GROUP_COORDINATOR:
            number = self.group.node
        return self._nodes[number % len(self._nodes)]

    def slow_down(self, factor: float, seconds: float) -> None:
        self._wires.slow = factor
        self.events.after(seconds, self._full_speed)

    def _full_speed(self) -> None:
        self._wires.slow = 1.0

    def upgrade(self) -> None:
        self._coordinator.level = 2
        self._shared.features_epoch += 1

    def move_coordinator(self, to: int, gap: float) -> None:
        self._coordinator.move(self._up_from(to), gap)

    def move_group(self, to: int, gap: float) -> None:
        group = self.group
        group.node, group.loaded = self._up_from(to), False

        def load() -> None:
            group.loaded = True

        self.events.after(gap, load)

    def _up_from(self, to: int) -> int:
        count = len(self._nodes)
        found = ((to + step) % count for step in range(count))
        return next((node for node in found if self._cluster.up[node]), to % count)

    def replace_coordinators(self, node: int, gap: float) -> None:
        """A broker has died: what it coordinated is coordinated elsewhere after a while."""
        if self._coordinator.node == node:
            self.move_coordinator(node + 1, gap)
        if self.group.node == node:
            self.move_group(node + 1, gap)

    def move_leader(
        self, topic: int, partition: int, to: int, gap: float, *, lose_tail: bool
    ) -> None:
        name = self.setup.topics[topic % len(self.setup.topics)]
        partitions = self._cluster.topics[name].partitions
        moved = partitions[partition % len(partitions)]
        self._cluster.move(moved, to % len(self._nodes), gap, lose_tail=lose_tail)

    # The run ----------------------------------------------------------------------------------

    def run(self) -> Result:
        """Everything, and the judgement."""
        start = self.clock.now
        for each in self._script.happenings:
            self.events.at(start + each.at, partial(each.apply, self))
        self.events.at(start + self._script.faults_end_at, self._no_more_faults)
        self.events.at(start + self._script.calm_at, self._calm)
        with _quiet():
            try:
                self._application = Application(self, gentle=self._script.gentle)
                self._application.run(self._script.plans)
            except Exception as error:
                self.violated(f"{type(error).__name__} escaped: {error}")
            self._let_zombies_in()
        self._readers.look()
        told = self._application.told if self._application is not None else []
        Judge(told, self._readers, self.group, self.violated).check()
        fates = [each.fate for each in told]
        self._trace.note("fates", *fates)
        lines = self._trace.lines or []
        return Result(self._violations, self._trace.digest, fates, lines)

    def _no_more_faults(self) -> None:
        for node in self._nodes:
            node.armed.clear()

    def _calm(self) -> None:
        """Faults are over: from here on everything must come to its end."""
        self._no_more_faults()
        self.calm_since = self.clock.now
        for node in self._nodes:
            node.restart()
            node.resume()
        self._wires.slow = 1.0

    def _let_zombies_in(self) -> None:
        """Requests that were given up may still reach a broker; what is open is timed out."""
        self._calm()
        self.events.after(SETTLED, lambda: None)
        for _ in range(MOST_LATE_EVENTS):
            if not len(self.events):
                return
            self.events.run_next()
        self.violated("the model does not come to rest")


@contextmanager
def _quiet() -> Iterator[None]:
    """That producers are fenced is logged, and no news here."""
    logger = logging.getLogger("kprod")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def attempt(script: Script, make: Assemble = assemble, *, keep_trace: bool = False) -> Result:
    """Run one script."""
    return TransactionWorld(script, make, keep_trace=keep_trace).run()
