"""What the README says of kprod as it is today, as far as a test can look it up."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec

import pytest

from kprod.config.security_options import MECHANISMS
from kprod.config.table import OPTIONS
from tests.architecture.sources import ROOT
from tests.support.apache_kafka.jars import NEWEST, OLDER

README = (ROOT / "README.md").read_text()
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in README.partition("| works | not yet |")[2].splitlines()[2:]
    if line.startswith("|")
]
WORKS = "\n".join(works for works, _ in ROWS)
NOT_YET = "\n".join(lacks for _, lacks in ROWS)
THERE = {
    'format("kprod")': "kprod.spark.data_source",
    "partition_writer": "kprod.spark.partition_writer",
    "Kerberos": "kprod.security.kerberos",
    "embedded broker": "kprod.broker.embedded_broker",
    'delivery="exactly_once"': "kprod.spark.exactly_once.protocol",
    "schema registry": "kprod.schema.registry",
    "OpenTelemetry": "kprod.observability.opentelemetry",
    "StatsD": "kprod.observability.statsd",
}
"""Words of the table, and the module that does it."""


@pytest.mark.parametrize("words", THERE)
def test_what_is_there_is_told_to_work(words: str) -> None:
    assert find_spec(THERE[words]) is not None
    assert words in WORKS


@pytest.mark.parametrize("words", ["the Spark data source", "Kerberos"])
def test_what_is_there_is_not_told_to_lack(words: str) -> None:
    assert words not in NOT_YET


def test_every_way_to_log_in_is_named() -> None:
    shown = {"AWS_MSK_IAM": "MSK IAM", "GSSAPI": "Kerberos"}
    families = {name.partition("-")[0] for name in MECHANISMS}
    assert not [name for name in families if shown.get(name, name) not in WORKS + NOT_YET]


def test_every_codec_is_named() -> None:
    assert isinstance(OPTIONS["compression_type"].kind.expected, str)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        assert codec in OPTIONS["compression_type"].kind.expected
        assert codec in WORKS


def test_the_versions_of_kafka_are_those_of_the_suite() -> None:
    newest, older = (version.rpartition(".")[0] for version in (NEWEST, OLDER))
    assert f"Apache Kafka {newest} and {older}" in README


def test_the_extras_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"pip install '\.\[([a-z,]+)\]'", README)
    assert named
    for extra in ",".join(named).split(","):
        assert extra in extras["optional-dependencies"]


def test_the_pages_it_leads_to_exist() -> None:
    pages = [page for page in re.findall(r"\]\(([^)#]+)", README) if "://" not in page]
    assert len(pages) > 10
    assert not [page for page in pages if not (ROOT / page).exists()]
