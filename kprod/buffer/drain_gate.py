"""Who decides, for the sake of order, whether a partition's oldest batch may leave now."""

from __future__ import annotations

from typing import Protocol

from kprod.cluster.snapshot import Leadership
from kprod_ext.batch import ProducerBatch


class DrainGate(Protocol):
    """Who decides, for order's sake, whether a partition's oldest batch may leave now."""

    def admits(self, batch: ProducerBatch, leader: Leadership) -> bool:
        """True when ``batch`` may be sent to ``leader``."""

    def assign(self, batch: ProducerBatch) -> None:
        """Give a batch that is about to leave its sequence, if it has none."""
