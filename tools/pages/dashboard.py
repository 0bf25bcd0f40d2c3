"""A dashboard for Grafana: every number that Prometheus gets, from the table of metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kprod.observability.readings import MEASURES, Measure, prometheus_name

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
    sent = prometheus_name(MEASURES["producer"]["record-send-total"])
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
        for place, measure in enumerate(MEASURES[group].values()):
            down, across = divmod(place, ACROSS)
            yield _panel(number, measure, across * WIDTH, top + down * HEIGHT)
            number += 1
        top += -(-len(MEASURES[group]) // ACROSS) * HEIGHT


def _row(number: int, title: str, top: int) -> dict[str, Any]:
    place = {"x": 0, "y": top, "w": WIDTH * ACROSS, "h": 1}
    return {"id": number, "type": "row", "title": title, "gridPos": place, "collapsed": False}


def _panel(number: int, measure: Measure, left: int, top: int) -> dict[str, Any]:
    unit = RATES.get(measure.unit, "cps") if measure.counts else UNITS.get(measure.unit, "short")
    of = "" if measure.label is None else f" {{{{{measure.label}}}}}"
    return {
        "id": number,
        "type": "timeseries",
        "title": measure.name.removesuffix("-total") + (" per second" if measure.counts else ""),
        "description": measure.doc,
        "datasource": SOURCE,
        "gridPos": {"x": left, "y": top, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": "A",
                "datasource": SOURCE,
                "expr": expression(measure),
                "legendFormat": f"{{{{client_id}}}}{of}",
            }
        ],
    }


def expression(measure: Measure) -> str:
    """What Prometheus is asked: how fast a total grows, and everything else as it is.

    Nanoseconds that a call has taken become the part of each second that it takes.
    """
    chosen = f'{prometheus_name(measure)}{{client_id=~"$client_id"}}'
    if not measure.counts:
        return chosen
    rate = f"rate({chosen}[$__rate_interval])"
    return f"{rate} / 1e9" if measure.unit == "ns" else rate


def dashboard_text() -> str:
    """The dashboard as JSON, ending in a newline."""
    return json.dumps(dashboard(), indent=2) + "\n"
