"""Placeholders in options are filled where the producer is made, and say where they looked."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from kprod.errors import ConfigError
from kprod.spark import partition_writer
from kprod.spark.pipeline import Pipeline
from kprod.spark.producer_options import resolved


def test_each_kind_of_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert resolved(options) == {
        "env": "from the environment",
        "file": "from a file",
        "key": 'jaas password="a=b c";',
        "plain": "$ {env} ${other:x}",
        "number": 5,
    }


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KPROD_SECRET", raising=False)
    (tmp_path / "p").write_text("a=1\n")
    for place, complaint in (
        ("${env:KPROD_SECRET}", "KPROD_SECRET is not set"),
        (f"${{file:{tmp_path}/none}}", "cannot read the secret in"),
        (f"${{file:{tmp_path}/p:b}}", "there is no 'b' in"),
    ):
        with pytest.raises(ConfigError, match=complaint):
            resolved({"sasl_plain_password": place})


def test_a_pipeline_shows_nothing_that_may_be_a_secret() -> None:
    secret = {"password": "canary"}
    pipeline = Pipeline(
        topic="t",
        bootstrap_servers="b:1",
        path="p",
        read_options=secret,
        options=secret,
        spark_conf={"spark.hadoop.fs.s3a.secret.key": "canary"},
    )
    assert "canary" not in repr(pipeline)


def test_a_writer_carries_the_place_and_not_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert "canary" not in repr(writer)
    assert "KPROD_SECRET" not in repr(writer)
