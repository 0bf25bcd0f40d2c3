"""Producers for StatsD: their numbers are sent every few seconds, by a thread of their own"""

from __future__ import annotations

import logging
import re
import threading
import weakref
from typing import Any, Protocol, Self

from kprod.latch import Latch
from kprod.lock import Lock
from kprod.observability.readings import Reading, Told, readings
from kprod.producer import KafkaProducer

log = logging.getLogger(__name__)

UNFIT = re.compile(r"[^A-Za-z0-9_-]")
"""Characters with a meaning in StatsD, or in what stores its names: dots part the levels there."""


class Client(Protocol):
    """What is needed of ``statsd.StatsClient``."""

    def pipeline(self) -> Any:
        """A context manager with ``gauge`` and ``incr`` that sends all of it at its end."""


class StatsdReporter:
    """Sends the numbers of producers through a ``statsd.StatsClient``, and once more at the end.

    Names are ``kprod.producer.<client id>.<name>``, ``kprod.producer-topic.<client id>.<topic>.
    <name>`` and ``kprod.producer-node.<client id>.<node>.<name>``, after the client's own prefix;
    what is no letter, digit, ``_`` or ``-`` in them becomes ``_``. Totals are counters, which tell
    what was added since the last time; everything else is a gauge. ``interval`` is seconds. A
    producer that was dropped is left out. Thread-safe; ``close`` it, or use it as a
    context manager. What the client raises is logged once, and ends nothing.
    """

    def __init__(self, client: Client, *producers: KafkaProducer, interval: float = 10.0) -> None:
        self._client = client
        self._interval = interval
        self._producers: weakref.WeakKeyDictionary[KafkaProducer, _Totals] = (
            weakref.WeakKeyDictionary()
        )
        self._sending = Lock()  # guards the totals that were sent last
        self._failed = False
        self._ended = Latch()
        for producer in producers:
            self.add(producer)
        self._thread = threading.Thread(target=self._run, name="kprod-statsd", daemon=True)
        self._thread.start()

    def add(self, producer: KafkaProducer) -> None:
        """Report this producer, too."""
        self._producers[producer] = {}

    def send(self) -> None:
        """Send all numbers now."""
        with self._sending:
            told: dict[KafkaProducer, _Totals] = {}
            with self._client.pipeline() as pipe:
                for producer, before in list(self._producers.items()):
                    totals = told[producer] = {}
                    for reading in readings(producer):
                        name = _name(producer.config.client_id, reading)
                        _tell(pipe, name, reading, before, totals)
            # Now it is sent: had that failed, the next time would tell what was added since before.
            self._producers.update(told)

    def close(self) -> None:
        """Send once more, and end the thread. A second call does nothing."""
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
                log.exception("numbers of producers cannot be sent to StatsD; it is tried again")
            self._failed = True
        else:
            self._failed = False


_Totals = dict[tuple[Told, str | None], float]


def _tell(pipe: Any, name: str, reading: Reading, before: _Totals, totals: _Totals) -> None:
    """``before`` are the totals that were sent last, ``totals`` gets those of this time."""
    if not reading.told.counts:
        pipe.gauge(name, reading.value)
        return
    place = reading.told, reading.of
    totals[place] = reading.value
    last = before.get(place, 0.0)
    # The total of a topic begins anew when the producer had forgotten the topic meanwhile.
    added = reading.value - (last if last <= reading.value else 0.0)
    if added:
        pipe.incr(name, int(added))


def _name(client_id: str, reading: Reading) -> str:
    told = reading.told
    parts = (told.group, client_id, *(() if reading.of is None else (reading.of,)), told.name)
    return ".".join(("kprod", *(UNFIT.sub("_", part) for part in parts)))
