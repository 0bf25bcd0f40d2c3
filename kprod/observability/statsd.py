"""Sends the metrics of producers to StatsD every few seconds, in a separate thread."""

from __future__ import annotations

import logging
import re
import threading
from typing import Any, Protocol, Self

from kprod.latch import Latch
from kprod.lock import Lock
from kprod.observability.readings import Measure, Reading, WatchedProducers

__all__ = ["StatsdReporter"]

log = logging.getLogger(__name__)

UNFIT = re.compile(r"[^A-Za-z0-9_-]")
"""Characters with a special meaning in StatsD or its storage, where dots separate levels."""


class Client(Protocol):
    """The part of ``statsd.StatsClient`` that is used."""

    def pipeline(self) -> Any:
        """A context manager with ``gauge`` and ``incr``, which sends everything at its end."""


class StatsdReporter:
    """Sends the metrics of producers to a ``statsd.StatsClient`` every ``interval`` seconds.

    Producers may be of any package of kprod; anything else raises TypeError. Metrics are named
    ``kprod.producer.<client id>.<name>``, ``kprod.producer-topic.<client id>.<topic>.<name>`` and
    ``kprod.producer-node.<client id>.<node>.<name>``, preceded by the client's own prefix.
    Characters other than letters, digits, ``_`` and ``-`` become ``_``. Totals are sent as
    counters, with the increase since the last report. Everything else is sent as a gauge.

    A producer that no longer exists is left out. Exceptions of the client are logged once, and
    reporting continues. ``close`` sends a last report. As a context manager, the reporter closes at
    the end of the block. Thread-safe.
    """

    def __init__(self, client: Client, *producers: object, interval: float = 10.0) -> None:
        self._client = client
        self._interval = interval
        self._producers = WatchedProducers(*producers)
        self._totals: dict[str, _Totals] = {}
        self._sending = Lock()  # guards the totals of the last report
        self._failed = False
        self._ended = Latch()
        self._thread = threading.Thread(target=self._run, name="kprod-statsd", daemon=True)
        self._thread.start()

    def add(self, producer: object) -> None:
        """Add a producer."""
        self._producers.add(producer)

    def send(self) -> None:
        """Send all metrics now."""
        with self._sending:
            sent: dict[str, _Totals] = {}
            with self._client.pipeline() as pipe:
                for client_id, readings in self._producers.readings():
                    before = self._totals.get(client_id, {})
                    totals = sent[client_id] = {}
                    for reading in readings:
                        _report(pipe, _name(client_id, reading), reading, before, totals)
            # Only after success: after a failure the next report includes this one's growth.
            self._totals = sent

    def close(self) -> None:
        """Send a last report, and end the thread. A second call does nothing."""
        if not self._ended.is_open:
            self._ended.open()
            self._thread.join()
            self._try()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            self._try()

    def _try(self) -> None:
        try:
            self.send()
        except Exception:
            if not self._failed:
                log.exception("metrics of producers cannot be sent to StatsD; retrying")
            self._failed = True
        else:
            self._failed = False


_Totals = dict[tuple[Measure, str | None], float]


def _report(pipe: Any, name: str, reading: Reading, before: _Totals, totals: _Totals) -> None:
    """Send one reading. ``before`` has the totals of the last report; ``totals`` gets new ones."""
    if not reading.measure.counts:
        pipe.gauge(name, reading.value)
        return
    place = reading.measure, reading.of
    totals[place] = reading.value
    last = before.get(place, 0.0)
    # The total of a topic begins anew when the producer had forgotten the topic meanwhile.
    added = reading.value - (last if last <= reading.value else 0.0)
    if added:
        pipe.incr(name, int(added))


def _name(client_id: str, reading: Reading) -> str:
    measure = reading.measure
    parts = (measure.group, client_id, *(() if reading.of is None else (reading.of,)), measure.name)
    return ".".join(("kprod", *(UNFIT.sub("_", part) for part in parts)))
