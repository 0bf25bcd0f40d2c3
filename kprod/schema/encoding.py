"""A schema with everything it needs: what encodes with it, in any process, without a registry"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any, Protocol
from urllib.parse import urljoin

from kprod.errors import ConfigError
from kprod.schema.flat_avro import FlatField, flat_fields
from kprod_ext.avro import FlatRecordEncoder
from kprod_ext.peer_text import printable

Encode = Callable[[Any], bytes]
_NEEDED = "pip install 'kprod[schema]'"


class Encoding(Protocol):
    """Immutable; it pickles, so that one process may ask the registry and others encode."""

    def encoder(self, prefix: bytes) -> Encode:
        """A function from an object to ``prefix`` and its bytes; it raises as the library does.

        Raises ConfigError for a schema that cannot be used.
        """
        ...


def parsed_json(text: str) -> Any:
    """A schema's JSON. Raises ConfigError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unusable(error) from None


def unusable(error: Exception) -> ConfigError:
    """The error about a schema, in one line: its text may come from a registry."""
    return ConfigError(f"schema: {type(error).__name__}: {printable(str(error))}")


@dataclass(frozen=True, slots=True)
class AvroEncoding:
    """Avro by fastavro, or by the compiled encoder. ``text`` defines all types that it names."""

    text: str

    def encoder(self, prefix: bytes) -> Encode:
        """See ``Encoding``."""
        from fastavro import schemaless_writer

        schema, fields = self.parsed(), self.flat_fields()

        def encode(data: Any) -> bytes:
            buffer = BytesIO()
            buffer.write(prefix)
            schemaless_writer(buffer, schema, data)
            return buffer.getvalue()

        return encode if fields is None else FlatRecordEncoder(fields, prefix, encode).encode

    def flat_fields(self) -> list[FlatField] | None:
        """The fields of a record that the compiled encoders write. Raises ConfigError."""
        return flat_fields(self.parsed())

    def parsed(self) -> Any:
        """The schema as fastavro writes with it. Raises ConfigError."""
        try:
            from fastavro import parse_schema
        except ImportError:
            raise ConfigError(f"Avro needs fastavro: {_NEEDED}") from None
        try:
            return parse_schema(json.loads(self.text))
        except Exception as error:  # one of fastavro's many
            raise unusable(error) from error


@dataclass(frozen=True, slots=True)
class JsonEncoding:
    """JSON in UTF-8, held to a JSON Schema; ``resources`` are what its ``$ref`` name, by URI."""

    text: str
    resources: tuple[tuple[str, str], ...] = ()
    validate: bool = True

    def encoder(self, prefix: bytes) -> Encode:
        """See ``Encoding``."""
        check = self.validator().validate if self.validate else None

        def encode(data: Any) -> bytes:
            if check is not None:
                check(data)
            text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
            return prefix + text.encode()

        return encode

    def validator(self) -> Any:
        """By the rules of the schema's ``$schema``. Raises ConfigError."""
        try:
            from jsonschema import Draft202012Validator, SchemaError
            from jsonschema.validators import validator_for
            from referencing import Registry
        except ImportError:
            raise ConfigError(f"JSON Schema needs jsonschema: {_NEEDED}") from None
        schema = parsed_json(self.text)
        kind = validator_for(schema, default=Draft202012Validator)
        try:
            kind.check_schema(schema)
        except SchemaError as error:
            raise ConfigError(f"schema: {printable(error.message)}") from None
        except RecursionError as error:
            raise unusable(error) from None
        try:
            known: Any = Registry().with_resources(_by_uri(schema, self.resources))
        except (AttributeError, TypeError, ValueError) as error:  # an $id that is no URI
            raise unusable(error) from None
        return kind(schema, registry=known)


def _by_uri(schema: Any, resources: tuple[tuple[str, str], ...]) -> list[tuple[str, Any]]:
    """The resources by the names that ``$ref`` has, and by the URIs that these stand for.

    A relative URI counts from the URI of the schema it stands in.
    """
    from referencing import Resource
    from referencing.jsonschema import DRAFT202012

    known: dict[str, Any] = {
        uri: Resource.from_contents(parsed_json(found), default_specification=DRAFT202012)
        for uri, found in resources
    }
    root: Any = Resource.from_contents(schema, default_specification=DRAFT202012)
    bases = [base for each in (root, *known.values()) if (base := each.id())]
    return [(urljoin(base, uri), each) for base in ("", *bases) for uri, each in known.items()]


@dataclass(frozen=True, slots=True)
class ProtobufEncoding:
    """Protobuf: the message ``name``, from descriptors of ``files`` in the order of their imports.

    Takes dicts of the message's fields.
    """

    files: tuple[bytes, ...]
    name: str

    def encoder(self, prefix: bytes) -> Encode:
        """See ``Encoding``."""
        kind = _message_class(self)

        def encode(data: Any) -> bytes:
            return prefix + kind(**data).SerializeToString()  # type: ignore[no-any-return]

        return encode


@cache
def _message_class(encoding: ProtobufEncoding) -> Any:
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    pool = DescriptorPool()
    for file in encoding.files:
        pool.AddSerializedFile(file)
    return GetMessageClass(pool.FindMessageTypeByName(encoding.name))
