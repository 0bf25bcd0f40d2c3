"""Where a measurement's records go"""

from __future__ import annotations

from typing import NamedTuple

from kprod.cli.circumstances import cpu_seconds


class Cluster(NamedTuple):
    """``address`` None leaves it to the producer's options.

    ``broker_pid`` is the process of the embedded broker, None for a cluster of the user's.
    """

    address: str | None
    broker_pid: int | None = None

    def broker_cpu_seconds(self) -> float | None:
        """What the embedded broker has used so far; None where there is none."""
        return None if self.broker_pid is None else cpu_seconds(self.broker_pid)
