"""Protobuf, by its own package"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kprod.errors import ConfigError
from kprod.schema.encoding import Encode, ProtobufEncoding
from kprod.schema.registry import SchemaRegistry
from kprod.schema.schema import RegisteredSchema, Schema, SchemaReference
from kprod.schema.serializer import SchemaSerializer
from kprod.schema.wire_format import message_indexes

_BUILT_IN = "google/protobuf/"


class ProtobufSerializer(SchemaSerializer):
    """Writes messages of one generated class, or dicts of its fields.

    The schema is the class's ``.proto`` file, as its descriptor. Files that it imports are
    registered before it, each under ``import_subject(path)`` (its path, as in Confluent's
    serializers), but for ``google/protobuf/*``, which every registry knows. The options, and what
    is raised when, are those of ``SchemaSerializer``. Raises ConfigError for what is no class of
    messages.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        message: Any,
        *,
        import_subject: Callable[[str], str] = str,
        **options: Any,
    ) -> None:
        descriptor = getattr(message, "DESCRIPTOR", None)
        if not isinstance(message, type) or descriptor is None:
            raise ConfigError(
                f"message: expected a class that protoc has made, got {message!r}; is protobuf"
                " installed? pip install 'kprod[schema]'"
            )
        self._message: Any = message
        self._import_subject = import_subject
        self._name = str(descriptor.full_name)
        self._indexes = message_indexes(_path(descriptor))
        super().__init__(registry, Schema(_file_text(descriptor.file), "PROTOBUF"), **options)

    def registered(self, topic: str) -> RegisteredSchema:
        """See ``SchemaSerializer``; what the file imports comes first."""
        file = self._message.DESCRIPTOR.file
        if not self._use_latest:
            self._schema = Schema(_file_text(file), "PROTOBUF", tuple(self._imports(file)))
        return super().registered(topic)

    def _imports(self, file: Any) -> Iterator[SchemaReference]:
        for imported in file.dependencies:
            if imported.name.startswith(_BUILT_IN):
                continue
            subject = self._import_subject(imported.name)
            schema = Schema(_file_text(imported), "PROTOBUF", tuple(self._imports(imported)))
            ask = self._registry.register if self._auto_register else self._registry.look_up
            registered = ask(subject, schema, normalize=self._normalize)
            if registered.version is None:
                registered = self._registry.look_up(subject, schema, normalize=self._normalize)
            yield SchemaReference(imported.name, subject, registered.version or 1)

    def _record_name(self) -> str | None:
        return self._name

    def _id_suffix(self) -> bytes:
        return self._indexes

    def encoding(self, schema: Schema) -> ProtobufEncoding:
        """See ``SchemaSerializer``."""
        return ProtobufEncoding(tuple(_files(self._message.DESCRIPTOR.file, set())), self._name)

    def _encoder(self, prefix: bytes, schema: Schema) -> Encode:
        kind = self._message

        def encode(data: Any) -> bytes:
            if isinstance(data, Mapping):
                data = kind(**data)
            elif not isinstance(data, kind):
                raise TypeError(f"expected a {kind.__name__} or a dict of its fields")
            return prefix + data.SerializeToString()  # type: ignore[no-any-return]

        return encode


def _files(file: Any, seen: set[str]) -> Iterator[bytes]:
    """The descriptors of the file and of what it imports, each after what it imports itself."""
    if file.name not in seen:
        seen.add(file.name)
        for imported in file.dependencies:
            yield from _files(imported, seen)
        yield file.serialized_pb


def _file_text(file: Any) -> str:
    """The file's descriptor, as registries of Confluent's API take it."""
    return base64.b64encode(file.serialized_pb).decode()


def _path(descriptor: Any) -> list[int]:
    """Where a message is: its number in its file, or in the messages around it, outermost first."""
    around = descriptor.containing_type
    if around is None:
        return [list(descriptor.file.message_types_by_name.values()).index(descriptor)]
    return [*_path(around), list(around.nested_types).index(descriptor)]
