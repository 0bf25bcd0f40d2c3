"""What may be a password is in no error, no log and no repr."""

from __future__ import annotations

import logging
import pickle

import pytest

from kprod import KafkaProducer
from kprod.config import OPTIONS, ProducerConfig
from kprod.config.foreign_options import IGNORED, UNAVAILABLE, UNAVAILABLE_FAMILIES
from kprod.config.reading import from_text
from kprod.errors import ConfigError

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
    """An object of the application's whose repr says more than it should."""

    def __repr__(self) -> str:
        return SECRET

    def __call__(self, value: object) -> bytes:
        return b""

    def on_send(self, record: object) -> object:
        return record


def what_is_told_of(name: str, caplog: pytest.LogCaptureFixture) -> str:
    """In errors and logs, of an option whose value is SECRET."""
    told = ""
    with caplog.at_level(logging.DEBUG):
        try:
            ProducerConfig.from_options({name: SECRET})
        except ConfigError as error:
            told = f"{error} {error!r} {pickle.dumps(error)!r}"
    return told + caplog.text


@pytest.mark.parametrize(("option", "name"), [*((name, name) for name in FOREIGN), *SECRETS])
def test_the_value_of_a_secret_or_foreign_option_is_never_shown(
    option: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    told = what_is_told_of(name, caplog)
    assert option in told
    assert SECRET not in told


def test_a_configuration_that_has_secrets_goes_into_no_pickle() -> None:
    config = ProducerConfig.from_options(
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "user",
            "sasl_plain_password": SECRET,
        }
    )
    assert SECRET not in repr(config)
    with pytest.raises(TypeError, match="sasl_plain_password was given as text"):
        pickle.dumps(config)


def test_what_is_plugged_in_is_named_by_its_type() -> None:
    config = ProducerConfig.from_options(
        {"value_serializer": Plugged(), "key_serializer": Plugged(), "interceptors": [Plugged()]}
    )
    assert SECRET not in repr(config)
    assert repr(config).count("test_secrets.Plugged") == 3


def test_a_producer_tells_its_name_only(caplog: pytest.LogCaptureFixture) -> None:
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
        ("sasl.password", "0042", "0042"),
        ("sasl.plain.password", "true", "true"),
        ("client.id", "7", "7"),
        ("transactional_id", "7", "7"),
        ("linger.ms", "7", 7),
        ("enable_idempotence", "False", False),
        ("acks", "1", 1),
        ("acks", "all", "all"),
        ("ssl.endpoint.identification.algorithm", "none", "none"),
    ],
)
def test_a_text_is_a_number_only_where_one_is_wanted(name: str, text: str, value: object) -> None:
    """In files, on command lines and in Spark everything is text, and a password may be digits."""
    found = from_text(name, text)
    assert (type(found), found) == (type(value), value)


def test_a_mistyped_name_is_put_right() -> None:
    with pytest.raises(ConfigError, match="did you mean 'sasl_plain_password'"):
        ProducerConfig.from_options({"sasl_plain_pasword": SECRET})
    with pytest.raises(
        ConfigError, match=r"configured with sasl_mechanism and the options it needs$"
    ):
        ProducerConfig.from_options({"sasl_login_class": "x"})
