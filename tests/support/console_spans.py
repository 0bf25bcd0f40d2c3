"""Spans that a program under ``opentelemetry-instrument`` has printed, of every instrumentation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple


class Span(NamedTuple):
    """What all instrumentations of Kafka tell of a span; ids are hexadecimal digits."""

    trace_id: str
    span_id: str
    kind: str
    system: str
    destination: str


def objects(text: str) -> Iterator[dict[str, Any]]:
    """What console exporters print: JSON objects, one after the other."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        found, end = decoder.raw_decode(text, at)
        yield found
        at = text.find("{", end)


def spans(text: str) -> Iterator[Span]:
    """The spans among the objects. Older conventions call the topic ``messaging.destination``."""
    for one in objects(text):
        if "context" not in one:
            continue
        context, attributes = one["context"], one["attributes"]
        yield Span(
            trace_id=context["trace_id"].removeprefix("0x"),
            span_id=context["span_id"].removeprefix("0x"),
            kind=one["kind"].removeprefix("SpanKind."),
            system=attributes.get("messaging.system", ""),
            destination=attributes.get("messaging.destination.name")
            or attributes.get("messaging.destination", ""),
        )
