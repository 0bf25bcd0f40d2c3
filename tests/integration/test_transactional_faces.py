"""Transactions as the documentation shows them."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kprod import KafkaProducer
from tests.integration.conftest import SharedKafka
from tests.support.apache_kafka.broker import ApacheKafka
from tests.support.apache_kafka.jars import NEWEST
from tests.support.committed_records import committed, group_offset
from tests.support.topic_admin import TopicAdmin

PAGE = Path(__file__).parents[2] / "docs" / "transactions.md"
RECIPE = re.compile(r"^## Consume, transform, produce\n.*?^```py\n(.*?)^```", re.M | re.S)


@pytest.fixture(scope="module")
def kafka(shared_kafka: SharedKafka) -> ApacheKafka:
    return shared_kafka(NEWEST)


def test_the_recipe_of_the_documentation(kafka: ApacheKafka) -> None:
    """Every line once, in a second run that takes over from a first that was broken off."""
    admin = TopicAdmin(kafka.bootstrap_servers)
    for name in ("lines", "upper-case-lines"):
        admin.create(name, 1)
    lines = [b"line %d" % number for number in range(300)]
    with KafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as source:
        source.send_many("lines", lines)
    found = RECIPE.search(PAGE.read_text())
    assert found is not None, "the recipe has gone"
    broken = found[1].replace("upper(), key", "nothing_of_the_kind(), key")

    def more_to_do() -> bool:
        done = committed(kafka.bootstrap_servers, "upper-case-lines", 1)
        return len(done) < len(lines)

    surroundings = {"BROKERS": kafka.bootstrap_servers, "more_to_do": more_to_do}
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        run(broken, surroundings)
    run(found[1], surroundings)
    done = committed(kafka.bootstrap_servers, "upper-case-lines", 1)
    assert done == [line.upper() for line in lines]
    assert group_offset(kafka.bootstrap_servers, "upper-case", "lines", 0) == len(lines)


def run(code: str, surroundings: dict[str, Any]) -> None:
    """As a program of its own would: at its end, however that comes, consumer and producer go."""
    names = dict(surroundings)
    try:
        exec(compile(code, "recipe", "exec"), names)
    finally:
        with suppress(RuntimeError):  # it is closed already
            names["consumer"].close()
        names["producer"].close()
