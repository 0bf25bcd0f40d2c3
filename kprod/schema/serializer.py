"""The base of the serializers of all formats: a subject for each topic, an id, an encoder"""

from __future__ import annotations

import copy
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Self

from kprod.errors import ConfigError
from kprod.intake.serializers import WouldWait
from kprod.lock import Lock
from kprod.schema.encoding import Encode, Encoding
from kprod.schema.registry import SchemaRegistry
from kprod.schema.schema import RegisteredSchema, Schema
from kprod.schema.subjects import SubjectStrategy, subject_strategy
from kprod.schema.wire_format import IdPlace, add_header, id_bytes, id_header

MOST_TOPICS = 10_000
"""Topics for which a serializer remembers its encoder."""

SHORTEST_AGE_MS = 1000
"""A schema that is too old before it has come would be asked for for ever."""


class Encoder(NamedTuple):
    """How the records of one topic are written."""

    encode: Encode
    header: tuple[str, bytes] | None
    good_until: float | None  # on the monotonic clock; None: for ever

    @property
    def expired(self) -> bool:
        """Whether the registry has to be asked again."""
        return self.good_until is not None and time.monotonic() >= self.good_until


class SchemaSerializer(ABC):
    """Turns objects into bytes that say which schema they were written with. Thread-safe.

    Options of all formats: ``is_key`` says that it is a ``key_serializer``. ``subject`` is
    "topic_name", "record_name", "topic_record_name", or ``f(topic, is_key, record_name)``. A schema
    is registered with its first record (``auto_register``), or has to be in the registry already
    (``auto_register=False``); with ``use_latest_version`` the subject's newest schema is written,
    whatever it is, and asked for again after ``latest_max_age_ms`` (None: never). ``normalize``
    lets the registry compare schemas without regard to how they are written. ``id_in`` is "prefix"
    or "header".

    None stays null. The first record of a topic asks the registry, which waits at most as long as
    the registry's ``timeout_ms``; in ``kprod.aio`` only its task waits. ``send`` raises what the
    registry refused as it is (RegistryError, IncompatibleSchemaError, SchemaNotFoundError), and
    SerializationError for an object that does not fit the schema.

    Works as a serializer of kprod, kafka-python and aiokafka (``serialize``) and of
    confluent-kafka's ``SerializingProducer`` (a call with its context).
    """

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
            raise ConfigError("auto_register and use_latest_version: one of both, not both")
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
        self._other: Self | None = None  # the one for the other field
        self._forget()

    def _forget(self) -> None:
        self._encoders: dict[str, Encoder] = {}
        self._adding = Lock()  # guards adding to them; looking needs none

    def serialize(self, topic: str, headers: Any, data: Any) -> bytes | None:
        """The bytes of ``data``; with ``id_in="header"`` a header is added to ``headers``."""
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

    def ensure_ready(self, topic: str) -> None:
        """Ask the registry about the topic if that has to be done, or raise WouldWait."""
        encoder = self._encoders.get(topic)
        if encoder is None or encoder.expired:
            self._asked(topic)

    def __call__(self, data: Any, context: Any = None) -> bytes | None:
        """As confluent-kafka calls it, with the topic, the field and the headers in ``context``."""
        if context is None:
            raise ConfigError("the topic is needed: a call is f(object, SerializationContext)")
        is_key = getattr(context.field, "value", context.field) == "key"
        return self.role(is_key).serialize(context.topic, context.headers, data)

    def role(self, is_key: bool) -> Self:
        """The same serializer for keys, or for values."""
        if is_key == self._is_key:
            return self
        if self._other is None:
            other = copy.copy(self)
            other._is_key, other._other = is_key, self
            self._other = other
        return self._other

    def without_waiting(self) -> Self:
        """One that raises ``WouldWait`` instead of waiting for the registry; for event loops."""
        twin = copy.copy(self)
        twin._waits = False
        return twin

    def registered(self, topic: str) -> RegisteredSchema:
        """The schema that records of ``topic`` are written with: registered, looked up or latest.

        Raises RegistryError, IncompatibleSchemaError, SchemaNotFoundError.
        """
        schema, subject = self._schema, self._subject_of(topic)
        if schema is None or self._use_latest:
            return self._registry.latest(subject, self._max_age_ms)
        ask = self._registry.register if self._auto_register else self._registry.look_up
        return ask(subject, schema, normalize=self._normalize)

    def _subject_of(self, topic: str) -> str:
        return self._subject(topic, self._is_key, self._record_name())

    def _asked(self, topic: str) -> Encoder:
        if not self._waits:
            raise WouldWait(partial(self._prepare, topic))
        return self._prepare(topic)

    def fixed(self, topic: str) -> tuple[Encoding, bytes]:
        """The encoding for records of ``topic`` and what stands before each; asks the registry.

        For other processes, which need no registry then. Raises as ``registered``.
        """
        registered = self.registered(topic)
        return self.encoding(registered.schema), id_bytes(registered, self._id_suffix())

    def _prepare(self, topic: str) -> Encoder:
        """Ask the registry, and remember how records of the topic are written."""
        registered = self.registered(topic)
        age, until = self._max_age_ms, None
        if age is not None and self._use_latest:
            # The registry may have told it for another topic, some time ago.
            until = self._registry.latest_since(self._subject_of(topic)) + age / 1000
        suffix, header = self._id_suffix(), None
        if self._id_in == "header":
            prefix, header = b"", id_header(registered, self._is_key, suffix)
        else:
            prefix = id_bytes(registered, suffix)
        encoder = Encoder(self._encoder(prefix, registered.schema), header, until)
        with self._adding:
            if len(self._encoders) >= MOST_TOPICS:
                self._encoders.clear()
            self._encoders[topic] = encoder
        return encoder

    @abstractmethod
    def encoding(self, schema: Schema) -> Encoding:
        """An encoder for ``schema`` that needs no registry; its references are fetched now."""

    def _encoder(self, prefix: bytes, schema: Schema) -> Encode:
        encode, to_dict = self.encoding(schema).encoder(prefix), self._to_dict
        return encode if to_dict is None else lambda data: encode(to_dict(data))

    def _id_suffix(self) -> bytes:
        """The bytes between the id and the data."""
        return b""

    @abstractmethod
    def _record_name(self) -> str | None:
        """The schema's own name, None if it has none."""

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds the options; what the registry has told is asked for again."""
        state = {**self.__dict__}
        for name in ("_encoders", "_adding"):
            del state[name]
        state["_other"] = None
        return _again, (type(self), state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._registry!r}, {self._record_name()!r})"


def _again(kind: type[SchemaSerializer], state: dict[str, Any]) -> SchemaSerializer:
    made = kind.__new__(kind)
    made.__dict__.update(state)
    made._forget()
    return made
