"""SASL exchanges: SCRAM with honest and forged answers (RFC 7677, 3), and GSSAPI."""

from __future__ import annotations

import base64
import hashlib
import hmac
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from scramp import ScramMechanism

from kprod.errors import SaslAuthenticationError
from kprod.security.kerberos import KerberosConversation
from kprod.security.password import ScramConversation

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SALT = base64.b64encode(b"a salt of some bytes").decode()


def begun(mechanism: str) -> tuple[ScramConversation, str]:
    conversation = ScramConversation(mechanism, lambda: ("user", "pencil"))
    first = conversation.respond(None)
    assert first is not None
    assert first.startswith(b"n,,n=user,r=")
    return conversation, first.decode().partition(",r=")[2]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_scram_accepts_a_broker_that_knows_the_password(mechanism: str) -> None:
    kind = ScramMechanism(mechanism)
    info = kind.make_auth_info("pencil", iteration_count=4096)
    server = kind.make_server(lambda user: info)
    conversation = ScramConversation(mechanism, lambda: ("user", "pencil"))
    server.set_client_first((conversation.respond(None) or b"").decode())
    server.set_client_final(
        (conversation.respond(server.get_server_first().encode()) or b"").decode()
    )
    assert conversation.respond(server.get_server_final().encode()) is None


VERBATIM = {
    "a ligature": "ﬁve",
    "an emoji": "🔑 and key",
    "an ideographic space": "全角\u3000空白",
    "a character newer than Unicode 3.2": "ẞ is capital",
    "composed another way": "e\u0301",
    "ASCII": "pencil, =2C=3D",
}
"""Text that SASLprep changes or forbids; Kafka's brokers and tools hash its UTF-8 unchanged."""


@pytest.mark.parametrize("password", VERBATIM.values(), ids=VERBATIM)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_password_is_hashed_without_normalization(mechanism: str, password: str) -> None:
    """The proof is that of RFC 5802, 3, for the bytes of the password."""
    conversation = ScramConversation(mechanism, lambda: ("user", password))
    bare = (conversation.respond(None) or b"").decode().removeprefix("n,,")
    nonce = bare.partition(",r=")[2]
    server_first = f"r={nonce}x,s={SALT},i=4096"
    final = (conversation.respond(server_first.encode()) or b"").decode()
    without_proof, _, proof = final.rpartition(",p=")

    name = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    salted = hashlib.pbkdf2_hmac(name, password.encode(), base64.b64decode(SALT), 4096)
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    signed = f"{bare},{server_first},{without_proof}".encode()
    signature = hmac.digest(stored_key, signed, name)
    expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    assert base64.b64decode(proof) == expected


@pytest.mark.parametrize("user", [*VERBATIM.values(), "a,b=c"])
def test_a_user_name_is_sent_without_normalization(user: str) -> None:
    conversation = ScramConversation(MECHANISMS[0], lambda: (user, "pencil"))
    first = (conversation.respond(None) or b"").decode()
    name = first.removeprefix("n,,n=").partition(",r=")[0]
    assert name.replace("=2C", ",").replace("=3D", "=") == user
    assert "," not in name


FIRST: dict[str, Callable[[str], str]] = {
    "another nonce": lambda nonce: f"r=other{nonce},s={SALT},i=4096",
    "nothing added to the nonce": lambda nonce: f"r={nonce},s={SALT},i=4096",
    "a nonce cut short": lambda nonce: f"r={nonce[:-1]},s={SALT},i=4096",
    "no nonce": lambda nonce: f"s={SALT},i=4096",
    "no salt": lambda nonce: f"r={nonce}x,i=4096",
    "a salt that is not base64": lambda nonce: f"r={nonce}x,s=!!!,i=4096",
    "an empty salt": lambda nonce: f"r={nonce}x,s=,i=4096",
    "no iterations": lambda nonce: f"r={nonce}x,s={SALT}",
    "0 iterations": lambda nonce: f"r={nonce}x,s={SALT},i=0",
    "1 iteration": lambda nonce: f"r={nonce}x,s={SALT},i=1",
    "4095 iterations": lambda nonce: f"r={nonce}x,s={SALT},i=4095",
    "10,000,000 iterations": lambda nonce: f"r={nonce}x,s={SALT},i=10000000",
    "iterations beyond 64 bits": lambda nonce: f"r={nonce}x,s={SALT},i={2**64}",
    "negative iterations": lambda nonce: f"r={nonce}x,s={SALT},i=-1",
    "iterations in words": lambda nonce: f"r={nonce}x,s={SALT},i=many",
    "a mandatory extension": lambda nonce: f"m=ext,r={nonce}x,s={SALT},i=4096",
    "an error": lambda nonce: "e=unknown-user",
    "nothing": lambda nonce: "",
    "no attributes": lambda nonce: "hello",
    "the order changed": lambda nonce: f"i=4096,s={SALT},r={nonce}x",
}


@pytest.mark.parametrize("attack", FIRST)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_invalid_server_first_message_is_refused(attack: str, mechanism: str) -> None:
    conversation, nonce = begun(mechanism)
    with pytest.raises(SaslAuthenticationError, match="SCRAM: the broker"):
        conversation.respond(FIRST[attack](nonce).encode())


FINAL = {
    "another signature": f"v={base64.b64encode(bytes(32)).decode()}",
    "half a signature": "v=AAAA",
    "no signature": "v=",
    "nothing": "",
    "an error": "e=invalid-proof",
    "something else": "x=1",
    "bytes": "\udcff",
}


@pytest.mark.parametrize("attack", FINAL)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_unproven_server_final_message_is_refused(attack: str, mechanism: str) -> None:
    conversation, nonce = begun(mechanism)
    conversation.respond(f"r={nonce}x,s={SALT},i=4096".encode())
    with pytest.raises(SaslAuthenticationError, match="SCRAM: the broker cannot be trusted"):
        conversation.respond(FINAL[attack].encode("utf-8", "surrogateescape"))


REALM = "EXAMPLE.COM"


class Context:
    """Completes after one step, wraps nothing and adds the realm to names."""

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
def test_the_principal_is_sent_with_its_realm(principal: str | None, known_as: str) -> None:
    """Kafka applies ``sasl.kerberos.principal.to.local.rules`` to names with a realm only."""
    conversation = KerberosConversation("kafka", "broker", principal)
    assert conversation.respond(None) == b"ticket"
    assert conversation.respond(b"its ticket") == b""
    assert conversation.respond(b"\x01\x00\xff\xff") == b"\x01\x00\x00\x00" + known_as.encode()
    assert conversation.respond(b"") is None
