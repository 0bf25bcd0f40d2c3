"""A message of a login holds a password or a token."""

from __future__ import annotations

from kprod.security.steps import Message


def test_a_message_does_not_show_what_it_says() -> None:
    message = Message(b"n,,\x01auth=Bearer secret\x01\x01")
    assert [repr(message), str(message), f"{message}"] == ["Message(24 bytes)"] * 3
    assert repr(Message(None)) == "Message(None)"
