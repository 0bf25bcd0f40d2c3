"""A secret in any option, put through any face, can be read nowhere: with luck and without."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from pprint import pformat
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.aio import AIOKafkaProducer
from kprod.aio import Producer as AsyncProducer
from kprod.config import OPTIONS, ProducerConfig
from kprod.confluent import KafkaException, Producer
from kprod.errors import KprodError
from kprod.kafka import KafkaProducer as KafkaPythonProducer
from kprod.security import FromEnvironment, FromFile
from tests.integration.security.test_canary import CANARY
from tests.support.certificates import Certificates
from tests.support.ports import free_port

HERE = Path(__file__).name
PLAIN = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
SCRAM = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}
USER = {"sasl_plain_username": "user"}
TLS = {"security_protocol": "SSL"}
OAUTH = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_client_id": "client",
}
JAAS = "org.apache.kafka.common.security.{} required {};"
ENDPOINT = "sasl_oauthbearer_token_endpoint_url"
SECRET = "sasl_oauthbearer_client_secret"
KEY = f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n"

Face = Callable[[dict[str, Any]], Iterator[object]]


def cases(certificates: Certificates) -> dict[str, list[dict[str, Any]]]:
    """By the name of a secret option: options with a canary in it."""
    issuer = f"https://localhost:{free_port()}/token"
    store = certificates.client_store()
    return {
        "sasl_plain_password": [
            {**PLAIN, **USER, "sasl_plain_password": CANARY},
            {**SCRAM, **USER, "sasl_plain_password": CANARY},
            {**SCRAM, **USER, "sasl.password": CANARY},
            {**PLAIN, "sasl_plain_password": CANARY},  # half a login
            {**PLAIN, **USER, "sasl_plain_password": CANARY.encode()},
            {**PLAIN, **USER, "sasl_plain_pasword": CANARY},
            {**PLAIN, **USER, "password": CANARY},
        ],
        "sasl_jaas_config": [
            {
                **PLAIN,
                "sasl_jaas_config": JAAS.format(
                    "plain.PlainLoginModule", f'username="u" password="{CANARY}"'
                ),
            },
            {**PLAIN, "sasl.jaas.config": f'password="{CANARY}"'},
        ],
        SECRET: [{**OAUTH, ENDPOINT: issuer, SECRET: CANARY}],
        ENDPOINT: [
            {**OAUTH, ENDPOINT: f"{issuer}?code={CANARY}", SECRET: "s"},
            {**OAUTH, ENDPOINT: f"https://u:{CANARY}@localhost:{free_port()}/", SECRET: "s"},
            {**OAUTH, ENDPOINT: f"ftp://u:{CANARY}@localhost/", SECRET: "s"},
        ],
        "ssl_certfile": [{**TLS, "ssl_certfile": KEY}],
        "ssl_keyfile": [{**TLS, "ssl_certfile": certificates.client, "ssl_keyfile": KEY}],
        "ssl_password": [{**TLS, "ssl_certfile": certificates.client, "ssl_password": CANARY}],
        "ssl_keystore_password": [
            {**TLS, "ssl_certfile": store, "ssl_keystore_password": CANARY},
        ],
        "ssl_truststore_password": [
            {**TLS, "ssl_cafile": store, "ssl_truststore_password": CANARY},
        ],
        "proxy_url": [
            {"proxy_url": f"socks5://user:{CANARY}@127.0.0.1:{free_port()}"},
            {"proxy_url": f"http://user:{CANARY}@127.0.0.1:{free_port()}"},
            {"proxy_url": f"ftp://user:{CANARY}@127.0.0.1:1"},
        ],
    }


def in_a_pickle(given: object) -> object:
    """What a pickle of it holds; nothing if there can be none."""
    try:
        return pickle.dumps(given)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        return error


def anywhere(given: object) -> Iterator[object]:
    yield from (repr(given), str(given), f"{given}", pformat(given), in_a_pickle(given))
    yield pformat(vars(given)) if hasattr(given, "__dict__") else ""


def native(options: dict[str, Any]) -> Iterator[object]:
    yield from anywhere(ProducerConfig.from_options(options))
    with KafkaProducer(max_block_ms=300, **options) as producer:
        yield from anywhere(producer)
        yield from anywhere(producer.config)
        yield copy.deepcopy(producer.config)
        try:
            producer.send("t", b"x")
        except KprodError as error:
            yield error
        yield producer.metrics()


def kafka_python(options: dict[str, Any]) -> Iterator[object]:
    try:
        yield KafkaPythonProducer(bootstrap_timeout_ms=300, **options)
    except Exception as error:
        yield error
    producer = KafkaPythonProducer(api_version=(2, 6), max_block_ms=300, **options)
    try:
        yield from anywhere(producer)
        yield from anywhere(producer.config)
        yield from anywhere(dict(producer.config))
        try:
            producer.send("t", b"x").get(timeout=1)
        except Exception as error:
            yield error
        yield producer.metrics()
    finally:
        producer.close(timeout=0)


def confluent(options: dict[str, Any]) -> Iterator[object]:
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    events: list[object] = []
    given = {**dotted, "error_cb": events.append, "message.timeout.ms": 300, "linger.ms": 0}
    producer = Producer(given)
    try:
        yield from anywhere(producer)
        producer.produce("t", b"x", on_delivery=lambda *report: events.extend(report))
        producer.flush(1)
    except KafkaException as error:
        yield error
    finally:
        producer.close(0)
    yield from events


def asyncio_own(options: dict[str, Any]) -> Iterator[object]:
    async def run() -> list[object]:
        producer = AsyncProducer(max_block_ms=300, **options)
        said = list(anywhere(producer))
        try:
            await producer.send("t", b"x")
        except KprodError as error:
            said.append(error)
        await producer.close(0)
        return said

    yield from asyncio.run(run())


def aiokafka(options: dict[str, Any]) -> Iterator[object]:
    async def run() -> list[object]:
        producer = AIOKafkaProducer(request_timeout_ms=300, **options)
        said = list(anywhere(producer))
        try:
            await producer.start()
        except Exception as error:
            said.append(error)
        await producer.stop()
        return said

    yield from asyncio.run(run())


FACES: dict[str, Face] = {
    each.__name__: each for each in (native, kafka_python, confluent, asyncio_own, aiokafka)
}


def told(said: object) -> str:
    """All there is to read of it: of an error its traceback, with the locals of kprod's frames."""
    if not isinstance(said, BaseException):
        return repr(said)
    shown = traceback.TracebackException.from_exception(said, capture_locals=True)
    kept = [chunk for chunk in shown.format() if HERE not in chunk]
    return "\n".join([repr(said), repr(in_a_pickle(said)), *kept])


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.secret])
def test_a_secret_is_told_by_no_face(
    name: str, face: str, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    for options in cases(certificates)[name]:
        said: list[str] = []
        with caplog.at_level(logging.DEBUG), caplog.at_level(logging.DEBUG, "kprod"):
            try:
                given = {"bootstrap_servers": f"127.0.0.1:{free_port()}", **options}
                said += [told(each) for each in FACES[face](given)]
            except Exception as error:  # the options may be wrong
                said.append(told(error))
        found = [text for text in [*said, caplog.text] if CANARY in text]
        assert not found, f"{options.keys()}: {found[0][:3000]}"


def test_what_only_leads_to_a_secret_goes_into_a_pickle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is in it, and what is there is looked up where it is loaded."""
    file = tmp_path / "password"
    for source in (FromEnvironment("KPROD_TEST_PASSWORD"), FromFile(file)):
        options: dict[str, Any] = {**PLAIN, **USER, "sasl_plain_password": source}
        with KafkaProducer(bootstrap_servers=f"127.0.0.1:{free_port()}", **options) as producer:
            pickled = pickle.dumps((producer, producer.config))
        monkeypatch.setenv("KPROD_TEST_PASSWORD", "set later")
        file.write_text("set later\n")
        loaded, config = pickle.loads(pickled)
        with loaded:
            for secret in (config.sasl_plain_password, loaded.config.sasl_plain_password):
                assert secret.reveal() == "set later"


@pytest.mark.parametrize("kind", [KafkaProducer, KafkaPythonProducer])
def test_a_pickle_that_would_hold_a_secret_says_what_to_do(kind: Any) -> None:
    options: dict[str, Any] = {**PLAIN, **USER, "sasl.password": CANARY}
    producer = kind(bootstrap_servers="127.0.0.1:1", api_version=(2, 6), **options)
    with pytest.raises(TypeError, match=r"^sasl_plain_password was given as text.*FromFile"):
        pickle.dumps(producer)
    producer.close(timeout=0)


def test_paths_and_plain_urls_are_no_secrets(certificates: Certificates) -> None:
    """They are shown, and go into pickles."""
    options = {**TLS, "ssl_certfile": certificates.client, "proxy_url": "socks5://localhost:1080"}
    config = ProducerConfig.from_options(options)
    assert certificates.client in repr(config)
    assert "socks5://localhost:1080" in repr(config)
    assert pickle.loads(pickle.dumps(config)) == config
