"""From the options of single topics to what holds for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kprod.config.reading import OptionReader
from kprod.config.rules import TOPIC_RULES, apply_rules
from kprod.config.topic_options import PER_TOPIC, TopicOptions

_NAME = "topic_options"


def settle_topics(producer: OptionReader) -> None:
    """Replace the topics' options as given by one ``TopicOptions`` each; note their problems.

    To be called when the producer's own options are settled. A longer linger of a topic may raise
    ``delivery_timeout_ms``.
    """
    given: Mapping[str, Mapping[Any, Any]] = producer.values[_NAME]
    producer.values[_NAME] = tuple(_settled(producer, topic, own) for topic, own in given.items())


def _settled(producer: OptionReader, topic: str, given: Mapping[Any, Any]) -> TopicOptions:
    reader = OptionReader(given)
    own = {name: reader.values[name] for name in PER_TOPIC if name in reader.given}
    reader.problems += _misplaced(reader.given)
    reader.values = {**producer.values, **_codec_default(producer, own), **own}
    reader.given |= producer.given
    reader.refused |= producer.refused
    apply_rules([rule for rule in TOPIC_RULES if not own.keys().isdisjoint(rule[0])], reader)
    producer.values["delivery_timeout_ms"] = reader.values["delivery_timeout_ms"]
    producer.problems += [f"{_NAME}[{topic!r}]: {problem}" for problem in reader.problems]
    return TopicOptions(topic, *(reader.values[name] for name in PER_TOPIC))


def _misplaced(given: Iterable[str]) -> list[str]:
    allowed = ", ".join(PER_TOPIC)
    return [
        f"{name} holds for the whole producer; a topic may have {allowed}"
        for name in given
        if name not in PER_TOPIC
    ]


def _codec_default(producer: OptionReader, own: Mapping[str, Any]) -> dict[str, Any]:
    """The level of one codec means nothing to another: a topic's own codec starts without."""
    inherited = producer.values["compression_type"]
    kept = own.get("compression_type", inherited) == inherited
    return {} if kept else {"compression_level": None}
