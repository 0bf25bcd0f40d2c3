"""Requests to a schema registry: caching, retries, authentication and errors."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import ssl
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kprod.errors import ConfigError
from kprod.schema import (
    ClientCredentials,
    IncompatibleSchemaError,
    RegistryError,
    Schema,
    SchemaNotFoundError,
    SchemaReference,
    SchemaRegistry,
)
from kprod.security import FromEnvironment
from tests.support.certificates import Certificates
from tests.support.ports import free_port
from tests.support.schema_registry import SILENCE, FakeRegistry
from tests.support.token_server import CLIENT, SECRET, TokenServer

ORDER = Schema(json.dumps({"type": "record", "name": "Order", "fields": []}))


def test_a_schema_is_registered_once(fake: FakeRegistry) -> None:
    registry = SchemaRegistry(fake.url)
    first = registry.register("orders-value", ORDER)
    assert registry.register("orders-value", ORDER) == first
    assert first.id == 1
    assert fake.paths() == ["POST /subjects/orders-value/versions"]
    assert fake.asked[0].body == {"schema": ORDER.text}


def test_the_least_recently_used_schema_leaves_the_cache(fake: FakeRegistry) -> None:
    registry = SchemaRegistry(fake.url, cache_size=2)
    for subject in ("a", "b", "a", "c", "a", "b"):
        registry.register(subject, ORDER)
    assert [path.split("/")[2] for path in fake.paths()] == ["a", "b", "c", "b"]


def test_schema_types_and_references_are_sent(fake: FakeRegistry) -> None:
    reference = SchemaReference("shop.Who", "who", 3)
    schema = Schema("{}", "JSON", (reference,))
    SchemaRegistry(fake.url).register("a b/c", schema, normalize=True)
    assert fake.paths() == ["POST /subjects/a%20b%2Fc/versions?normalize=true"]
    assert fake.asked[0].body == {
        "schema": "{}",
        "schemaType": "JSON",
        "references": [{"name": "shop.Who", "subject": "who", "version": 3}],
    }
    found = SchemaRegistry(fake.url).version("a b/c", 1)
    assert found.schema == schema
    assert (found.id, found.version) == (1, 1)


def test_a_missing_subject_or_schema_is_reported_without_retries(fake: FakeRegistry) -> None:
    registry = SchemaRegistry(fake.url)
    with pytest.raises(SchemaNotFoundError, match="Subject 'orders-value' not found") as raised:
        registry.latest("orders-value")
    assert (raised.value.status, raised.value.code) == (404, 40401)
    with pytest.raises(SchemaNotFoundError, match="Schema not found"):
        registry.look_up("orders-value", ORDER)
    assert len(fake.asked) == 2  # not retried


@pytest.mark.parametrize(
    ("messages", "end"),
    [
        (
            ["field 'who' has no default", "it was added"],
            "field 'who' has no default; it was added",
        ),
        (["\x1b[31mred\nline"] * 3, ""),
        (["x" * 5000] * 1000, ""),
        ([{"of": "a type"}] * 9, ""),
        ("text", ""),
        (5, ""),
    ],
)
def test_incompatibilities_are_reported_in_one_short_line(
    fake: FakeRegistry, messages: Any, end: str
) -> None:
    fake.odd = lambda asked: (
        (200, {"messages": messages})
        if "/compatibility" in asked.path
        else (409, {"message": "no"})
    )
    with pytest.raises(IncompatibleSchemaError) as raised:
        SchemaRegistry(fake.url).register("orders-value", ORDER)
    message = str(raised.value)
    assert message.startswith("subject 'orders-value': schema registry http://localhost:")
    assert message.endswith(end)
    assert message.isprintable()
    assert len(message) < 2500
    assert not raised.value.retriable


def test_the_latest_version_is_fetched_again_after_its_max_age(fake: FakeRegistry) -> None:
    registry = SchemaRegistry(fake.url)
    fake.register("s", {"schema": "1"})
    assert registry.latest("s").schema.text == "1"
    fake.register("s", {"schema": "2"})
    assert registry.latest("s").schema.text == "1"
    assert registry.latest("s", max_age_ms=3_600_000).schema.text == "1"
    assert registry.latest("s", max_age_ms=0).schema.text == "2"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_temporary_errors_are_retried(fake: FakeRegistry, status: int) -> None:
    answers = [(status, {"error_code": 50003, "message": "not now"})] * 2
    fake.odd = lambda _: answers.pop() if answers else None
    assert SchemaRegistry(fake.url).register("s", ORDER).id == 1
    assert len(fake.asked) == 3


def test_retries_end_at_the_timeout_and_report_the_last_answer(fake: FakeRegistry) -> None:
    def refuse_once(_: object) -> tuple[int, bytes]:
        if len(fake.asked) > 1:
            time.sleep(1.0)
        return 503, b"<html>down</html>"

    fake.odd = refuse_once
    with pytest.raises(RegistryError, match=r"it cannot answer now \(HTTP status 503") as raised:
        SchemaRegistry(fake.url, timeout_ms=400).register("s", ORDER)
    assert raised.value.retriable
    assert len(fake.asked) >= 2


@pytest.mark.parametrize(
    ("status", "message"), [(401, "credentials"), (403, "may not"), (422, "invalid")]
)
def test_permanent_errors_are_not_retried(fake: FakeRegistry, status: int, message: str) -> None:
    fake.odd = lambda _: (status, {"error_code": status, "message": "\x1b[31mno"})
    with pytest.raises(RegistryError, match=message) as raised:
        SchemaRegistry(fake.url).register("s", ORDER)
    assert "\x1b" not in str(raised.value)
    assert len(fake.asked) == 1


@pytest.mark.parametrize(
    "body",
    [
        *(b"<html>", b'{"ok": true}', b"[]"),
        *(b'{"id": "one"}', b'{"id": 1e400}', b'{"id": -1}', b'{"id": 2147483648}'),
        *(b'{"id": 1, "version": 1e400}', b'{"id": 1, "guid": 5}', b'{"id": 1, "guid": "\\n"}'),
        *(b'{"id": 1, "schema": 5}', b'{"id": 1, "schema": null}'),
        b'{"id": 1, "schema": "{}", "schemaType": 5}',
        b'{"id": 1, "schema": "{}", "references": [5]}',
    ],
)
def test_an_invalid_answer_is_refused(fake: FakeRegistry, body: bytes) -> None:
    fake.odd = lambda _: (200, body)
    registry = SchemaRegistry(fake.url, timeout_ms=2000)
    with pytest.raises(RegistryError, match="is this its address"):
        registry.latest("s") if b"schema" in body else registry.register("s", ORDER)


def test_a_thread_waits_no_longer_than_its_own_timeout(fake: FakeRegistry) -> None:
    fake.register("known", {"schema": '"string"'})
    registry = SchemaRegistry(fake.url, request_timeout_ms=1000, timeout_ms=1000)
    registry.latest("known")
    fake.odd = lambda _: (SILENCE, None)
    together = threading.Barrier(7)

    def ask(subject: str) -> float:
        together.wait()
        began = time.monotonic()
        with pytest.raises(RegistryError, match="no answer within"):
            registry.latest(subject)
        return time.monotonic() - began

    with ThreadPoolExecutor(6) as pool:
        asking = [pool.submit(ask, subject) for subject in "aaabbb"]
        together.wait()
        began = time.monotonic()
        registry.latest("known", max_age_ms=60_000)
        assert time.monotonic() - began < 0.5
        assert max(each.result() for each in asking) < 1.9
    assert len(fake.asked) == 3


def test_an_interrupted_request_is_repeated_by_another_thread(fake: FakeRegistry) -> None:
    """An exception in the token function of one thread does not fail the others."""
    asking, go_on = threading.Event(), threading.Event()

    def token() -> str:
        if not asking.is_set():
            asking.set()
            go_on.wait()
            raise KeyboardInterrupt
        return "token"

    fake.register("s", {"schema": '"string"'})
    registry = SchemaRegistry(fake.url, token=token)
    with ThreadPoolExecutor(2) as pool:
        interrupted = pool.submit(registry.latest, "s")
        asking.wait()
        second = pool.submit(registry.latest, "s")
        go_on.set()
        assert isinstance(interrupted.exception(), KeyboardInterrupt)
        assert second.result().id == 1
    assert len(fake.asked) == 1


def test_the_next_address_is_tried_when_one_fails(fake: FakeRegistry) -> None:
    registry = SchemaRegistry(f"http://127.0.0.1:{free_port()}, {fake.url}")
    assert registry.register("s", ORDER).id == 1
    assert registry.register("t", ORDER).id == 1
    assert len(fake.asked) == 2


def authorization(fake: FakeRegistry) -> str | None:
    return fake.asked[-1].headers.get("authorization")


def test_credentials_become_the_authorization_header(fake: FakeRegistry) -> None:
    with_login = fake.url.replace("//", "//me:pa%73s@")
    written = base64.b64encode("me:grün €".encode()).decode()
    for url, options, header in (
        (fake.url, {}, None),
        (fake.url, {"username": "me", "password": "pass"}, "Basic bWU6cGFzcw=="),
        (with_login, {}, "Basic bWU6cGFzcw=="),
        (fake.url, {"username": "me", "password": "grün €"}, f"Basic {written}"),
        (fake.url, {"token": "abc"}, "Bearer abc"),
    ):
        SchemaRegistry(url, **options).register("s", ORDER)  # type: ignore[arg-type]
        assert authorization(fake) == header


def test_tokens_of_an_issuer_are_reused_until_they_expire(
    fake: FakeRegistry, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path)
    with TokenServer(certificates.server, certificates.ca) as issuer:
        trust = ssl.create_default_context(cafile=certificates.ca)
        token = ClientCredentials(issuer.url, CLIENT, lambda: SECRET, "registry", lambda: trust)
        registry = SchemaRegistry(fake.url, token=token)
        registry.register("s", ORDER)
        registry.register("t", ORDER)
        assert str(authorization(fake)).startswith("Bearer ")
        assert issuer.issued == 1
        assert issuer.scopes == [["registry"]]
        issuer.clients.clear()
        refused = SchemaRegistry(fake.url, token=token)
        with pytest.raises(RegistryError, match="invalid_client"):
            refused.register("u", ORDER)


def test_each_address_has_its_own_login(fake: FakeRegistry) -> None:
    """An address without a login uses that of another address."""
    fake.odd = lambda _: (503, b"") if len(fake.asked) < 3 else None
    urls = [fake.url.replace("//", f"//{login}") for login in ("me:1@", "", "you:2@")]
    registry = SchemaRegistry(urls)
    for client in (registry, copy.copy(registry), SchemaRegistry(",".join(urls))):
        fake.asked.clear()
        client.register("s", ORDER)
        logins = [asked.headers["authorization"].removeprefix("Basic ") for asked in fake.asked]
        assert [base64.b64decode(login) for login in logins] == [b"me:1", b"you:2", b"you:2"]
    SchemaRegistry(urls, username="other", password="3").register("s", ORDER)
    assert authorization(fake) == "Basic " + base64.b64encode(b"other:3").decode()


@pytest.mark.parametrize("token", [("old", 1.0), 5])
def test_an_error_about_an_invalid_token_names_the_registry(fake: FakeRegistry, token: Any) -> None:
    with pytest.raises(RegistryError, match=r"schema registry: the (token|provider)") as raised:
        SchemaRegistry(fake.url, token=lambda: token).latest("s")
    assert "OAUTHBEARER" not in str(raised.value)


def test_an_untrusted_certificate_is_not_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = Certificates(tmp_path)
    with FakeRegistry(certfile=certificates.server) as fake:
        with pytest.raises(RegistryError, match=r"its certificate was refused: .*verify") as raised:
            SchemaRegistry(fake.url, timeout_ms=1000).register("s", ORDER)
        assert not raised.value.retriable
        assert [line for line in caplog.records if line.name == "kprod.schema"] == []
        unreachable = f"https://localhost:{free_port()}"
        with pytest.raises(RegistryError):
            SchemaRegistry(f"{unreachable},{fake.url}", timeout_ms=300).register("s", ORDER)
        assert "trying again" in caplog.text, "the other address may answer later"


def test_after_an_untrusted_certificate_the_next_address_is_tried(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with (
        FakeRegistry(certfile=certificates.of_another_authority("localhost")) as untrusted,
        FakeRegistry(certfile=certificates.server) as fake,
    ):
        registry = SchemaRegistry([untrusted.url, fake.url], ssl_cafile=certificates.ca)
        assert registry.register("s", ORDER).id == 1
        assert untrusted.asked == []


def test_a_pickle_has_references_to_secrets_but_no_secrets(
    fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "-----BEGIN PRIVATE KEY-----\ncanary-1\n-----END PRIVATE KEY-----\n"
    for private in (
        *({"password": "canary-1", "username": "me"}, {"token": "canary-1"}),
        *({"headers": {"X-Api-Key": "canary-1"}}, {"ssl_keyfile": key}),
        {"url": fake.url.replace("//", "//me:canary-1@")},
    ):
        registry = SchemaRegistry(**{"url": fake.url, **private})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="secrets are not pickled"):
            pickle.dumps(registry)
        assert "canary" not in repr(registry) + repr(vars(copy.deepcopy(registry)))
    monkeypatch.setenv("REGISTRY_PASSWORD", "pass")
    client = SchemaRegistry(fake.url, username="me", password=FromEnvironment("REGISTRY_PASSWORD"))
    pickle.loads(pickle.dumps(client)).register("s", ORDER)
    assert authorization(fake) == "Basic bWU6cGFzcw=="


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("localhost:8081", {}, "expected http://"),
        ([], {}, "got none"),
        ("http://h/base?apikey=canary", {}, "has no query"),
        ("http://h/base#canary", {}, "has no query"),
        ("http://me:[canary]@h", {}, "expected http://"),
        ("http://me:canary\u2100@h", {}, "expected http://"),
        ("http://me:ca/canary@h", {}, "expected http://"),
        ("http://me:1/canary@h", {}, "expected http://"),
        ("http://me:canary\\@h", {}, "expected http://"),
        ("http://h", {"headers": {"x-api-key": "canary\n"}}, "'x-api-key' is not one line"),
        ("http://h", {"headers": {"x-api-key": "\u20ac"}}, "'x-api-key' is not one line"),
        ("http://h", {"timeout_ms": 0}, "timeout_ms: expected a number above 0, got 0"),
        ("http://h", {"cache_size": True}, "cache_size"),
        ("http://h", {"username": "a", "token": "b"}, "not both"),
        ("https://h", {"ssl_cafile": "/nowhere"}, "ssl_cafile: cannot read"),
    ],
)
def test_invalid_options_are_refused(url: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        SchemaRegistry(url, **options)
    assert "canary" not in str(raised.value)
    assert raised.value.__context__ is None or "canary" not in str(raised.value.__context__)


def test_an_answer_too_long_for_a_schema_is_not_parsed(fake: FakeRegistry) -> None:
    """A parsed list takes thirty times the memory of its text."""
    fake.register("long", {"schema": json.dumps({"type": "string", "doc": "\u00e9" * 170_000})})
    assert len(SchemaRegistry(fake.url).latest("long").schema.text) > 1_000_000
    fake.odd = lambda _asked: (200, b"[" + b"[]," * 6_000_000 + b"[]]")
    tracemalloc.start()
    try:
        with pytest.raises(RegistryError, match="the answer has more than 2097152 bytes") as raised:
            SchemaRegistry(fake.url).latest("s")
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not raised.value.retriable
    assert used < 64 * 1024 * 1024  # 18 MB of them are the answer itself


def test_header_values_are_text_or_references(fake: FakeRegistry, monkeypatch: Any) -> None:
    """A pickle has the references, and headers that are no secrets, such as a cluster's name."""
    headers: dict[str, Any] = {
        "X-Api-Key": FromEnvironment("REGISTRY_KEY"),
        "target-sr-cluster": "lsrc-1",
    }
    registry = pickle.loads(pickle.dumps(SchemaRegistry(fake.url, headers=headers)))
    with pytest.raises(ConfigError, match="REGISTRY_KEY is not set"):
        registry.register("s", ORDER)
    monkeypatch.setenv("REGISTRY_KEY", "a key")
    registry.register("s", ORDER)
    assert fake.asked[-1].headers["x-api-key"] == "a key"
    assert fake.asked[-1].headers["target-sr-cluster"] == "lsrc-1"
    monkeypatch.setenv("REGISTRY_KEY", "two\nlines")
    with pytest.raises(RegistryError, match="headers: the value of 'X-Api-Key' is not one line"):
        registry.register("another", ORDER)
