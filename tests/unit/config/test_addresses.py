"""bootstrap_servers in every form users write it, right and wrong."""

from __future__ import annotations

from typing import Any

import pytest

from kprod.config import ProducerConfig
from kprod.errors import ConfigError


def addresses(value: Any) -> tuple[tuple[str, int], ...]:
    return ProducerConfig.from_options({"bootstrap_servers": value}).bootstrap_servers


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("kafka", (("kafka", 9092),)),
        ("kafka:1", (("kafka", 1),)),
        ("kafka:65535", (("kafka", 65535),)),
        ("a:1,b:2", (("a", 1), ("b", 2))),
        (" a:1 , b ", (("a", 1), ("b", 9092))),
        (["a:1", "b"], (("a", 1), ("b", 9092))),
        (("a:1", "b:2,c:3"), (("a", 1), ("b", 2), ("c", 3))),
        ("127.0.0.1:9094", (("127.0.0.1", 9094),)),
        ("[::1]", (("::1", 9092),)),
        ("[::1]:9094", (("::1", 9094),)),
        ("[fe80::1%eth0]:9094", (("fe80::1%eth0", 9094),)),
        ("a:1,b:2,a:1", (("a", 1), ("b", 2))),
        ("under_score.example.com:1", (("under_score.example.com", 1),)),
        ("bücher.example:1", (("bücher.example", 1),)),
        ([("a", 1), ("::1", 2)], (("a", 1), ("::1", 2))),
    ],
)
def test_accepted(value: Any, expected: tuple[tuple[str, int], ...]) -> None:
    assert addresses(value) == expected


def test_the_parsed_form_is_accepted_again() -> None:
    parsed = addresses("a:1,[::1]:2")
    assert addresses(parsed) == parsed


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "it has an empty address"),
        ("   ", "it has an empty address"),
        ("a:1,,b:2", "it has an empty address"),
        ("a:1,", "it has an empty address"),
        ([], "it has no address"),
        ([""], "it has an empty address"),
        ("host:0", "'host:0' has no port from 1 to 65535"),
        ("host:99999", "'host:99999' has no port from 1 to 65535"),
        ("host:999999999999", "'host:999999999999' has no port from 1 to 65535"),
        ("host:", "'host:' has no port from 1 to 65535"),
        ("host:-1", "'host:-1' has no port from 1 to 65535"),
        ("host:90 92", "'host:90 92' has no port from 1 to 65535"),
        (
            "host:\uff19\uff10\uff19\uff12",
            "'host:\uff19\uff10\uff19\uff12' has no port from 1 to 65535",
        ),
        ("host:kafka", "'host:kafka' has no port from 1 to 65535"),
        (":9092", "':9092' has no valid host name or IP address"),
        ("ho st:9092", "'ho st:9092' has no valid host name or IP address"),
        ("a/b:9092", "'a/b:9092' has no valid host name or IP address"),
        ("a\x00:9092", "'a\\x00:9092' has no valid host name or IP address"),
        ("x" * 254, "has no valid host name or IP address"),
        ("[::1", "'[::1' is not an IPv6 address in brackets"),
        ("[::1]x", "'[::1]x' is not an IPv6 address in brackets"),
        ("[]:1", "'[]:1' has no valid host name or IP address"),
        ("[::g]:1", "'[::g]:1' has no valid host name or IP address"),
        ("::1", "'::1': put an IPv6 address in brackets"),
        ("plaintext://host:9092", "'plaintext://host:9092': omit the scheme"),
        (["a:1", 9092], "9092 (int) is not an address"),
        (["a:1", None], "None is not an address"),
        (("localhost", 9092), "9092 (int) is not an address"),
        ([("a", True)], "'a:True' has no port from 1 to 65535"),
        ([("a", "1")], "('a', '1') (tuple) is not an address"),
        (None, "got None"),
        (9092, "got 9092 (int)"),
        (b"a:1", "got b'a:1' (bytes)"),
        ({"a": 1}, "got {'a': 1} (dict)"),
        ([f"h{n}" for n in range(100_000)], "100000 addresses; a few are enough"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_refused(value: Any, reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        addresses(value)
    text = str(raised.value)
    assert text.startswith('bootstrap_servers: expected "host:port"')
    assert reason in text
    assert len(text) < 500


@pytest.mark.parametrize("value", ["user:secret@host:9092", "sasl://user:secret@host:0"])
def test_a_password_in_an_address_is_not_repeated(value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        addresses(value)
    assert "secret" not in str(raised.value)
