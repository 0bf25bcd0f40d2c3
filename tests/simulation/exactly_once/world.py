"""One run: transactional producers, their network, a cluster, and injected faults."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from kprod.broker.transactions import transaction_rules as rules
from kprod.broker.transactions.transaction import TransactionState
from kprod.errors import BrokerError, ErrorCode
from kprod.metrics import ProducerMetrics
from kprod.sender.assembly import assemble
from kprod.types import TopicPartition
from tests.simulation.app import App
from tests.simulation.configured import configured
from tests.simulation.exactly_once.application import Application
from tests.simulation.exactly_once.brokers import COORDINATION, OFFSETS, SimBrokers, SimNode
from tests.simulation.exactly_once.checks import Checks, Readers
from tests.simulation.exactly_once.draw import draw
from tests.simulation.exactly_once.plan import (
    COORDINATOR,
    GROUP_COORDINATOR,
    AppTransaction,
    Script,
)
from tests.simulation.exactly_once.producer import SimProducer
from tests.simulation.exactly_once.setup import GROUP, TRANSACTIONAL_ID
from tests.simulation.model.host import Host
from tests.simulation.surroundings import Outcome, Surroundings

MAX_ITERATIONS = 50_000
UIDS_OF_ONE = 1_000_000
SETTLED = 90.0  # seconds after which no transaction is open any more
IN_MEMORY = Path("/dev/shm")
"""Where Linux keeps files that need no disk."""


class TransactionWorld(Surroundings):
    """One run of a script; brokers store their data in ``folder``."""

    def __init__(self, script: Script, folder: Path) -> None:
        setup, seed = script.setup, script.seed
        super().__init__(setup, seed)
        self.setup = setup
        self.calm_since = 0.0
        self.renames = seed % 12 == 5  # by number: draws must stay the same
        self._script = script
        self._rng = random.Random(seed ^ 3)
        self._violations: list[str] = []
        self._iterations = 0
        self._producers: list[SimProducer] = []
        self._transactions: list[AppTransaction] = []
        self.brokers = SimBrokers(setup, self.events, self.clock, folder)
        self._readers = Readers(self.brokers.logs_of(setup.topics), self.violated)
        self.brokers.marked = self._readers.poll
        numbers = range(setup.nodes)
        nodes = [SimNode(number, setup, self.wires, self.brokers) for number in numbers]
        self.brokers.start_all(nodes)
        self.nodes = nodes

    def violated(self, what: str) -> None:
        if len(self._violations) < 20:
            self._violations.append(what)

    # Calls of the application -----------------------------------------------------------------

    def start_producer(self) -> SimProducer:
        backend = self.new_backend()
        setup, number = self.setup, len(self._producers)
        config = configured(
            setup,
            self.addresses,
            backend,
            transactional_id=TRANSACTIONAL_ID,
            transaction_timeout_ms=setup.transaction_timeout_ms,
        )
        sender = assemble(config, ProducerMetrics(), self.clock, self._rng)
        iterate = partial(self._iterate, number)
        first = number * UIDS_OF_ONE
        app = App(setup, sender, self.clock, self._rng, self.trace, iterate, first)
        patience = setup.max_block_ms / 1000
        producer = SimProducer(number, sender, app, backend, self.clock, patience)
        self._producers.append(producer)
        self.trace.note("producer", number)
        return producer

    def _iterate(self, number: int, longest: float) -> bool:
        return self.iterate(self._producers[number], longest)

    def iterate(self, producer: SimProducer, longest: float) -> bool:
        """Run one iteration of its sender; False when the simulation is stuck."""
        self._iterations += 1
        producer.sender.run_once(longest)
        producer.app.go_on()
        if self._iterations > MAX_ITERATIONS:
            raise RuntimeError("the sender's loop does not end")
        return not producer.backend.stuck

    def takes_abort(self, producer: SimProducer) -> bool:
        """Whether the coordinator would accept an abort of its transaction (protocol 2)."""
        identity, known = producer.identity, self.brokers.transactions.find(TRANSACTIONAL_ID)
        if identity is None or known is None:
            return False
        try:
            ended = rules.end(known, rules.ProducerIdentity(*identity), False, 2, 0, lambda: 0)
        except BrokerError as refused:
            is_ending = known.state is TransactionState.PREPARE_ABORT
            return refused.code == ErrorCode.CONCURRENT_TRANSACTIONS and is_ending
        return ended is known

    # Calls of incidents ----------------------------------------------------------------------

    def node(self, number: int) -> Host:
        if number == COORDINATOR:
            number = self.brokers.leader(COORDINATION)
        elif number == GROUP_COORDINATOR:
            number = self.brokers.leader(OFFSETS)
        return super().node(number)

    def move_leader(self, topic: int, partition: int, to: int, gap: float, **losing: bool) -> None:
        count = self.setup.partitions[topic % len(self.setup.partitions)]
        self.brokers.lead(TopicPartition(self.topic(topic), partition % count), to)

    # The run ----------------------------------------------------------------------------------

    def run(self) -> Outcome:
        start = self.clock.now
        for each in self._script.incidents:
            self.events.at(start + each.at, partial(each.apply, self))
        self.events.at(start + self._script.faults_end_at, self._no_more_faults)
        self.events.at(start + self._script.calm_at, self._calm)
        with _quiet():
            try:
                application = Application(self, gentle=self._script.gentle)
                self._transactions = application.transactions
                application.run(self._script.plans)
            except Exception as error:
                self.violated(f"{type(error).__name__} escaped: {error}")
            self._calm()
            self.events.after(SETTLED, lambda: None)  # open transactions time out
            if not self.settles():
                self.violated("the model does not settle")
        self._readers.poll()
        self._check()
        fates = [each.fate for each in self._transactions]
        self.trace.note("fates", *fates)
        for producer in self._producers:
            producer.forget()
        self.brokers.end()
        counts = Counter(fates)
        counts["mutations"] = self.wires.mutations
        return Outcome(self._violations, self.trace.digest, counts)

    def _check(self) -> None:
        moved = self.brokers.groups.committed(GROUP)
        Checks(self._transactions, self._readers, moved, self.violated).check()

    def _no_more_faults(self) -> None:
        for node in self.nodes:
            node.armed.clear()

    def _calm(self) -> None:
        self.calm_since = self.clock.now
        self.heal()


@contextmanager
def _quiet() -> Iterator[None]:
    """Fencing is expected here, and logged."""
    logger = logging.getLogger("kprod")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def run(script: Script, kind: type[TransactionWorld] = TransactionWorld) -> Outcome:
    with TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
        return kind(script, Path(folder)).run()


def attempt(seed: int) -> Outcome:
    return run(draw(seed))
