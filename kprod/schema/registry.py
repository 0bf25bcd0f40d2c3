"""A schema registry of Confluent's API: Confluent, Redpanda, Apicurio (``ccompat``), Karapace"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, Unpack, get_args
from urllib.parse import quote
from uuid import UUID

from kprod.clock import ExponentialBackoff
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
    concealed,
    tls_settings,
)
from kprod.schema.schema import RegisteredSchema, Schema, SchemaReference, SchemaType
from kprod_ext.peer_text import printable

T = TypeVar("T")

FIRST_WAIT = 0.1
LONGEST_WAIT = 1.0
"""Seconds between attempts, doubled from the first to the longest."""
A_MOMENT = 1.0
"""Seconds for the end of a request that another thread makes, so that its error is told."""
MOST_ID = 0x7FFF_FFFF
TYPES = get_args(SchemaType)


class SchemaRegistry:
    """Registers and finds schemas. Thread-safe; what it was told is kept, up to ``cache_size``.

    ``url``: the address, or several, tried in turn. ``username`` and ``password``, those in an
    address, or ``token`` authenticate the client: ``password`` and ``token`` are text or callables,
    ``token`` also a provider with ``token()``, ``ClientCredentials`` for one (OAuth).
    ``ssl_cafile``, ``ssl_certfile``, ``ssl_keyfile`` (paths or PEM) and ``ssl_password`` are for
    HTTPS, as those of the producer; ``ssl_context`` replaces them. ``headers`` go with every
    request. A call waits at most ``timeout_ms`` with all its attempts, for one of them at most
    ``request_timeout_ms``.

    Raises ConfigError for a bad option. A pickle holds the options, and raises TypeError if a
    secret is among them as text. Nothing is connected before it is asked.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        headers: Mapping[str, str] | None = None,
        timeout_ms: int = 30_000,
        request_timeout_ms: int = 5_000,
        cache_size: int = 1000,
        **security: Unpack[RegistrySecurity],
    ) -> None:
        _check(timeout_ms=timeout_ms, request_timeout_ms=request_timeout_ms, cache_size=cache_size)
        _need_urllib3()
        check_headers(headers or {})
        found = addresses(url)
        if security.get("username") is not None:
            found = [address._replace(login=None) for address in found]
        private = concealed(security)
        self._addresses = found
        self._seconds = timeout_ms / 1000
        self._options: dict[str, Any] = {
            **private,
            "headers": None if headers is None else dict(headers),
            "timeout_ms": timeout_ms,
            "request_timeout_ms": request_timeout_ms,
            "cache_size": cache_size,
        }
        self._http = RegistryHttp(
            [address.url for address in found],
            authorizations(found, private),
            headers or {},
            tls_settings(private),
            timeout_ms / 1000,
            request_timeout_ms / 1000,
            ExponentialBackoff(FIRST_WAIT, LONGEST_WAIT),
        )
        self._asking: dict[Any, _Question] = {}  # one asks, others wait for its answer
        self._known: BoundedCache[Any, RegisteredSchema] = BoundedCache(cache_size)
        self._latest: BoundedCache[str, tuple[RegisteredSchema, float]] = BoundedCache(cache_size)

    def register(
        self, subject: str, schema: Schema, *, normalize: bool = False
    ) -> RegisteredSchema:
        """The schema under ``subject``, registered now if it was not.

        Raises IncompatibleSchemaError, saying what differs from the subject's latest version, and
        RegistryError.
        """
        key = "register", subject, schema, normalize
        return self._once(key, lambda: self._registered(subject, schema, normalize))

    def look_up(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        """The schema as it is registered under ``subject``. Raises SchemaNotFoundError."""
        key = "look up", subject, schema, normalize
        path = f"/subjects/{_part(subject)}{_normalized(normalize)}"
        return self._once(key, lambda: _answer(self._ask("POST", path, schema.as_json()), schema))

    def latest(self, subject: str, max_age_ms: int | None = None) -> RegisteredSchema:
        """The newest version of ``subject``; asked for again when it is older than ``max_age_ms``.

        None: it is asked for once. Raises SchemaNotFoundError.
        """

        def known() -> RegisteredSchema | None:
            found = self._latest.get(subject)
            if found is None:
                return None
            schema, since = found
            old = max_age_ms is not None and time.monotonic() >= since + max_age_ms / 1000
            return None if old else schema

        def ask() -> RegisteredSchema:
            schema = self._version(subject, "latest")
            self._latest.put(subject, (schema, time.monotonic()))
            return schema

        return self._together(("latest", subject), known, ask)

    def latest_since(self, subject: str) -> float:
        """When ``latest`` was answered last, on the monotonic clock; now if that is forgotten."""
        found = self._latest.get(subject)
        return time.monotonic() if found is None else found[1]

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """One version of ``subject``. Raises SchemaNotFoundError."""
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
        """What is known, or the answer to one question of all threads that ask it now."""
        found = known()
        deadline = time.monotonic() + self._seconds + A_MOMENT
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
                if not question.ended.wait(deadline - time.monotonic()):
                    self._asking.pop(key, None)  # a process that was forked meanwhile has it, too
                    raise RegistryError("schema registry: another thread has no answer in time yet")
                found = question.told()
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
        """The refusal with what the registry says is different, if it says it when asked."""
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
        return _again, (self._addresses, self._options)

    def __repr__(self) -> str:
        return f"SchemaRegistry({', '.join(address.url for address in self._addresses)!r})"


class _Question:
    """A request that one thread makes, and others wait for."""

    def __init__(self) -> None:
        self.ended = Latch()
        self.answer: RegisteredSchema | None = None
        self.error: RegistryError | None = None

    def told(self) -> RegisteredSchema | None:
        """The answer; None where the thread that asked was interrupted. Raises its error."""
        if self.error is not None:
            raise copy.copy(self.error)  # its traceback is that of one thread
        return self.answer


def _again(found: list[Address], options: dict[str, Any]) -> SchemaRegistry:
    urls = [address.with_login() for address in found]
    return SchemaRegistry(urls, **{name: exposed(value) for name, value in options.items()})


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


def _differences(told: Any, said: str) -> str:
    """The registry's words about the difference, without those in ``said``, in one line."""
    messages = told.get("messages") if isinstance(told, dict) else None
    texts = [str(each) for each in messages] if isinstance(messages, list) else []
    return printable("; ".join(text for text in texts if text not in said))


def _answer(told: Any, schema: Schema | None = None) -> RegisteredSchema:
    """The registry's answer; some registries repeat the schema in it."""
    try:
        guid = told.get("guid")
        return RegisteredSchema(
            schema or _schema(told),
            _number("id", told["id"]),
            None if told.get("version") is None else _number("version", told["version"]),
            None if guid is None else UUID(guid),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RegistryError(
            f"the schema registry's answer has no {printable(str(error))}: is this its address?"
        ) from None


def _schema(told: Mapping[str, Any]) -> Schema:
    references = tuple(
        SchemaReference(
            _text("name", each["name"]),
            _text("subject", each["subject"]),
            _number("version", each["version"]),
        )
        for each in told.get("references") or ()
    )
    kind: Any = told.get("schemaType") or "AVRO"
    if kind not in TYPES:
        raise ValueError(f"schemaType of {', '.join(TYPES)}")
    return Schema(_text("schema", told["schema"]), kind, references)


def _number(name: str, told: Any) -> int:
    """Records have four bytes for an id."""
    if type(told) is not int or not 0 <= told <= MOST_ID:
        raise ValueError(f"{name} from 0 to {MOST_ID}")
    return told


def _text(name: str, told: Any) -> str:
    if not isinstance(told, str):
        raise ValueError(f"{name} that is text")
    return told
