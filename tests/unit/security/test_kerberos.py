"""The last message of GSSAPI, by a stand-in for the package gssapi, which needs a C library."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kprod.security.kerberos import KerberosConversation

REALM = "EXAMPLE.COM"


class Context:
    """Is complete after one step; what it wraps stays as it is. Names get their realm from it."""

    def __init__(self, name: str, creds: str | None, **_: Any) -> None:
        own = creds or "user"
        self.initiator_name = own if "@" in own else f"{own}@{REALM}"
        self.complete = False

    def step(self, token: bytes | None) -> bytes:
        self.complete = token is not None
        return b"" if self.complete else b"ticket"

    def unwrap(self, message: bytes) -> SimpleNamespace:
        return SimpleNamespace(message=message)

    def wrap(self, message: bytes, encrypt: bool) -> SimpleNamespace:
        return SimpleNamespace(message=message)


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in: Any = ModuleType("gssapi")
    stand_in.exceptions = SimpleNamespace(GSSError=OSError)
    stand_in.Name = lambda text, kind: text
    stand_in.NameType = SimpleNamespace(hostbased_service=1, kerberos_principal=2)
    stand_in.MechType = SimpleNamespace(kerberos=3)
    stand_in.Credentials = lambda name, usage: name
    stand_in.SecurityContext = Context
    monkeypatch.setitem(sys.modules, "gssapi", stand_in)


@pytest.mark.parametrize(
    ("principal", "known_as"),
    [
        (None, "user@EXAMPLE.COM"),
        ("orders/host.example.com", "orders/host.example.com@EXAMPLE.COM"),
        ("orders@OTHER.ORG", "orders@OTHER.ORG"),
    ],
)
def test_the_broker_is_told_the_whole_principal(principal: str | None, known_as: str) -> None:
    """Kafka applies ``sasl.kerberos.principal.to.local.rules`` to names with a realm only."""
    conversation = KerberosConversation("kafka", "broker", principal)
    assert conversation.respond(None) == b"ticket"
    assert conversation.respond(b"its ticket") == b""
    assert conversation.respond(b"\x01\x00\xff\xff") == b"\x01\x00\x00\x00" + known_as.encode()
    assert conversation.respond(b"") is None
