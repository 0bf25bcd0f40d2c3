"""TLS and SASL options in the spelling of every client; passwords are shown nowhere."""

from __future__ import annotations

import logging
import pickle
import sys
from typing import Any

import pytest

from kprod import KafkaProducer
from kprod.config import OPTIONS, ProducerConfig
from kprod.config.foreign_options import IGNORED, UNAVAILABLE, UNAVAILABLE_FAMILIES
from kprod.config.reading import from_text
from kprod.errors import ConfigError

TLS = {"security_protocol": "SSL"}
JAAS = "org.apache.kafka.common.security.{} required {};"
PLAIN = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
PLAIN_MODULE = "plain.PlainLoginModule"
LOGIN = {"sasl_plain_username": "u", "sasl_plain_password": "p"}
BEARER = "oauthbearer.OAuthBearerLoginModule"
OAUTH = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
URL = "sasl_oauthbearer_token_endpoint_url"
CLIENT = {"sasl_oauthbearer_client_id": "i", "sasl_oauthbearer_client_secret": "s"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ssl_cafile": "f"}, "set security_protocol='SSL'"),
        ({"ssl_certfile": "f"}, "has no effect with security_protocol='PLAINTEXT'"),
        ({"security_protocol": "SASL_PLAINTEXT", "ssl_cafile": "f"}, "set security_protocol='SASL"),
        ({**TLS, "ssl_keyfile": "f"}, "ssl_keyfile is set without ssl_certf"),
        ({**TLS, "ssl_password": "p"}, "ssl_password is set without ssl_cer"),
        ({**TLS, "ssl_truststore_password": "p"}, "without ssl_cafile"),
        ({**TLS, "ssl_minimum_version": "TLSv1"}, "ssl_minimum_version: exp"),
        ({**TLS, "ssl.enabled.protocols": "TLSv1.1"}, "ssl_enabled_protocols"),
        ({**TLS, "ssl_enabled_protocols": 5}, "ssl_enabled_protocols: exp"),
        (
            {**TLS, "ssl_enabled_protocols": "TLSv1.2", "ssl_minimum_version": "TLSv1.3"},
            "ssl_enabled_protocols has no version from ssl_minimum_version='TLSv1.3' on",
        ),
        ({**TLS, "ssl_context": 5}, "ssl_context: expected an ssl.SSLContext"),
        ({"sasl_mechanism": "PLAIN"}, "set security_protocol='SASL_PLAINTEXT'"),
        ({**TLS, **LOGIN}, "set security_protocol='SASL_SSL'"),
        ({"security_protocol": "SASL_SSL"}, "needs sasl_mechanism: PLAIN"),
        (PLAIN, "needs sasl_plain_username and sasl_plain_password"),
        ({**PLAIN, "sasl_plain_username": "u"}, "needs sasl_plain_password"),
        ({**PLAIN, "sasl_plain_password": "p"}, "needs sasl_plain_username"),
        ({**PLAIN, **LOGIN, "sasl_credentials": dict}, "sasl_credentials: expected"),
        ({**PLAIN, **LOGIN, "sasl_oauthbearer_scope": "s"}, "sasl_oauthbearer_scope has no effect"),
        ({**PLAIN, **LOGIN, "sasl_mechanism": "CRAM-MD5"}, "sasl_mechanism: expected"),
        ({**PLAIN, **LOGIN, "sasl_kerberos_name": "n"}, "sasl_kerberos_name has no effect"),
        (OAUTH, "needs sasl_oauth_token_provider, or"),
        ({**OAUTH, URL: "https://h/"}, "set without sasl_oauthbearer_client_id and"),
        ({**OAUTH, "sasl_oauthbearer_client_id": "i"}, "set without sasl_oauthbearer_token"),
        ({**OAUTH, "sasl_oauth_token_provider": "t"}, "sasl_oauth_token_provider: expected"),
        ({**OAUTH, **CLIENT, "sasl_oauth_token_provider": print}, "omit sasl_oauthbearer"),
        *(
            ({**OAUTH, **CLIENT, URL: url}, f"{URL}: expected https://HOST/")
            for url in (
                *("file:///etc/passwd", "http://169.254.169.254/latest", "ftp://h/", "https://"),
                *("h", "http://evil\\@localhost/", "http://localhost\\@evil/"),
                *("http://localhost@evil/", "https://user:secret@h/token"),
                *("http://localhost:80:90/", "http://localhost#@evil/"),
                *("http://localhost%2eevil/", "http://local\thost/", "http://localhost\n/"),
                *("https://h/to ken", "https://h/t\\..\\u", "https://h/\x1b"),
                *("https://h:0/t?key=secret", "https://h:65536/t", "https://h:99999/t"),
            )
        ),
        ({**OAUTH, "sasl_oauthbearer_extensions": "auth=x"}, "sasl_oauthbearer_extensions"),
        ({**OAUTH, "sasl_oauthbearer_extensions": {"a": "b\x01"}}, "sasl_oauthbearer_extensions"),
        ({**PLAIN, "sasl_jaas_config": "nonsense"}, "sasl_jaas_config: expected"),
        ({**PLAIN, "sasl_jaas_config": JAAS.format("scram.ScramLoginModule", "")}, "is for SCRAM"),
        ({**PLAIN, "sasl_jaas_config": JAAS.format("x.OtherModule", "")}, "OtherModule is not one"),
        ({**PLAIN, "sasl_jaas_config": JAAS.format(PLAIN_MODULE, "debug=1")}, "debug"),
        (
            {**PLAIN, **LOGIN, "sasl_jaas_config": JAAS.format(PLAIN_MODULE, 'username="u"')},
            "sasl_plain_username is set twice",
        ),
        (
            {**PLAIN, "sasl_jaas_config": JAAS.format(PLAIN_MODULE, 'username=""')},
            "sasl_jaas_config: username: expected a name",
        ),
        (
            {**OAUTH, "sasl_jaas_config": JAAS.format(BEARER, 'extension_a="b\u00e9"')},
            "sasl_jaas_config: extension_*: 'a' is not an extension that RFC 7628 allows",
        ),
        (
            {
                **OAUTH,
                "sasl_oauth_token_provider": print,
                "sasl_oauthbearer_extensions": {"a": "b"},
                "sasl_jaas_config": JAAS.format(BEARER, 'extension_a="b"'),
            },
            "sasl_oauthbearer_extensions is set twice",
        ),
        (
            {**PLAIN, "sasl_jaas_config": JAAS.format(PLAIN_MODULE, 'extension_a="b"')},
            "PlainLoginModule has no option extension_a",
        ),
        ({"proxy_url": "ftp://h:1"}, "proxy_url: expected socks5://"),
        ({"proxy_url": "socks5://h:1", "transport": "memory"}, "proxy_url needs transport='tcp'"),
        ({"transport": "unix"}, "needs unix_socket_path"),
        ({"unix_socket_path": "/s"}, "needs transport='unix'"),
    ],
    ids=lambda value: None if isinstance(value, str) else "",
)
def test_inconsistent_security_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.from_options(options)
    assert words in str(raised.value)
    assert "secret@" not in str(raised.value)
    assert "=secret" not in str(raised.value)


SASL = {"security.protocol": "SASL_SSL"}
LOGINS: dict[str, dict[str, Any]] = {
    "kafka-python": {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", **LOGIN},
    "librdkafka": {**SASL, "sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": "p"},
    "java": {
        **SASL,
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": JAAS.format(PLAIN_MODULE, "username=\"u\" password='p'"),
    },
}


@pytest.mark.parametrize("options", LOGINS.values(), ids=LOGINS)
def test_a_login_can_be_spelled_as_in_three_clients(options: dict[str, Any]) -> None:
    config = ProducerConfig.from_options(options)
    assert config.sasl_plain_username == "u"
    assert config.sasl_plain_password is not None
    assert config.sasl_plain_password.reveal() == "p"


@pytest.mark.parametrize(
    ("name", "given", "option", "kept"),
    [
        ("ssl.ca.location", "f", "ssl_cafile", "f"),
        ("ssl.keystore.location", "f", "ssl_certfile", "f"),
        ("ssl.crl.location", "f", "ssl_crlfile", "f"),
        ("ssl.cipher.suites", "ALL", "ssl_ciphers", "ALL"),
        ("ssl.endpoint.identification.algorithm", "none", "ssl_check_hostname", False),
        ("ssl.endpoint.identification.algorithm", "", "ssl_check_hostname", False),
        ("ssl.endpoint.identification.algorithm", "https", "ssl_check_hostname", True),
        ("enable.ssl.certificate.verification", True, "enable_ssl_certificate_verification", True),
        # Other options of a Java file are ignored.
        ("ssl.truststore.type", "PEM", "ssl_cafile", None),
        # Obsolete versions are skipped: programs list them for old clusters.
        *(
            ("ssl.enabled.protocols", given, "ssl_enabled_protocols", kept)
            for given, kept in [
                (None, None),
                ("TLSv1.3", ("TLSv1.3",)),
                ("TLSv1.3,TLSv1.2", ("TLSv1.2", "TLSv1.3")),
                (["TLSv1.2"], ("TLSv1.2",)),
                (" tlsv1.2 , TLSv1.1, TLSv1", ("TLSv1.2",)),
            ]
        ),
    ],
)
def test_tls_options_of_other_clients_work(name: str, given: Any, option: str, kept: Any) -> None:
    config = ProducerConfig.from_options({"security_protocol": "SSL", name: given})
    assert getattr(config, option) == kept


def test_token_extensions_in_a_jaas_config() -> None:
    """``extension_NAME`` (KIP-342), as with Confluent Cloud."""
    jaas = JAAS.format(BEARER, 'extension_logicalCluster="lkc-1" extension_poolId="pool-2"')
    options = {**OAUTH, "sasl_oauth_token_provider": print, "sasl.jaas.config": jaas}
    config = ProducerConfig.from_options(options)
    extensions = (("logicalCluster", "lkc-1"), ("poolId", "pool-2"))
    assert config.sasl_oauthbearer_extensions == extensions


def test_only_a_socks_proxy_needs_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "python_socks", None)
    tunnel = ProducerConfig.from_options({"proxy_url": "http://proxy:3128"})
    assert tunnel.proxy_url is not None
    with pytest.raises(ConfigError, match=r"socks5 needs the package kprod\[proxy\]"):
        ProducerConfig.from_options({"proxy_url": "socks5://proxy:1080"})


@pytest.mark.parametrize(
    "url",
    [
        *("http://user:canary/ss@proxy:3128", "http://user:canary?ss@proxy:3128"),
        *("socks5://user:canary#ss@proxy:1080", "socks5://user:12/canary@proxy:1080"),
        *("http://user:can[ary@proxy:3128", "http://proxy:canary", "http://proxy:99999"),
        *("socks5://proxy", "socks5h://:1080", "http://user:canary@"),
    ],
)
def test_an_ambiguous_proxy_url_is_refused(url: str) -> None:
    """The first part of a password with a slash would be parsed and shown as the host."""
    with pytest.raises(ConfigError, match=r"proxy_url: expected socks5://.*%2F") as raised:
        ProducerConfig.from_options({"proxy_url": url})
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        *("http://proxy", "http://proxy:3128/", "http://user:p%2Fw@[::1]:3128"),
        *("socks5://u:p@w@proxy:1080", "socks5h://proxy:1080"),
    ],
)
def test_valid_proxy_urls_are_accepted(url: str) -> None:
    assert ProducerConfig.from_options({"proxy_url": url}).proxy_url is not None


def test_the_token_url_may_have_any_port() -> None:
    ProducerConfig.from_options({**OAUTH, **CLIENT, URL: "https://issuer:65535/t"})


SECRET = "hunter2-hunter2"
FOREIGN = [
    *UNAVAILABLE,
    *IGNORED,
    *(f"{family}x" for family in UNAVAILABLE_FAMILIES),
    "basic.auth.user.info",
    "pasword",
]
SECRETS = [(one.name, name) for one in OPTIONS.values() if one.secret for name in one.spellings]
"""Options and all their spellings."""


class Plugged:
    """An application's object whose repr contains a secret."""

    def __repr__(self) -> str:
        return SECRET

    def __call__(self, value: object) -> bytes:
        return b""

    def on_send(self, record: object) -> object:
        return record


def messages_about(name: str, caplog: pytest.LogCaptureFixture) -> str:
    """Errors and log lines about an option whose value is SECRET."""
    messages = ""
    with caplog.at_level(logging.DEBUG):
        try:
            ProducerConfig.from_options({name: SECRET})
        except ConfigError as error:
            messages = f"{error} {error!r} {pickle.dumps(error)!r}"
    return messages + caplog.text


@pytest.mark.parametrize(("option", "name"), [*((name, name) for name in FOREIGN), *SECRETS])
def test_the_value_of_a_secret_or_foreign_option_is_never_shown(
    option: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    messages = messages_about(name, caplog)
    assert option in messages
    assert SECRET not in messages


def test_the_repr_shows_the_types_of_plugged_objects() -> None:
    config = ProducerConfig.from_options(
        {"value_serializer": Plugged(), "key_serializer": Plugged(), "interceptors": [Plugged()]}
    )
    assert SECRET not in repr(config)
    assert repr(config).count("test_security_options.Plugged") == 3


def test_the_repr_of_a_producer_shows_only_its_client_id(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG),
        KafkaProducer(client_id="quiet", value_serializer=Plugged()) as producer,
    ):
        assert repr(producer) == "<KafkaProducer client_id=quiet>"
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("sasl_plain_password", "12345", "12345"),
        ("sasl.plain.password", "true", "true"),
        ("transactional_id", "7", "7"),
        ("linger.ms", "7", 7),
        ("retries", "inf", float("inf")),
        ("compression_level", "None", None),
        ("client.id", "None", "None"),
        ("acks", "all", "all"),
        ("ssl.endpoint.identification.algorithm", "none", "none"),
    ],
)
def test_text_is_converted_by_the_type_of_the_option(name: str, text: str, value: object) -> None:
    """Files, command lines and Spark give text; a password may consist of digits."""
    found = from_text(name, text)
    assert (type(found), found) == (type(value), value)


def test_a_misspelled_option_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean 'sasl_plain_password'"):
        ProducerConfig.from_options({"sasl_plain_pasword": SECRET})
    with pytest.raises(
        ConfigError, match=r"configured with sasl_mechanism and the options it needs$"
    ):
        ProducerConfig.from_options({"sasl_login_class": "x"})
