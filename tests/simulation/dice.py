"""The choices of one seed."""

from __future__ import annotations

import random

from tests.simulation.draw_setup import draw_setup
from tests.simulation.setup import Setup


class Dice:
    """Every choice comes from one generator, in the order in which it is made."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.gentle = self.rng.random() < 0.4
        self.setup: Setup = draw_setup(self.rng, gentle=self.gentle)
        self.length = self.rng.choice((0.1, 0.5, 2.0, 6.0))
        self.busy: list[float] = []  # when records are sent

    def when(self) -> float:
        return round(self.rng.uniform(0.0, self.length), 4)

    def when_busy(self) -> float:
        """Often at a moment when requests are under way."""
        if not self.busy or self.chance(0.4):
            return self.when()
        step = self.setup.linger_ms / 1000 + 3 * self.setup.latency + self.setup.replication
        return round(self.rng.choice(self.busy) + step * self.rng.uniform(0.0, 2.0), 4)

    def span(self) -> float:
        """How long something lasts: from a moment to longer than a request may take."""
        timeout = self.setup.request_timeout_ms / 1000
        return round(self.rng.choice((0.01, 0.1, 0.5 * timeout, 1.2 * timeout, 3 * timeout)), 4)

    def node(self) -> int:
        return self.rng.randrange(self.setup.nodes)

    def topic(self) -> int:
        return self.rng.randrange(len(self.setup.partitions))

    def chance(self, share: float) -> bool:
        return self.rng.random() < share
