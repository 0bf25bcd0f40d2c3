"""How a column becomes the bytes of a key or a value.

Avro, Protobuf and JSON are framed as Confluent's deserializers expect. The driver asks the registry
(``registered_values``); the tasks encode, and need none.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

import pyarrow as pa
from pyarrow import compute

from kprod.config.secret import Secret, exposed
from kprod.errors import ConfigError, KprodError, RecordTypeError, SerializationError
from kprod.schema import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    RegisteredSchema,
    Schema,
    SchemaRegistry,
)
from kprod.schema.encoding import AvroEncoding, Encode, Encoding, JsonEncoding, ProtobufEncoding
from kprod.schema.wire_format import id_bytes
from kprod.spark.columns.arrow_kinds import (
    is_bytes,
    is_list,
    is_payload,
    is_text,
    plain_kind,
    plain_values,
    python_cells,
)
from kprod.spark.columns.avro_columns import avro_encoder
from kprod.spark.columns.json_values import json_writer

RegisteredKind: TypeAlias = Literal["avro", "protobuf", "json_schema"]


Encoded: TypeAlias = tuple[Any, Mapping[int, KprodError]]
"""A column of bytes or text, and why rows of it could not be written, by number."""
Convert: TypeAlias = Callable[[Any], Encoded]
"""Null stays null, and a row that could not be written is null."""


@dataclass(frozen=True, slots=True)
class EncodedValues:
    """The encoder of a cell, and the bytes before each result. Immutable; it pickles."""

    encoding: Encoding
    prefix: bytes = b""

    def encode(self, column: Any) -> Encoded:
        """A column of ``large_binary``; when its type does not fit, no row could be written."""
        try:
            convert = self.converter(column.type)
        except RecordTypeError as error:
            rows = compute.indices_nonzero(column.is_valid()).to_pylist()
            faults = {row: SerializationError(str(error)) for row in rows}
            return pa.nulls(len(column), pa.large_binary()), faults
        return convert(column)

    def converter(self, kind: Any) -> Convert:
        """What encodes columns of that type. Raises RecordTypeError when they do not fit."""
        encoding, prefix = self.encoding, self.prefix
        if isinstance(encoding, AvroEncoding):
            avro = avro_encoder(encoding, kind)
            return lambda column: avro.encode(column, prefix)
        if isinstance(encoding, JsonEncoding):
            write, from_text = json_writer(kind), encoding.text_encoder(prefix)
            return lambda column: _each(write(column).to_pylist(), from_text)
        if isinstance(encoding, ProtobufEncoding):
            check_message(encoding.message_class().DESCRIPTOR, kind)
        encode = encoding.encoder(prefix)
        return lambda column: _each(python_cells(plain_values(column)), encode)


def _each(cells: Iterable[Any], encode: Encode) -> Encoded:
    """Cells one by one; an exception among them says why there is no cell."""
    encoded: list[bytes | None] = []
    faults: dict[int, KprodError] = {}
    for row, cell in enumerate(cells):
        data = None
        try:
            if isinstance(cell, Exception):
                raise cell
            data = None if cell is None else encode(cell)
        except Exception as error:  # whatever the format's library raises
            faults[row] = SerializationError(
                f"the value does not fit the schema: {type(error).__name__}: {error}"
            )
        encoded.append(data)
    return pa.array(encoded, pa.large_binary()), faults


def plain_avro(text: str, schema_id: int | None) -> EncodedValues:
    """Avro with a schema and an id that the application knows; without an id there is no frame.

    Raises ConfigError when it is no Avro schema, or fastavro is not installed.
    """
    encoding = AvroEncoding(text, bare_bytes=schema_id is not None)
    try:
        encoding.parsed()
    except ConfigError as error:
        raise ConfigError(f"avro_schema: {error}") from error
    known = RegisteredSchema(Schema(text), schema_id or 0)
    return EncodedValues(encoding, b"" if schema_id is None else id_bytes(known))


def registered_values(
    kind: RegisteredKind, subject: str, registry: SchemaRegistry | Secret | str, schema: Any
) -> EncodedValues:
    """Values with a schema of a registry, which is asked now, on the driver.

    ``schema`` is registered under ``subject`` unless it is there; None means the subject's latest.
    For Protobuf it is the class of messages, or where it is, as ``"package.module:Order"``. Raises
    ConfigError and what the registry refuses.
    """
    if isinstance(registry, str | Secret):  # its address
        registry = SchemaRegistry(exposed(registry))
    options: dict[str, Any] = {
        "subject": lambda _topic, _is_key, _name: subject,
        "use_latest_version": schema is None,
    }
    serializer: AvroSerializer | JsonSchemaSerializer | ProtobufSerializer
    if kind == "protobuf":
        serializer = ProtobufSerializer(registry, _message(schema), **options)
    elif kind == "avro":
        serializer = AvroSerializer(registry, schema, **options)
    else:
        serializer = JsonSchemaSerializer(registry, schema, **options)
    return EncodedValues(*serializer.fixed(""))


def _message(given: Any) -> Any:
    if given is None:
        raise ConfigError('value_format="protobuf" needs protobuf_message, a class of messages')
    if not isinstance(given, str):
        return given
    module, _, name = given.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"protobuf_message: expected package.module:Class, got {given!r}: {error}"
        ) from None


Kind = Literal["binary", "json", "avro", "protobuf", "json_schema"]


@dataclass(frozen=True, slots=True)
class PayloadFormat:
    """``binary``: bytes and text as they are; the others: anything. Immutable."""

    kind: Kind = "binary"
    encoded: EncodedValues | None = None

    def converter(self, what: str, kind: Any) -> Convert:
        """What makes of columns of an Arrow type those that ``send_arrow`` takes.

        Raises RecordTypeError, which begins with ``what``, when the type has no such form.
        """
        try:
            if self.encoded is not None:
                return self.encoded.converter(kind)
            if is_payload(kind):
                return lambda column: (plain_values(column), {})
            if self.kind == "json":
                write = json_writer(kind)
                return lambda column: (write(column), {})
        except RecordTypeError as error:
            raise RecordTypeError(f"{what}: {error}") from None
        raise RecordTypeError(
            f"{what} must be string or binary, not {kind}: cast it, or give it the format json"
        )


SCHEMAS = {"avro": "avro_schema", "json_schema": "json_schema", "protobuf": "protobuf_message"}
"""The option with the schema of each format that has one."""


def key_format(kind: str) -> PayloadFormat:
    """How keys become bytes. Raises ConfigError."""
    return PayloadFormat(_checked("key", kind, ("binary", "json")))


def value_format(topic: str | None, options: Mapping[str, Any]) -> PayloadFormat:
    """How values become bytes, by the options of a writer.

    Raises ConfigError for what does not go together, and what a schema registry refuses.
    """
    kind = _checked("value", options.get("value_format", "binary"), get_args(Kind))
    given = {name for name, value in options.items() if value is not None}
    for other, name in SCHEMAS.items():
        if other != kind and name in given:
            raise ConfigError(f'{name} goes with value_format="{other}" only')
    if kind in SCHEMAS:
        return PayloadFormat(kind, _with_schema(kind, topic, options))
    if given & {"subject", "schema_registry", "schema_id"}:
        raise ConfigError(
            f"subject, schema_registry and schema_id go with value_format {', '.join(SCHEMAS)} only"
        )
    return PayloadFormat(kind)


def _checked(role: str, kind: Any, kinds: Sequence[str]) -> Kind:
    if kind not in kinds:
        raise ConfigError(f"{role}_format: expected one of {list(kinds)}; got {kind!r}")
    return cast(Kind, kind)


def _with_schema(kind: str, topic: str | None, options: Mapping[str, Any]) -> EncodedValues:
    schema, schema_id = options.get(SCHEMAS[kind]), options.get("schema_id")
    subject, registry = options.get("subject"), options.get("schema_registry")
    if registry is not None:
        if schema_id is not None:
            raise ConfigError("schema_id is what the registry says: give schema_registry, or an id")
        if subject is None and topic is None:
            raise ConfigError(
                "subject: it is TOPIC-value where one topic is written; rows that name theirs need"
                " a subject"
            )
        subject = f"{topic}-value" if subject is None else subject
        return registered_values(cast(RegisteredKind, kind), subject, registry, schema)
    if subject is not None:
        raise ConfigError("subject is a name in a registry: schema_registry is missing")
    if kind != "avro":
        raise ConfigError(f'value_format="{kind}" needs schema_registry')
    if schema is None:
        raise ConfigError(
            'value_format="avro" needs avro_schema, the schema as JSON text, or schema_registry'
        )
    return plain_avro(schema, schema_id)


TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"


def check_message(message: Any, kind: Any, path: str = "") -> None:
    """Raises RecordTypeError for a column that no field has, or that would be changed in one.

    ``message`` is a descriptor. A number that is too large for its field is a fault of its row.
    """
    kind = plain_kind(kind)
    if message.full_name in (TIMESTAMP, DURATION):
        moments = message.full_name == TIMESTAMP
        if not (pa.types.is_timestamp(kind) and kind.tz if moments else pa.types.is_duration(kind)):
            raise _unfit(path, kind, message.full_name)
        return
    if not pa.types.is_struct(kind):
        raise _unfit(path, kind, f"message {message.full_name}")
    for column in kind:
        inside = f"{path}.{column.name}" if path else column.name
        field = message.fields_by_name.get(column.name)
        if field is None:
            fields = sorted(message.fields_by_name)
            raise RecordTypeError(f"{inside}: {message.full_name} has no such field, but {fields}")
        _check_field(field, plain_kind(column.type), inside)


def _check_field(field: Any, kind: Any, path: str) -> None:
    if pa.types.is_null(kind):
        return
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        if not pa.types.is_map(kind):
            raise _unfit(path, kind, "map")
        _check_one(entry.fields_by_name["key"], plain_kind(kind.key_type), f"{path}[key]")
        _check_one(entry.fields_by_name["value"], plain_kind(kind.item_type), f"{path}[]")
    elif _is_repeated(field):
        if not is_list(kind):
            raise _unfit(path, kind, "repeated field")
        _check_one(field, plain_kind(kind.value_type), f"{path}[]")
    else:
        _check_one(field, kind, path)


def _is_repeated(field: Any) -> bool:
    known = getattr(field, "is_repeated", None)  # protobuf 5 has the label instead
    return bool(field.label == field.LABEL_REPEATED if known is None else known)


def _check_one(field: Any, kind: Any, path: str) -> None:
    if field.message_type is not None:
        check_message(field.message_type, kind, path)
        return
    name, fits = _FITS[field.cpp_type]
    if field.type == field.TYPE_BYTES:
        name, fits = "bytes", is_bytes
    if not fits(kind):
        raise _unfit(path, kind, name)


def _is_exact(bits_of_float: int, bits_of_integer: int) -> Callable[[Any], bool]:
    """Floats of at most so many bits, and integers that those have exactly."""

    def fits(kind: Any) -> bool:
        if pa.types.is_integer(kind):
            return bool(kind.bit_width <= bits_of_integer)
        return bool(pa.types.is_floating(kind) and kind.bit_width <= bits_of_float)

    return fits


_FITS: dict[int, tuple[str, Callable[[Any], bool]]] = {
    1: ("int32", pa.types.is_integer),
    2: ("int64", pa.types.is_integer),
    3: ("uint32", pa.types.is_integer),
    4: ("uint64", pa.types.is_integer),
    5: ("double", _is_exact(64, 32)),
    6: ("float", _is_exact(32, 16)),
    7: ("bool", pa.types.is_boolean),
    8: ("enum", lambda kind: is_text(kind) or pa.types.is_integer(kind)),
    9: ("string", is_text),
}
"""By the number of a field's type in C++, as descriptors have it."""


def _unfit(path: str, kind: Any, wanted: str) -> RecordTypeError:
    return RecordTypeError(
        f"{path or 'the value'}: {kind} does not fit into a field of type {wanted}"
    )
