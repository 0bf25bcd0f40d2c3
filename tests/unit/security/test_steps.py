"""A message of a login holds a password or a token."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kprod.config import ProducerConfig
from kprod.security.composition import mechanism_of, steps_of
from kprod.security.steps import Message


def test_a_message_does_not_show_what_it_says() -> None:
    message = Message(b"n,,\x01auth=Bearer secret\x01\x01")
    assert [repr(message), str(message), f"{message}"] == ["Message(24 bytes)"] * 3
    assert repr(Message(None)) == "Message(None)"


@pytest.mark.parametrize("option", ["sasl_plain_password", "sasl_credentials"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_code_of_the_application_may_take_its_time(mechanism: str, option: str) -> None:
    """The sender works the steps out; while it waited for a vault, no broker got anything."""
    asked, ready, told = threading.Event(), threading.Event(), threading.Event()

    def secret() -> Any:
        asked.set()
        ready.wait(5)
        return ("u", "p") if option == "sasl_credentials" else "p"

    options: dict[str, Any] = {option: secret}
    if option == "sasl_plain_password":
        options["sasl_plain_username"] = "u"
    config = ProducerConfig.from_options(
        {"security_protocol": "SASL_SSL", "sasl_mechanism": mechanism, **options}
    )
    found = mechanism_of(config)
    assert found is not None
    steps = steps_of(found)("broker", told.set)
    steps.begin(None)
    assert asked.wait(5)
    assert steps.take() is None
    ready.set()
    assert told.wait(20)
    message = steps.take()
    assert message is not None
    assert message.data is not None


def test_a_password_that_is_known_takes_no_thread() -> None:
    options = {"sasl_plain_username": "u", "sasl_plain_password": "p"}
    config = ProducerConfig.from_options(
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", **options}
    )
    found = mechanism_of(config)
    assert found is not None
    steps = steps_of(found)("broker", lambda: None)
    steps.begin(None)
    assert steps.take() == Message(b"\0u\0p")
