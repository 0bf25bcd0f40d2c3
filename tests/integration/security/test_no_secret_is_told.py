"""Whatever is public and takes a secret tells it nowhere: made or called wrongly, and used"""

from __future__ import annotations

import asyncio
import base64
import copy
import gc
import importlib
import inspect
import logging
import pickle
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from pprint import pformat
from types import TracebackType
from typing import Any

import pytest
from pyspark.sql.types import StructType

import kprod
from kprod import KafkaProducer
from kprod.admin import (
    committed_offsets,
    create_topic,
    described_transaction,
    end_offsets,
    open_transactions,
    read_topic,
)
from kprod.aio import AIOKafkaProducer
from kprod.aio import Producer as AsyncProducer
from kprod.config import OPTIONS, ProducerConfig
from kprod.confluent import AIOProducer, Producer, SerializingProducer
from kprod.errors import KprodError
from kprod.kafka import KafkaProducer as KafkaPythonProducer
from kprod.observability.instrumentor import KprodInstrumentor
from kprod.schema import (
    AvroSerializer,
    ClientCredentials,
    JsonSchemaSerializer,
    Schema,
    SchemaRegistry,
)
from kprod.security import FromEnvironment, FromFile
from kprod.security.oauthbearer import ProvidedTokens
from kprod.spark import executor_producer, foreach_batch, partition_writer, write
from kprod.spark.data_source import batch_writer, stream_writer
from kprod.spark.executor_producer import process_cache
from kprod.spark.topic_reader import read_options
from kprod.testing import RecordingProducer
from tests.support.certificates import Certificates
from tests.support.guarded_broker import PASSWORD, GuardedBroker
from tests.support.local_proxies import LocalProxy
from tests.support.ports import free_port

CANARY = "canary-5ecret-Zx9"

PACKAGES = (
    *("", "admin", "aio", "broker", "config", "confluent", "kafka"),
    *("observability.instrumentor", "observability.opentelemetry", "observability.prometheus"),
    *("observability.statsd", "schema", "security", "spark", "testing"),
)
SUSPICIOUS = re.compile("pass|secret|token|keyfile|header|url|conf|user|credential|options")
OURS = re.compile(f'File "{re.escape(str(Path(kprod.__file__).parent))}/')
KEY = f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n"
SHAPES: dict[str, Any] = {
    "text": CANARY,
    "text of two lines": f"{CANARY}\n",
    "text that has no bytes": f"{CANARY}\ud800",
    "bytes": CANARY.encode(),
    "list": [CANARY],
    "PEM": KEY,
    "login": f"http://me:{CANARY}@127.0.0.1:{free_port()}",
    "login of no address": f"ftp://me:{CANARY}@127.0.0.1",
    "login with a slash": f"http://me:{CANARY}/@127.0.0.1",
    "query": f"http://127.0.0.1:{free_port()}/?key={CANARY}",
    "bearer": {"Authorization": f"Bearer {CANARY}"},
    "header of two lines": {"x-api-key": f"{CANARY}\nx: y"},
    "callable": lambda: CANARY,
    "callable of bytes": lambda: bytes(CANARY, "ascii"),
    "callable of two lines": lambda: f"{CANARY}\n",
}
FEW = ("text that has no bytes", "bytes", "login of no address")
"""For producers, which conceal all options before anything else."""
NOWHERE = f"127.0.0.1:{free_port()}"
REGISTRY = {"url": f"http://{NOWHERE}", "timeout_ms": 1}
PRODUCER = {"bootstrap_servers": NOWHERE, "security_protocol": "SASL_SSL", "max_block_ms": 200}
LOGIN = {
    **PRODUCER,
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "me",
    "sasl_plain_password": "x",
}
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" {};'
SECRETS = [name for name, option in OPTIONS.items() if option.secret]


def registry(**options: Any) -> Iterator[object]:
    made = SchemaRegistry(**options)
    yield made
    yield from (AvroSerializer(made, '"string"'), JsonSchemaSerializer(made, '{"title": "t"}'))
    yield copy.deepcopy(made)
    yield error_of(lambda: made.register("s", Schema('"string"')))


def issuer(**options: Any) -> Iterator[object]:
    made = ClientCredentials(**options)
    yield made
    yield error_of(made.token)
    yield error_of(ProvidedTokens(made).token)


def provided(provider: Any) -> Iterator[object]:
    made = ProvidedTokens(provider)
    yield made
    yield error_of(made.token)


def in_a_pickle(given: object) -> object:
    """What a pickle of it holds; nothing if there can be none."""
    try:
        return pickle.dumps(given)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        return error


def anywhere(given: object) -> Iterator[object]:
    yield from (repr(given), str(given), f"{given}", pformat(given), in_a_pickle(given))
    yield pformat(vars(given)) if hasattr(given, "__dict__") else ""


def config(**options: Any) -> Iterator[object]:
    made = ProducerConfig.from_options(options)
    yield made
    yield copy.deepcopy(made)


def closing(make: Callable[..., Any]) -> Callable[..., Iterator[object]]:
    """A producer, which sends a record to a broker that is not there."""

    def made(**options: Any) -> Iterator[object]:
        producer = make(**options)
        try:
            yield producer
            yield producer.config
            yield dict(producer.config) if isinstance(producer.config, dict) else None
            yield error_of(lambda: producer.send("t", b"x").get(timeout=1), Exception)
            yield repr(producer.metrics())
        finally:
            with suppress(Exception):  # of a record without an outcome
                producer.close(timeout=0)

    return made


def looking_for_a_broker(**options: Any) -> Iterator[object]:
    yield error_of(lambda: KafkaPythonProducer(bootstrap_timeout_ms=100, **options), Exception)
    yield from closing(KafkaPythonProducer)(**options, api_version=(2, 6))


def confluent(make: Callable[..., Any]) -> Callable[..., Iterator[object]]:
    def made(**options: Any) -> Iterator[object]:
        named = {name.replace("_", "."): value for name, value in options.items()}
        told: list[object] = []
        producer = make({**named, "error_cb": told.append, "message.timeout.ms": 200})
        try:
            yield producer
            report: Any = lambda *outcome: told.extend(outcome)  # noqa: E731
            yield error_of(lambda: producer.produce("t", value=b"x", on_delivery=report), Exception)
            producer.flush(1)
        finally:
            producer.close(0)
        yield from told

    return made


def in_a_loop(make: Callable[..., Any]) -> Callable[..., Iterator[object]]:
    def made(**options: Any) -> Iterator[object]:
        async def run() -> list[object]:
            producer = make(**options)
            said = list(anywhere(producer))
            try:
                await (producer.send if make is AsyncProducer else producer.start)(*args)
            except Exception as error:
                said.append(error)
            await (producer.close(0) if make is AsyncProducer else producer.stop())
            return said

        args = ("t", b"x") if make is AsyncProducer else ()
        yield from asyncio.run(run())

    return made


def in_the_loop_of_confluent(**options: Any) -> Iterator[object]:
    async def run() -> list[object]:
        async with AIOProducer(
            {name.replace("_", "."): value for name, value in options.items()}
        ) as producer:
            return list(anywhere(producer))

    yield from asyncio.run(run())


def instrumented(**options: Any) -> Iterator[object]:
    KprodInstrumentor().instrument()
    try:
        yield from closing(KafkaProducer)(**options)
    finally:
        KprodInstrumentor().uninstrument()


def asking(ask: Callable[..., object]) -> Callable[..., Iterator[object]]:
    """A function with ``options``, of a broker that is not there, or of none with bad options."""

    def asked(**options: Any) -> Iterator[object]:
        yield error_of(lambda: ask(options=options, timeout=0.05))

    return asked


def of_spark(make: Callable[..., object]) -> Callable[..., Iterator[object]]:
    """Its pickle has the secrets, for tasks; and with good options it needs a session."""

    def made(**options: Any) -> Iterator[object]:
        yield repr(make(**options))

    return made


def in_a_task(**options: Any) -> Iterator[object]:
    try:
        with executor_producer(timeout=1, **options) as producer:
            yield error_of(lambda: producer.send("t", b"x"))
    finally:
        process_cache().close()


def of_source(make: Callable[[dict[str, Any]], object]) -> Callable[..., Iterator[object]]:
    def given(**options: Any) -> object:
        texts = {f"kafka.{name.replace('_', '.')}": each for name, each in options.items()}
        return make({"topic": "t", **texts})

    return of_spark(given)


NO_FRAME: Any = object()


def batch_source(options: dict[str, Any]) -> object:
    return batch_writer(options, StructType(), False)


def stream_source(options: dict[str, Any]) -> object:
    return stream_writer(options, StructType())


PRODUCERS = (*SECRETS, "pasword")
CLASSES: dict[Any, tuple[Callable[..., Iterator[object]], dict[str, Any], tuple[str, ...]]] = {
    SchemaRegistry: (
        registry,
        {**REGISTRY, "username": "me"},
        (
            *("url", "headers", "password", "pasword"),
            *("ssl_certfile", "ssl_keyfile", "ssl_password", "token"),
        ),
    ),
    ClientCredentials: (
        issuer,
        {"url": f"http://{NOWHERE}", "client_id": "me", "secret": "s", "timeout": 1},
        ("url", "secret"),
    ),
    ProvidedTokens: (provided, {}, ("provider",)),
    ProducerConfig: (config, LOGIN, PRODUCERS),
    KafkaProducer: (closing(KafkaProducer), LOGIN, PRODUCERS),
    RecordingProducer: (closing(RecordingProducer), LOGIN, PRODUCERS),
    KafkaPythonProducer: (looking_for_a_broker, LOGIN, PRODUCERS),
    AsyncProducer: (in_a_loop(AsyncProducer), LOGIN, PRODUCERS),
    AIOKafkaProducer: (in_a_loop(AIOKafkaProducer), LOGIN, PRODUCERS),
    Producer: (confluent(Producer), LOGIN, PRODUCERS),
    SerializingProducer: (confluent(SerializingProducer), LOGIN, PRODUCERS),
    AIOProducer: (in_the_loop_of_confluent, LOGIN, PRODUCERS),
    KprodInstrumentor: (instrumented, LOGIN, PRODUCERS),
    **{
        ask: (asking(partial(ask, None, *arguments)), LOGIN, PRODUCERS)
        for ask, *arguments in (
            (open_transactions,),
            (described_transaction, "t"),
            (committed_offsets, "g"),
            (end_offsets, "t"),
            (create_topic, "t", 1),
        )
    },
    partition_writer: (of_spark(partition_writer), LOGIN, PRODUCERS),
    write: (of_spark(partial(write, NO_FRAME, "t")), LOGIN, PRODUCERS),
    foreach_batch: (
        of_spark(lambda **options: foreach_batch("t", **options)(NO_FRAME, 0)),
        LOGIN,
        PRODUCERS,
    ),
    executor_producer: (in_a_task, LOGIN, PRODUCERS),
    batch_source: (of_source(batch_source), LOGIN, PRODUCERS),
    stream_source: (of_source(stream_source), LOGIN, PRODUCERS),
    read_options: (of_source(read_options), LOGIN, PRODUCERS),
    read_topic: (asking(lambda **given: next(read_topic(None, "t", **given))), LOGIN, PRODUCERS),
}
FACES = (KafkaProducer, KafkaPythonProducer, Producer, AsyncProducer, AIOKafkaProducer)
"""What the others are made of: these also get options with which they begin to work."""
HARMLESS = {
    "EmbeddedBroker": "settings of logs and groups",
    "Option": "a row of the table of options",
    "RecordMetadata": "sizes",
    "Authentication": "users of a broker for tests; its repr counts them",
    "AvroSerializer": "options of a serializer",
    "JsonSchemaSerializer": "options of a serializer",
    "ProtobufSerializer": "options of a serializer",
    "SchemaSerializer": "options of a serializer",
    "ProducerRecord": "headers of records are data",
    "RecordedRecord": "headers of records are data",
    "PartitionWriter": "made by partition_writer",
    "StoredRecord": "headers of records are data",
    "tls_context": "paths of a broker for tests",
    "Message": "headers of records are data",
}


def error_of(ask: Callable[[], object], kind: type[Exception] = KprodError) -> BaseException | None:
    try:
        ask()
    except kind as error:
        return error
    return None


def shown(error: BaseException) -> str:
    """Its traceback with the locals of kprod's frames, and all that it takes into a pickle."""
    found: BaseException | None = error
    while found is not None:
        found.__traceback__ = from_kprod_on(found.__traceback__)
        found = found.__cause__ or found.__context__
    trace = traceback.TracebackException.from_exception(error, capture_locals=True)
    frames = (chunk for chunk in trace.format() if "File " not in chunk or OURS.search(chunk))
    return "\n".join([repr(error), repr(in_a_pickle(error)), repr(vars(error)), *frames])


def from_kprod_on(trace: TracebackType | None) -> TracebackType | None:
    """Without the frames of this file, which hold the canary and what was said of it."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def half_made(error: BaseException | None) -> Iterator[object]:
    """Objects of kprod's where it was raised: they may have no attributes yet."""
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if (
                str(frame.f_globals.get("__name__")).startswith("kprod.")
                and "self" in frame.f_locals
            ):
                yield frame.f_locals["self"]
        error = error.__cause__ or error.__context__


def asked_for(kind: Any, certificates: Certificates) -> Iterator[tuple[str, dict[str, Any]]]:
    """Options with a canary in one of them, and which that is."""
    make, usual, names = CLASSES[kind]
    shapes = list(SHAPES) if make in (registry, issuer) else list(FEW)
    if make is provided:
        shapes = [shape for shape, value in SHAPES.items() if callable(value)]
    for name in names:
        for shape in shapes:
            if name not in OPTIONS or OPTIONS[name].conceals(SHAPES[shape]):  # no path of a file
                yield f"{name}, {shape}", {**usual, name: SHAPES[shape]}
    if kind in FACES:
        for options in accepted(certificates):
            (name,) = [name for name, value in options.items() if CANARY in str(value)]
            yield name, {**PRODUCER, "max_block_ms": 100, **options}


def accepted(certificates: Certificates) -> Iterator[dict[str, Any]]:
    place, store = f"127.0.0.1:{free_port()}", certificates.client_store()
    plain = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "user"}
    yield {**plain, "sasl_plain_password": CANARY}
    yield {**plain, "sasl_mechanism": "SCRAM-SHA-256", "sasl.password": CANARY}
    yield {"sasl_mechanism": "PLAIN", "sasl_jaas_config": JAAS.format(f'password="{CANARY}"')}
    oauth = {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_client_id": "client",
        "sasl_oauthbearer_client_secret": "s",
        "sasl_oauthbearer_token_endpoint_url": f"https://{place}/token",
    }
    yield {**oauth, "sasl_oauthbearer_client_secret": CANARY}
    for url in (f"https://{place}/token?code={CANARY}", f"https://u:{CANARY}@{place}/"):
        yield {**oauth, "sasl_oauthbearer_token_endpoint_url": url}
    tls = {"security_protocol": "SSL"}
    yield {**tls, "ssl_certfile": KEY}
    yield {**tls, "ssl_certfile": certificates.client, "ssl_keyfile": KEY}
    yield {**tls, "ssl_certfile": certificates.client, "ssl_password": CANARY}
    yield {**tls, "ssl_certfile": store, "ssl_keystore_password": CANARY}
    yield {**tls, "ssl_cafile": store, "ssl_truststore_password": CANARY}
    for scheme in ("socks5", "http"):
        proxy = f"{scheme}://user:{CANARY}@{place}"
        yield {"security_protocol": "PLAINTEXT", "proxy_url": proxy}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_no_public_class_shows_a_secret(
    kind: Any, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    encoded = [base64.b64encode(f"{user}:{CANARY}".encode()).decode() for user in ("me", "")]
    needles = (CANARY, *(each[:-4] for each in encoded))
    wrong = []
    for what, options in asked_for(kind, certificates):
        caplog.clear()
        said: list[str] = []
        with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "kprod"):
            try:
                for made in CLASSES[kind][0](**options):
                    if isinstance(made, BaseException):
                        said.append(shown(made))
                    else:
                        said += [repr(each) for each in anywhere(made)]
            except Exception as error:
                said.append(shown(error))
                said += map(repr, half_made(error))
                logging.getLogger("kprod.test").exception("it failed")
        for text in [*said, caplog.text]:
            ends = [text.find(each) + len(each) for each in needles if each in text]
            wrong += [f"{what}: {text[max(end - 300, 0) : end]}" for end in ends]
    assert not wrong, "\n\n".join(wrong)


def test_every_public_class_with_a_secret_is_checked() -> None:
    found = {}
    for package in PACKAGES:
        module = importlib.import_module(f"kprod.{package}".rstrip("."))
        for name in module.__all__:
            kind = getattr(module, name)
            if inspect.isclass(kind) and issubclass(kind, BaseException):
                continue
            takes = [each for each in parameters(kind) if SUSPICIOUS.search(each)]
            if takes and kind not in CLASSES and name not in HARMLESS:
                found[name] = takes
    assert not found


WRONG: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((), {}),
    ((object(),), {}),
    ((5, 5, 5), {}),
    (({"nonsense": 1},), {}),
    ((), {"nonsense": 1}),
    ((), {"bootstrap_servers": 5}),
    ((), {"acks": "x"}),
)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # some of them can be made
@pytest.mark.parametrize("package", PACKAGES)
def test_what_could_not_be_made_can_be_printed(package: str) -> None:
    """A debugger and a report of errors show ``self``; and it can be dropped."""
    module = importlib.import_module(f"kprod.{package}".rstrip("."))
    for name in module.__all__:
        kind = getattr(module, name)
        if inspect.isclass(kind):
            for arguments, options in WRONG:
                if package == "kafka" and not arguments and not options:
                    continue  # which would look for a broker for half a minute
                make = partial(kind, *arguments, **options)
                assert all(repr(each) for each in half_made(error_of(make, Exception))), name
    gc.collect()


def parameters(kind: Any) -> list[str]:
    try:
        return list(inspect.signature(kind).parameters)
    except (TypeError, ValueError):  # no function, or compiled
        return []


def objects_of_ours() -> Iterator[str]:
    """What each object of kprod says that is there: of its connections, logins and settings."""
    for each in gc.get_objects():
        # A class may have a descriptor of that name, as some compiled ones of others do.
        if str(type(each).__module__).startswith(("kprod.", "kprod_ext.")):
            with suppress(Exception):  # some are half made
                yield repr(each)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
@pytest.mark.parametrize("right", [True, False])
def test_a_login_tells_no_secret(
    right: bool, mechanism: str, guarded: GuardedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    secret = PASSWORD if right else CANARY
    options = guarded.options("mtls", mechanism)
    if mechanism == "OAUTHBEARER":
        secret = options["sasl_oauth_token_provider"]() if right else CANARY
        options["sasl_oauth_token_provider"] = lambda: secret
    else:
        options["sasl_plain_password"] = secret
    with caplog.at_level(logging.DEBUG), KafkaProducer(max_block_ms=20_000, **options) as producer:
        refused = error_of(lambda: producer.send("t", b"x").get(timeout=20))
        said = [*anywhere(producer.config), producer.metrics(), *objects_of_ours()]
    assert right == (refused is None)
    said.append("" if refused is None else shown(refused))
    assert secret not in "\n".join([*map(repr, said), *caplog.messages])


def test_the_password_of_a_proxy_is_not_told(
    guarded: GuardedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    options = {**guarded.options("tls", "PLAIN"), "max_block_ms": 2_000}
    with caplog.at_level(logging.DEBUG), LocalProxy(("user", CANARY)) as proxy:
        for password in (CANARY, f"{CANARY}x"):
            url = f"socks5://user:{password}@127.0.0.1:{proxy.port}"
            with KafkaProducer(**options, proxy_url=url) as producer:
                refused = error_of(lambda: producer.send("t", b"x").get(timeout=20))
                assert (
                    CANARY not in f"{refused} {refused and refused.__cause__!r} {producer.config!r}"
                )
    assert "by the proxy 127.0.0.1" in str(refused)
    assert CANARY not in caplog.text


PASSWORD_OF: dict[str, Any] = {**PRODUCER, "sasl_mechanism": "PLAIN", "sasl_plain_username": "me"}


def test_what_only_leads_to_a_secret_goes_into_a_pickle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is in it, and what is there is looked up where it is loaded."""
    file = tmp_path / "password"
    for source in (FromEnvironment("KPROD_TEST_PASSWORD"), FromFile(file)):
        with KafkaProducer(**PASSWORD_OF, sasl_plain_password=source) as producer:
            pickled = pickle.dumps((producer, producer.config))
        monkeypatch.setenv("KPROD_TEST_PASSWORD", "set later")
        file.write_text("set later\n")
        loaded, config = pickle.loads(pickled)
        with loaded:
            for secret in (config.sasl_plain_password, loaded.config.sasl_plain_password):
                assert secret.reveal() == "set later"


@pytest.mark.parametrize("kind", [KafkaProducer, KafkaPythonProducer])
def test_a_pickle_that_would_hold_a_secret_says_what_to_do(kind: Any) -> None:
    producer = kind(**PASSWORD_OF, api_version=(2, 6), sasl_plain_password=CANARY)
    with pytest.raises(TypeError, match=r"^sasl_plain_password was given as text.*FromFile"):
        pickle.dumps(producer)
    producer.close(timeout=0)


def test_paths_and_plain_urls_are_no_secrets(certificates: Certificates) -> None:
    """They are shown, and go into pickles."""
    options = {"security_protocol": "SSL", "ssl_certfile": certificates.client}
    config = ProducerConfig.from_options({**options, "proxy_url": "socks5://localhost:1080"})
    assert certificates.client in repr(config)
    assert "socks5://localhost:1080" in repr(config)
    assert pickle.loads(pickle.dumps(config)) == config
