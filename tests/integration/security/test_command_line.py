"""Commands of ``kprod`` against a broker that requires a login."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kprod.cli.app import app
from tests.support.guarded_broker import PASSWORD, GuardedBroker

SECURED = (("plain", "PLAIN"), ("tls", "SCRAM-SHA-512"), ("mtls", "none"))


def properties(guarded: GuardedBroker, tmp_path: Path, protection: str, mechanism: str) -> str:
    """A properties file as Java programs use it."""
    options = guarded.options(protection, mechanism)
    lines = [f"{name.replace('_', '.')}={value}" for name, value in options.items()]
    lines += ["group.id=someone-s", "linger.ms=0"]
    file = tmp_path / "client.properties"
    file.write_text("\n".join(lines))
    return str(file)


def run(*arguments: str, lines: str = "") -> Result:
    return CliRunner().invoke(app, list(arguments), input=lines)


@pytest.mark.parametrize(("protection", "mechanism"), SECURED)
def test_produce_and_consume_work_with_the_same_properties_file(
    guarded: GuardedBroker, tmp_path: Path, protection: str, mechanism: str
) -> None:
    file = properties(guarded, tmp_path, protection, mechanism)
    topic = f"lines-{protection}"
    ran = run("produce", "--topic", topic, "--config", file, "-X", "acks=all", lines="a\nb\n")
    assert ran.exit_code == 0, ran.output
    read = ("consume", "--topic", topic, "--config", file, "--from-beginning", "--until-end")
    ran = run(*read)
    assert ran.exit_code == 0, ran.output
    assert sorted(ran.stdout.split()) == ["a", "b"]


def test_a_wrong_password_is_reported_not_shown(guarded: GuardedBroker, tmp_path: Path) -> None:
    file = properties(guarded, tmp_path, "tls", "PLAIN")
    wrong = ("-X", "sasl_plain_password=another-one")
    for command in ("consume", "demo"):
        ran = run(command, "--topic", "t", "--config", file, *wrong)
        assert ran.exit_code == 1, ran.output
        assert "uthenti" in ran.stderr
        assert PASSWORD not in ran.output
        assert "another-one" not in ran.output
