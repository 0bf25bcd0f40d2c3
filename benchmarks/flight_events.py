"""Records as services send them: about a kilobyte of JSON, from the flights the demo uses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b

from kprod.cli.demo.flights import NOT_AVAILABLE, Flights

DISTINCT = 10_000


def flight_events(count: int = DISTINCT) -> list[bytes]:
    """``count`` events: a departure, and the flight that left before it from the same airport.

    As such events are: names in every one of them, which codecs live on, and identifiers without
    any pattern, which no codec can help. About a kilobyte each; the same in every run.
    Raises DemoFailure when the package with the flights is not installed.
    """
    return list(_events(Flights(count)))


def _events(flights: Flights) -> Iterator[bytes]:
    before: dict[str, dict[str, object]] = {}
    for row, line in enumerate(flights.lines):
        flight = dict(zip(flights.columns, map(_typed, line.split(",")), strict=True))
        origin = str(flight["origin"])
        identity = blake2b(str(row).encode(), digest_size=24).hexdigest()
        event = {
            "event_id": f"departure-{row:08d}",
            "type": "flight.departed",
            "schema_version": 3,
            "recorded_at": flight["time_hour"],
            "source": {"service": "departure-board", "host": f"gate-{row % 40:02d}.{origin}"},
            "trace": {"trace_id": identity[:32], "span_id": identity[32:]},
            "flight": flight,
            "left_before": before.get(origin),
        }
        before[origin] = flight
        yield json.dumps(event).encode()


def _typed(cell: str) -> object:
    if cell == NOT_AVAILABLE:
        return None
    return int(cell) if cell.lstrip("-").isdecimal() else cell
