"""A dashboard for Grafana with every number that Prometheus is told, made from the table of metrics

``python -m kprod.observability.grafana`` writes it; ``docs/grafana.json`` is what it writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kprod.observability.readings import TOLD, Told, prometheus_name

UNITS = {"bytes": "bytes", "ms": "ms", "ns": "ns", "s": "s", "ratio": "percentunit"}
"""Grafana's names for units; the others are counts."""
RATES = {"bytes": "Bps", "ns": "percentunit"}
ROWS = {"producer": "Producers", "producer-topic": "Topics", "producer-node": "Brokers"}
WIDTH, HEIGHT, ACROSS = 8, 8, 3
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """What Grafana imports: a row for each group of metrics, a panel for each metric."""
    return {
        "title": "kprod",
        "uid": "kprod",
        "tags": ["kafka", "kprod"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_data_source(), _clients()]},
        "panels": list(_panels()),
    }


def _data_source() -> dict[str, Any]:
    return {"name": "datasource", "type": "datasource", "query": "prometheus"}


def _clients() -> dict[str, Any]:
    sent = prometheus_name(TOLD["producer"]["record-send-total"])
    return {
        "name": "client_id",
        "type": "query",
        "datasource": SOURCE,
        "query": f"label_values({sent}, client_id)",
        "includeAll": True,
        "multi": True,
        "refresh": 2,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 1, 0
    for group, title in ROWS.items():
        yield _row(number, title, top)
        number, top = number + 1, top + 1
        for place, told in enumerate(TOLD[group].values()):
            down, across = divmod(place, ACROSS)
            yield _panel(number, told, across * WIDTH, top + down * HEIGHT)
            number += 1
        top += -(-len(TOLD[group]) // ACROSS) * HEIGHT


def _row(number: int, title: str, top: int) -> dict[str, Any]:
    place = {"x": 0, "y": top, "w": WIDTH * ACROSS, "h": 1}
    return {"id": number, "type": "row", "title": title, "gridPos": place, "collapsed": False}


def _panel(number: int, told: Told, left: int, top: int) -> dict[str, Any]:
    unit = RATES.get(told.unit, "cps") if told.counts else UNITS.get(told.unit, "short")
    of = "" if told.label is None else f" {{{{{told.label}}}}}"
    return {
        "id": number,
        "type": "timeseries",
        "title": told.name.removesuffix("-total") + (" per second" if told.counts else ""),
        "description": told.doc,
        "datasource": SOURCE,
        "gridPos": {"x": left, "y": top, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": "A",
                "datasource": SOURCE,
                "expr": expression(told),
                "legendFormat": f"{{{{client_id}}}}{of}",
            }
        ],
    }


def expression(told: Told) -> str:
    """What Prometheus is asked: how fast a total grows, and everything else as it is.

    Nanoseconds that a call has taken become the part of each second that it takes.
    """
    chosen = f'{prometheus_name(told)}{{client_id=~"$client_id"}}'
    if not told.counts:
        return chosen
    rate = f"rate({chosen}[$__rate_interval])"
    return f"{rate} / 1e9" if told.unit == "ns" else rate


def main() -> None:
    """Write it to standard output."""
    print(json.dumps(dashboard(), indent=2))


if __name__ == "__main__":
    main()
