"""One run: a producer, its network, a cluster, and injected faults."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

from kprod.metrics import ProducerMetrics
from kprod.sender.assembly import assemble
from kprod.types import Persisted
from tests.simulation.actions import Schedule
from tests.simulation.app import App, Intent
from tests.simulation.broker_actions import Crash
from tests.simulation.checks import Checks
from tests.simulation.configured import configured
from tests.simulation.events import NEVER
from tests.simulation.model.cluster import Cluster
from tests.simulation.model.host import Host, refuse
from tests.simulation.model.node import Node
from tests.simulation.samples import Samples
from tests.simulation.surroundings import Outcome, Surroundings
from tests.simulation.wire_watch import WireWatch

SLACK = 0.5
LONG_ENOUGH = 120.0  # seconds after which a broker may forget a producer


class World(Surroundings):
    def __init__(self, schedule: Schedule) -> None:
        setup = schedule.setup
        super().__init__(setup, schedule.seed)
        self.schedule = schedule
        self.setup = setup
        self.cluster = Cluster(setup, self.events, random.Random(schedule.seed ^ 1), self.addresses)
        self.watch = self.wires.watcher = WireWatch(setup, self.cluster, self.clock)
        self.nodes = [Node(n, setup, self.cluster, self.wires) for n in range(setup.nodes)]
        self.backend = self.new_backend()
        self.metrics = ProducerMetrics()
        rng = random.Random(schedule.seed ^ 3)
        config = configured(setup, self.addresses, self.backend)
        self.sender = assemble(config, self.metrics, self.clock, rng)
        self.app = App(setup, self.sender, self.clock, rng, self.trace, self._iterate)
        self.watch.history = self.app.history
        self.app.on_lookup = self.watch.looked_up
        self.samples = Samples(setup, self.sender, self.metrics, self.app.history, self.clock)
        self.stalled = 0.0  # seconds without CPU time for the client
        self._calm_since = 0.0
        self._ended = 0.0
        self.close_timeout: float | None = None
        self._start = self.clock.now

    # Calls of actions -------------------------------------------------------------------------

    def move_leader(self, topic: int, partition: int, to: int, gap: float, **losing: bool) -> None:
        found = self.cluster.topics.get(self.topic(topic))
        if found is not None:
            moved = found.partitions[partition % len(found.partitions)]
            self.cluster.move(moved, to % len(self.nodes), gap, **losing)

    def crashed(self, node: Host, crash: Crash) -> None:
        """The first broker may move to another address while it is down; the last never does."""
        if crash.elsewhere and not node.up and node.node_id == 0 and len(self.nodes) > 1:
            old = self.addresses[node.node_id]
            new = old._replace(port=old.port + 1)
            self.addresses[node.node_id] = new
            self.backend.listen(old.host, old.port, node.node_id, refuse)
            self.backend.listen(new.host, new.port, node.node_id, node.accept)

    def forget_producers(self) -> None:
        """Skipped unless everything has ended: a broker never forgets an active producer."""
        busy = any(sent.done_at < 0 for sent in self.app.history.accepted)
        if not busy and self.watch.nothing_in_flight and not self._zombies:
            self.events.skip(LONG_ENOUGH)
            for partition in self.cluster.partitions:
                partition.log.forget_producers()

    @property
    def _zombies(self) -> bool:
        """Requests of closed connections that no broker has read yet."""
        return any(end.orphaned for node in self.nodes for end in node.connections)

    # The run ----------------------------------------------------------------------------------

    def run(self) -> Outcome:
        try:
            self._run()
        except Exception as error:
            self.app.history.violated("I14", f"{type(error).__name__} escaped: {error}")
        return self._outcome()

    def _run(self) -> None:
        for action in self.schedule.actions:
            self.events.at(self._start + action.at, partial(action.apply, self))
        self.events.at(self._start + self.schedule.calm_at, self._calm)
        with self.samples.listening():
            while not self._over():
                self._iterate()
            if self.close_timeout is None and not self.samples.hopeless:
                self._await_memory()
                self.samples.all_given_back("when all is quiet")
            timeout, self.close_timeout = self.close_timeout or 0.0, None
            self.app.close(timeout)
            self.samples.all_given_back("after close")
            self._ended = self.clock.now
            if not self.settles():
                self.app.history.violated("I14", "the model does not settle")
        checks = Checks(self.schedule, self.app.history, self.cluster.logs, self.stalled)
        checks.check(nothing_works=self.cluster.refused_permanently)

    def _iterate(self, longest: float = NEVER) -> bool:
        """One iteration of the sender; False when the application should stop waiting."""
        self.sender.run_once(longest)
        self.app.go_on()
        self.samples.take()
        if self.backend.stuck:
            self.samples.give_up("I14", "the sender waits, and no event is left")
        return not self.samples.hopeless and self.close_timeout is None

    def _over(self) -> bool:
        if self.close_timeout is not None or self.samples.hopeless:
            return True
        if not (self._calm_since and self.sender.finished and self.app.idle):
            return False
        if self.app.probing:
            return True
        silent = self.watch.silent_until
        if self.clock.now < silent:  # throttled
            self.events.at(silent, self.backend.wake)
        else:
            self._probe()
        return False

    def _await_memory(self) -> None:
        """Requests with expired records hold memory until they end."""
        deadline = self.clock.now + self.setup.request_timeout_ms / 1000 + SLACK
        pool = self.sender.accumulator.pool
        while pool.available != pool.total and self.clock.now < deadline:
            self._iterate(deadline - self.clock.now)

    def _calm(self) -> None:
        self._calm_since = self.clock.now
        self.heal()
        self.cluster.hidden.clear()
        self.cluster.unlisted.clear()
        for log in self.cluster.logs:
            log.fragile = False
        self.backend.wake()
        self._be_patient()

    def _be_patient(self, *, woken: bool = False) -> None:
        """From now on there must be progress within the longest time limit.

        The application runs between iterations: if the sender sleeps without limit, wake it once.
        """
        history, setup = self.app.history, self.setup
        known = len(history.ended) + len(history.refused)
        longest = (setup.delivery_timeout_ms + setup.max_block_ms) / 1000 + SLACK

        def look() -> None:
            if history.closed:
                return
            if self.sender.finished and (self.app.idle or not woken):
                self.backend.wake()
                self._be_patient(woken=True)
            elif len(history.ended) + len(history.refused) > known:
                self._be_patient()
            else:
                self.samples.give_up("I14", "the producer does not settle")
                self.backend.wake()

        able = max(self.clock.now, self.backend.stalled_until, self.watch.silent_until)
        self.events.at(able + longest, look)

    def _probe(self) -> None:
        self.app.probing = True
        self.app.send(
            Intent(name, None, number, 10)
            for name, count in zip(self.setup.topics, self.setup.partitions, strict=True)
            for number in range(min(count, len(self.cluster.topics[name].partitions)))
        )

    def _outcome(self) -> Outcome:
        history = self.app.history
        failed = [sent.error for sent in history.accepted if sent.error is not None]
        counts = Counter(
            acknowledged=sum(sent.stored is not None for sent in history.accepted),
            failed=len(failed),
            maybe=sum(error.persisted is Persisted.MAYBE for error in failed),
            refused=len(history.refused),
            requests=self.watch.produce_requests,
            mutations=self.wires.mutations,
            milliseconds=int(1000 * (self._ended - self._start)),
        )
        return Outcome(history.violations, self.trace.digest, counts)


def run(schedule: Schedule) -> Outcome:
    return World(schedule).run()
