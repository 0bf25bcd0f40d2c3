"""What keeps a figure from being larger, as far as CPU times tell."""

from __future__ import annotations

from kprod.cli.perf.measured import Measured

BUSY = 0.9
"""Of one core, or of all: nothing is left beyond that."""


def limited_by(measured: Measured) -> str:
    """The first that was used up, in words."""
    seconds = measured.seconds or 1e-9
    own = measured.cpu_seconds / seconds
    broker = (measured.broker_cpu_seconds or 0.0) / seconds
    if measured.rate is not None and measured.records_per_second >= BUSY * measured.rate:
        return "the rate that was asked for"
    if broker >= BUSY:
        return "the embedded broker, which is Python and has a core at most"
    if measured.broker_cpu_seconds is not None and own + broker >= BUSY * measured.cores:
        return f"{measured.cores} cores, which producer and embedded broker share"
    if own >= BUSY:
        return "the calling thread: one core"
    return "waiting: for the cluster, the network or the disk"
