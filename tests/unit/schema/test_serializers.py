"""Objects become Avro, Protobuf and JSON with the id of their schema before them, or in a header"""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import fastavro
import pytest

from kprod.errors import ConfigError, SerializationError
from kprod.intake.serializers import WouldWait
from kprod.schema import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    SchemaNotFoundError,
    SchemaReference,
    SchemaRegistry,
)
from kprod.schema.wire_format import message_indexes
from tests.support.proto_messages import Customer, Order
from tests.support.schema_registry import FakeRegistry

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "namespace": "shop",
    "fields": [{"name": "name", "type": "string"}],
}
SALE = {
    "type": "record",
    "name": "Sale",
    "namespace": "shop",
    "fields": [
        {"name": "buyer", "type": "Customer"},
        {"name": "others", "type": {"type": "array", "items": "shop.Customer"}},
    ],
}


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry() as fake:
        yield fake


@pytest.fixture
def registry(fake: FakeRegistry) -> SchemaRegistry:
    return SchemaRegistry(fake.url)


def written(schema: Any, value: Any) -> bytes:
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, schema, value)
    return buffer.getvalue()


def test_avro(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    serializer = AvroSerializer(registry, ORDER)
    value = {"id": 7, "note": None}
    assert serializer.serialize("orders", [], value) == b"\0\0\0\0\1" + written(ORDER, value)
    assert serializer.serialize("orders", [], None) is None
    assert serializer.serialize("more", [], value) == b"\0\0\0\0\1" + written(ORDER, value)
    assert list(fake.subjects) == ["orders-value", "more-value"]
    assert len(fake.asked) == 2


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        ({}, "orders-value"),
        ({"is_key": True}, "orders-key"),
        ({"subject": "record_name"}, "shop.Order"),
        ({"subject": "topic_record_name"}, "orders-shop.Order"),
        (
            {"subject": lambda topic, is_key, name: f"{topic}/{is_key}/{name}"},
            "orders/False/shop.Order",
        ),
    ],
)
def test_subjects(
    fake: FakeRegistry, registry: SchemaRegistry, options: dict[str, Any], subject: str
) -> None:
    AvroSerializer(registry, ORDER, **options).serialize("orders", [], {"id": 7})
    assert list(fake.subjects) == [subject]


def test_a_schema_that_is_not_registered_is_not(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    serializer = AvroSerializer(registry, ORDER, auto_register=False)
    with pytest.raises(SchemaNotFoundError):
        serializer.serialize("orders", [], {"id": 7})
    assert fake.subjects == {}
    fake.register("orders-value", {"schema": json.dumps(ORDER)})
    assert serializer.serialize("orders", [], {"id": 7, "note": "x"}) is not None


def test_the_latest_version_is_written(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    fake.register("orders-value", {"schema": json.dumps(ORDER)})
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "sum", "type": "int", "default": 5}]}
    fake.register("orders-value", {"schema": json.dumps(newer)})
    serializer = AvroSerializer(registry, ORDER, use_latest_version=True)
    encoded = serializer.serialize("orders", [], {"id": 7, "note": None})
    assert encoded == b"\0\0\0\0\2" + written(newer, {"id": 7, "note": None, "sum": 5})
    without_schema = AvroSerializer(registry, use_latest_version=True)
    assert without_schema.serialize("orders", [], {"id": 7, "note": None}) == encoded


def test_the_latest_schema_is_asked_for_when_it_is_too_old(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    """Also by a topic that began with what the registry had told for another one."""
    fake.register("shop.Order", {"schema": json.dumps(ORDER)})
    serializer = AvroSerializer(
        registry, ORDER, use_latest_version=True, latest_max_age_ms=1000, subject="record_name"
    )
    serializer.serialize("one", [], {"id": 7, "note": None})
    began = time.monotonic()
    for passed in (0.5, 1.05):
        time.sleep(max(0.0, began + passed - time.monotonic()))
        serializer.serialize("other", [], {"id": 7, "note": None})
    assert len(fake.asked) >= 2


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((AvroSerializer, text) for text in ("nonsense\x1b[31m", DEEP, '"\\u001b[31m\\n"', "{}")),
        *((JsonSchemaSerializer, text) for text in ("nonsense", DEEP, '{"type": "\\u001b[31m"}')),
        *((kind, '"int"') for kind in (AvroSerializer, JsonSchemaSerializer)),
    ],
)
def test_what_a_registry_has_may_be_no_schema(
    fake: FakeRegistry, registry: SchemaRegistry, kind: Any, text: str
) -> None:
    """Its text is told in one line; the last two refer to what is no schema."""
    reference = {"name": "R", "subject": "r", "version": 1}
    fake.register("r", {"schema": DEEP})
    fake.register("orders-value", {"schema": text, "references": [reference]})
    with pytest.raises(ConfigError) as raised:
        kind(registry, use_latest_version=True).serialize("orders", [], 5)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 1200


def test_references_are_followed(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    fake.register("customers", {"schema": json.dumps(CUSTOMER)})
    references = [SchemaReference("shop.Customer", "customers", 1)]
    serializer = AvroSerializer(registry, SALE, references=references)
    value = {"buyer": {"name": "a"}, "others": [{"name": "b"}]}
    assert serializer.serialize("sales", [], value) == b"\0\0\0\0\2\x02a\x02\x02b\0"
    union = AvroSerializer(registry, ["null", "shop.Customer"], references=references)
    assert union.serialize("either", [], {"name": "c"}) == b"\0\0\0\0\3\x02\x02c"
    latest = AvroSerializer(registry, use_latest_version=True)
    assert latest.serialize("sales", [], value) == serializer.serialize("sales", [], value)


def test_what_does_not_fit(registry: SchemaRegistry) -> None:
    with pytest.raises(ValueError, match=r"id|dict"):
        AvroSerializer(registry, ORDER).serialize("orders", [], {"note": "no id"})
    jsons = JsonSchemaSerializer(registry, {"type": "object", "required": ["id"]})
    with pytest.raises(Exception, match="'id' is a required property"):
        jsons.serialize("jsons", [], {})
    with pytest.raises(TypeError, match="expected a Order or a dict"):
        ProtobufSerializer(registry, Order).serialize("protos", [], Customer())


def test_json_schema(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    fake.register("customers", {"schema": '{"type": "string"}', "schemaType": "JSON"})
    schema = {"title": "Sale", "properties": {"who": {"$ref": "customer.json"}}}
    references = [SchemaReference("customer.json", "customers", 1)]
    serializer = JsonSchemaSerializer(
        registry, schema, references=references, subject="topic_record_name", to_dict=vars
    )

    class Sale:
        def __init__(self, who: Any) -> None:
            self.who = who

    assert serializer.serialize("t", [], Sale("é")) == '\0\0\0\0\2{"who":"é"}'.encode()
    assert list(fake.subjects) == ["customers", "t-Sale"]
    with pytest.raises(Exception, match="5 is not of type 'string'"):
        serializer.serialize("t", [], Sale(5))
    careless = JsonSchemaSerializer(registry, schema, references=references, validate=False)
    assert careless.serialize("t", [], {"who": 5}) == b'\0\0\0\0\2{"who":5}'


def test_references_of_json_count_from_the_schema_that_has_them(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    street = {"$id": "https://shop.example/parts/street.json", "type": "string"}
    place = {
        "$id": "https://shop.example/parts/place.json",
        "properties": {"street": {"$ref": "street.json"}},
    }
    of_place = [{"name": "street.json", "subject": "street", "version": 1}]
    fake.register("street", {"schema": json.dumps(street), "schemaType": "JSON"})
    fake.register(
        "place", {"schema": json.dumps(place), "schemaType": "JSON", "references": of_place}
    )
    order = {
        "$id": "https://shop.example/order.json",
        "properties": {"to": {"$ref": "parts/place.json"}, "next": {"$ref": "order.json"}},
    }
    serializer = JsonSchemaSerializer(
        registry, order, references=[SchemaReference("parts/place.json", "place", 1)]
    )
    assert serializer.serialize("t", [], {"to": {"street": "x"}, "next": {}}) is not None
    with pytest.raises(Exception, match="5 is not of type 'string'"):
        serializer.serialize("t", [], {"next": {"to": {"street": 5}}})
    fake.register("odd", {"schema": '{"$id": 5}', "schemaType": "JSON"})
    odd = JsonSchemaSerializer(registry, order, references=[SchemaReference("odd", "odd", 1)])
    with pytest.raises(ConfigError, match="schema: "):
        odd.serialize("odd", [], {})


def test_protobuf(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    serializer = ProtobufSerializer(registry, Order)
    message = Order(id=5, buyer=Customer(name="a"))
    expected = b"\0\0\0\0\2" + b"\x02\x02" + message.SerializeToString()  # the second of its file
    assert serializer.serialize("orders", [], message) == expected
    assert serializer.serialize("orders", [], {"id": 5, "buyer": {"name": "a"}}) == expected
    assert list(fake.subjects) == ["shop/customer.proto", "orders-value"]
    assert fake.asked[-1].body["references"] == [
        {"name": "shop/customer.proto", "subject": "shop/customer.proto", "version": 1}
    ]
    first = ProtobufSerializer(registry, Customer, subject="record_name")
    assert first.serialize("t", [], Customer(name="a")) == b"\0\0\0\0\1\0" + b"\n\x01a"
    assert list(fake.subjects)[-1] == "shop.Customer"


@pytest.mark.parametrize(
    ("path", "encoded"), [([0], b"\0"), ([1], b"\2\2"), ([1, 0], b"\4\2\0"), ([100], b"\2\xc8\1")]
)
def test_paths_to_messages(path: list[int], encoded: bytes) -> None:
    assert message_indexes(path) == encoded


@pytest.mark.parametrize("guids", [False, True])
def test_an_id_in_a_header(guids: bool) -> None:
    with FakeRegistry(guids=guids) as fake:
        serializer = ProtobufSerializer(SchemaRegistry(fake.url), Order, id_in="header")
        headers: list[tuple[str, bytes]] = [("mine", b"1"), ("__value_schema_id", b"old")]
        payload = serializer.serialize("orders", headers, Order(id=5))
        assert payload == Order(id=5).SerializeToString()
        assert headers[0] == ("mine", b"1")
        name, value = headers[1]
        assert name == "__value_schema_id"
        assert value[:1] == (b"\1" if guids else b"\0")
        assert len(value) == (17 if guids else 5) + 2
        keys: dict[str, bytes] = {}
        serializer.role(is_key=True).serialize("orders", keys, Order(id=5))
        assert list(keys) == ["__key_schema_id"]
        with pytest.raises(SerializationError, match="headers as a list or dict, got NoneType"):
            serializer.serialize("orders", None, Order(id=5))


def test_in_a_loop_nobody_waits(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    serializer = AvroSerializer(registry, ORDER).without_waiting()
    with pytest.raises(WouldWait) as raised:
        serializer.serialize("orders", [], {"id": 7, "note": None})
    assert fake.asked == []
    raised.value.wait()
    assert serializer.serialize("orders", [], {"id": 7, "note": None}) is not None


def test_a_pickle_asks_again(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    serializer = AvroSerializer(registry, ORDER)
    encoded = serializer.serialize("orders", [], {"id": 7, "note": "x"})
    again = pickle.loads(pickle.dumps(serializer))
    assert again.serialize("orders", [], {"id": 7, "note": "x"}) == encoded
    assert len(fake.asked) == 2


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (AvroSerializer, "a schema is needed unless use_latest_version"),
        (lambda r: AvroSerializer(r, "{"), "the text is not JSON"),
        (lambda r: AvroSerializer(r, {"type": "recrod"}), "schema: "),
        (lambda r: JsonSchemaSerializer(r, "{"), "expected a JSON Schema"),
        (lambda r: JsonSchemaSerializer(r, {"type": 5}), "schema: "),
        (lambda r: ProtobufSerializer(r, dict), "expected a class that protoc has made"),
        (lambda r: AvroSerializer(r, ORDER, subject="topic"), "expected a callable or one of"),
        (lambda r: AvroSerializer(r, ORDER, id_in="body"), "id_in"),
        (
            lambda r: AvroSerializer(r, ORDER, use_latest_version=True, auto_register=True),
            "one of both",
        ),
        (
            lambda r: AvroSerializer(r, use_latest_version=True, latest_max_age_ms=1),
            "latest_max_age_ms",
        ),
        (lambda r: AvroSerializer(r, ORDER)({}), "the topic is needed"),
        (
            lambda r: AvroSerializer(r, '"string"', subject="record_name").serialize("t", [], ""),
            "needs a schema with a name",
        ),
    ],
)
def test_options_that_cannot_be(registry: SchemaRegistry, make: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make(registry)
