"""Placeholders for secrets in options are resolved where the producer is made."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import javaproperties
import pytest

from kprod.cli.spark_pipeline import Pipeline
from kprod.config import ProducerConfig
from kprod.config.secret import exposed
from kprod.errors import ConfigError
from kprod.spark import partition_writer
from kprod.spark.executor_producer import producer_options
from kprod.spark.options import resolved


def shown(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: exposed(value) for name, value in options.items()}


def test_placeholders_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPROD_SECRET", "from the environment")
    whole, properties = tmp_path / "whole", tmp_path / "some.properties"
    whole.write_text("from a file\n")
    properties.write_text("# password = commented out\nuser = u\npassword = a=b c\n")
    options = {
        "env": "${env:KPROD_SECRET}",
        "file": f"${{file:{whole}}}",
        "key": f'jaas password="${{file:{properties}:password}}";',
        "plain": "$ {env} ${other:x}",
        "number": 5,
    }
    assert shown(resolved(options)) == {
        "env": "from the environment",
        "file": "from a file",
        "key": 'jaas password="a=b c";',
        "plain": "$ {env} ${other:x}",
        "number": 5,
    }


@pytest.mark.parametrize(
    "text",
    [
        "password=a\\=b\\:c\\\\d\\#e",
        "password : a",
        "password a b ",
        "  password\t=\ta",
        "password\\ x=no\npass\\u0077ord=caf\\u00e9 \\ud83d\\ude00\\t\\q",
        "password=a,\\\n    b,\\\r\n\tc\nother=d",
        "password=a\\\\\nother=d",
        "password=old\r\npassword=new",
        "! password=no\n# password=no \\\npassword=",
        "password",
        "\\\n# password=a\n\n \f\npassword=b\\",
        "=none\npassword==a=b\nurl=\x0b\x85\u2028",
    ],
)
def test_a_properties_file_is_parsed_like_in_java(tmp_path: Path, text: str) -> None:
    file = tmp_path / "some.properties"
    file.write_bytes(text.encode())
    options = {"p": f"${{file:{file}:password}}"}
    assert shown(resolved(options)) == {"p": javaproperties.loads(text)["password"]}


@pytest.mark.parametrize(
    "text", ["user=canary\n", "user=canary\nb=\\uglysecret\n", "user=canary\xff"]
)
def test_an_error_names_the_file_without_its_content(tmp_path: Path, text: str) -> None:
    file = tmp_path / "some.properties"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"some\.properties'") as raised:
        resolved({"p": f"${{file:{file}:password}}"})
    raised.value.__traceback__ = raised.tb.tb_next  # the frame of this test has the text
    error: BaseException | None = raised.value
    while error is not None:
        shown = traceback.TracebackException.from_exception(error, capture_locals=True)
        assert "canary" not in "".join(shown.format())
        assert "ugly" not in "".join(shown.format())
        error = error.__context__


def test_a_missing_secret_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KPROD_SECRET", raising=False)
    (tmp_path / "p").write_text("a=1\n")
    for placeholder, complaint in (
        ("${env:KPROD_SECRET}", "KPROD_SECRET is not set"),
        (f"${{file:{tmp_path}/none}}", "cannot read the secret in"),
        (f"${{file:{tmp_path}/p:b}}", "there is no 'b' in"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            resolved({"sasl_plain_password": placeholder})


def test_the_repr_of_a_pipeline_has_no_secrets() -> None:
    login = {"sasl_plain_username": "u", "sasl_plain_password": "canary"}
    pipeline = Pipeline(
        topic="t",
        bootstrap_servers="b:1",
        path="p",
        read_options={"password": "canary"},
        options={"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", **login},
        spark_conf={"spark.hadoop.fs.s3a.secret.key": "canary"},
    )
    assert "canary" not in repr(pipeline)


@pytest.mark.parametrize(
    ("protocol", "tls"), [("SASL_SSL", {"ssl_cafile": "ca.pem"}), ("SASL_PLAINTEXT", {})]
)
def test_a_jaas_login_may_be_a_placeholder(
    monkeypatch: pytest.MonkeyPatch, protocol: Any, tls: Any
) -> None:
    options: dict[str, Any] = {
        "bootstrap_servers": "b:1",
        "security.protocol": protocol,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "${env:KPROD_SECRET}",
    }
    writer = partition_writer("t", **options, **tls)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    monkeypatch.setenv("KPROD_SECRET", f'{module} required username="u" password="p";')
    config = ProducerConfig.from_options(producer_options(writer.producer.options))
    assert (config.sasl_mechanism, config.sasl_plain_username) == ("SCRAM-SHA-512", "u")
    monkeypatch.setenv("KPROD_SECRET", "no login")
    with pytest.raises(ConfigError, match="sasl_jaas_config: expected"):
        ProducerConfig.from_options(producer_options(writer.producer.options))


def test_a_pickled_writer_has_placeholders_not_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KPROD_SECRET", "canary")
    writer = partition_writer(
        "t",
        bootstrap_servers="${env:KPROD_SECRET}",
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_plain_username="u",
        sasl_plain_password="${env:KPROD_SECRET}",
    )
    assert b"canary" not in pickle.dumps(writer)
    assert b"KPROD_SECRET" in pickle.dumps(writer)
    assert "canary" not in repr(writer)
    assert "KPROD_SECRET" not in repr(writer)
