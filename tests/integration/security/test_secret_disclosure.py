"""No public class discloses a secret: in reprs, errors, logs or pickles."""

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
FEW_SHAPES = ("text that has no bytes", "bytes", "login of no address")
"""For producers, which conceal all options first."""
UNREACHABLE = f"127.0.0.1:{free_port()}"
REGISTRY = {"url": f"http://{UNREACHABLE}", "timeout_ms": 1}
PRODUCER = {"bootstrap_servers": UNREACHABLE, "security_protocol": "SASL_SSL", "max_block_ms": 200}
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


def token_provider(provider: Any) -> Iterator[object]:
    made = ProvidedTokens(provider)
    yield made
    yield error_of(made.token)


def pickled_form(instance: object) -> object:
    """Its pickle, or the error of pickling."""
    try:
        return pickle.dumps(instance)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        return error


def representations(instance: object) -> Iterator[object]:
    yield from (
        *(repr(instance), str(instance), f"{instance}"),
        *(pformat(instance), pickled_form(instance)),
    )
    yield pformat(vars(instance)) if hasattr(instance, "__dict__") else ""


def config(**options: Any) -> Iterator[object]:
    made = ProducerConfig.from_options(options)
    yield made
    yield copy.deepcopy(made)


def closing(make: Callable[..., Any]) -> Callable[..., Iterator[object]]:
    """A producer that sends a record without a broker."""

    def made(**options: Any) -> Iterator[object]:
        producer = make(**options)
        try:
            yield producer
            yield producer.config
            yield dict(producer.config) if isinstance(producer.config, dict) else None
            yield error_of(lambda: producer.send("t", b"x").get(timeout=1), Exception)
            yield repr(producer.metrics())
        finally:
            with suppress(Exception):  # of an undelivered record
                producer.close(timeout=0)

    return made


def kafka_python(**options: Any) -> Iterator[object]:
    yield error_of(lambda: KafkaPythonProducer(bootstrap_timeout_ms=100, **options), Exception)
    yield from closing(KafkaPythonProducer)(**options, api_version=(2, 6))


def confluent(make: Callable[..., Any]) -> Callable[..., Iterator[object]]:
    def made(**options: Any) -> Iterator[object]:
        named = {name.replace("_", "."): value for name, value in options.items()}
        reported: list[object] = []
        producer = make({**named, "error_cb": reported.append, "message.timeout.ms": 200})
        try:
            yield producer
            report: Any = lambda *outcome: reported.extend(outcome)  # noqa: E731
            yield error_of(lambda: producer.produce("t", value=b"x", on_delivery=report), Exception)
            producer.flush(1)
        finally:
            producer.close(0)
        yield from reported

    return made


def under_asyncio(make: Callable[..., Any]) -> Callable[..., Iterator[object]]:
    def made(**options: Any) -> Iterator[object]:
        async def run() -> list[object]:
            producer = make(**options)
            texts = list(representations(producer))
            try:
                await (producer.send if make is AsyncProducer else producer.start)(*args)
            except Exception as error:
                texts.append(error)
            await (producer.close(0) if make is AsyncProducer else producer.stop())
            return texts

        args = ("t", b"x") if make is AsyncProducer else ()
        yield from asyncio.run(run())

    return made


def confluent_asyncio(**options: Any) -> Iterator[object]:
    async def run() -> list[object]:
        async with AIOProducer(
            {name.replace("_", "."): value for name, value in options.items()}
        ) as producer:
            return list(representations(producer))

    yield from asyncio.run(run())


def instrumented(**options: Any) -> Iterator[object]:
    KprodInstrumentor().instrument()
    try:
        yield from closing(KafkaProducer)(**options)
    finally:
        KprodInstrumentor().uninstrument()


def calling(function: Callable[..., object]) -> Callable[..., Iterator[object]]:
    """A function with ``options``, without a broker or with invalid options."""

    def called(**options: Any) -> Iterator[object]:
        yield error_of(lambda: function(options=options, timeout=0.05))

    return called


def spark_function(make: Callable[..., object]) -> Callable[..., Iterator[object]]:
    """Only the repr: its pickle holds the secrets for tasks, and valid options need a session."""

    def made(**options: Any) -> Iterator[object]:
        yield repr(make(**options))

    return made


def in_a_task(**options: Any) -> Iterator[object]:
    try:
        with executor_producer(timeout=1, **options) as producer:
            yield error_of(lambda: producer.send("t", b"x"))
    finally:
        process_cache().close()


def spark_source(make: Callable[[dict[str, Any]], object]) -> Callable[..., Iterator[object]]:
    def make_source(**options: Any) -> object:
        texts = {f"kafka.{name.replace('_', '.')}": each for name, each in options.items()}
        return make({"topic": "t", **texts})

    return spark_function(make_source)


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
        {"url": f"http://{UNREACHABLE}", "client_id": "me", "secret": "s", "timeout": 1},
        ("url", "secret"),
    ),
    ProvidedTokens: (token_provider, {}, ("provider",)),
    ProducerConfig: (config, LOGIN, PRODUCERS),
    KafkaProducer: (closing(KafkaProducer), LOGIN, PRODUCERS),
    RecordingProducer: (closing(RecordingProducer), LOGIN, PRODUCERS),
    KafkaPythonProducer: (kafka_python, LOGIN, PRODUCERS),
    AsyncProducer: (under_asyncio(AsyncProducer), LOGIN, PRODUCERS),
    AIOKafkaProducer: (under_asyncio(AIOKafkaProducer), LOGIN, PRODUCERS),
    Producer: (confluent(Producer), LOGIN, PRODUCERS),
    SerializingProducer: (confluent(SerializingProducer), LOGIN, PRODUCERS),
    AIOProducer: (confluent_asyncio, LOGIN, PRODUCERS),
    KprodInstrumentor: (instrumented, LOGIN, PRODUCERS),
    **{
        function: (calling(partial(function, None, *arguments)), LOGIN, PRODUCERS)
        for function, *arguments in (
            (open_transactions,),
            (described_transaction, "t"),
            (committed_offsets, "g"),
            (end_offsets, "t"),
            (create_topic, "t", 1),
        )
    },
    partition_writer: (spark_function(partition_writer), LOGIN, PRODUCERS),
    write: (spark_function(partial(write, NO_FRAME, "t")), LOGIN, PRODUCERS),
    foreach_batch: (
        spark_function(lambda **options: foreach_batch("t", **options)(NO_FRAME, 0)),
        LOGIN,
        PRODUCERS,
    ),
    executor_producer: (in_a_task, LOGIN, PRODUCERS),
    batch_source: (spark_source(batch_source), LOGIN, PRODUCERS),
    stream_source: (spark_source(stream_source), LOGIN, PRODUCERS),
    read_options: (spark_source(read_options), LOGIN, PRODUCERS),
    read_topic: (calling(lambda **kwargs: next(read_topic(None, "t", **kwargs))), LOGIN, PRODUCERS),
}
BASE_PRODUCERS = (KafkaProducer, KafkaPythonProducer, Producer, AsyncProducer, AIOKafkaProducer)
"""The others are built on these, which also get valid options."""
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


def error_of(
    function: Callable[[], object], kind: type[Exception] = KprodError
) -> BaseException | None:
    try:
        function()
    except kind as error:
        return error
    return None


def error_text(error: BaseException) -> str:
    """The traceback with the locals of kprod's frames, and the pickle of an error."""
    found: BaseException | None = error
    while found is not None:
        found.__traceback__ = without_own_frames(found.__traceback__)
        found = found.__cause__ or found.__context__
    trace = traceback.TracebackException.from_exception(error, capture_locals=True)
    frames = (chunk for chunk in trace.format() if "File " not in chunk or OURS.search(chunk))
    return "\n".join([repr(error), repr(pickled_form(error)), repr(vars(error)), *frames])


def without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Drop the frames of this file, which hold the canary."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def partly_constructed(error: BaseException | None) -> Iterator[object]:
    """kprod's objects in the traceback, possibly without attributes."""
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if (
                str(frame.f_globals.get("__name__")).startswith("kprod.")
                and "self" in frame.f_locals
            ):
                yield frame.f_locals["self"]
        error = error.__cause__ or error.__context__


def cases(kind: Any, certificates: Certificates) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and options, with a canary in the named one."""
    make, usual, names = CLASSES[kind]
    shapes = list(SHAPES) if make in (registry, issuer) else list(FEW_SHAPES)
    if make is token_provider:
        shapes = [shape for shape, value in SHAPES.items() if callable(value)]
    for name in names:
        for shape in shapes:
            if name not in OPTIONS or OPTIONS[name].conceals(SHAPES[shape]):  # not a file path
                yield f"{name}, {shape}", {**usual, name: SHAPES[shape]}
    if kind in BASE_PRODUCERS:
        for options in accepted(certificates):
            (name,) = [name for name, value in options.items() if CANARY in str(value)]
            yield name, {**PRODUCER, "max_block_ms": 100, **options}


def accepted(certificates: Certificates) -> Iterator[dict[str, Any]]:
    address, store = f"127.0.0.1:{free_port()}", certificates.client_store()
    plain = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "user"}
    yield {**plain, "sasl_plain_password": CANARY}
    yield {**plain, "sasl_mechanism": "SCRAM-SHA-256", "sasl.password": CANARY}
    yield {"sasl_mechanism": "PLAIN", "sasl_jaas_config": JAAS.format(f'password="{CANARY}"')}
    oauth = {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_client_id": "client",
        "sasl_oauthbearer_client_secret": "s",
        "sasl_oauthbearer_token_endpoint_url": f"https://{address}/token",
    }
    yield {**oauth, "sasl_oauthbearer_client_secret": CANARY}
    for url in (f"https://{address}/token?code={CANARY}", f"https://u:{CANARY}@{address}/"):
        yield {**oauth, "sasl_oauthbearer_token_endpoint_url": url}
    tls = {"security_protocol": "SSL"}
    yield {**tls, "ssl_certfile": KEY}
    yield {**tls, "ssl_certfile": certificates.client, "ssl_keyfile": KEY}
    yield {**tls, "ssl_certfile": certificates.client, "ssl_password": CANARY}
    yield {**tls, "ssl_certfile": store, "ssl_keystore_password": CANARY}
    yield {**tls, "ssl_cafile": store, "ssl_truststore_password": CANARY}
    for scheme in ("socks5", "http"):
        proxy = f"{scheme}://user:{CANARY}@{address}"
        yield {"security_protocol": "PLAINTEXT", "proxy_url": proxy}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_no_public_class_shows_a_secret(
    kind: Any, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    encoded = [base64.b64encode(f"{user}:{CANARY}".encode()).decode() for user in ("me", "")]
    needles = (CANARY, *(each[:-4] for each in encoded))
    disclosed = []
    for case, options in cases(kind, certificates):
        caplog.clear()
        texts: list[str] = []
        with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "kprod"):
            try:
                for made in CLASSES[kind][0](**options):
                    if isinstance(made, BaseException):
                        texts.append(error_text(made))
                    else:
                        texts += [repr(each) for each in representations(made)]
            except Exception as error:
                texts.append(error_text(error))
                texts += map(repr, partly_constructed(error))
                logging.getLogger("kprod.test").exception("failed")
        for text in [*texts, caplog.text]:
            ends = [text.find(each) + len(each) for each in needles if each in text]
            disclosed += [f"{case}: {text[max(end - 300, 0) : end]}" for end in ends]
    assert not disclosed, "\n\n".join(disclosed)


def test_every_public_class_that_takes_a_secret_is_checked() -> None:
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


def parameters(kind: Any) -> list[str]:
    try:
        return list(inspect.signature(kind).parameters)
    except (TypeError, ValueError):  # not a function, or compiled
        return []


def reprs_of_kprod_objects() -> Iterator[str]:
    """The repr of every object of kprod in memory."""
    for each in gc.get_objects():
        # Some compiled classes have a descriptor of that name.
        if str(type(each).__module__).startswith(("kprod.", "kprod_ext.")):
            with suppress(Exception):  # some are partly constructed
                yield repr(each)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
@pytest.mark.parametrize("right", [True, False])
def test_a_login_discloses_no_secret(
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
        texts = [*representations(producer.config), producer.metrics(), *reprs_of_kprod_objects()]
    assert right == (refused is None)
    texts.append("" if refused is None else error_text(refused))
    assert secret not in "\n".join([*map(repr, texts), *caplog.messages])


def test_the_password_of_a_proxy_is_not_disclosed(
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


def test_references_to_secrets_are_pickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pickle holds the location; the secret is read where it is loaded."""
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
def test_pickling_a_secret_is_refused_with_a_hint(kind: Any) -> None:
    producer = kind(**PASSWORD_OF, api_version=(2, 6), sasl_plain_password=CANARY)
    with pytest.raises(TypeError, match=r"^sasl_plain_password was given as text.*FromFile"):
        pickle.dumps(producer)
    producer.close(timeout=0)


def test_paths_and_plain_urls_are_not_secrets(certificates: Certificates) -> None:
    """They appear in reprs and pickles."""
    options = {"security_protocol": "SSL", "ssl_certfile": certificates.client}
    config = ProducerConfig.from_options({**options, "proxy_url": "socks5://localhost:1080"})
    assert certificates.client in repr(config)
    assert "socks5://localhost:1080" in repr(config)
    assert pickle.loads(pickle.dumps(config)) == config
