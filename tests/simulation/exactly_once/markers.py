"""Brings the end of a transaction to every place that takes part in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.simulation.events import EventQueue
from tests.simulation.exactly_once.group import OFFSETS, Group
from tests.simulation.exactly_once.marked_log import MarkedLog
from tests.simulation.exactly_once.setup import Place, TransactionSetup, Who
from tests.simulation.model.cluster import NOBODY, Cluster

AGAIN = 0.03


class Markers:
    """Repeats a marker until the leader has it, and its replicas.

    ``marked`` is called after each. What coordinators and leaders say to each other takes
    ``latency`` and is not lost; which of them are up, and who leads, changes meanwhile.
    """

    def __init__(
        self,
        setup: TransactionSetup,
        cluster: Cluster,
        group: Group,
        events: EventQueue,
        is_paused: Callable[[int], bool],
        marked: Callable[[], None],
    ) -> None:
        self._setup = setup
        self._cluster = cluster
        self._group = group
        self._events = events
        self._is_paused = is_paused
        self._marked = marked

    def mark(self, place: Place, who: Who, kind: bytes, era: int, done: Callable[[], None]) -> None:
        """Have the marker written, then call ``done``; never, for a coordinator of the past."""
        write = self._write_offsets if place == OFFSETS else partial(self._write, place)
        self._events.after(self._setup.latency, lambda: write(who, kind, era, done))

    def _write_offsets(self, who: Who, kind: bytes, era: int, done: Callable[[], None]) -> None:
        if self._is_paused(self._group.node) or not self._group.loaded:
            self._events.after(AGAIN, lambda: self._write_offsets(who, kind, era, done))
        elif self._group.mark(who, kind, era):
            self._events.after(self._setup.latency, done)

    def _write(
        self, place: Place, who: Who, kind: bytes, era: int, done: Callable[[], None]
    ) -> None:
        partition = self._cluster.topics[place[0]].partitions[place[1]]
        again = partial(self._write, place, who, kind, era, done)
        leader = partition.leader
        if leader == NOBODY or self._is_paused(leader):
            self._events.after(AGAIN, again)
            return
        log = partition.log
        if not isinstance(log, MarkedLog) or not log.mark(*who, kind, era):
            return
        ends, as_of = log.end, partition.epoch

        def replicated() -> None:
            """The replicas have it; a leader that is one no more leaves that open."""
            if partition.epoch != as_of or partition.leader == NOBODY:
                self._events.after(AGAIN, again)
                return
            log.committed = max(log.committed, ends)
            self._marked()
            self._events.after(self._setup.latency, done)

        self._events.after(self._setup.replication, replicated)
