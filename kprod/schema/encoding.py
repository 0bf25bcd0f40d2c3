"""Encodings, which contain their schema. They need no registry, and work in any process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import cache
from typing import Any, Protocol
from urllib.parse import urljoin

from kprod.errors import ConfigError
from kprod.schema.flat_avro import avro_writer, flat_fields
from kprod.schema.messages import message_of
from kprod_ext.avro import FlatRecordEncoder
from kprod_ext.peer_text import printable

Encode = Callable[[Any], bytes]
_NEEDED = "pip install 'kprod[schema]'"


class Encoding(Protocol):
    """Encodes with one schema. Immutable. Can be pickled for processes without a registry."""

    def encoder(self, prefix: bytes) -> Encode:
        """Return a function that encodes an object after ``prefix``.

        Raises ConfigError if the schema cannot be used. The returned function raises the exceptions
        of the library that encodes the object.
        """
        ...


def parsed_json(text: str, **options: Any) -> Any:
    """Parse a schema's JSON. Raises ConfigError."""
    try:
        return json.loads(text, **options)
    except (ValueError, RecursionError) as error:
        raise unusable(error) from None


_WITH_ALL_DIGITS = Context(prec=1000)
"""A double has at most 767 significant digits, and 309 before the decimal point."""


def _exact_json(text: str) -> Any:
    """As ``parsed_json``, but with all digits of numbers. Whole numbers become integers."""
    return parsed_json(text, parse_float=_number)


def _number(text: str) -> int | Decimal:
    number = Decimal(text)
    return int(number) if number.adjusted() < 1000 and number % 1 == 0 else number


def unusable(error: Exception) -> ConfigError:
    """The error about a schema in one printable line, because its text may be a registry's."""
    return ConfigError(f"schema: {type(error).__name__}: {printable(str(error))}")


@dataclass(frozen=True, slots=True)
class AvroEncoding:
    """Avro with fastavro or the compiled encoder. ``text`` defines all types that it refers to.

    With ``bare_bytes``, a value of the schema ``"bytes"`` is written without its length, as in
    Confluent's serializers.
    """

    text: str
    bare_bytes: bool = False

    def encoder(self, prefix: bytes) -> Encode:
        """See ``Encoding``."""
        schema = self.parsed()
        write = avro_writer(schema)
        if self.bare_bytes and "bytes" in (schema, _type_of(schema)):
            return lambda data: prefix + _without_length(write(data))
        fields = flat_fields(schema)
        if fields is None:
            return lambda data: prefix + write(data)
        return FlatRecordEncoder(fields, prefix, lambda data: prefix + write(data)).encode

    def parsed(self, names: dict[str, Any] | None = None) -> Any:
        """The schema, parsed by fastavro. Raises ConfigError.

        Named types are added to ``names``.
        """
        try:
            from fastavro import parse_schema
        except ImportError:
            raise ConfigError(f"Avro needs fastavro: {_NEEDED}") from None
        try:
            return parse_schema(json.loads(self.text), named_schemas=names)
        except Exception as error:  # fastavro raises many classes
            raise unusable(error) from error


def _type_of(schema: Any) -> Any:
    return schema.get("type") if isinstance(schema, dict) else None


def _without_length(data: bytes) -> bytes:
    """The bytes after the length. The length is a varint, which ends with a byte below 0x80."""
    return data[next(place for place, byte in enumerate(data, 1) if byte < 0x80) :]


@dataclass(frozen=True, slots=True)
class JsonEncoding:
    """JSON in UTF-8, validated by a JSON Schema. ``resources`` are referenced schemas by URI."""

    text: str
    resources: tuple[tuple[str, str], ...] = ()
    validate: bool = True

    def encoder(self, prefix: bytes) -> Encode:
        """See ``Encoding``."""
        encode = self.text_encoder(prefix)

        def encode_object(data: Any) -> bytes:
            return encode(
                json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            )

        return encode_object

    def text_encoder(self, prefix: bytes) -> Callable[[str], bytes]:
        """A function that validates a JSON text, and returns it after ``prefix``.

        Numbers are validated with all their digits. Raises as ``encoder``.
        """
        check = self.validator().validate if self.validate else None

        def encode(text: str) -> bytes:
            if check is not None:
                with localcontext(_WITH_ALL_DIGITS):
                    check(_exact_json(text))
            return prefix + text.encode()

        return encode

    def validator(self) -> Any:
        """A validator for the draft that the schema's ``$schema`` names. Raises ConfigError."""
        try:
            from jsonschema import Draft202012Validator, SchemaError
            from jsonschema.validators import validator_for
            from referencing import Registry
        except ImportError:
            raise ConfigError(f"JSON Schema needs jsonschema: {_NEEDED}") from None
        schema = _exact_json(self.text)
        kind = validator_for(schema, default=Draft202012Validator)
        try:
            kind.check_schema(schema)
        except SchemaError as error:
            raise ConfigError(f"schema: {printable(error.message)}") from None
        except RecursionError as error:
            raise unusable(error) from None
        try:
            known: Any = Registry().with_resources(_by_uri(schema, self.resources))
        except (AttributeError, TypeError, ValueError) as error:  # an $id that is not a URI
            raise unusable(error) from None
        return kind(schema, registry=known)


def _by_uri(schema: Any, resources: tuple[tuple[str, str], ...]) -> list[tuple[str, Any]]:
    """The resources by the names used in ``$ref``, and by their resolved URIs.

    A relative URI is resolved against the URI of its schema.
    """
    from referencing import Resource
    from referencing.jsonschema import DRAFT202012

    known: dict[str, Any] = {
        uri: Resource.from_contents(_exact_json(found), default_specification=DRAFT202012)
        for uri, found in resources
    }
    root: Any = Resource.from_contents(schema, default_specification=DRAFT202012)
    bases = [base for each in (root, *known.values()) if (base := each.id())]
    return [(urljoin(base, uri), each) for base in ("", *bases) for uri, each in known.items()]


@dataclass(frozen=True, slots=True)
class ProtobufEncoding:
    """The Protobuf message ``name``. ``files`` are descriptors, each after those it imports.

    Encodes dicts of the message's fields.
    """

    files: tuple[bytes, ...]
    name: str

    def encoder(self, prefix: bytes) -> Encode:
        """See ``Encoding``."""
        kind = self.message_class()

        def encode(data: Any) -> bytes:
            return prefix + message_of(kind, data).SerializeToString()  # type: ignore[no-any-return]

        return encode

    def message_class(self) -> Any:
        """The message class, made once per process."""
        return _message_class(self)


@cache
def _message_class(encoding: ProtobufEncoding) -> Any:
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    for file in encoding.files:
        pool.AddSerializedFile(file)
    return GetMessageClass(pool.FindMessageTypeByName(encoding.name))
