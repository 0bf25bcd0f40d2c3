"""One client's turn: it sends one workload to one sink, in a process of its own.

    python -m benchmarks.rivals.turn '{"client": "kprod send", ...}' 127.0.0.1:41234

prints what was measured as a line of JSON. ``Turn`` says what can be asked for.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from typing import Any

from benchmarks.flight_events import flight_events
from benchmarks.limits.raw_clients import MemoryCopy
from benchmarks.rivals.client import Client
from benchmarks.rivals.clients import CLIENTS
from benchmarks.rivals.settings import Settings
from kprod.cli.figures import CostMeter, percentiles
from kprod.cli.perf.workload import letters

MEGA = 1e6

IDLE_SECONDS = 3.0

Meter = Callable[[], CostMeter]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one client does.

    ``payload`` is "letters" (random capitals, ``size`` bytes) or "flights" (JSON, about 1 KB).
    ``keys`` is the number of different keys, 0 for none. ``measure`` is "throughput": everything at
    once, until the last outcome; "lone": one record after the other, each waited for; "memory":
    like throughput, with inputs that take no memory of their own; or "idle": what comes after the
    last outcome. ``warm_up`` records (1 or more) go first. ``tls``: by TLS 1.3. ``defaults``: every
    client with its default options, so linger and batch size are not told. ``busy``: another
    process computes on each core meanwhile.
    """

    client: str
    records: int
    size: int = 100
    payload: str = "letters"
    keys: int = 0
    measure: str = "throughput"
    warm_up: int = 1_000
    partitions: int = 6
    linger_ms: int = 5
    batch_size: int = 131_072
    buffer_memory: int | None = None
    compression: str = "none"
    level: int | None = None
    tls: bool = False
    defaults: bool = False
    busy: bool = False

    def settings(self, bootstrap_servers: str, cafile: str | None = None) -> Settings:
        """What the client is told."""
        return Settings(
            bootstrap_servers=bootstrap_servers,
            records=max(self.records, self.warm_up),
            defaults=self.defaults,
            linger_ms=self.linger_ms,
            batch_size=self.batch_size,
            buffer_memory=self.buffer_memory,
            compression=self.compression,
            level=self.level,
            cafile=cafile,
        )

    @property
    def expected_records(self) -> int:
        """What the sink has to have counted afterwards."""
        return 0 if CLIENTS[self.client] is MemoryCopy else self.warm_up + self.records

    def as_json(self) -> dict[str, Any]:
        """As a mapping of names to values; ``Turn(**mapping)`` is the same turn."""
        return asdict(self)


def run_turn(
    turn: Turn, bootstrap_servers: str, meter: Meter = CostMeter, cafile: str | None = None
) -> dict[str, Any]:
    """Take the turn in this process; the figures by name. ``meter`` is made where they begin."""
    client = CLIENTS[turn.client](turn.settings(bootstrap_servers, cafile))
    values = flight_events() if turn.payload == "flights" else letters(turn.size)
    keys = [b"key-%d" % number for number in range(turn.keys)]
    try:
        if turn.measure != "lone":
            _prepare(client, values, keys, turn.warm_up)
            client.send()
        return _MEASURES[turn.measure](client, turn, values, keys, meter)
    finally:
        client.close()


def _throughput(
    client: Client, turn: Turn, values: Sequence[bytes], keys: Sequence[bytes], meter: Meter
) -> dict[str, Any]:
    _prepare(client, values, keys, turn.records)
    started = meter()
    client.send()
    cost = started.read()
    payload = sum(map(len, islice(cycle(values), turn.records)))
    return {
        "seconds": cost.seconds,
        "records_per_second": turn.records / cost.seconds,
        "megabytes_per_second": payload / cost.seconds / MEGA,
        "cpu_us_per_record": cost.cpu_seconds / turn.records * MEGA,
        "peak_rss_mb": cost.peak_rss_bytes / MEGA,
    }


def _memory(
    client: Client, turn: Turn, values: Sequence[bytes], keys: Sequence[bytes], meter: Meter
) -> dict[str, Any]:
    client.values = _Endless(values, turn.records)
    client.keys = _Endless(keys, turn.records) if keys else None
    started = meter()
    client.send()
    cost = started.read()
    return {
        "seconds": cost.seconds,
        "records_per_second": turn.records / cost.seconds,
        "peak_rss_mb": cost.peak_rss_bytes / MEGA,
    }


def _lone(
    client: Client, turn: Turn, values: Sequence[bytes], _keys: Sequence[bytes], meter: Meter
) -> dict[str, Any]:
    for value in islice(cycle(values), turn.warm_up):
        client.send_and_wait(value)
    now, taken = time.perf_counter, []
    started = meter()
    for value in islice(cycle(values), turn.records):
        sent = now()
        client.send_and_wait(value)
        taken.append(now() - sent)
    cpu = started.read().cpu_seconds / turn.records * MEGA
    waits = {f"{name}_us": 1000 * ms for name, ms in percentiles(taken).items()}
    return waits | {"cpu_us_per_record": cpu}


def _idle(
    client: Client, turn: Turn, values: Sequence[bytes], keys: Sequence[bytes], meter: Meter
) -> dict[str, Any]:
    """The memory is that of all before, the records included."""
    _prepare(client, values, keys, turn.records)
    client.send()
    started = meter()
    time.sleep(IDLE_SECONDS)
    cost = started.read()
    return {
        "idle_cpu_percent": 100 * cost.cpu_seconds / cost.seconds,
        "peak_rss_mb": cost.peak_rss_bytes / MEGA,
    }


class _Endless(Sequence[bytes]):
    """The same few items over and over, as a sequence of any length."""

    def __init__(self, items: Sequence[bytes], length: int) -> None:
        self._items = items
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: Any) -> Any:
        return self._items[number % len(self._items)]

    def __iter__(self) -> Any:
        return islice(cycle(self._items), self._length)


_Measure = Callable[[Client, Turn, Sequence[bytes], Sequence[bytes], Meter], dict[str, Any]]
_MEASURES: dict[str, _Measure] = {
    "throughput": _throughput,
    "lone": _lone,
    "memory": _memory,
    "idle": _idle,
}


def _prepare(client: Client, values: Sequence[bytes], keys: Sequence[bytes], records: int) -> None:
    in_turn = list(islice(cycle(values), records))
    client.prepare(in_turn, list(islice(cycle(keys), records)) if keys else None)
    # Lists of millions of records, which hardly any application has: what walking through them
    # costs the garbage collector is not the client's, and for kprod was an eighth of send_many.
    gc.collect()
    gc.freeze()


def main() -> None:
    """Take the turn that the arguments name."""
    turn = Turn(**json.loads(sys.argv[1]))
    cafile = sys.argv[3] if turn.tls else None
    print(json.dumps(run_turn(turn, sys.argv[2], cafile=cafile)))


if __name__ == "__main__":
    main()
