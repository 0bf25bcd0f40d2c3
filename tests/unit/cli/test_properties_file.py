"""Options in Java's properties format, and references to secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from kprod.cli.client_options import (
    parse_options,
    read_properties,
    reader_options,
    with_config,
)


def test_a_properties_file_of_a_java_producer_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWORD_OF_ALICE", "s3cret=\\")
    secret = tmp_path / "secret"
    secret.write_text("from a file\n")
    file = tmp_path / "client.properties"
    file.write_text(
        "# a comment\n"
        "bootstrap.servers = a:9092,\\\n    b:9092\n"
        "linger.ms: 7\n"
        "enable.idempotence=true\n"
        "key.serializer=org.apache.kafka.common.serialization.StringSerializer\n"
        "sasl.password=${env:PASSWORD_OF_ALICE}\n"
        f"ssl.key.password=${{file:{secret}}}\n"
        "client.id=caf\\u00e9\n"
    )
    assert read_properties(file) == {
        "bootstrap.servers": "a:9092,b:9092",
        "linger.ms": "7",
        "enable.idempotence": "true",
        "sasl.password": "s3cret=\\",
        "ssl.key.password": "from a file",
        "client.id": "café",
    }
    options = with_config(file, {"linger_ms": 9})
    assert options["linger_ms"] == 9
    assert "linger.ms" not in options
    assert options["enable.idempotence"] is True
    options = with_config(file, {"sasl_plain_password": "another"})
    assert "sasl.password" not in options, "another client's spelling is the same option"


def test_a_missing_variable_is_refused_and_a_password_of_digits_is_text(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("sasl.password=${env:NO_SUCH_VARIABLE_HERE}\n")
    with pytest.raises(typer.BadParameter, match="NO_SUCH_VARIABLE_HERE is not set"):
        read_properties(file)
    file.write_text("sasl.password=12345\nlinger.ms=7\n")
    assert with_config(file, {}) == {"sasl.password": "12345", "linger.ms": 7}
    assert parse_options(["sasl_plain_password=12345"], "-X") == {"sasl_plain_password": "12345"}


def test_a_reader_ignores_options_of_other_clients_but_no_unknown_ones(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    lines = "fetch.min.bytes=1\nenable.partition.eof=true\nsession_timeout_ms=9\nacks=1\n"
    lines += "debug=all\ngroup.id=g\nschema.registry.url=http://r:8081\n"
    file.write_text(f"\ufeffbootstrap.servers=a:1\n{lines}", encoding="utf-8")
    assert reader_options(None, file, None) == {"bootstrap_servers": "a:1"}
    file.write_text("bootstap.servers=prod:9092\n")
    with pytest.raises(typer.BadParameter, match=r"bootstap\.servers.*mean 'bootstrap_servers'"):
        reader_options(None, file, None)
