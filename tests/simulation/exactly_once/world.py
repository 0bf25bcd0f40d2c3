"""One run: producers with transactions, their network, a cluster, and what happens to them."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from kprod.metrics import ProducerMetrics
from kprod.sender.assembly import assemble
from tests.simulation.app import App
from tests.simulation.broker_actions import Crash
from tests.simulation.configured import configured
from tests.simulation.exactly_once.application import Application
from tests.simulation.exactly_once.coordinator import Coordinator
from tests.simulation.exactly_once.draw import draw
from tests.simulation.exactly_once.group import Group
from tests.simulation.exactly_once.judge import Judge, Readers
from tests.simulation.exactly_once.marked_log import MarkedLog
from tests.simulation.exactly_once.markers import Markers
from tests.simulation.exactly_once.node import Transacting, TransactionNode
from tests.simulation.exactly_once.plan import COORDINATOR, GROUP_COORDINATOR, Script, Told
from tests.simulation.exactly_once.producer import SimProducer
from tests.simulation.exactly_once.setup import TRANSACTIONAL_ID, Who
from tests.simulation.model.node import Node
from tests.simulation.surroundings import Outcome, Surroundings

MOST_TURNS = 50_000
UIDS_OF_ONE = 1_000_000
SETTLED = 90.0  # seconds after which no transaction is open any more


class TransactionWorld(Surroundings):
    """What a script describes, ready to ``run`` once."""

    def __init__(self, script: Script) -> None:
        setup, seed = script.setup, script.seed
        super().__init__(setup, seed, MarkedLog)
        self.setup = setup
        self.calm_since = 0.0
        self.renames = seed % 12 == 5  # not drawn, as ``fences_late_commits``
        self.group = Group()
        self._script = script
        self._rng = random.Random(seed ^ 3)
        self._violations: list[str] = []
        self._turns = 0
        self._producers: list[SimProducer] = []
        self._readers = Readers(self.cluster.logs, self.violated)
        self._told: list[Told] = []
        markers = Markers(
            setup, self.cluster, self.group, self.events, self._is_paused, self._readers.look
        )
        self._coordinator = Coordinator(setup, self.events, random.Random(seed ^ 4), markers)
        self._shared = Transacting(self._coordinator, self.group)
        self.nodes = [
            TransactionNode(number, setup, self.cluster, self.wires, self._shared)
            for number in range(setup.nodes)
        ]

    def _is_paused(self, node: int) -> bool:
        return self.nodes[node].paused

    def violated(self, what: str) -> None:
        if len(self._violations) < 20:
            self._violations.append(what)

    # What the application asks for ------------------------------------------------------------

    @property
    def generation(self) -> int:
        return self.group.generation

    def start_producer(self) -> SimProducer:
        backend = self.new_backend()
        setup, number = self.setup, len(self._producers)
        config = configured(
            setup,
            self.cluster.addresses,
            backend,
            transactional_id=TRANSACTIONAL_ID,
            transaction_timeout_ms=setup.transaction_timeout_ms,
        )
        sender = assemble(config, ProducerMetrics(), self.clock, self._rng)
        turn = partial(self._turn_of, number)
        first = number * UIDS_OF_ONE
        app = App(setup, sender, self.clock, self._rng, self.trace, turn, first)
        patience = setup.max_block_ms / 1000
        producer = SimProducer(number, sender, app, backend, self.clock, patience)
        self._producers.append(producer)
        self.trace.note("producer", number)
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

    def node(self, number: int) -> Node:
        if number == COORDINATOR:
            number = self._coordinator.node
        elif number == GROUP_COORDINATOR:
            number = self.group.node
        return super().node(number)

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
        count = len(self.nodes)
        found = ((to + step) % count for step in range(count))
        return next((node for node in found if self.cluster.up[node]), to % count)

    def crashed(self, node: Node, crash: Crash) -> None:
        """What it coordinated is coordinated elsewhere after a while."""
        if self._coordinator.node == node.node_id:
            self.move_coordinator(node.node_id + 1, crash.gap)
        if self.group.node == node.node_id:
            self.move_group(node.node_id + 1, crash.gap)

    # The run ----------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Everything, and the judgement."""
        start = self.clock.now
        for each in self._script.happenings:
            self.events.at(start + each.at, partial(each.apply, self))
        self.events.at(start + self._script.faults_end_at, self._no_more_faults)
        self.events.at(start + self._script.calm_at, self._calm)
        with _quiet():
            try:
                application = Application(self, gentle=self._script.gentle)
                self._told = application.told
                application.run(self._script.plans)
            except Exception as error:
                self.violated(f"{type(error).__name__} escaped: {error}")
            self._calm()
            self.events.after(SETTLED, lambda: None)  # what is open is timed out
            if not self.comes_to_rest():
                self.violated("the model does not come to rest")
        self._readers.look()
        Judge(self._told, self._readers, self.group, self.violated).check()
        fates = [each.fate for each in self._told]
        self.trace.note("fates", *fates)
        for producer in self._producers:
            producer.forget()
        return Outcome(self._violations, self.trace.digest, Counter(fates))

    def _no_more_faults(self) -> None:
        for node in self.nodes:
            node.armed.clear()

    def _calm(self) -> None:
        self.calm_since = self.clock.now
        self.heal()


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


def attempt(seed: int) -> Outcome:
    return TransactionWorld(draw(seed)).run()
