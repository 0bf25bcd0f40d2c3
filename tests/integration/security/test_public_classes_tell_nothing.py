"""Whatever is public and takes a secret shows it nowhere: made or called wrongly, and used"""

from __future__ import annotations

import asyncio
import base64
import copy
import importlib
import inspect
import logging
import re
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
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
from kprod.security.oauthbearer import ProvidedTokens
from kprod.spark import executor_producer, foreach_batch, partition_writer, write
from kprod.spark.data_source import batch_writer, stream_writer
from kprod.spark.executor_producer import process_cache
from kprod.spark.topic_reader import read_options
from kprod.testing import RecordingProducer
from tests.integration.security.test_canary import CANARY
from tests.integration.security.test_faces_tell_nothing import anywhere, in_a_pickle
from tests.support.ports import free_port

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
SECRETS = [name for name, option in OPTIONS.items() if option.secret]


def registry(**options: Any) -> Iterator[object]:
    made = SchemaRegistry(**options)
    yield made
    yield from (
        AvroSerializer(made, '"string"'),
        JsonSchemaSerializer(made, '{"title": "t"}'),
    )
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


def config(**options: Any) -> Iterator[object]:
    yield ProducerConfig.from_options(options)


def closing(make: Callable[..., Any]) -> Callable[..., Iterator[object]]:
    def made(**options: Any) -> Iterator[object]:
        producer = make(**options)
        try:
            yield producer
        finally:
            producer.close()

    return made


def dotted(kind: Any) -> Callable[..., Any]:
    def make(**options: Any) -> Any:
        return kind({name.replace("_", "."): value for name, value in options.items()})

    return make


def in_a_loop(make: Callable[..., Any]) -> Callable[..., Iterator[object]]:
    def made(**options: Any) -> Iterator[object]:
        async def run() -> list[object]:
            producer = make(**options)
            said = list(anywhere(producer))
            await (producer.stop if make is AIOKafkaProducer else producer.close)()
            return said

        yield from asyncio.run(run())

    return made


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
    KafkaPythonProducer: (
        closing(KafkaPythonProducer),
        {**LOGIN, "api_version": (2, 6)},
        PRODUCERS,
    ),
    AsyncProducer: (in_a_loop(AsyncProducer), LOGIN, PRODUCERS),
    AIOKafkaProducer: (in_a_loop(AIOKafkaProducer), LOGIN, PRODUCERS),
    Producer: (closing(dotted(Producer)), LOGIN, PRODUCERS),
    SerializingProducer: (closing(dotted(SerializingProducer)), LOGIN, PRODUCERS),
    AIOProducer: (in_a_loop(dotted(AIOProducer)), LOGIN, PRODUCERS),
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


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_no_public_class_shows_a_secret(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    make, usual, names = CLASSES[kind]
    shapes = list(SHAPES) if make in (registry, issuer) else list(FEW)
    if make is provided:
        shapes = [shape for shape, value in SHAPES.items() if callable(value)]
    encoded = [base64.b64encode(f"{user}:{CANARY}".encode()).decode() for user in ("me", "")]
    needles = (CANARY, *(each[:-4] for each in encoded))
    wrong = []
    for name in names:
        for shape, value in SHAPES.items():
            if shape not in shapes or (name in OPTIONS and not OPTIONS[name].conceals(value)):
                continue  # the path of a file, say
            caplog.clear()
            said: list[str] = []
            with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "kprod"):
                try:
                    for made in make(**{**usual, name: value}):
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
                wrong += [f"{name}, {shape}: {text[max(end - 300, 0) : end]}" for end in ends]
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
                error = error_of(partial(kind, *arguments, **options), Exception)
                assert all(repr(each) for each in half_made(error)), name


def parameters(kind: Any) -> list[str]:
    try:
        return list(inspect.signature(kind).parameters)
    except (TypeError, ValueError):  # no function, or compiled
        return []
