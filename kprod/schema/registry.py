"""Client for Confluent's registry API: Confluent, Redpanda, Apicurio (``ccompat``), Karapace."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, Unpack, get_args
from urllib.parse import quote
from uuid import UUID

from kprod.clock import ExponentialBackoff, monotonic
from kprod.config.reading import concealed
from kprod.config.secret import exposed
from kprod.errors import ConfigError
from kprod.latch import Latch
from kprod.schema.bounded_cache import BoundedCache
from kprod.schema.errors import IncompatibleSchemaError, RegistryError
from kprod.schema.registry_http import RegistryHttp
from kprod.schema.registry_security import (
    Address,
    RegistrySecurity,
    addresses,
    authorizations,
    check_headers,
    check_names,
    header,
    hidden_headers,
    hidden_urls,
    tls_settings,
)
from kprod.schema.schema import RegisteredSchema, Schema, SchemaReference, SchemaType
from kprod_ext.peer_text import printable

T = TypeVar("T")

FIRST_WAIT = 0.1
LONGEST_WAIT = 1.0
"""Seconds between attempts: the first pause doubles up to the longest."""
A_MOMENT = 1.0
"""Extra seconds to wait for another thread's request, so that its error is reported."""
MOST_ID = 0x7FFF_FFFF
TYPES = get_args(SchemaType)
_MODES_OF_READERS = ("READ", "UPGRADE", "DOWNGRADE", "UPDOWN")


class SchemaRegistry:
    """A client of a schema registry. Caches up to ``cache_size`` responses. Thread-safe.

    ``url`` is one address, or several addresses that are tried in order. The client authenticates
    with ``username`` and ``password``, with a user and password in an address, or with ``token``.
    ``password`` and ``token`` are strings or callables. ``token`` may also be an object with a
    method ``token()``, such as ``ClientCredentials`` (OAuth). ``headers`` are sent with every
    request; their values are strings or callables.

    ``ssl_cafile``, ``ssl_certfile``, ``ssl_keyfile`` (paths or PEM) and ``ssl_password`` are used
    for HTTPS, like the producer's options. ``ssl_context`` replaces them. A call takes at most
    ``timeout_ms`` including retries, and each request at most ``request_timeout_ms``.

    Raises ConfigError for an invalid option. Connects on first use. A pickle contains only the
    options. Pickling raises TypeError if a secret is given as a string.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        headers: Mapping[str, str | Callable[[], str]] | None = None,
        timeout_ms: int = 30_000,
        request_timeout_ms: int = 5_000,
        cache_size: int = 1000,
        **security: Unpack[RegistrySecurity],
    ) -> None:
        # A traceback may show local variables.
        self._addresses: list[Address] = []
        self._urls = urls = hidden_urls(url)
        private, fields = concealed({**security}), hidden_headers(headers)
        del url, headers, security
        private |= {name: exposed(value) for name, value in private.items() if name == "username"}
        check_names(private)
        _check(timeout_ms=timeout_ms, request_timeout_ms=request_timeout_ms, cache_size=cache_size)
        _need_urllib3()
        hidden = check_headers(fields)
        found = addresses(urls)
        if private.get("username") is not None:
            found = [address._replace(login=None) for address in found]
        self._addresses = found
        self._seconds = timeout_ms / 1000
        self._options: dict[str, Any] = {
            **private,
            "headers": hidden,
            "timeout_ms": timeout_ms,
            "request_timeout_ms": request_timeout_ms,
            "cache_size": cache_size,
        }
        self._http = RegistryHttp(
            [address.url for address in found],
            authorizations(found, private),
            lambda: {name: header(name, value) for name, value in hidden.items()},
            tls_settings(private),
            timeout_ms / 1000,
            request_timeout_ms / 1000,
            ExponentialBackoff(FIRST_WAIT, LONGEST_WAIT),
        )
        self._asking: dict[Any, _Question] = {}  # one thread asks, others wait for its answer
        self._known: BoundedCache[Any, RegisteredSchema] = BoundedCache(cache_size)
        self._latest: BoundedCache[str, tuple[RegisteredSchema, float]] = BoundedCache(cache_size)

    def register(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> RegisteredSchema:
        """Return the schema as registered under ``subject``, after registering it if necessary.

        Raises IncompatibleSchemaError, which says what differs from the subject's latest version,
        and RegistryError.
        """
        key = "register", subject, schema, normalize
        return self._once(key, lambda: self._registered(subject, schema, normalize))

    def look_up(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """Return the schema as it is registered under ``subject``. Raises SchemaNotFoundError."""
        key = "look up", subject, schema, normalize
        path = f"/subjects/{_part(subject)}{_normalized(normalize)}"
        return self._once(key, lambda: _answer(self._ask("POST", path, schema.as_json()), schema))

    def latest(self, subject: str, max_age_ms: int | None = None) -> RegisteredSchema:
        """Return the newest version of ``subject``.

        An answer is cached for ``max_age_ms``; None means without limit. Raises
        SchemaNotFoundError.
        """

        def known() -> RegisteredSchema | None:
            found = self._latest.get(subject)
            if found is None:
                return None
            schema, since = found
            old = max_age_ms is not None and monotonic() >= since + max_age_ms / 1000
            return None if old else schema

        def ask() -> RegisteredSchema:
            schema = self._version(subject, "latest")
            self._latest.put(subject, (schema, monotonic()))
            return schema

        return self._together(("latest", subject), known, ask)

    def latest_since(self, subject: str) -> float:
        """When ``latest`` got its cached answer, on the monotonic clock; now if there is none."""
        found = self._latest.get(subject)
        return monotonic() if found is None else found[1]

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Return one version of ``subject``. Raises SchemaNotFoundError."""
        key = "version", subject, version
        return self._once(key, lambda: self._version(subject, str(version)))

    def _once(self, key: Any, ask: Callable[[], RegisteredSchema]) -> RegisteredSchema:
        def asked() -> RegisteredSchema:
            found = ask()
            self._known.put(key, found)
            return found

        return self._together(key, lambda: self._known.get(key), asked)

    def _together(
        self,
        key: Any,
        known: Callable[[], RegisteredSchema | None],
        ask: Callable[[], RegisteredSchema],
    ) -> RegisteredSchema:
        """The cached answer, or the answer to a single request for all waiting threads."""
        found = known()
        deadline = monotonic() + self._seconds + A_MOMENT
        while found is None:
            mine = _Question()
            try:
                question = self._asking.setdefault(key, mine)
                if question is mine:
                    mine.answer = found = known() or ask()
            except RegistryError as error:
                mine.error = error
                raise
            finally:
                if self._asking.get(key) is mine:
                    del self._asking[key]
                    mine.ended.open()
            if question is not mine:
                if not question.ended.wait(deadline - monotonic()):
                    self._asking.pop(key, None)  # a forked process may have inherited it
                    raise RegistryError("schema registry: another thread's request got no answer")
                found = question.outcome()
        return found

    def _registered(self, subject: str, schema: Schema, normalize: bool) -> RegisteredSchema:
        path = f"/subjects/{_part(subject)}/versions{_normalized(normalize)}"
        try:
            return _answer(self._ask("POST", path, schema.as_json()), schema)
        except IncompatibleSchemaError as error:
            raise self._explained(error, subject, schema) from None

    def _explained(
        self, error: IncompatibleSchemaError, subject: str, schema: Schema
    ) -> IncompatibleSchemaError:
        """The refusal, with a description of the differences if the registry provides one."""
        path = f"/compatibility/subjects/{_part(subject)}/versions/latest?verbose=true"
        try:
            differences = _differences(self._ask("POST", path, schema.as_json()), str(error))
        except RegistryError:
            differences = ""
        text = f"subject {subject!r}: {error}" + (f": {differences}" if differences else "")
        return IncompatibleSchemaError(text, error.status, error.code)

    def _version(self, subject: str, version: str) -> RegisteredSchema:
        return _answer(self._ask("GET", f"/subjects/{_part(subject)}/versions/{version}"))

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._http.ask(method, path, body)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._urls, self._options)

    def __repr__(self) -> str:
        return f"SchemaRegistry({', '.join(address.url for address in self._addresses)!r})"


class _Question:
    """A request that one thread sends, and others wait for."""

    def __init__(self) -> None:
        self.ended = Latch()
        self.answer: RegisteredSchema | None = None
        self.error: RegistryError | None = None

    def outcome(self) -> RegisteredSchema | None:
        """The answer. None if the sending thread was interrupted. Raises the request's error."""
        if self.error is not None:
            raise copy.copy(self.error)  # a copy, because each thread extends the traceback
        return self.answer


def _again(urls: list[Any], options: dict[str, Any]) -> SchemaRegistry:
    return SchemaRegistry(urls, **options)


def _check(**numbers: Any) -> None:
    for name, number in numbers.items():
        if type(number) is not int or number <= 0:
            raise ConfigError(f"{name}: expected a number above 0, got {number!r}")


def _need_urllib3() -> None:
    try:
        import urllib3  # noqa: F401
    except ImportError:
        raise ConfigError("a schema registry needs urllib3: pip install 'kprod[schema]'") from None


def _part(subject: str) -> str:
    return quote(subject, safe="")


def _normalized(normalize: bool) -> str:
    return "?normalize=true" if normalize else ""


def _differences(reply: Any, said: str) -> str:
    """The registry's messages about the differences, except those in ``said``, in one line."""
    messages = reply.get("messages") if isinstance(reply, dict) else None
    texts = [str(each) for each in messages] if isinstance(messages, list) else []
    return printable("; ".join(text for text in texts if text not in said))


def _answer(reply: Any, schema: Schema | None = None) -> RegisteredSchema:
    """Parse the registry's answer, which may or may not contain ``schema``."""
    try:
        guid = reply.get("guid")
        return RegisteredSchema(
            schema or _schema(reply),
            _number("id", reply["id"]),
            None if reply.get("version") is None else _number("version", reply["version"]),
            None if guid is None else UUID(guid),
            _write_rules(reply.get("ruleSet")),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RegistryError(
            f"the schema registry's answer has no {printable(str(error))}: is this its address?"
        ) from None


def _schema(reply: Mapping[str, Any]) -> Schema:
    references = tuple(
        SchemaReference(
            _text("name", each["name"]),
            _text("subject", each["subject"]),
            _number("version", each["version"]),
        )
        for each in reply.get("references") or ()
    )
    kind: Any = reply.get("schemaType") or "AVRO"
    if kind not in TYPES:
        raise ValueError(f"schemaType of {', '.join(TYPES)}")
    return Schema(_text("schema", reply["schema"]), kind, references)


def _write_rules(reply: Any) -> tuple[tuple[str, str], ...]:
    """Name and type of each rule that a writer has to apply. Unknown modes are included."""
    try:
        rules = [
            rule
            for phase in ("domainRules", "encodingRules")
            for rule in (reply or {}).get(phase) or ()
            if not rule.get("disabled") and rule.get("mode") not in _MODES_OF_READERS
        ]
        return tuple((str(rule.get("name")), str(rule.get("type"))) for rule in rules)
    except (AttributeError, TypeError):
        raise ValueError("readable ruleSet") from None


def _number(name: str, reply: Any) -> int:
    """Check a number, such as an id. Records have four bytes for it."""
    if type(reply) is not int or not 0 <= reply <= MOST_ID:
        raise ValueError(f"{name} from 0 to {MOST_ID}")
    return reply


def _text(name: str, reply: Any) -> str:
    if not isinstance(reply, str):
        raise ValueError(f"{name} that is text")
    return reply
