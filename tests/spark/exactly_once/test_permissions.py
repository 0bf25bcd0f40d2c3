"""The documented permissions with Apache Kafka's authorizer: all of them, or all but one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from kprod.errors import KprodError
from kprod.exactly_once import atomic, protocol
from kprod.exactly_once.shard import PREFIX, Shard
from kprod.spark.job_tasks import BatchEnd, is_fatal
from kprod.spark.options import job_options
from tests.spark.exactly_once.attempts import attempt
from tests.support.apache_kafka.broker import ApacheKafka, Guards
from tests.support.apache_kafka.jars import NEWEST, OLDER
from tests.support.committed_records import committed
from tests.support.topic_admin import TopicAdmin

pytestmark = pytest.mark.full

PASSWORD = "canary-pa55word"
PREFIXED = ResourcePatternType.PREFIXED
ALLOW = AclPermissionType.ALLOW
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
GRANTS = {
    "transactional id": (ResourceType.TRANSACTIONAL_ID, f"{PREFIX}.", (WRITE, DESCRIBE)),
    "group": (ResourceType.GROUP, f"{PREFIX}.", (READ,)),
    "topic to write": (ResourceType.TOPIC, "allowed-", (WRITE,)),
    "topic to read": (ResourceType.TOPIC, "allowed-", (READ,)),
}
USERS = {"everything": "", **{f"all-but-{name.replace(' ', '-')}": name for name in GRANTS}}
"""Users, and the grant that each of them lacks."""
JAAS = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
GUARDS = Guards(
    {"PLAIN": "SASL_PLAINTEXT"},
    {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {JAAS};"
        ),
    },
    [],
)
ROWS = [b"first", b"second"]


@pytest.fixture(scope="module", params=[NEWEST, OLDER])
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheKafka]:
    folder = tmp_path_factory.mktemp("kafka")
    with ApacheKafka(folder, request.param, guards=GUARDS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for granted in admin.create_acls(list(_bindings())).values():
            granted.result(30)
        yield broker


def _bindings() -> Iterator[AclBinding]:
    for user, lacked in USERS.items():
        for name, (kind, resource, operations) in GRANTS.items():
            for operation in operations if name != lacked else ():
                yield AclBinding(kind, resource, PREFIXED, f"User:{user}", "*", operation, ALLOW)


def options(kafka: ApacheKafka, user: str) -> dict[str, Any]:
    given = {
        "bootstrap_servers": kafka.addresses["PLAIN"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": PASSWORD,
        "max_block_ms": 20_000,
    }
    return job_options(given, transactional=True)


def deliver(kafka: ApacheKafka, user: str, topic: str, delivery: str) -> None:
    TopicAdmin(kafka.bootstrap_servers).create(topic, 1)
    shard = Shard(prefix=PREFIX, job=topic, number=0, batch=0, shards=1, topic=topic)

    def send_rows(producer: Any) -> None:
        for row in ROWS:
            producer.send(topic, row)

    with attempt(shard, options(kafka, user), send_rows) as run:
        if delivery == "exactly_once":
            run.follow(protocol.deliver(run.shard, run.patience))
            return
        prepared = run.follow(atomic.prepare(run.shard, 0, run.patience)).prepared
        assert prepared is not None
    made = BatchEnd(of=shard, shards=1, prepared=(prepared,), options=options(kafka, user))
    made.commit()


def causes(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__


@pytest.mark.parametrize("delivery", ["exactly_once", "atomic"])
def test_the_documented_permissions_are_sufficient(kafka: ApacheKafka, delivery: str) -> None:
    topic = f"allowed-{delivery}"
    deliver(kafka, "everything", topic, delivery)
    assert committed(kafka.bootstrap_servers, topic, 1) == ROWS


@pytest.mark.parametrize("user", [user for user, lacked in USERS.items() if lacked])
@pytest.mark.parametrize("delivery", ["exactly_once", "atomic"])
def test_a_missing_permission_fails_at_once_and_is_named(
    kafka: ApacheKafka, delivery: str, user: str
) -> None:
    topic = f"allowed-{delivery}-{user}"
    with pytest.raises(KprodError) as refused:
        deliver(kafka, user, topic, delivery)
    assert is_fatal(refused.value)
    kind = GRANTS[USERS[user]][0].name
    assert f"{kind}_AUTHORIZATION_FAILED" in "; ".join(map(str, causes(refused.value)))
    assert committed(kafka.bootstrap_servers, topic, 1) == []
