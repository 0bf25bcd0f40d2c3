"""The base class of the serializers, which have a subject, an id and an encoder per topic."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

from kprod.clock import monotonic
from kprod.errors import ConfigError
from kprod.intake.serializers import WouldWait
from kprod.lock import Lock
from kprod.schema.encoding import Encode, Encoding
from kprod.schema.registry import SchemaRegistry
from kprod.schema.schema import RegisteredSchema, Schema, SchemaType, check_type
from kprod.schema.subjects import SubjectStrategy, subject_strategy
from kprod.schema.wire_format import IdPlace, add_header, id_bytes, id_header
from kprod_ext.peer_text import printable

MOST_TOPICS = 10_000
"""Number of topics whose encoder a serializer caches."""

SHORTEST_AGE_MS = 1000
"""With a shorter age a schema could expire before its request is answered, again and again."""


class Encoder(NamedTuple):
    """The encoder for the records of one topic."""

    encode: Encode
    header: tuple[str, bytes] | None
    good_until: float | None  # on the monotonic clock; None: for ever

    @property
    def expired(self) -> bool:
        """Whether the schema has to be requested again."""
        return self.good_until is not None and monotonic() >= self.good_until


class SchemaSerializer(ABC):
    """Converts objects to bytes with a schema id. Thread-safe.

    Options of all formats: ``is_key`` is True for a ``key_serializer``. ``subject`` is
    "topic_name", "record_name", "topic_record_name", or a callable ``f(topic, is_key,
    record_name)``. With ``auto_register``, the schema is registered when the first record is sent.
    With ``auto_register=False``, it must already be in the registry. With ``use_latest_version``,
    the newest schema of the subject is used. It is requested again after ``latest_max_age_ms``
    (None: never). ``normalize`` makes the registry compare normalized schemas. ``id_in`` is where
    the schema id is written: "prefix" or "header". ``to_dict`` converts the application's objects
    to what the format takes.

    None is written as null. The first ``send`` to a topic sends a request to the registry, and
    waits for at most the registry's ``timeout_ms``. In ``kprod.aio``, only the sending task waits.
    ``send`` raises RegistryError, IncompatibleSchemaError or SchemaNotFoundError for a failed
    request. It raises ConfigError for a schema that kprod cannot use (of another type, or with
    rules for writers), and SerializationError for an object that does not match the schema.

    Works as a serializer of kprod, kafka-python, aiokafka and confluent-kafka's
    ``SerializingProducer``.
    """

    type: ClassVar[SchemaType]
    """The type of all schemas of this serializer."""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: Schema | None,
        *,
        is_key: bool = False,
        subject: str | SubjectStrategy = "topic_name",
        auto_register: bool | None = None,
        use_latest_version: bool = False,
        latest_max_age_ms: int | None = None,
        normalize: bool = False,
        id_in: IdPlace = "prefix",
        to_dict: Callable[[Any], Any] | None = None,
    ) -> None:
        if use_latest_version and auto_register:
            raise ConfigError("auto_register and use_latest_version cannot be used together")
        if schema is None and not use_latest_version:
            raise ConfigError("a schema is needed unless use_latest_version=True")
        if latest_max_age_ms is not None and latest_max_age_ms < SHORTEST_AGE_MS:
            raise ConfigError(f"latest_max_age_ms: at least {SHORTEST_AGE_MS}, or None")
        if id_in not in ("prefix", "header"):
            raise ConfigError(f'id_in: expected "prefix" or "header", got {id_in!r}')
        self._registry = registry
        self._schema = schema
        self._is_key = is_key
        self._subject = subject_strategy(subject)
        self._auto_register = not use_latest_version if auto_register is None else auto_register
        self._use_latest = use_latest_version
        self._max_age_ms = latest_max_age_ms
        self._normalize = normalize
        self._id_in = id_in
        self._to_dict = to_dict
        self._waits = True
        self._other: Self | None = None  # the one for keys, or for values
        self._forget()

    def _forget(self) -> None:
        self._encoders: dict[str, Encoder] = {}
        self._adding = Lock()  # guards adding to the cache; reading needs no lock

    def serialize(self, topic: str, headers: Any, data: Any) -> bytes | None:
        """The bytes of ``data``. With ``id_in="header"``, a header is added to ``headers``."""
        if data is None:
            return None
        encoder = self._encoders.get(topic)
        if encoder is None or (encoder.good_until is not None and encoder.expired):
            encoder = self._asked(topic)
        encode, header, _ = encoder
        encoded = encode(data)
        if header is not None:
            add_header(headers, header)
        return encoded

    def __call__(self, data: Any, context: Any = None) -> bytes | None:
        """Serialize for confluent-kafka. ``context`` contains topic, field and headers."""
        if context is None:
            raise ConfigError("the topic is needed: a call is f(object, SerializationContext)")
        is_key = getattr(context.field, "value", context.field) == "key"
        return self.role(is_key).serialize(context.topic, context.headers, data)

    def role(self, is_key: bool) -> Self:
        """A serializer with the same options for keys, or for values."""
        if is_key == self._is_key:
            return self
        if self._other is None:
            other = copy.copy(self)
            other._is_key, other._other = is_key, self
            self._other = other
        return self._other

    def without_waiting(self) -> Self:
        """A copy for event loops. It raises ``WouldWait`` instead of waiting for the registry."""
        twin = copy.copy(self)
        twin._waits = False
        return twin

    def registered(self, topic: str) -> RegisteredSchema:
        """The schema for records of ``topic``: registered, looked up or latest.

        Raises RegistryError, IncompatibleSchemaError or SchemaNotFoundError. Raises ConfigError for
        a schema of another type, or with rules that a writer must apply.
        """
        schema, subject = self._schema, self._subject_of(topic)
        if schema is None or self._use_latest:
            found = self._registry.latest(subject, self._max_age_ms)
        else:
            ask = self._registry.register if self._auto_register else self._registry.look_up
            found = ask(subject, schema, normalize=self._normalize)
        check_type(found.schema, self.type, subject)
        if found.write_rules:
            rules = ", ".join(f"{name!r} ({kind})" for name, kind in found.write_rules)
            raise ConfigError(
                f"the schema of {subject!r} has the rule {printable(rules)}, and kprod applies no"
                " rules: data that they encrypt, change or refuse would be written unchanged. Use"
                " confluent-kafka's serializer, or disable the rule for this subject"
            )
        return found

    def _subject_of(self, topic: str) -> str:
        return self._subject(topic, self._is_key, self._record_name())

    def _asked(self, topic: str) -> Encoder:
        if not self._waits:
            raise WouldWait(partial(self._prepare, topic))
        return self._prepare(topic)

    def fixed(self, topic: str) -> tuple[Encoding, bytes]:
        """Ask the registry for the encoding of records of ``topic``, and for their prefix.

        With the result, other processes need no registry. Raises the exceptions of ``registered``.
        """
        registered = self.registered(topic)
        return self.encoding(registered.schema), id_bytes(registered, self._id_suffix())

    def _prepare(self, topic: str) -> Encoder:
        """Ask the registry, and cache the encoder of the topic."""
        registered = self.registered(topic)
        age, until = self._max_age_ms, None
        if age is not None and self._use_latest:
            # The registry client may have cached it earlier, for another topic.
            until = self._registry.latest_since(self._subject_of(topic)) + age / 1000
        suffix, header = self._id_suffix(), None
        if self._id_in == "header":
            prefix, header = b"", id_header(registered, self._is_key, suffix)
        else:
            prefix = id_bytes(registered, suffix)
        encode, to_dict = self._encoder(prefix, registered.schema), self._to_dict
        whole = encode if to_dict is None else lambda data: encode(to_dict(data))
        encoder = Encoder(whole, header, until)
        with self._adding:
            if len(self._encoders) >= MOST_TOPICS:
                self._encoders.clear()
            self._encoders[topic] = encoder
        return encoder

    @abstractmethod
    def encoding(self, schema: Schema) -> Encoding:
        """An encoding of ``schema`` that needs no registry. Fetches the references now."""

    def _encoder(self, prefix: bytes, schema: Schema) -> Encode:
        return self.encoding(schema).encoder(prefix)

    def _id_suffix(self) -> bytes:
        """The bytes between the schema id and the data."""
        return b""

    @abstractmethod
    def _record_name(self) -> str | None:
        """The schema's name, or None."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the options. A copy requests the cached answers of the registry again."""
        state = {**self.__dict__}
        for name in ("_encoders", "_adding"):
            del state[name]
        state["_other"] = None
        return _again, (type(self), state)

    def __repr__(self) -> str:
        registry = vars(self).get("_registry")  # None if the schema was refused
        return f"{type(self).__name__}({registry!r}, {self._record_name()!r})"


def _again(kind: type[SchemaSerializer], state: dict[str, Any]) -> SchemaSerializer:
    made = kind.__new__(kind)
    made.__dict__.update(state)
    made._forget()
    return made
