"""The page of the metrics, from the tables of ``kprod.metrics``."""

from __future__ import annotations

from collections.abc import Sequence

from kprod.metrics.table import (
    NODE_METRICS,
    PRODUCER_GAUGES,
    PRODUCER_METRICS,
    TOPIC_METRICS,
    Gauge,
    Metric,
)

_INTRODUCTION = """\
# Metrics

`producer.metrics()` returns a dict of groups, each a dict of numbers, under the names that Kafka's
Java client and kafka-python have for them:

```python
from kprod import KafkaProducer
from kprod.broker import EmbeddedBroker

with EmbeddedBroker(topics={"greetings": 1}) as broker:
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("greetings", b"hello").get(timeout=10)
        metrics = producer.metrics()
        print(metrics["producer-metrics"]["record-send-total"])
        print(metrics["producer-topic-metrics.greetings"]["byte-rate"])
        print(metrics["producer-node-metrics.node-1"]["request-latency-avg"])
```

Totals count from the beginning. Rates, averages and maxima are those of the last
`metrics_num_samples` windows of `metrics_sample_window_ms`: with the defaults, of the last 30 to 60
seconds, or of the producer's whole life while that is shorter. They are 0 when nothing happened.

Counting costs a few additions for each batch and request, none for a record, so it cannot be
switched off. `metrics()` may be called from any thread, as often as wanted.

This page is written by `python -m tools.pages`.
"""

_GROUPS: tuple[tuple[str, str, Sequence[Metric | Gauge]], ...] = (
    ("producer-metrics", "The whole producer.", PRODUCER_METRICS + PRODUCER_GAUGES),
    ("producer-topic-metrics.&lt;topic&gt;", "Every topic that had a batch.", TOPIC_METRICS),
    (
        "producer-node-metrics.node-&lt;id&gt;",
        "One group for each broker that was ever connected. When a broker leaves the cluster, its"
        " group goes; `producer-metrics` keeps its counts. Addresses of `bootstrap_servers` have"
        " the ids -1, -2, ...",
        NODE_METRICS,
    ),
)


def metrics_page() -> str:
    """The whole page, Markdown, ending in a newline."""
    return "\n".join([_INTRODUCTION, *(_section(*group) for group in _GROUPS)])


def _section(name: str, doc: str, rows: Sequence[Metric | Gauge]) -> str:
    table = "".join(f"| `{row.name}` | {row.unit} | {row.doc} |\n" for row in rows)
    return f"## {name}\n\n{doc}\n\n| metric | unit | meaning |\n|---|---|---|\n{table}"
