"""The kafka-python API: errors, options, calls and futures, with that package and without."""

from __future__ import annotations

import inspect
import logging
import math
import pickle
import subprocess
import sys
import warnings
from typing import Any

import pytest

from kprod import KafkaProducer, RecordMetadata
from kprod import errors as native
from kprod.config import OPTIONS, ProducerConfig
from kprod.config.reading import concealed
from kprod.errors import ConfigError
from kprod.kafka import Future, errors
from kprod.kafka.errors import KafkaConfigurationError, KafkaTimeoutError, translated
from kprod.kafka.options import DEFAULT_CONFIG, PROVIDERS, Config, by_their_names, native_options
from kprod.types import Persisted
from kprod_ext.futures import FutureRecordMetadata

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of kafka-python, on import
    import kafka
    from kafka import errors as original_errors
    from kafka.partitioner import DefaultPartitioner, Partitioner
    from kafka.producer.future import FutureRecordMetadata as OriginalFuture
    from kafka.producer.future import RecordMetadata as OriginalMetadata


ORIGINAL_ERRORS = {
    name: found
    for name, found in vars(original_errors).items()
    if isinstance(found, type) and issubclass(found, original_errors.KafkaError)
}


def test_every_error_class_has_a_subclass_with_the_same_hierarchy() -> None:
    for name, original in ORIGINAL_ERRORS.items():
        ours = getattr(errors, name)
        assert issubclass(ours, original)
        assert issubclass(ours, native.KafkaError)
        for attribute in ("errno", "message", "retriable", "invalid_metadata"):
            assert getattr(ours, attribute, None) == getattr(original, attribute, None)
        above = [other for other in ORIGINAL_ERRORS if issubclass(original, ORIGINAL_ERRORS[other])]
        assert all(issubclass(ours, getattr(errors, other)) for other in above)


def test_every_error_code_has_a_class() -> None:
    assert errors.for_code(3) is errors.UnknownTopicOrPartitionError
    assert set(original_errors.kafka_errors) - {None} <= set(errors.kafka_errors)
    unknown = errors.for_code(999)
    assert (unknown.errno, issubclass(unknown, original_errors.UnknownError)) == (999, True)


def test_errors_have_the_text_and_equality_of_kafka_python() -> None:
    for kind in ("KafkaTimeoutError", "UnknownTopicOrPartitionError", "KafkaError"):
        for args in ((), ("why",)):
            assert str(getattr(errors, kind)(*args)) == str(getattr(original_errors, kind)(*args))
    assert errors.KafkaTimeoutError("a") == errors.KafkaTimeoutError("a")
    assert errors.KafkaTimeoutError("a") != errors.KafkaError("a")
    assert len({errors.KafkaError("a"), errors.KafkaError("a")}) == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (native.BrokerError(3, "t"), errors.UnknownTopicOrPartitionError),
        (native.BrokerError(29), errors.TopicAuthorizationFailedError),
        (native.BrokerError(999), errors.UnknownError),
        (native.RecordTooLargeError("x"), errors.MessageSizeTooLargeError),
        (native.BufferFullError("x"), errors.KafkaTimeoutError),
        (native.DeliveryTimeoutError("x"), errors.KafkaTimeoutError),
        (native.ConnectionLost("x"), errors.KafkaConnectionError),
        (native.ProtocolError("x"), errors.KafkaProtocolError),
        (native.ConfigError("x"), errors.KafkaConfigurationError),
        (native.ProducerClosedError("x"), errors.IllegalStateError),
        (native.InvalidBatchError("x"), errors.InvalidRecordError),
        (native.KprodError("x"), errors.KafkaError),
        (errors.KafkaError("x"), errors.KafkaError),
    ],
)
def test_native_errors_are_translated(error: native.KprodError, expected: type[Exception]) -> None:
    error.persisted = Persisted.MAYBE
    result = translated(error)
    assert type(result) is expected
    assert result is error or result.__cause__ is error
    assert getattr(result, "persisted", None) is Persisted.MAYBE
    again = pickle.loads(pickle.dumps(result))
    assert (type(again), again.args) == (type(result), result.args)


def test_unknown_codes_keep_their_number_and_argument_errors_stay() -> None:
    result: Any = translated(native.BrokerError(999, "odd"))
    assert (result.errno, result.message) == (999, "UNKNOWN_ERROR_999")
    assert pickle.loads(pickle.dumps(result)).errno == 999
    for error in (native.RecordTypeError("x"), native.PartitionError("x")):
        assert translated(error) is error


ALONE = """
import sys, types
sys.modules["kafka"] = {fake}
import kprod.kafka.errors as errors
try:
    raise errors.NoBrokersAvailable("nobody")
except errors.KafkaTimeoutError as error:
    print(error)
print(errors.KafkaError.__bases__)
"""


@pytest.mark.parametrize("fake", ["None", "types.ModuleType('kafka')"])
def test_errors_do_not_need_kafka_python(fake: str) -> None:
    """Also if ``kafka`` is an unrelated module of the application."""
    ran = subprocess.run(
        [sys.executable, "-c", ALONE.format(fake=fake)], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == [
        "NoBrokersAvailable: nobody",
        "(<class 'kprod.errors.KprodError'>,)",
    ]


ORIGINAL_DEFAULTS = kafka.KafkaProducer.DEFAULT_CONFIG
OBJECTS = {"partitioner", "selector", "kafka_client"}


def configured(**options: Any) -> ProducerConfig:
    return ProducerConfig.from_options(native_options(by_their_names(options)))


def test_the_defaults_are_those_of_kafka_python() -> None:
    assert DEFAULT_CONFIG.keys() == ORIGINAL_DEFAULTS.keys()
    same = DEFAULT_CONFIG.keys() - OBJECTS
    assert {k: DEFAULT_CONFIG[k] for k in same} == {k: ORIGINAL_DEFAULTS[k] for k in same}


@pytest.mark.parametrize("name", sorted(ORIGINAL_DEFAULTS))
def test_each_default_gives_no_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    if name not in OBJECTS:
        with caplog.at_level(logging.WARNING):
            configured(**{name: DEFAULT_CONFIG[name]})
        assert not caplog.records
    ProducerConfig.from_options({name: ORIGINAL_DEFAULTS[name]})


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        ({"bootstrap_servers": {"b:1", "a:2"}}, "bootstrap_servers", (("a", 2), ("b", 1))),
        ({"bootstrap_servers": "PLAINTEXT://a:1,b"}, "bootstrap_servers", (("a", 1), ("b", 9092))),
        ({"bootstrap_servers": ["plaintext://a:1"]}, "bootstrap_servers", (("a", 1),)),
        ({"linger_ms": 0.5}, "linger_ms", 1),
        ({}, "linger_ms", 0),
        ({"retries": "3"}, "retries", 3),
        ({"delivery_timeout_ms": math.inf}, "delivery_timeout_ms", 2**31 - 1),
        ({"enable_idempotence": None}, "enable_idempotence", False),
        ({"metadata_max_age_ms": -1}, "metadata_max_age_ms", 2**31 - 1),
        ({"connections_max_idle_ms": -1}, "connections_max_idle_ms", 2**31 - 1),
        ({"reconnect_backoff_ms": 60000}, "reconnect_backoff_max_ms", 60000),
        ({"batch_size": 2**26}, "buffer_memory", 2**26),
        ({"batch.size": 2**25, "buffer_memory": "33554432"}, "buffer_memory", 2**25),
        ({"proxy_url": "http://h:1", "socks5_proxy": None}, "proxy_url", "http://h:1"),
        ({"profile": "throughput"}, "linger_ms", 50),
        ({"profile": "throughput", "batch_size": 2**26}, "buffer_memory", 2**27),
        ({"ssl_cafile": "x", "ssl_check_hostname": False}, "security_protocol", "PLAINTEXT"),
        ({"sasl_plain_password": "x"}, "security_protocol", "PLAINTEXT"),
    ],
)
def test_lenient_values_of_kafka_python_are_accepted(
    given: dict[str, Any], name: str, expected: object, caplog: pytest.LogCaptureFixture
) -> None:
    idempotence_is_dropped = given == {"enable_idempotence": None}
    with caplog.at_level(logging.WARNING):
        assert getattr(configured(**given), name) == expected
    assert not caplog.records or idempotence_is_dropped


def test_invalid_options_are_refused() -> None:
    """Unknown and duplicate options, and a timeout shorter than a request."""
    with pytest.raises(ConfigError, match="did you mean 'linger_ms'"):
        configured(lingr_ms=3)
    with pytest.raises(ConfigError, match="linger_ms is set twice"):
        configured(**{"linger.ms": 3, "linger_ms": 4})
    with pytest.raises(KafkaConfigurationError, match="default_api_timeout_ms=10 is smaller"):
        configured(default_api_timeout_ms=10)
    both = configured(reconnect_backoff_ms=500, reconnect_backoff_max_ms=100)
    assert both.reconnect_backoff_max_ms == 500


def test_the_repr_of_config_shows_no_password() -> None:
    secret = "-----BEGIN https://user:hunter2@host/"  # every form of a password
    options = {name: secret for name, option in OPTIONS.items() if option.secret}
    config = Config(concealed({**options, "client_id": "me"}), **dict.fromkeys(PROVIDERS, secret))
    shown = f"{config!r} {config}"
    assert "hunter2" not in shown
    assert "'client_id': 'me'" in shown


def test_callbacks_run_in_order_and_at_once_if_already_done() -> None:
    calls: list[object] = []
    future = Future()
    future.add_callback(calls.append).add_callback(lambda extra, v: calls.append((extra, v)), 1)
    future.add_errback(calls.append)
    future.success(7)
    future.add_both(calls.append)
    assert calls == [7, (1, 7), 7]
    assert (future.succeeded(), future.failed(), future.retriable()) == (True, False, False)


def test_an_error_is_passed_to_chained_futures() -> None:
    first, second = Future(), Future()
    first.chain(second)
    first.failure(KafkaTimeoutError)
    assert second.failed()
    assert second.retriable()
    assert second.exception is first.exception
    with pytest.raises(TypeError):
        Future().failure("text")  # type: ignore[arg-type]


def test_errors_of_callbacks_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> None:
        raise LookupError

    with caplog.at_level(logging.ERROR):
        Future().add_callback(fail).success(1)
    assert len(caplog.records) == 1


NOT_PROVIDED = {"success", "failure", "rebind", "args", "error_on_callbacks"}
"""Members of kafka-python's futures for its own sender and tests."""


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_futures_metadata_and_producers_have_all_public_names() -> None:
    assert public(OriginalFuture) - public(FutureRecordMetadata) == NOT_PROVIDED
    assert RecordMetadata._fields == OriginalMetadata._fields
    missing = public(kafka.KafkaProducer) - public(KafkaProducer)
    assert missing == {"DEFAULT_CONFIG", "DEPRECATED_CONFIGS", "max_usable_produce_magic"}


@pytest.mark.parametrize("name", ["send", "flush", "partitions_for", "bootstrap_connected"])
def test_methods_have_the_arguments_of_kafka_python(name: str) -> None:
    original, ours = (
        [(found.name, found.default, found.kind) for found in parameters(kind, name)]
        for kind in (kafka.KafkaProducer, KafkaProducer)
    )
    assert ours[: len(original)] == original
    assert all(default is None for _, default, _ in ours[len(original) :])  # kprod's additions


def parameters(kind: type, name: str) -> list[inspect.Parameter]:
    """All but ``self``, which has no name in a compiled method."""
    return list(inspect.signature(getattr(kind, name)).parameters.values())[1:]


class Own(Partitioner):  # type: ignore[misc]
    """A partitioner in the form of kafka-python 3."""

    def partition(self, *_: Any) -> int:
        return 0


def test_the_default_partitioner_is_recognised_and_custom_classes_refused() -> None:
    config = ProducerConfig.from_options({"partitioner": DefaultPartitioner()})
    assert config.partitioner == "default"
    with pytest.raises(ConfigError, match=r"partition\(topic, key, \.\.\.\).*pass a callable"):
        ProducerConfig.from_options({"partitioner": Own()})
