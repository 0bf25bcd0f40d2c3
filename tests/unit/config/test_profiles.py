"""A profile is a set of options; whatever is set itself holds instead."""

from __future__ import annotations

from typing import Any

import pytest

from kprod.config import OPTIONS, ProducerConfig
from kprod.config.table import PROFILES


def configured(**options: Any) -> ProducerConfig:
    return ProducerConfig.from_options({"client_id": "me", **options})


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_is_the_options_it_names(name: str) -> None:
    plain, profiled = configured(**PROFILES[name]), configured(profile=name)
    for option in OPTIONS:
        if option != "profile":
            assert getattr(profiled, option) == getattr(plain, option), option


@pytest.mark.parametrize("name", PROFILES)
def test_what_is_set_overrides_it(name: str) -> None:
    for option in PROFILES[name]:
        given = OPTIONS[option].default
        assert getattr(configured(profile=name, **{option: given}), option) == getattr(
            configured(**{option: given}), option
        )


def test_other_spellings_override_it_too() -> None:
    config = configured(profile="throughput", **{"queue.buffering.max.ms": 7})
    assert (config.linger_ms, config.batch_size) == (7, 131072)


def test_a_profile_gives_in_where_it_is_in_the_way() -> None:
    assert configured(profile="throughput", max_request_size=200_000).batch_max_size == 200_000
    assert not configured(profile="durable", acks=1).enable_idempotence
