"""Avro, Protobuf and JSON Schema serializers."""

from __future__ import annotations

import json
import pickle
import time
from io import BytesIO
from typing import Any

import fastavro
import numpy
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from kprod.errors import ConfigError, SerializationError
from kprod.schema import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    RegistryError,
    SchemaNotFoundError,
    SchemaReference,
    SchemaRegistry,
)
from kprod.schema.wire_format import message_indexes
from tests.support.proto_messages import Customer, Order
from tests.support.schema_registry import FakeRegistry


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    pairs = [{"name": each, "type": kind} for each, kind in fields.items()]
    return {"type": "record", "name": name, "namespace": "shop", "fields": pairs}


ORDER = record("Order", id="long", note=["null", "string"])
CUSTOMER = record("Customer", name="string")
SALE = record("Sale", buyer="Customer", others={"type": "array", "items": "shop.Customer"})
VALUE = {"id": 7, "note": None}


@pytest.fixture
def registry(fake: FakeRegistry) -> SchemaRegistry:
    return SchemaRegistry(fake.url)


def written(schema: Any, value: Any) -> bytes:
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, schema, value)
    return buffer.getvalue()


def test_avro_follows_its_schema_id(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    serializer = AvroSerializer(registry, ORDER)
    for topic in ("orders", "more"):
        encoded = serializer.serialize(topic, [], VALUE)
        assert encoded == b"\0\0\0\0\1" + written(ORDER, VALUE)
    assert serializer.serialize("orders", [], None) is None
    assert list(fake.subjects) == ["orders-value", "more-value"]
    assert len(fake.asked) == 2


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        ({}, "orders-value"),
        ({"is_key": True}, "orders-key"),
        ({"subject": "record_name"}, "shop.Order"),
        ({"subject": "topic_record_name"}, "orders-shop.Order"),
        ({"subject": lambda *given: "/".join(map(str, given))}, "orders/False/shop.Order"),
    ],
)
def test_the_subject_follows_the_naming_strategy(
    fake: FakeRegistry, registry: SchemaRegistry, options: dict[str, Any], subject: str
) -> None:
    AvroSerializer(registry, ORDER, **options).serialize("orders", [], {"id": 7})
    assert list(fake.subjects) == [subject]


def test_without_auto_register_an_unknown_schema_is_an_error(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    serializer = AvroSerializer(registry, ORDER, auto_register=False)
    with pytest.raises(SchemaNotFoundError):
        serializer.serialize("orders", [], {"id": 7})
    assert fake.subjects == {}
    fake.register("orders-value", {"schema": json.dumps(ORDER)})
    assert serializer.serialize("orders", [], {"id": 7, "note": "x"}) is not None


def test_the_latest_registered_schema_is_used(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    fake.register("orders-value", {"schema": json.dumps(ORDER)})
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "sum", "type": "int", "default": 5}]}
    fake.register("orders-value", {"schema": json.dumps(newer)})
    serializer = AvroSerializer(registry, ORDER, use_latest_version=True)
    encoded = serializer.serialize("orders", [], VALUE)
    assert encoded == b"\0\0\0\0\2" + written(newer, {"id": 7, "note": None, "sum": 5})
    without_schema = AvroSerializer(registry, use_latest_version=True)
    assert without_schema.serialize("orders", [], VALUE) == encoded


def test_the_latest_schema_is_fetched_again_after_its_max_age(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    """Also for a topic that began with the cached answer of another one."""
    fake.register("shop.Order", {"schema": json.dumps(ORDER)})
    serializer = AvroSerializer(
        registry, ORDER, use_latest_version=True, latest_max_age_ms=1000, subject="record_name"
    )
    serializer.serialize("one", [], VALUE)
    began = time.monotonic()
    for passed in (0.5, 1.05):
        time.sleep(max(0.0, began + passed - time.monotonic()))
        serializer.serialize("other", [], VALUE)
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
def test_an_invalid_schema_in_the_registry_is_reported_in_one_short_line(
    fake: FakeRegistry, registry: SchemaRegistry, kind: Any, text: str
) -> None:
    """The last two refer to an invalid schema."""
    reference = {"name": "R", "subject": "r", "version": 1}
    fake.register("r", {"schema": DEEP})
    fake.register("orders-value", {"schema": text, "references": [reference]})
    with pytest.raises(ConfigError) as raised:
        kind(registry, use_latest_version=True).serialize("orders", [], 5)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 1200


def test_avro_references_are_resolved(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    fake.register("customers", {"schema": json.dumps(CUSTOMER)})
    references = [SchemaReference("shop.Customer", "customers", 1)]
    serializer = AvroSerializer(registry, SALE, references=references)
    value = {"buyer": {"name": "a"}, "others": [{"name": "b"}]}
    assert serializer.serialize("sales", [], value) == b"\0\0\0\0\2\x02a\x02\x02b\0"
    union = AvroSerializer(registry, ["null", "shop.Customer"], references=references)
    assert union.serialize("either", [], {"name": "c"}) == b"\0\0\0\0\3\x02\x02c"
    latest = AvroSerializer(registry, use_latest_version=True)
    assert latest.serialize("sales", [], value) == serializer.serialize("sales", [], value)


def json_schema(fake: FakeRegistry, subject: str, schema: Any, **more: Any) -> None:
    fake.register(subject, {"schema": json.dumps(schema), "schemaType": "JSON", **more})


def test_json_values_are_validated(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    json_schema(fake, "customers", {"type": "string"})
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
    unchecked = JsonSchemaSerializer(registry, schema, references=references, validate=False)
    assert unchecked.serialize("t", [], {"who": 5}) == b'\0\0\0\0\2{"who":5}'


def test_json_references_are_relative_to_their_schema(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    shop = "https://shop.example"
    of_place = [{"name": "street.json", "subject": "street", "version": 1}]
    json_schema(fake, "street", {"$id": f"{shop}/parts/street.json", "type": "string"})
    place = {"$id": f"{shop}/parts/place.json", "properties": {"street": {"$ref": "street.json"}}}
    json_schema(fake, "place", place, references=of_place)
    linked = {"to": {"$ref": "parts/place.json"}, "next": {"$ref": "order.json"}}
    order = {"$id": f"{shop}/order.json", "properties": linked}
    serializer = JsonSchemaSerializer(
        registry, order, references=[SchemaReference("parts/place.json", "place", 1)]
    )
    assert serializer.serialize("t", [], {"to": {"street": "x"}, "next": {}}) is not None
    with pytest.raises(Exception, match="5 is not of type 'string'"):
        serializer.serialize("t", [], {"next": {"to": {"street": 5}}})
    json_schema(fake, "odd", {"$id": 5})
    odd = JsonSchemaSerializer(registry, order, references=[SchemaReference("odd", "odd", 1)])
    with pytest.raises(ConfigError, match="schema: "):
        odd.serialize("odd", [], {})


def test_protobuf_follows_its_schema_id(fake: FakeRegistry, registry: SchemaRegistry) -> None:
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
    by_name = ProtobufSerializer(registry, Customer, to_dict=lambda name: {"name": name})
    assert by_name.serialize("t", [], "a") == b"\0\0\0\0\1\0" + b"\n\x01a"


@pytest.mark.parametrize(
    ("path", "encoded"), [([0], b"\0"), ([1], b"\2\2"), ([1, 0], b"\4\2\0"), ([100], b"\2\xc8\1")]
)
def test_message_indexes_are_encoded_as_confluent_does(path: list[int], encoded: bytes) -> None:
    assert message_indexes(path) == encoded


@pytest.mark.parametrize("guids", [False, True])
def test_the_schema_id_can_be_in_a_header(guids: bool) -> None:
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


def test_a_pickle_registers_its_schema_again(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    serializer = AvroSerializer(registry, ORDER)
    encoded = serializer.serialize("orders", [], {"id": 7, "note": "x"})
    again = pickle.loads(pickle.dumps(serializer))
    assert again.serialize("orders", [], {"id": 7, "note": "x"}) == encoded
    assert len(fake.asked) == 2


LATEST: dict[str, Any] = {"use_latest_version": True}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (AvroSerializer, "a schema is needed unless use_latest_version"),
        (lambda r: AvroSerializer(r, "{"), "the text is not JSON"),
        (lambda r: AvroSerializer(r, {"type": "recrod"}), "schema: "),
        (lambda r: JsonSchemaSerializer(r, "{"), "expected a JSON Schema"),
        (lambda r: JsonSchemaSerializer(r, {"type": 5}), "schema: "),
        (lambda r: ProtobufSerializer(r, dict), "expected a class generated by protoc"),
        (lambda r: AvroSerializer(r, ORDER, subject="topic"), "expected a callable or one of"),
        (lambda r: AvroSerializer(r, ORDER, id_in="body"), "id_in"),
        (lambda r: AvroSerializer(r, ORDER, **LATEST, auto_register=True), "cannot be used togeth"),
        (lambda r: AvroSerializer(r, **LATEST, latest_max_age_ms=1), "latest_max_age_ms"),
        (lambda r: AvroSerializer(r, ORDER)({}), "the topic is needed"),
        (lambda r: AvroSerializer(r, '"int"', subject="record_name").fixed("t"), "with a name"),
    ],
)
def test_invalid_options_are_refused(registry: SchemaRegistry, make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(registry)


def rule(**changes: Any) -> dict[str, Any]:
    return {"name": "hide", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD", **changes}


KINDS: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "avro": (AvroSerializer, {"schema": json.dumps(ORDER)}, VALUE),
    "json": (JsonSchemaSerializer, {"schema": "{}", "schemaType": "JSON"}, {"id": 7}),
    "protobuf": (
        lambda registry, **options: ProtobufSerializer(registry, Order, **options),
        {"schema": "message Order {}", "schemaType": "PROTOBUF"},
        {"id": 7},
    ),
}


FOR_WRITERS: list[Any] = [
    {"domainRules": [rule()]},
    {"domainRules": [rule(mode="READ"), rule(mode="WRITE", kind="CONDITION", type="CEL")]},
    {"encodingRules": [rule()]},
    {"domainRules": [rule(mode="A_MODE_OF_THE_FUTURE")]},
]
FOR_READERS: list[Any] = [
    *(None, {}, {"domainRules": None, "encodingRules": []}),
    {"domainRules": [rule(mode="READ"), rule(disabled=True)]},
    {"migrationRules": [rule(mode="UPGRADE", type="JSONATA")]},
]
UNREADABLE: list[Any] = [7, {"domainRules": 7}, {"domainRules": [7]}]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rules", FOR_WRITERS)
def test_schema_rules_for_writers_are_refused(
    fake: FakeRegistry, registry: SchemaRegistry, kind: str, rules: Any
) -> None:
    make, schema, value = KINDS[kind]
    fake.register("orders-value", {**schema, "ruleSet": rules})
    serializer = make(registry, use_latest_version=True)
    for _ in range(2):  # the second time from the cache
        with pytest.raises(ConfigError, match=r"'orders-value'.* rule 'hide' \((ENCRYPT|CEL)\)"):
            serializer.serialize("orders", [], value)
    with pytest.raises(ConfigError, match="'hide'"):
        serializer.fixed("orders")  # what Spark's driver asks


@pytest.mark.parametrize("rules", [*FOR_READERS, *UNREADABLE])
def test_schema_rules_for_readers_are_ignored_and_unreadable_rules_refused(
    fake: FakeRegistry, registry: SchemaRegistry, rules: Any
) -> None:
    metadata = {"properties": {"owner": "shop"}, "sensitive": ["owner"]}
    known = {"schema": json.dumps(ORDER), "ruleSet": rules, "metadata": metadata}
    fake.register("orders-value", known)
    serializer = AvroSerializer(registry, use_latest_version=True)
    if rules in UNREADABLE:
        with pytest.raises(RegistryError, match="no readable ruleSet"):
            serializer.serialize("orders", [], VALUE)
    else:
        assert serializer.serialize("orders", [], VALUE) is not None


@pytest.mark.parametrize("method", ["register", "look up"])
def test_schema_rules_that_the_registry_adds_are_refused(
    fake: FakeRegistry, registry: SchemaRegistry, method: str
) -> None:
    """A registry copies the rules of the previous version and returns them."""
    fake.odd = lambda _asked: (200, {"id": 1, "version": 2, "ruleSet": {"domainRules": [rule()]}})
    serializer = AvroSerializer(registry, ORDER, auto_register=method == "register")
    with pytest.raises(ConfigError, match="'hide'"):
        serializer.serialize("orders", [], {"id": 7})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_a_subject_with_another_schema_type_is_refused(
    fake: FakeRegistry, registry: SchemaRegistry, kind: str, other: str
) -> None:
    make, _, value = KINDS[kind]
    fake.register("orders-value", KINDS[other][1])
    serializer = make(registry, use_latest_version=True)
    if kind == other:
        assert serializer.serialize("orders", [], value) is not None
        return
    with pytest.raises(ConfigError, match=f"'orders-value' has a schema of type {other.upper()}"):
        serializer.serialize("orders", [], value)


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_a_reference_to_another_schema_type_is_refused(
    fake: FakeRegistry, registry: SchemaRegistry, kind: str
) -> None:
    make, _, value = KINDS[kind]
    fake.register("customer", {"schema": "message Order {}", "schemaType": "PROTOBUF"})
    schema = {"avro": SALE, "json": {"$ref": "customer.json"}}[kind]
    serializer = make(registry, schema, references=[SchemaReference("customer", "customer", 1)])
    with pytest.raises(ConfigError, match="'customer' has a schema of type PROTOBUF"):
        serializer.serialize("sales", [], value)


@pytest.mark.parametrize("name", ["shop.Customer", "customer.avsc", "Customer"])
@pytest.mark.parametrize("first", ["to", "buyer"])
def test_types_nested_in_avro_references_are_defined(
    fake: FakeRegistry, registry: SchemaRegistry, name: str, first: str
) -> None:
    """A reference may have any name. Its types may be used before or after it."""
    address = record("Address", city="string")
    fake.register(
        "customer", {"schema": json.dumps(record("Customer", home=address, work="Address"))}
    )
    fields = {"to": "shop.Address", "buyer": "shop.Customer"}
    fields = {first: fields.pop(first), **fields}
    serializer = AvroSerializer(
        registry, record("Sale", **fields), references=[SchemaReference(name, "customer", 1)]
    )
    home = {"city": "Ulm"}
    value = {"to": home, "buyer": {"home": home, "work": home}}
    parts = {"to": b"\x06Ulm", "buyer": b"\x06Ulm\x06Ulm"}
    expected = b"".join(parts[each] for each in fields)
    assert serializer.serialize("sales", [], value) == b"\0\0\0\0\2" + expected


def test_avro_references_may_share_types(fake: FakeRegistry, registry: SchemaRegistry) -> None:
    address = record("Address", city="string")
    fake.register("customer", {"schema": json.dumps(record("Customer", home=address))})
    fake.register("shop", {"schema": json.dumps(record("Shop", place=address))})
    other = record("Address", town="string")
    fake.register("shop", {"schema": json.dumps(record("Shop", place=other))})
    sale = record("Sale", buyer="Customer", seller="Shop")

    def serializer(version: int) -> AvroSerializer:
        references = [
            SchemaReference("shop.Customer", "customer", 1),
            SchemaReference("shop.Shop", "shop", version),
        ]
        return AvroSerializer(registry, sale, references=references)

    value = {"buyer": {"home": {"city": "Ulm"}}, "seller": {"place": {"city": "Bad Urach"}}}
    written = serializer(1).serialize("sales", [], value)
    assert written is not None
    assert written.endswith(b"\x06Ulm\x12Bad Urach")
    fields = [*sale["fields"], {"name": "other", "type": other}]
    redefined = AvroSerializer(
        registry,
        {**sale, "fields": fields},
        references=[SchemaReference("c", "customer", 1), SchemaReference("s", "shop", 1)],
    )
    with pytest.raises(ConfigError, match=r"shop\.Address.* in two ways"):
        redefined.serialize("sales", [], value)
    with pytest.raises(ConfigError, match=r"shop\.Address.* in two ways"):
        serializer(2).serialize("sales", [], value)


def test_json_references_with_the_same_name_are_refused(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    person = {"properties": {"at": {"$ref": "place.json"}}}
    there = {"name": "place.json", "subject": "village", "version": 1}
    json_schema(fake, "town", {"type": "string"})
    json_schema(fake, "village", {"type": "integer"})
    json_schema(fake, "person", person, references=[there])
    serializer = JsonSchemaSerializer(
        registry,
        {"properties": {"of": {"$ref": "person.json"}, "at": {"$ref": "place.json"}}},
        references=[
            SchemaReference("person.json", "person", 1),
            SchemaReference("place.json", "town", 1),
        ],
    )
    with pytest.raises(ConfigError, match=r"'place\.json' .*'town'.*'village'|'village'.*'town'"):
        serializer.serialize("sales", [], {"at": "Ulm", "of": {"at": 7}})


def test_protobuf_files_known_to_every_registry_are_not_registered(
    fake: FakeRegistry, registry: SchemaRegistry
) -> None:
    """``google/type`` and ``confluent``, as ``google/protobuf``."""
    pool = DescriptorPool()
    bill = FileDescriptorProto(name="shop/bill.proto", package="shop", syntax="proto3")
    message = bill.message_type.add(name="Bill")
    for number, folder in enumerate(("google/type", "confluent"), 1):
        package = folder.replace("/", ".")
        file = FileDescriptorProto(name=f"{folder}/own.proto", package=package, syntax="proto3")
        file.message_type.add(name="Own")
        pool.AddSerializedFile(file.SerializeToString())
        bill.dependency.append(file.name)
        message.field.add(
            name=f"f{number}", number=number, type="TYPE_MESSAGE", type_name=f".{package}.Own"
        )
    pool.AddSerializedFile(bill.SerializeToString())
    kind = GetMessageClass(pool.FindMessageTypeByName("shop.Bill"))
    assert ProtobufSerializer(registry, kind).serialize("bills", [], {"f1": {}})
    assert list(fake.subjects) == ["bills-value"]
    assert "references" not in fake.asked[-1].body


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        *(("int", number) for number in (2**31, -(2**31) - 1, numpy.int64(2**31), 2.0**31)),
        *(("float", number) for number in (1e300, 2**128)),
    ],
)
def test_a_number_outside_the_range_of_its_avro_type_is_refused(
    registry: SchemaRegistry, kind: str, number: Any
) -> None:
    """fastavro writes it, and a Java reader gets another number."""
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": kind}]}
    other = {"type": "record", "name": "Other", "fields": [{"name": "y", "type": "double"}]}
    again = {"name": "next", "type": ["null", "R"]}
    cases: list[tuple[Any, Any]] = [
        *((kind, number), (["null", kind], number)),
        ({"type": "array", "items": kind}, [number]),
        ({"type": "map", "values": kind}, {"k": number}),
        (inner, {"x": number}),
        (["null", kind], None),  # in the record within it
        (["null", kind], (kind, number)),
        (["null", "string", "long", kind], (kind, number)),
        (["string", {"type": "array", "items": kind}], [number]),
        (["null", inner, other], {"x": number}),
        (["null", inner, other], ("Inner", {"x": number})),
    ]
    for within, value in cases:
        schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": within}, again]}
        data = {"f": value, "next": {"f": number, "next": None} if value is None else None}
        message = f"does not fit into an Avro {kind}|do not match"
        with pytest.raises((ValueError, OverflowError), match=message):
            AvroSerializer(registry, schema).serialize("t", [], data)


@pytest.mark.parametrize(
    ("branches", "data"),
    [
        (["float", "double"], 1e300),
        (["int", "long"], 2**31),
        (["int", "double"], 2**31),
        (["string", {"type": "array", "items": "int"}], [1]),
        (["null", "float"], float("inf")),
    ],
)
def test_a_union_uses_the_branch_whose_range_holds_the_number(
    registry: SchemaRegistry, branches: Any, data: Any
) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": branches}]}
    written = AvroSerializer(registry, schema).serialize("t", [], {"f": data})
    assert fastavro.schemaless_reader(BytesIO((written or b"")[5:]), schema, None) == {"f": data}


@pytest.mark.parametrize("data", [b"data", b"x" * 300])
def test_top_level_avro_bytes_have_no_length_prefix(registry: SchemaRegistry, data: bytes) -> None:
    """As with Confluent's serializers."""
    for schema in ('"bytes"', '{"type": "bytes"}'):
        written = AvroSerializer(registry, schema).serialize("t", [], data)
        assert (written or b"")[5:] == data


@pytest.mark.parametrize(
    ("rule", "number", "fits"),
    [
        ({"multipleOf": 0.01}, 19.99, True),
        ({"multipleOf": 0.01}, 19.999, False),
        ({"multipleOf": 0.01}, 1e300, True),
        ({"type": "integer"}, 5.0, True),
        ({"type": "integer"}, 5.5, False),
        ({"maximum": 0.3}, 0.1 + 0.2, False),
        ({"const": 1.0}, 1, True),
    ],
)
def test_json_schema_rules_compare_exact_decimal_numbers(
    registry: SchemaRegistry, rule: dict[str, Any], number: float, fits: bool
) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "number", **rule}}}
    serializer = JsonSchemaSerializer(registry, schema)
    if fits:
        written = serializer.serialize("t", [], {"x": number})
        assert (written or b"")[5:] == json.dumps({"x": number}, separators=(",", ":")).encode()
    else:
        with pytest.raises(Exception, match=r"is not|greater"):
            serializer.serialize("t", [], {"x": number})
